# SPDX-License-Identifier: Apache-2.0
"""The processes of a control plane, in a file.

The file is replaced atomically after every change, so that `down` in another process, after a
crash or a `kill -9`, knows each process and how it was started.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from controlplane.errors import FolderError
from controlplane.folder import Folder
from controlplane.processes import Process

Argv = tuple[str, ...]


@dataclass(slots=True)
class State:
    """The components of one control plane, in the order of their start."""

    ports: dict[str, int]
    commands: dict[str, Argv] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    cgroups: list[str] = field(default_factory=list)
    """The folders of real nodes in the cgroup hierarchies; all their processes are in them."""

    def alive(self) -> list[str]:
        """Return the components that run."""
        return [name for name, process in self.processes.items() if process.alive]

    def ended(self) -> list[str]:
        """Return the components that were started and no longer run."""
        return [name for name, process in self.processes.items() if not process.alive]


def save(state: State, folder: Folder) -> None:
    """Replace the state file atomically."""
    fresh = folder.state.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(state), indent=2) + "\n")
    fresh.replace(folder.state)


def load(folder: Folder) -> State:
    """Read the state file; a folder without one has no control plane."""
    try:
        raw = json.loads(folder.state.read_text())
        return State(
            ports=raw["ports"],
            commands={name: tuple(argv) for name, argv in raw["commands"].items()},
            processes={name: Process(**fields) for name, fields in raw["processes"].items()},
            cgroups=raw.get("cgroups", []),
        )
    except (FileNotFoundError, NotADirectoryError):
        raise FolderError(f"no control plane in {folder.root}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FolderError(f"{folder.state} is damaged: {error}") from None
