# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile, read: its stages and what each of their instructions says.

Only what the Dockerfile of this repository uses is understood; anything else is an error,
so that what tests show stays true of all of it.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

DOCKERFILE: Final = ROOT / "Dockerfile"
KNOWN: Final = frozenset({"ARG", "CMD", "COPY", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction with its arguments as they are written, on one line."""

    name: str
    text: str

    def words(self) -> list[str]:
        return shlex.split(self.text)


@dataclass(slots=True)
class Stage:
    """What happens from one FROM to the next."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, name: str) -> list[Instruction]:
        return [each for each in self.instructions if each.name == name]

    def last(self, name: str) -> str:
        return self.all(name)[-1].text

    @property
    def arguments(self) -> dict[str, str]:
        """The ARGs with their defaults."""
        return dict(each.text.split("=", 1) for each in self.all("ARG"))

    @property
    def environment(self) -> dict[str, str]:
        """The ENVs, as the processes of the container get them."""
        return dict(word.split("=", 1) for each in self.all("ENV") for word in each.words())

    @property
    def labels(self) -> dict[str, str]:
        """The LABELs, with the ARGs put in."""
        found = dict(word.split("=", 1) for each in self.all("LABEL") for word in each.words())
        return {key: self.filled(value) for key, value in found.items()}

    @property
    def command(self) -> list[str]:
        words: list[str] = json.loads(self.last("CMD"))
        return words

    def filled(self, text: str) -> str:
        """Return a text with the ARGs put in, as the builder would."""
        for name, value in self.arguments.items():
            text = text.replace(f"${{{name}}}", value)
        return text


def stages(path: Path = DOCKERFILE) -> list[Stage]:
    """Return the stages of a Dockerfile; ARGs before the first one are for the base images."""
    found: list[Stage] = []
    bases = Stage("", "")
    for instruction in _instructions(path.read_text()):
        assert instruction.name in KNOWN, f"{instruction.name} is not understood here"
        if instruction.name == "FROM":
            base, _, name = instruction.text.partition(" AS ")
            found.append(Stage(bases.filled(base), name))
        else:
            (found[-1] if found else bases).instructions.append(instruction)
    return found


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    split = [line.split(maxsplit=1) for line in whole.splitlines() if line.strip()]
    return [Instruction(name, rest) for name, rest in split]
