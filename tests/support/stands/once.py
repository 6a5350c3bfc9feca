# SPDX-License-Identifier: Apache-2.0
"""`python -m rebalancer --once --dry-run` as a process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

from tests.support.repository import DOCS
from tests.support.stands.warm_python import run_program

Json = dict[str, Any]  # Any: the plan as a machine reads it

SCHEMA = DOCS / "plan.schema.json"


async def planned(*arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, what it printed, and what it complained."""
    flags = ("--once", "--dry-run", "--health-port", "0")
    return await run_program("rebalancer", *flags, *arguments)


async def plan_of(*arguments: str) -> Json:
    """Return the plan, which follows the published schema."""
    code, out, err = await planned("--output", "json", *arguments)
    assert code == 0, err
    plan: Json = json.loads(out)
    jsonschema.validate(plan, json.loads(SCHEMA.read_text()))
    return plan


def written(folder: Path, **settings: Any) -> str:
    """Write a configuration; return its path."""
    head = {"apiVersion": "evenkeel.io/v1alpha1", "kind": "RebalancerConfiguration"}
    path = folder / "rebalancer.yaml"
    path.write_text(json.dumps(head | settings))
    return str(path)
