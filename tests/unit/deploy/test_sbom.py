# SPDX-License-Identifier: Apache-2.0
"""The bill of materials lists exactly what the image installs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from common import __version__
from tests.support.repository import ROOT

PINNED = [
    line.split()[0]
    for line in (ROOT / "requirements.txt").read_text().splitlines()
    if "==" in line and not line.startswith((" ", "#"))
]


def printed() -> dict[str, Any]:
    script = str(ROOT / "deploy" / "sbom.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_pinned_requirement_is_listed_with_its_hashes_and_license() -> None:
    bill = printed()
    listed = bill["components"]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == __version__
    assert [f"{each['name']}=={each['version']}" for each in listed] == PINNED
    assert len(PINNED) > 20
    hashes = sum(
        prop["name"] == "evenkeel:sha256" for each in listed for prop in each["properties"]
    )
    assert hashes == (ROOT / "requirements.txt").read_text().count("--hash=sha256:")
    # Only what is not installed on this platform may have none.
    unlicensed = [each["name"] for each in listed if "licenses" not in each]
    assert [each for each in listed if each["name"] in unlicensed and "scope" not in each] == []


def test_everything_that_is_referred_to_is_in_it() -> None:
    bill = printed()
    refs = [each["bom-ref"] for each in bill["components"]]
    assert len(set(refs)) == len(refs)
    [edges] = bill["dependencies"]
    assert edges == {"ref": bill["metadata"]["component"]["bom-ref"], "dependsOn": refs}
