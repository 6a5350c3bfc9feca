# SPDX-License-Identifier: Apache-2.0
"""The image, built as the Dockerfile says, where no engine is at hand.

Each stage is a folder: COPY copies into it, RUN is run by a shell with the paths of the image
led into that folder, and `python` is a fresh virtual environment that stands for the base
image's Python. Nothing else of the environment reaches a step than a builder would let in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.deploy.dockerfile import DOCKERFILE, Instruction, Stage, stages
from tests.support.deploy.image import DEVICES, Image

REPOSITORY: Final = DOCKERFILE.parent
OWN_PATHS: Final = re.compile(r"/(?=(?:opt/evenkeel|app|build|rootfs)\b)")
# How the network is reached, as builders pass it on.
PASSED_ON: Final = re.compile(r"(?i)(?:https?_proxy|no_proxy|(?:pip|ssl)_.+)")


@dataclass(frozen=True, slots=True)
class Built:
    """A finished image: the folders of its last stage."""

    root: Path

    def image(self) -> Image:
        """Return it as something that a container can be started from.

        Its root holds what the image holds, and nothing of this machine but two devices.
        """
        final = stages()[-1]
        # Volumes are mounted into `etc`, so that is not one mount.
        tops = [path for path in self.root.iterdir() if path.name != "etc"]
        paths = [*tops, *(self.root / "etc").iterdir()]
        own = {f"/{path.relative_to(self.root)}": str(path) for path in paths}
        return Image(
            mounts={**{path: path for path in DEVICES}, **own},
            environment=final.environment,
            workdir=final.last("WORKDIR"),
        )


def build_image(folder: Path) -> Built:
    """Follow the Dockerfile, step by step."""
    base = folder / "base"
    subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
    for stage in stages():
        root = folder / (stage.name or "final")
        root.mkdir()
        for instruction in stage.instructions:
            _follow(instruction, stage, root, base)
    return Built(folder / "final")


def _follow(instruction: Instruction, stage: Stage, root: Path, base: Path) -> None:
    if instruction.name == "COPY":
        _copy(instruction.words(), root)
    elif instruction.name == "RUN":
        _run(instruction.text, stage, root, base)


def _copy(words: list[str], root: Path) -> None:
    *options, source, target = words
    stage = next((word.removeprefix("--from=") for word in options), None)
    origin = root.with_name(stage) / source.lstrip("/") if stage else REPOSITORY / source
    destination = root / target.lstrip("/")
    destination.parent.mkdir(parents=True, exist_ok=True)
    if origin.is_dir():
        _copy_folder(origin, destination, linked=stage is not None)
    else:
        shutil.copy2(origin, destination)


def _copy_folder(origin: Path, destination: Path, *, linked: bool) -> None:
    """Copy a folder; what an earlier stage has made need not be there twice."""
    if linked:
        shutil.copytree(
            origin, destination, symlinks=True, copy_function=os.link, dirs_exist_ok=True
        )
    else:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(origin, destination, symlinks=True, ignore=ignore)


def _run(text: str, stage: Stage, root: Path, base: Path) -> None:
    passed = {key: value for key, value in os.environ.items() if PASSED_ON.fullmatch(key)}
    done = subprocess.run(
        ["sh", "-c", OWN_PATHS.sub(f"{root}/", text)],
        cwd=root / "app" if (root / "app").exists() else root,
        env={
            **passed,
            **stage.arguments,
            "PATH": f"{base / 'bin'}:/usr/bin:/bin",
            "HOME": str(root),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"RUN {text}\n{done.stdout}{done.stderr}"
