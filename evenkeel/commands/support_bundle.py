# SPDX-License-Identifier: Apache-2.0
"""`evenkeel support-bundle`: everything that a bug report needs, as one archive.

With `--anonymize` every name of a node, namespace, pod and workload is replaced by one that says
nothing, the same everywhere, so that the parts still fit together.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from common import __version__
from common.api.contract import INSTALLED_IN
from common.cache.snapshot import Snapshot
from common.config import effective
from common.visible import visible
from evenkeel.commands.status import health_of
from evenkeel.doctor import examine, gather
from evenkeel.errors import UsageError
from evenkeel.output import as_json, emit, plain
from evenkeel.session import Session, reading
from evenkeel.shell import Call, command
from rebalancer.inspection import cluster_document, migrations_document
from rebalancer.report import document

_KEPT: Final = frozenset({"default", "kube-system", "kube-public", "kube-node-lease", INSTALLED_IN})
"""Names that say nothing about whose cluster it is."""
_MOST: Final = 5000
"""Migrations that are packed."""


@click.command("support-bundle", short_help="Pack everything that a bug report needs.")
@click.option("--file", "file", default="evenkeel-support.tar.gz", show_default=True, metavar="F")
@click.option("--anonymize", is_flag=True, help="Replace names of nodes, namespaces and pods.")
@command
async def support_bundle_command(call: Call, *, file: str, anonymize: bool) -> None:
    """Write an archive with status, doctor, nodes, plan, Migrations and configuration.

    It holds no Secrets, no environment variables and no logs. Read it before you send it.
    """
    async with reading(call.target, clock=call.clock, progress=call.progress) as session:
        with call.progress.waiting("Collecting …"):
            parts = await collected(session, call)
            hidden = Names(session.observer.reader.state.snapshot()) if anonymize else None
    if hidden is not None:
        parts = {name: hidden.replaced(value) for name, value in parts.items()}
    texts = {name: as_json(value) for name, value in parts.items()}
    _write(file, texts, call.clock.now())
    answer = {"file": file, "anonymized": anonymize, "parts": sorted(texts)}
    words = f"Written to {visible(file)}: {', '.join(sorted(texts))}."
    emit("SupportBundle", answer, call.output, lambda: Text(words))


async def collected(session: Session, call: Call) -> dict[str, Any]:
    """Return the parts of the bundle by file name."""
    asked = await session.inspect()
    there = session.installation
    known = list(asked.snapshot.migrations.values())
    return {
        "version.json": {"command": __version__, "configurationFrom": there.config_from},
        "status.json": plain(health_of(session, asked)),
        "doctor.json": {"findings": [plain(f) for f in examine(await gather(session))]},
        "nodes.json": plain(cluster_document(asked)),
        "plan.json": msgspec.to_builtins(document(asked.plan)),
        "migrations.json": plain(migrations_document(known, most=_MOST)),
        "configuration.json": effective(session.config),
    }


def _write(file: str, texts: dict[str, str], now_s: float) -> None:
    try:
        with tarfile.open(file, "w:gz") as archive:
            for name, text in sorted(texts.items()):
                body = text.encode()
                info = tarfile.TarInfo(f"evenkeel-support/{name}")
                info.size, info.mtime = len(body), int(now_s)
                archive.addfile(info, io.BytesIO(body))
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror or error}") from None


class Names:
    """Replaces the names of a cluster, each by the same one everywhere."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._instead = dict(_replacements(snapshot))
        # Longest first: the name of a workload is the beginning of those of its pods.
        listed = sorted(self._instead, key=len, reverse=True)
        inside = "|".join(map(re.escape, listed))
        self._pattern = re.compile(rf"(?<![\w-])(?:{inside})(?![\w-])") if listed else None

    def replaced(self, value: Any) -> Any:
        """Return a value with other names in its texts; the keys of objects stay."""
        if isinstance(value, dict):
            return {key: self.replaced(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.replaced(each) for each in value]
        if isinstance(value, str) and self._pattern is not None:
            return self._pattern.sub(lambda found: self._instead[found[0]], value)
        return value


def _replacements(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    pods = {pod.name for pod in snapshot.pods.values()}
    pods |= {m.pod_name for m in snapshot.migrations.values()}
    pods |= {m.replacement_pod for m in snapshot.migrations.values()}
    workloads = {workload.name for workload in snapshot.workloads.values()}
    kinds: tuple[tuple[str, Iterable[str]], ...] = (
        ("node", snapshot.nodes),
        ("namespace", snapshot.namespaces),
        ("workload", workloads),
        ("pod", pods),
        ("budget", {budget.name for budget in snapshot.budgets.values()}),
    )
    taken: set[str] = set()
    for kind, names in kinds:
        for number, name in enumerate(sorted(set(names) - _KEPT - taken - {""}), 1):
            taken.add(name)
            yield name, f"{kind}-{number}"
