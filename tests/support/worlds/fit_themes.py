# SPDX-License-Identifier: Apache-2.0
"""What random pods can be about: each theme belongs to one family of predicates."""

from __future__ import annotations

from collections.abc import Callable

from simulator import build
from simulator.build import Manifest
from tests.support.worlds.fit_dice import (
    APPS,
    GPU,
    HOSTNAME,
    NAMESPACES,
    RUNTIME,
    ZONE,
    ZONES,
    ClusterCase,
    Dice,
    name_of,
)
from tests.support.worlds.fit_volumes import any_claim, claims, disk, exclusive_and_disk, unusable

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

Theme = Callable[[Dice, ClusterCase, Manifest], None]


def _container(pod: Manifest) -> Manifest:
    found: Manifest = pod["spec"]["containers"][0]
    return found


def _requests(pod: Manifest, **amounts: str) -> None:
    _container(pod)["resources"]["requests"].update(amounts)


def _large(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    dice.choice((_much_cpu, _much_memory, _much_disk, _devices, _pages, _init, _whole, _overhead))(
        dice, case, pod
    )


def _much_cpu(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    _requests(pod, cpu=dice.choice(("1500m", "2500m", "3")))


def _much_memory(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    _requests(pod, memory=dice.choice(("3Gi", "5Gi", "7500Mi")))


def _much_disk(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    _requests(pod, **{"ephemeral-storage": dice.choice(("5Gi", "12Gi"))})


def _devices(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    count = {GPU: str(dice.randint(1, 3))}
    _container(pod)["resources"]["requests"].update(count)
    _container(pod)["resources"]["limits"].update(count)


def _pages(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    pages = {"hugepages-2Mi": dice.choice(("32Mi", "128Mi"))}
    _container(pod)["resources"]["requests"].update(pages)
    _container(pod)["resources"]["limits"].update(pages)


def _init(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    pod["spec"]["initContainers"] = [
        build.container("side", cpu=dice.choice(("300m", "1")), memory="16Mi", sidecar=True),
        build.container("init", cpu=dice.choice(("1", "2")), memory="16Mi"),
    ]


def _whole(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    pod["spec"]["resources"] = {"requests": {"cpu": dice.choice(("1500m", "3")), "memory": "1Gi"}}


def _overhead(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    pod["spec"]["runtimeClassName"] = RUNTIME
    _requests(pod, cpu=dice.choice(("1", "1300m")))


def _ports(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    ports = []
    for number in dice.some((8080, 8443, 9090), 2):
        port: Manifest = {"containerPort": number, "hostPort": number}
        if dice.chance(0.4):
            port["hostIP"] = dice.choice(("10.0.0.1", "10.0.0.2"))
        if dice.chance(0.2):
            port["protocol"] = "UDP"
        ports.append(port)
    _container(pod)["ports"] = ports


def _tolerations(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    kinds: list[Manifest] = [
        {"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"},
        {"key": "team", "operator": "Exists"},
        {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
    ]
    pod["spec"]["tolerations"] = dice.some(kinds, 2)


def _node_selector(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    label, value = dice.choice((("disk", "ssd"), (ZONE, dice.choice(ZONES)), ("disk", "hdd")))
    pod["spec"]["nodeSelector"] = {label: value}


def _node_affinity(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    terms = [{"matchExpressions": _expressions(dice)} for _ in range(dice.randint(1, 2))]
    if dice.chance(0.2):
        name = name_of(dice.choice(case.nodes))
        field = {"key": "metadata.name", "operator": "NotIn", "values": [name]}
        terms[0]["matchFields"] = [field]
    _require_nodes(pod, terms)


def _expressions(dice: Dice) -> list[Manifest]:
    kinds: list[Manifest] = [
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": "disk", "operator": "NotIn", "values": ["hdd"]},
        {"key": ZONE, "operator": "In", "values": dice.some(ZONES, 2)},
        {"key": "size", "operator": "Gt", "values": [str(dice.randint(1, 3))]},
        {"key": "size", "operator": "Lt", "values": [str(dice.randint(3, 5))]},
        {"key": "size", "operator": "Exists"},
        {"key": "disk", "operator": "DoesNotExist"},
    ]
    return dice.some(kinds, 2)


def _node_names(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    names = [name_of(node) for node in dice.sample(case.nodes, dice.randint(2, 6))]
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
        for name in names
    ]
    if dice.chance(0.1):
        other = {"key": "metadata.name", "operator": "In", "values": [f"{case.prefix}-none"]}
        terms[0]["matchFields"].append(other)
    _require_nodes(pod, terms)


def _require_nodes(pod: Manifest, terms: list[Manifest]) -> None:
    affinity = pod["spec"].setdefault("affinity", {})
    affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}


def _affinity(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    terms = [_term(dice) for _ in range(1 if dice.chance(0.9) else 2)]
    _relate(pod, "podAffinity", terms)


def _anti_affinity(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    _relate(pod, "podAntiAffinity", [_term(dice) for _ in range(dice.randint(1, 2))])


def _relate(pod: Manifest, kind: str, terms: list[Manifest]) -> None:
    affinity = pod["spec"].setdefault("affinity", {})
    affinity[kind] = {REQUIRED: terms}


def _term(dice: Dice) -> Manifest:
    term: Manifest = {
        "topologyKey": dice.choice((HOSTNAME, HOSTNAME, ZONE, "disk")),
        "labelSelector": _selector(dice),
    }
    if dice.chance(0.3):
        term["namespaces"] = dice.some(NAMESPACES, 2)
    if dice.chance(0.35):
        term["namespaceSelector"] = _namespace_selector(dice)
    if dice.chance(0.2):
        term["matchLabelKeys"] = ["rev"]
    elif dice.chance(0.15):
        term["mismatchLabelKeys"] = ["rev"]
    return term


def _namespace_selector(dice: Dice) -> Manifest:
    kinds: list[Manifest] = [
        {},
        {"matchLabels": {"team": dice.choice(("a", "b"))}},
        {"matchExpressions": [{"key": "shared", "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
        {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
    ]
    return dice.choice(kinds)


def _selector(dice: Dice) -> Manifest:
    kinds: list[Manifest] = [
        {"matchLabels": {"app": dice.choice(APPS)}},
        {"matchLabels": {"app": dice.choice(APPS)}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": dice.some(APPS, 2)}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [APPS[0]]}]},
    ]
    return {} if dice.chance(0.05) else dice.choice(kinds)


def _spread(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    keys = dice.some((HOSTNAME, ZONE, "disk"), 2)
    pod["spec"]["topologySpreadConstraints"] = [_constraint(dice, key) for key in keys]


def _constraint(dice: Dice, key: str) -> Manifest:
    constraint: Manifest = {
        "maxSkew": dice.randint(1, 2),
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule" if dice.chance(0.9) else "ScheduleAnyway",
        "labelSelector": _selector(dice),
    }
    if dice.chance(0.25) and constraint["whenUnsatisfiable"] == "DoNotSchedule":
        constraint["minDomains"] = dice.randint(1, 5)
    if dice.chance(0.3):
        constraint["nodeAffinityPolicy"] = dice.choice(("Honor", "Ignore"))
    if dice.chance(0.3):
        constraint["nodeTaintsPolicy"] = dice.choice(("Honor", "Ignore"))
    if dice.chance(0.3):
        constraint["matchLabelKeys"] = ["rev"]
    return constraint


def _spread_and_select(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    _spread(dice, case, pod)
    _node_affinity(dice, case, pod)


def _feature(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    _container(pod)["restartPolicy"] = "Never"
    _container(pod)["restartPolicyRules"] = [
        {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    ]


def soften(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    """Give a pod preferences; hard spreading becomes soft."""
    affinity = pod["spec"].setdefault("affinity", {})
    if dice.chance(0.5):
        terms = [_weighted(dice, preference={"matchExpressions": _expressions(dice)})]
        affinity.setdefault("nodeAffinity", {})[PREFERRED] = terms
    for kind in ("podAffinity", "podAntiAffinity"):
        if dice.chance(0.5):
            terms = [_weighted(dice, podAffinityTerm=_term(dice))]
            affinity.setdefault(kind, {})[PREFERRED] = terms
    if dice.chance(0.4):
        _spread(dice, case, pod)
    for constraint in pod["spec"].get("topologySpreadConstraints", ()):
        constraint["whenUnsatisfiable"] = "ScheduleAnyway"
        constraint.pop("minDomains", None)


def _weighted(dice: Dice, **term: Manifest) -> Manifest:
    return {"weight": dice.randint(1, 100), **term}


def _nothing(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    """A pod that asks for little."""


RUNNING: dict[Theme, float] = {
    _large: 0.35,
    _ports: 0.4,
    _anti_affinity: 0.12,
    _affinity: 0.05,
    any_claim: 0.4,
    disk: 0.5,
}
PROMISED: dict[Theme, float] = {
    _large: 0.6,
    _ports: 0.6,
    _anti_affinity: 0.4,
    _affinity: 0.1,
    any_claim: 0.5,
    claims("exclusive"): 0.4,
    disk: 0.5,
}
THEMES: tuple[Theme, ...] = (
    _nothing,
    _large,
    _large,
    _ports,
    _ports,
    _ports,
    _tolerations,
    _node_selector,
    _node_affinity,
    _node_names,
    _affinity,
    _affinity,
    _anti_affinity,
    _anti_affinity,
    _spread,
    _spread,
    _spread_and_select,
    claims("plain"),
    claims("plain2", "zonal"),
    claims("zonal"),
    claims("local"),
    claims("labelled"),
    claims("labelled"),
    claims("exclusive"),
    claims("made"),
    claims("made", "plain"),
    claims("found"),
    claims("found", "second"),
    any_claim,
    disk,
    disk,
    exclusive_and_disk,
    _feature,
    _feature,
    unusable,
)
