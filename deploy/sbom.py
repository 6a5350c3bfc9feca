# SPDX-License-Identifier: Apache-2.0
"""Print the software bill of materials of the image: CycloneDX 1.6, from the pinned requirements.

Versions and hashes come from `requirements.txt`, which is what the image installs; licenses
from the metadata of the packages that are installed here. Nothing is looked up elsewhere and no
time is written, so the same commit always gives the same document.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]+))?", re.MULTILINE)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(text: str) -> Iterator[dict[str, Any]]:
    """Yield the packages of a requirements file, each with the hashes that may be installed."""
    pins = list(_PIN.finditer(text))
    ends = [pin.start() for pin in pins[1:]] + [len(text)]
    for pin, end in zip(pins, ends, strict=True):
        name, version, condition = pin[1], pin[2], (pin[3] or "").strip()
        found: dict[str, Any] = {
            "type": "library",
            "bom-ref": _purl(name, version),
            "name": name,
            "version": version,
            "purl": _purl(name, version),
            "licenses": _licenses(name, version),
            # One for each file that the index has; which one is installed depends on the platform.
            "properties": [
                {"name": "evenkeel:sha256", "value": digest}
                for digest in _HASH.findall(text[pin.start() : end])
            ],
        }
        if condition:
            found["scope"] = "optional"
            found["properties"].append({"name": "evenkeel:only-if", "value": condition})
        yield {key: value for key, value in found.items() if value}


def document(text: str, version: str) -> dict[str, Any]:
    """Return the whole bill of materials."""
    listed = list(components(text))
    own = f"pkg:generic/evenkeel@{version}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "evenkeel",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": listed,
        "dependencies": [{"ref": own, "dependsOn": [each["bom-ref"] for each in listed]}],
    }


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}"


def _licenses(name: str, version: str) -> list[dict[str, Any]]:
    """Return what the installed package says; nothing if another version is installed."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if said["Version"] != version:
        return []
    if expression := said.get("License-Expression"):
        return [{"expression": expression}]
    trove = [each for each in said.get_all("Classifier") or () if each.startswith("License :: ")]
    names = [each.rpartition(" :: ")[2] for each in trove]
    # Older packages put the whole license text into this field.
    if not names and (short := (said.get("License") or "").strip()) and "\n" not in short:
        names = [short]
    return [{"license": {"name": each}} for each in names]


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from common import __version__

    text = (ROOT / "requirements.txt").read_text()
    print(json.dumps(document(text, __version__), indent=2))


if __name__ == "__main__":
    main()
