# SPDX-License-Identifier: Apache-2.0
"""The program to compare with: sigs.k8s.io/descheduler, compiled from its Go module.

The binary goes into the user's cache folder, keyed by the version, so that only the first
run compiles it (about three minutes). It runs one cycle of a policy; the duration of the cycle
comes from the timestamps in its log.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

MODULE: Final = "sigs.k8s.io/descheduler"
VERSION: Final = "v0.36.0"
LOW_PERCENT: Final = 60
TIMEOUT_S: Final = 900.0

# klog: I1116 12:30:01.123456   4711 file.go:42] message
_STAMP: Final = re.compile(r"^[IWEF]\d{4} (\d\d:\d\d:\d\d\.\d{6})\s+\d+ \S+\] (.*)$")
_FIRST: Final = "Resetting pod evictor counters"
_LAST: Final = "Number of evictions/requests"


Policy = dict[str, Any]  # Any: the nesting of its policy file


@dataclass(frozen=True, slots=True)
class Cycle:
    """The result of one cycle."""

    seconds: float
    """From its first to its last log line, without reading the cluster."""
    evictions: int


def available() -> bool:
    """Return whether it is compiled, or could be."""
    return _binary().exists() or shutil.which("go") is not None


def build() -> Path:
    """Return the binary, compiled if it is not in the cache."""
    binary = _binary()
    if not binary.exists():
        print(f"building descheduler {VERSION} (once, about three minutes) …", flush=True)
        binary.parent.mkdir(parents=True, exist_ok=True)
        # In the same folder, so that the rename stays on one file system.
        with tempfile.TemporaryDirectory(prefix="build-", dir=binary.parent) as scratch:
            _compile(Path(scratch)).rename(binary)
    return binary


def run(
    binary: Path, kubeconfig: Path, *, cpu_percent: float, mem_percent: float, dry_run: bool
) -> Cycle:
    """Run one cycle on a cluster, with evictions or as a dry run."""
    policy = low_node_utilization(cpu_percent, mem_percent)
    with _prepared(binary, kubeconfig, policy, dry_run=dry_run) as command:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    return _read(done.stderr)


async def cycle(binary: Path, kubeconfig: Path, policy: Policy) -> Cycle:
    """Run one cycle with evictions; it is stopped if the caller is canceled."""
    with _prepared(binary, kubeconfig, policy, dry_run=False) as command:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            _, log = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return _read(log.decode())


@contextmanager
def _prepared(
    binary: Path, kubeconfig: Path, policy: Policy, *, dry_run: bool
) -> Iterator[list[str]]:
    """Write its policy while the block lasts; yield the command of one cycle."""
    with tempfile.TemporaryDirectory(prefix="evenkeel-descheduler-") as folder:
        file = Path(folder, "policy.yaml")
        file.write_text(yaml.safe_dump(policy))
        yield [
            str(binary),
            f"--kubeconfig={kubeconfig}",
            f"--policy-config-file={file}",
            "--descheduling-interval=0",
            f"--dry-run={str(dry_run).lower()}",
            "--client-connection-qps=1000",
            "--client-connection-burst=2000",
            "--disable-metrics",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--v=3",
        ]


def low_node_utilization(cpu_percent: float, mem_percent: float) -> Policy:
    """Return a policy that brings nodes below targets, on measured usage."""
    name = "LowNodeUtilization"
    args = {
        "thresholds": {"cpu": LOW_PERCENT, "memory": LOW_PERCENT},
        "targetThresholds": {"cpu": cpu_percent, "memory": mem_percent},
        "metricsUtilization": {"source": "KubernetesMetrics"},
    }
    found = policy_of({name: args}, "balance")
    return {**found, "metricsProviders": [{"source": "KubernetesMetrics"}]}


def policy_of(plugins: Mapping[str, Policy], point: str) -> Policy:
    """Return a policy with these plugins, by their arguments, at an extension point."""
    config = [{"name": name, "args": dict(args)} for name, args in plugins.items()]
    profile = {
        "name": "bench",
        "pluginConfig": [{"name": "DefaultEvictor", "args": {"nodeFit": True}}, *config],
        "plugins": {point: {"enabled": list(plugins)}},
    }
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [profile],
    }


def _read(log: str) -> Cycle:
    lines = [found.groups() for found in map(_STAMP.match, log.splitlines()) if found]
    first = next((stamp for stamp, words in lines if _FIRST in words), None)
    last = next(((stamp, words) for stamp, words in lines if _LAST in words), None)
    if first is None or last is None:
        raise RuntimeError("the descheduler did not finish a cycle: " + log[-500:])
    evicted = re.search(r"totalEvicted=(\d+)", last[1])
    return Cycle(
        (_clock(last[0]) - _clock(first)).total_seconds(), int(evicted[1] if evicted else 0)
    )


def _clock(stamp: str) -> datetime:
    return datetime.strptime(stamp, "%H:%M:%S.%f")


def _compile(scratch: Path) -> Path:
    found = _go(["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], Path("/"))
    original = Path(json.loads(found)["Dir"], "go.mod").read_text()
    # Replace directives apply only in the main module; repeat them here.
    replaces = re.findall(r"^replace .*$", original, flags=re.MULTILINE)
    (scratch / "go.mod").write_text(
        "module evenkeel.io/bench\n\ngo 1.26.0\n\ngodebug default=go1.26\n\n"
        f"tool {MODULE}/cmd/descheduler\n\nrequire {MODULE} {VERSION}\n\n" + "\n".join(replaces)
    )
    flags = ["-mod=mod", "-ldflags", "-s -w", "-o", str(scratch / "descheduler")]
    _go(["go", "build", *flags, f"{MODULE}/cmd/descheduler"], scratch)
    return scratch / "descheduler"


def _go(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": ""}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command[:2])}` failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _binary() -> Path:
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("EVENKEEL_CACHE") or user / "evenkeel")
    return cache / "descheduler" / VERSION / "descheduler"
