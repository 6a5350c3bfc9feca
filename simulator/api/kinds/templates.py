# SPDX-License-Identifier: Apache-2.0
"""The spec of a pod, in a pod or in a template: defaults and validation.

A part of pkg/apis/core/v1/defaults.go and pkg/apis/core/validation/validation.go:
what scheduling, eviction and resource accounting depend on. Other fields are stored without
validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from simulator.api import names
from simulator.api.errors import Cause, required, unknown_value, wrong
from simulator.api.kinds import quantities
from simulator.api.kinds.selectors import selector_causes
from simulator.api.metadata import label_causes
from simulator.api.storage import Json

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION_OPERATORS: Final = ("Equal", "Exists")
_WHEN_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
_PREEMPTION: Final = ("Never", "PreemptLowerPriority")


def default_spec(spec: Json, kind: str) -> None:
    """Set the defaults that pods and templates have in common."""
    spec.setdefault("restartPolicy", "Always")
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = 30
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in containers(spec):
        _default_container(container, kind)
    for volume in spec.get("volumes") or ():
        if len(volume) == 1:
            volume["emptyDir"] = {}
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")
    _tidy_requirements(spec.get("resources"), kind)
    quantities.tidy(spec.get("overhead"), kind)


def containers(spec: Json) -> Iterator[Json]:
    """Return all containers, init containers first."""
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or ():
            if isinstance(container, dict):
                yield container


def _default_container(container: Json, kind: str) -> None:
    _tidy_requirements(container.setdefault("resources", {}), kind)
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = _pull_policy(container.get("image"))
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def _pull_policy(image: Any) -> str:
    _, _, last = str(image).rpartition("/")
    tag = last.partition("@")[0].partition(":")[2] if "@" not in last else "digest"
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _tidy_requirements(requirements: Any, kind: str) -> None:
    if isinstance(requirements, dict):
        for key in ("requests", "limits"):
            if not requirements.get(key, True):
                del requirements[key]
            quantities.tidy(requirements.get(key), kind)


def spec_causes(spec: Json, path: str) -> Iterator[Cause]:
    """Return what is wrong with the spec of a pod."""
    yield from _container_causes(spec, path)
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        known = _RESTART_POLICIES
        yield unknown_value(f"{path}.restartPolicy", spec.get("restartPolicy"), known)
    yield from label_causes(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for problem in names.dns_subdomain(spec["nodeName"]) if spec.get("nodeName") else ():
        yield wrong(f"{path}.nodeName", spec["nodeName"], problem)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        why = "must be between 1 and 2147483647, inclusive"
        yield wrong(f"{path}.activeDeadlineSeconds", deadline, why)
    if spec.get("preemptionPolicy", "Never") not in _PREEMPTION:
        yield unknown_value(f"{path}.preemptionPolicy", spec["preemptionPolicy"], _PREEMPTION)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_causes(toleration, f"{path}.tolerations[{index}]")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        yield from _spread_causes(constraint, f"{path}.topologySpreadConstraints[{index}]")
    yield from _affinity_causes(spec.get("affinity") or {}, f"{path}.affinity")


def _container_causes(spec: Json, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for key in ("containers", "initContainers"):
        given = spec.get(key) or ()
        if not given and key == "containers":
            yield required(f"{path}.containers")
        for index, container in enumerate(given):
            at = f"{path}.{key}[{index}]"
            yield from _name_causes(container.get("name"), seen, at)
            if not container.get("image") and not path.startswith("spec.template"):
                yield required(f"{at}.image")
            yield from requirement_causes(container.get("resources") or {}, f"{at}.resources")


def _name_causes(name: str | None, seen: set[str], at: str) -> Iterator[Cause]:
    if not name:
        yield required(f"{at}.name")
        return
    for problem in names.dns_label(name):
        yield wrong(f"{at}.name", name, problem)
    if name in seen:
        yield Cause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{at}.name")
    seen.add(name)


def requirement_causes(requirements: Json, path: str) -> Iterator[Cause]:
    """Return what is wrong with requests and limits."""
    if not requirements:
        return
    yield from quantities.negative(requirements.get("limits"), f"{path}.limits")
    yield from quantities.negative(requirements.get("requests"), f"{path}.requests")
    yield from quantities.above_limits(requirements, path)


def _toleration_causes(toleration: Json, at: str) -> Iterator[Cause]:
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    for problem in names.label_key(key) if key else ():
        yield wrong(f"{at}.key", key, problem)
    if not key and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all '
        yield wrong(f"{at}.operator", operator, f'{why}keys"')
    if operator not in _TOLERATION_OPERATORS:
        yield unknown_value(f"{at}.operator", operator, _TOLERATION_OPERATORS)
    if operator == "Exists" and toleration.get("value"):
        yield wrong(f"{at}.operator", operator, "value must be empty when `operator` is 'Exists'")
    if toleration.get("effect") and toleration["effect"] not in _EFFECTS:
        yield unknown_value(f"{at}.effect", toleration["effect"], _EFFECTS)
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield wrong(f"{at}.effect", toleration.get("effect", ""), why)


def _spread_causes(constraint: Json, at: str) -> Iterator[Cause]:
    if constraint.get("maxSkew", 0) <= 0:
        yield wrong(f"{at}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield required(f"{at}.topologyKey", "can not be empty")
    when = constraint.get("whenUnsatisfiable")
    if when not in _WHEN_UNSATISFIABLE:
        yield unknown_value(f"{at}.whenUnsatisfiable", when, _WHEN_UNSATISFIABLE)
    if constraint.get("labelSelector") is not None:
        yield from selector_causes(constraint["labelSelector"], f"{at}.labelSelector")


def _affinity_causes(affinity: Json, path: str) -> Iterator[Cause]:
    for family in ("podAffinity", "podAntiAffinity"):
        for at, term in _affinity_terms(affinity.get(family) or {}, f"{path}.{family}"):
            if not term.get("topologyKey"):
                yield required(f"{at}.topologyKey", "can not be empty")
            for key in ("labelSelector", "namespaceSelector"):
                if term.get(key) is not None:
                    yield from selector_causes(term[key], f"{at}.{key}")


def _affinity_terms(family: Json, path: str) -> Iterator[tuple[str, Json]]:
    hard, soft = (
        f"{mode}DuringSchedulingIgnoredDuringExecution" for mode in ("required", "preferred")
    )
    for index, term in enumerate(family.get(hard) or ()):
        yield f"{path}.{hard}[{index}]", term
    for index, weighted in enumerate(family.get(soft) or ()):
        yield f"{path}.{soft}[{index}].podAffinityTerm", weighted.get("podAffinityTerm") or {}


def pod_affinity_terms(spec: Json) -> Iterable[Json]:
    """Return all terms of pod affinity and anti-affinity."""
    affinity = spec.get("affinity") or {}
    for family in ("podAffinity", "podAntiAffinity"):
        for _, term in _affinity_terms(affinity.get(family) or {}, ""):
            yield term
