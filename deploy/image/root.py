# SPDX-License-Identifier: Apache-2.0
"""Collect what the programs need of the base image: the interpreter and what it loads.

Run by the Dockerfile with the base image's Python, as `python root.py ROOT PACKAGES…`. Everything
that is not named here is not in the image: no shell, no package manager, nothing that installs or
compiles. Libraries are found by the loader itself (`ldd`), so a new release of the base image or
of a wheel needs no change here. Only the standard library: nothing is installed yet.
"""

from __future__ import annotations

import compileall
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

# Parts of the standard library that install, draw, edit or test, with the libraries they load.
LEFT_OUT: Final = (
    *("site-packages", "ensurepip", "venv", "lib2to3", "distutils", "config-*", "__pycache__"),
    *("test", "idlelib", "tkinter", "turtledemo", "turtle.py", "pydoc_data", "curses", "dbm"),
    *("_test*", "_xxtest*", "_ctypes_test*", "_tkinter*", "_curses*", "_dbm*", "_gdbm*"),
    *("readline*", "nis*", "_sqlite3*", "sqlite3", "fetch_macholib*"),
)
# glibc opens these by name, so that no file names them as needed: threads that are cancelled need
# the first, and names of hosts the others (part of libc itself since glibc 2.34).
OPENED_LATER: Final = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2")
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
ZONES: Final = Path("/usr/share/zoneinfo")
LOADER_CACHE: Final = Path("/etc/ld.so.cache")
_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")


def main(root: Path, packages: list[Path]) -> None:
    """Fill a folder that becomes the root of the image."""
    base = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    copied = _copy_interpreter(base, library, root)
    for path in sorted(_needed([*copied, *_shared_objects(packages)], packages)):
        _copy(path, root)
    for path in (CERTIFICATES, LOADER_CACHE):
        if path.exists():
            _copy(path, root)
    if ZONES.exists():
        shutil.copytree(ZONES, _inside(ZONES, root), symlinks=True)
    _link_certificates(root)
    _inside(Path("/etc/nsswitch.conf"), root).write_text("hosts: files dns\n")
    # As for the other packages: bytecode that is never compared with its source.
    compileall.compile_dir(
        _inside(library, root),
        quiet=1,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )


def _copy_interpreter(base: Path, library: Path, root: Path) -> list[Path]:
    """Copy Python and its library; return the originals that load other files."""
    for name in ("python", "python3", f"python3.{sys.version_info.minor}"):
        path = base / "bin" / name
        if path.is_symlink():
            _inside(path, root).symlink_to(path.readlink())
        elif path.exists():
            _copy(path, root)
    shutil.copytree(
        library, _inside(library, root), symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT)
    )
    kept = _shared_objects([_inside(library, root)])
    executable = (base / "bin" / "python3").resolve()
    return [executable, *(Path("/") / path.relative_to(root) for path in kept)]


def _shared_objects(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from folder.rglob("*.so")
        yield from folder.rglob("*.so.*")


def _needed(files: Iterable[Path], packages: Iterable[Path]) -> set[Path]:
    """Return the libraries that files load, but for those that packages bring along."""
    done = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True)
    missing = sorted(set(re.findall(r"\S+ => not found", done.stdout)))
    if missing:
        raise SystemExit(f"libraries that are not there: {', '.join(missing)}")
    found = {Path(name) for name in _LIBRARY.findall(done.stdout)}
    beside = [path.parent for path in found if path.name.startswith("libc.so.")]
    found |= {folder / name for folder in beside for name in OPENED_LATER}
    own = tuple(f"{package}/" for package in packages)
    return {path for path in found if path.exists() and not str(path).startswith(own)}


def _link_certificates(root: Path) -> None:
    """Have OpenSSL find the certificate authorities where it was built to look for them."""
    place = _inside(Path("/usr/lib/ssl/cert.pem"), root)
    place.symlink_to(CERTIFICATES)


def _copy(path: Path, root: Path) -> None:
    """Copy a file, whatever it is linked to, to the path by which it is looked up."""
    shutil.copy2(path, _inside(path, root))


def _inside(path: Path, root: Path) -> Path:
    found = root / path.relative_to("/")
    found.parent.mkdir(parents=True, exist_ok=True)
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
