# SPDX-License-Identifier: Apache-2.0
"""The configuration of both programs in a demo: `simulator/demo.yaml`, and how to describe it.

The file is the only place where a demo differs from the defaults. Every shorter wait is shown
with its default, so that the speed of the demo is not taken for the speed in production.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.config import ExtenderConfiguration, RebalancerConfiguration, load_config
from common.config.durations import Duration
from simulator.process import CommandError

_PACKAGE: Final = Path(__file__).parents[1]
# The wheel carries the shipped files inside the package (`force-include` in pyproject.toml); a
# checkout has them at their own places.
_IN_WHEEL: Final = _PACKAGE / "shipped"
_FILES: Final = _IN_WHEEL if _IN_WHEEL.exists() else _PACKAGE.parent
FILE: Final = _PACKAGE / "demo.yaml"
DEFINITIONS: Final = _FILES / "deploy" / "crds" / "migrations.yaml"
SCHEDULER: Final = _FILES / "scheduler-config.yaml"
NAMESPACE: Final = "evenkeel"
CONFIG_MAP: Final = "evenkeel-rebalancer"
"""As in `deploy/`; its key is the name of the file."""

_SHIPPED_URL: Final = "http://127.0.0.1:8888"
WAITS: Final = {
    "rescheduling_interval": "cycle every",
    "usage_interval": "usage read every",
    "observations": "samples that must agree:",
    "smoothing": "smoothing",
    "revalidate_after": "plans revalidated after",
    "min_pod_age": "minimum pod age",
    "min_node_age": "minimum node age",
    "workload_cooldown": "workload cooldown",
}
"""Configuration keys of the rebalancer that are waits, and how the demo names them."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """Both configurations, and the files that the programs read."""

    extender_file: Path
    rebalancer_file: Path
    extender: ExtenderConfiguration
    rebalancer: RebalancerConfiguration

    @property
    def ceiling(self) -> float:
        """Percent of CPU above which a node is hot."""
        return float(self.rebalancer.cpu_threshold)

    def waits(self) -> str:
        """Return which waits are shorter than by default."""
        default = RebalancerConfiguration()
        named = [
            f"{name} {_amount(getattr(self.rebalancer, key))} ({_amount(getattr(default, key))})"
            for key, name in WAITS.items()
            if getattr(self.rebalancer, key) != getattr(default, key)
        ]
        named[:1] = [text.replace("(", "(default ") for text in named[:1]]
        return f"Shorter waits in this demo: {', '.join(named)}."


def load(folder: Path) -> DemoSettings:
    """Write both configurations of the demo into a folder, one file each, and read them."""
    extender, rebalancer = folder / "extender.yaml", folder / "rebalancer.yaml"
    for path, text in zip((extender, rebalancer), _parts(FILE.read_text()), strict=True):
        path.write_text(text)
    return DemoSettings(
        extender,
        rebalancer,
        load_config(str(extender), ExtenderConfiguration),
        load_config(str(rebalancer), RebalancerConfiguration),
    )


def scheduler_config(folder: Path, extender_port: int) -> Path:
    """Write the scheduler configuration that users copy, with this extender in it."""
    text = _text(SCHEDULER)
    if _SHIPPED_URL not in text:
        raise CommandError(f"{SCHEDULER} does not name the extender {_SHIPPED_URL}")
    path = folder / "scheduler-config.yaml"
    path.write_text(text.replace(_SHIPPED_URL, f"http://127.0.0.1:{extender_port}"))
    return path


def definitions() -> str:
    """Return the Migration CRD as YAML."""
    return _text(DEFINITIONS)


def _parts(text: str) -> list[str]:
    return text.split("\n---\n")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise CommandError(f"{path}: {why}; reinstall Evenkeel or run from a checkout") from None


def _amount(value: Duration | int) -> str:
    return f"{value.seconds:g} s" if isinstance(value, Duration) else str(value)
