"""`python -m rebalancer --once --dry-run` as a process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema

Json = dict[str, Any]  # Any: the plan as a machine reads it

SCHEMA = Path(__file__).parents[2] / "docs" / "plan.schema.json"


async def planned(*arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, what it printed, and what it complained."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rebalancer", "--once", "--dry-run", "--health-port", "0"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


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
