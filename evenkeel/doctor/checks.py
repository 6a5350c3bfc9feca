# SPDX-License-Identifier: Apache-2.0
"""The checks of the doctor: what is wrong, and what fixes it. Pure.

Each check is a small function that yields findings. One that finds nothing wrong yields what it
has seen, so that people know what was checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from common import __version__
from common.api.contract import EXTENDER_LEASE_PREFIX, INSTALL_CRD
from common.api.migrations import MigrationSpec, MigrationStatus
from common.cluster.storage import LeaseRecord
from common.config import Guide, Rules, load_settings_hash
from common.visible import visible
from evenkeel.doctor.evidence import Evidence, Json
from evenkeel.session import CONFIG_MAP
from rebalancer.inspection.health import CLOCKS_S, breaker_rows, view_of
from rebalancer.inspection.words import counted, duration
from rebalancer.pacing.extenders import DEAF_S, ENOUGH_SHOWN, LIVE_S

OLDEST: Final = (1, 30)
"""Since Kubernetes 1.30 there are ValidatingAdmissionPolicies, which the guards need."""


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"
    FAIL = "fail"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was checked."""

    check: str
    level: Level
    words: str
    fix: str = ""


Check = Callable[[Evidence], Iterator[Finding]]


def _ok(check: str, words: str) -> Finding:
    return Finding(check=check, level=Level.OK, words=words)


def _note(check: str, words: str, fix: str = "") -> Finding:
    return Finding(check=check, level=Level.NOTE, words=words, fix=fix)


def _fail(check: str, words: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.FAIL, words=words, fix=fix)


def kubernetes_version(seen: Evidence) -> Iterator[Finding]:
    if seen.version is None:
        yield _note("kubernetes", "the server does not tell its version")
    elif seen.version < OLDEST:
        text = f"Kubernetes {seen.version[0]}.{seen.version[1]} is older than 1.30"
        yield _fail("kubernetes", text, "upgrade the cluster")
    else:
        yield _ok("kubernetes", f"version {seen.version[0]}.{seen.version[1]}")


def crd_installed(seen: Evidence) -> Iterator[Finding]:
    if seen.crd is None and not seen.why_no_crd:
        yield _fail("crd", "the Migration CRD is not installed", INSTALL_CRD)
    elif seen.crd is None:
        yield _note("crd", f"the CRD cannot be read: {seen.why_no_crd}")
    elif missing := sorted(_expected_fields() - _fields_of(seen.crd)):
        text = f"the Migration CRD is of another version: it lacks {', '.join(missing)}"
        yield _fail("crd", text, INSTALL_CRD)
    else:
        yield _ok("crd", "the Migration CRD is installed")


def _expected_fields() -> set[str]:
    spec = {f"spec.{name}" for name in MigrationSpec.__struct_encode_fields__}
    return spec | {f"status.{name}" for name in MigrationStatus.__struct_encode_fields__}


def _fields_of(crd: Json) -> set[str]:
    """Return the fields of spec and status in the schema of v1alpha1."""
    found: set[str] = set()
    for version in crd.get("spec", {}).get("versions", ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        parts = schema.get("properties") or {}
        for part in ("spec", "status"):
            inner = (parts.get(part) or {}).get("properties") or {}
            found |= {f"{part}.{name}" for name in inner}
    return found


def rebalancer_runs(seen: Evidence) -> Iterator[Finding]:
    found = seen.programs.get("rebalancer", ())
    if not found:
        leads = any(finding.level is Level.OK for finding in someone_leads(seen))
        elsewhere = "; one leads that runs outside of it, as in a demo" if leads else ""
        text = f"no rebalancer is installed (namespace {seen.namespace}){elsewhere}"
        yield _fail("rebalancer", text, "install it: docs/deployment.md")
        return
    for program in found:
        yield _running("rebalancer", program)


def _running(check: str, program: Json) -> Finding:
    name = f"{program['kind']} {program['metadata'].get('namespace')}/{program['metadata']['name']}"
    status = program.get("status") or {}
    ready = int(status.get("availableReplicas") or status.get("numberAvailable") or 0)
    if ready:
        return _ok(check, f"{name}: {counted(ready, 'pod')} available")
    where = program["metadata"].get("namespace")
    fix = f"kubectl -n {where} logs -l app.kubernetes.io/component={check}"
    return _fail(check, f"{name} has no available pod", fix)


def extender_runs(seen: Evidence) -> Iterator[Finding]:
    for program in seen.programs.get("extender", ()):
        yield _running("extender", program)


def versions_agree(seen: Evidence) -> Iterator[Finding]:
    tags = {tag for component in ("rebalancer", "extender") for tag in _tags(seen, component)}
    if len(tags) > 1:
        text = f"the programs run different versions: {', '.join(sorted(tags))}"
        yield _fail("versions", text, "deploy both programs with the same image")
    for tag in sorted(tags):
        if tag != __version__ and tag[:1].isdigit():
            text = f"this command is version {__version__}, the cluster runs {tag}"
            yield _note("versions", text, f"use version {tag} of the command")


def _tags(seen: Evidence, component: str) -> set[str]:
    images = set()
    for program in seen.programs.get(component, ()):
        spec: Any = program.get("spec", {}).get("template", {}).get("spec", {})
        names = [c for c in spec.get("containers", ()) if c.get("name") == component]
        images |= {c.get("image", "") for c in names}
    return {image.rpartition(":")[2] for image in images if ":" in image}


def someone_leads(seen: Evidence) -> Iterator[Finding]:
    mine = next((x for x in seen.leases if x.name == CONFIG_MAP), None)
    if mine is None or not mine.holder:
        text = f"no rebalancer leads: there is no Lease {seen.namespace}/{CONFIG_MAP}"
        yield _fail("leader", text, "start the rebalancer, or name its namespace with -n")
        return
    age_s = seen.now_s - (mine.renewed_s or 0.0)
    if age_s > max(mine.duration_s, LIVE_S) + CLOCKS_S:
        text = f"no rebalancer leads: {mine.holder} was last seen {duration(age_s)} ago"
        fix = f"kubectl -n {mine.namespace} get pods -l app.kubernetes.io/component=rebalancer"
        yield _fail("leader", text, fix)
    else:
        yield _ok("leader", f"{mine.holder} leads")


def one_leads(seen: Evidence) -> Iterator[Finding]:
    if len(seen.leaders) > 1:
        text = f"rebalancers lead in several namespaces: {', '.join(seen.leaders)}"
        yield _fail("leader", text, "uninstall all but one: they would move the same pods")


def clocks_agree(seen: Evidence) -> Iterator[Finding]:
    ahead = [x for x in _own_leases(seen) if (x.renewed_s or 0.0) - seen.now_s > CLOCKS_S]
    for lease in ahead:
        by = duration((lease.renewed_s or 0.0) - seen.now_s)
        text = f"the clock of {lease.holder or lease.name} is {by} ahead of this machine's"
        yield _fail("clocks", text, "synchronize the clocks (NTP) of this machine and the nodes")


def _own_leases(seen: Evidence) -> list[LeaseRecord]:
    names = (EXTENDER_LEASE_PREFIX, CONFIG_MAP)
    return [lease for lease in seen.leases if lease.name.startswith(names)]


def extenders_live(seen: Evidence) -> Iterator[Finding]:
    view = view_of(seen.leases, seen.now_s)
    if seen.config.guide is Guide.ADMISSION:
        yield _ok("guide", "the API server sends replacements to their targets (guide: admission)")
    elif not view.live:
        fix = "start the extender, and let kube-scheduler call it: docs/scheduler.md"
        yield _fail("extenders", "no extender is alive: replacements would not be steered", fix)
        return
    known = [m for m in seen.asked.migrations if seen.now_s - m.created_s > DEAF_S]
    newest = max((m.resource_version for m in known if m.open), default=0)
    for replica in view.live:
        if replica.seen is None or replica.seen < newest:
            text = f"extender {replica.name} misses Migrations"
            yield _fail(
                "extenders", text, "restart it, and check its permission to watch migrations"
            )
        else:
            yield _ok("extenders", f"extender {replica.name} is alive")


def schedulers_call(seen: Evidence) -> Iterator[Finding]:
    view = view_of(seen.leases, seen.now_s)
    needed = view.live and seen.config.guide is Guide.EXTENDER
    for name in seen.config.scheduler_names if needed else ():
        share = view.share(name)
        if view.guided(name) is None:
            text = f"{name} has not called an extender"
            fix = (
                f"add the extender to the configuration of {name} (docs/scheduler.md), "
                "then create a pod for it"
            )
            yield _fail("wiring", text, fix)
        elif share is not None and share < ENOUGH_SHOWN:
            text = f"{name} shows the extender only {share:.0%} of the nodes"
            yield _fail("wiring", text, "set percentageOfNodesToScore: 100 for it")
        else:
            yield _ok("wiring", f"{name} calls the extender")


def configurations_agree(seen: Evidence) -> Iterator[Finding]:
    for problem in (*seen.config_problems, *seen.extender_problems):
        yield _fail("configuration", problem, "correct the ConfigMap; the old values stay in force")
    settings, view = load_settings_hash(seen.config), view_of(seen.leases, seen.now_s)
    different = [replica.name for replica in view.live if replica.settings != settings]
    if different:
        text = f"extender {different[0]} has other load settings than the rebalancer"
        fix = "give both configurations the same thresholds, source, freshness and estimates"
        yield _fail("configuration", text, fix)
    elif view.live:
        yield _ok("configuration", "rebalancer and extenders agree on what load is")


def something_is_enabled(seen: Evidence) -> Iterator[Finding]:
    config, rules = seen.config, Rules(seen.config)
    enabled = rules.enabled_anywhere()
    if not enabled:
        text = "no strategy is enabled, so nothing is ever planned"
        yield _fail("strategies", text, "set enabledStrategies")
    elif not any(rules.acts(each) for each in enabled):
        yield _note("strategies", "all strategies only observe", "set mode: act to move pods")
    if seen.pause_words:
        yield _note("strategies", f"moves are paused {seen.pause_words}", "evenkeel resume")
    elif config.paused:
        yield _note("strategies", "moves are paused by the configuration", "set paused: false")


def usage_is_measured(seen: Evidence) -> Iterator[Finding]:
    belief = seen.asked.belief
    if belief.source.without_metrics:
        yield _fail("metrics", f"no metrics: {belief.source.why}", "install metrics-server")
        return
    if seen.trouble or belief.trouble:
        why = belief.trouble or seen.trouble
        yield _fail("metrics", f"usage is not read: {why}", "check metrics-server or Prometheus")
        return
    unknown = [n for n in belief.load.nodes.values() if n.why is not None]
    if unknown:
        text = f"the load of {counted(len(unknown), 'node')} is not known, as {unknown[0].name}"
        yield _fail("metrics", f"{text} ({unknown[0].why})", f"evenkeel why node {unknown[0].name}")
    else:
        yield _ok("metrics", f"all nodes are measured, from {belief.source.asked.value}")


def account_may_act(seen: Evidence) -> Iterator[Finding]:
    if seen.refused:
        text = f"the rebalancer's account may not {', '.join(seen.refused)}"
        yield _fail("permissions", text, "apply deploy/base/rebalancer.yaml, or upgrade the chart")


def guards_are_there(seen: Evidence) -> Iterator[Finding]:
    if seen.policies == 0 and seen.programs.get("rebalancer"):
        text = "no ValidatingAdmissionPolicy of Evenkeel is installed"
        yield _note("guards", text, "docs/security.md explains what they prevent")


def pods_can_be_moved(seen: Evidence) -> Iterator[Finding]:
    """Most pods of a cluster with a second scheduler may still be placed by the other one."""
    names = Counter(pod.shape.scheduler_name for pod in _ordinary(seen))
    guided = sum(names[name] for name in seen.config.scheduler_names)
    total = sum(names.values())
    if total and not guided:
        most, count = names.most_common(1)[0]
        text = f"no pod is placed by {', '.join(seen.config.scheduler_names)}; {count} by {most}"
        fix = f"set schedulerName in a Deployment, or add {most} to schedulerNames once it is wired"
        yield _fail("schedulers", text, fix)
    elif total:
        yield _ok("schedulers", f"{guided} of {counted(total, 'pod')} can be moved for load")


def _ordinary(seen: Evidence) -> Iterator[Any]:
    excluded = set(seen.config.excluded_namespaces) | {seen.namespace}
    for pod in seen.asked.snapshot.pods.values():
        daemon = pod.owner is not None and pod.owner.kind == "DaemonSet"
        if pod.namespace not in excluded and not daemon and not pod.mirror:
            yield pod


def breakers_are_closed(seen: Evidence) -> Iterator[Finding]:
    for row in breaker_rows(seen.asked):
        # What the metrics check says need not be said twice.
        if row.state == "open" and "load of too few nodes" not in row.cause:
            text = f"the breaker is open for {row.purpose}: {row.cause}"
            yield _fail("breaker", text, "evenkeel history shows which moves went wrong")


CHECKS: Final[tuple[Check, ...]] = (
    kubernetes_version,
    crd_installed,
    rebalancer_runs,
    extender_runs,
    versions_agree,
    someone_leads,
    one_leads,
    clocks_agree,
    extenders_live,
    schedulers_call,
    configurations_agree,
    something_is_enabled,
    usage_is_measured,
    account_may_act,
    guards_are_there,
    pods_can_be_moved,
    breakers_are_closed,
)


def examine(seen: Evidence) -> tuple[Finding, ...]:
    """Return all findings, in the order of the checks."""
    return tuple(
        msgspec.structs.replace(finding, words=visible(finding.words), fix=visible(finding.fix))
        for check in CHECKS
        for finding in check(seen)
    )
