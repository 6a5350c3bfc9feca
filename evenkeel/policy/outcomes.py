# SPDX-License-Identifier: Apache-2.0
"""What an argument becomes: the functions that the rows of the table name.

Each takes the draft, the plugin that the argument belongs to and its value, already of the right
type, writes into the draft, and returns what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from evenkeel.policy.draft import Draft, NamespaceFilter, Scope, Verdict, shown

_MOST_PERCENT = 100.0


class Outcome(NamedTuple):
    """What came of one argument."""

    verdict: Verdict
    here: str = ""
    why: str = ""


Apply = Callable[[Draft, Scope, Any], Outcome]


class Namespaces(msgspec.Struct):
    """Namespaces by name, as plugins limit themselves to them."""

    include: list[str] = []
    exclude: list[str] = []


class Requirement(msgspec.Struct):
    """One expression of a label selector."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(msgspec.Struct, rename="camel"):
    """A label selector as an object of the API."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] | None = None

    def __str__(self) -> str:
        labels = [f"{key}={value}" for key, value in (self.match_labels or {}).items()]
        return ",".join(labels + [_expression(each) for each in self.match_expressions or ()])


def _expression(each: Requirement) -> str:
    match each.operator:
        case "In" | "NotIn":
            return f"{each.key} {each.operator.lower()} ({', '.join(each.values or ())})"
        case "Exists":
            return each.key
        case "DoesNotExist":
            return f"!{each.key}"
    raise ValueError(f"{each.operator} is not an operator of label selectors")


def writes(key: str, why: str = "", convert: Callable[[Any], Any] = lambda value: value) -> Apply:
    """Return a function that writes the value to a key, changed by `convert`."""

    def apply(draft: Draft, scope: Scope, value: Any) -> Outcome:
        found = convert(value)
        draft.set(scope.profile, key, found)
        verdict = Verdict.DIFFERS if why else Verdict.TRANSLATED
        return Outcome(verdict, f"{key}: {shown(found)}", why)

    return apply


def writes_if(wanted: Any, key: str, written: Any, otherwise: Outcome, why: str = "") -> Apply:
    """Return a function that writes a fixed value if the argument has the wanted one."""

    def apply(draft: Draft, scope: Scope, value: Any) -> Outcome:
        if value != wanted:
            return otherwise
        return writes(key, why)(draft, scope, written)

    return apply


def drops(why: str) -> Apply:
    """Return a function that has no counterpart for an argument."""
    return lambda _draft, _scope, _value: Outcome(Verdict.DROPPED, "", why)


def built_in(why: str, unless: Any = None, otherwise: str = "") -> Apply:
    """Return a function for what is always so here; one value of the argument asks for less."""

    def apply(_draft: Draft, _scope: Scope, value: Any) -> Outcome:
        if unless is not None and value == unless:
            return Outcome(Verdict.DROPPED, "", otherwise)
        return Outcome(Verdict.BUILT_IN, "", why)

    return apply


def holds(why: str) -> Apply:
    """Return a function for a limit that is lost: the strategies only observe."""

    def apply(draft: Draft, scope: Scope, value: Any) -> Outcome:
        if not value:
            return Outcome(Verdict.BUILT_IN, "", "it limits nothing")
        held = [each for each in scope.strategies if each in draft.known]
        draft.hold(held, why)
        here = ", ".join(f"modes.{each}: observe" for each in held)
        return Outcome(Verdict.DIFFERS, here, why)

    return apply


def namespaces(draft: Draft, scope: Scope, value: Namespaces) -> Outcome:
    """Let the strategies of a plugin only observe in the namespaces that it leaves out."""
    if value.include and value.exclude:
        raise ValueError("only one of include and exclude can be set")
    if not (value.include or value.exclude):
        return Outcome(Verdict.BUILT_IN, "", "it limits nothing")
    found = NamespaceFilter(tuple(value.include), tuple(value.exclude))
    draft.filters += [(each, found) for each in scope.strategies]
    why = "strategies that are off in a namespace observe it"
    return Outcome(Verdict.TRANSLATED, "namespaces[].modes", why)


def pod_labels(draft: Draft, scope: Scope, value: LabelSelector) -> Outcome:
    """Keep the strategies from acting: only the whole configuration selects pods."""
    if not str(value):
        return Outcome(Verdict.BUILT_IN, "", "it limits nothing")
    return holds("podSelector is for all strategies; set it if all of them shall have this limit")(
        draft, scope, value
    )


def target_thresholds(draft: Draft, scope: Scope, value: Mapping[str, float]) -> Outcome:
    """Set ceilings, or with deviations the width of the band around the average."""
    if scope.arguments.get("useDeviationThresholds"):
        return _band(draft, scope, value)
    written = []
    for name, key in (("cpu", "cpuThreshold"), ("memory", "memoryThreshold")):
        # Without a threshold of its own a resource has 100 %: setDefaultForLNUThresholds in
        # pkg/framework/plugins/nodeutilization/nodeutilization.go of descheduler.
        percent = value.get(name, _MOST_PERCENT)
        if not 0 < percent <= _MOST_PERCENT:
            raise ValueError(f"{name} must be above 0 and at most 100")
        draft.set(scope.profile, key, percent)
        written.append(f"{key}: {percent:g}")
    others = sorted(set(value) - {"cpu", "memory"})
    why = f"{', '.join(others)}: only CPU and memory are judged" if others else ""
    return Outcome(Verdict.DIFFERS if others else Verdict.TRANSLATED, ", ".join(written), why)


def _band(draft: Draft, scope: Scope, above: Mapping[str, float]) -> Outcome:
    below = scope.arguments.get("thresholds") or {}
    widths = [
        above[name] + below[name] for name in ("cpu", "memory") if name in above.keys() & below
    ]
    if not widths or not min(widths) > 0:
        return Outcome(Verdict.DROPPED, "", "neither CPU nor memory has a band")
    width = min(*widths, _MOST_PERCENT)
    draft.set(scope.profile, "imbalanceThreshold", width)
    why = "the width of the band; compares highest and lowest node instead of each with the average"
    return Outcome(Verdict.DIFFERS, f"imbalanceThreshold: {width:g}", why)


def low_thresholds(_draft: Draft, scope: Scope, _value: Any) -> Outcome:
    if scope.arguments.get("useDeviationThresholds"):
        return Outcome(Verdict.TRANSLATED, "imbalanceThreshold", "together with targetThresholds")
    return Outcome(Verdict.DROPPED, "", "a node does not have to be low to receive pods")


class Query(msgspec.Struct):
    """How a plugin asks Prometheus."""

    query: str = ""


class MetricsUtilization(msgspec.Struct, rename="camel"):
    """Where a plugin reads usage."""

    metrics_server: bool = False
    source: str = ""
    prometheus: Query | None = None


def usage(draft: Draft, scope: Scope, value: MetricsUtilization) -> Outcome:
    """Choose the usage source; a query about nodes alone does not say what pods use."""
    if value.source == "Prometheus":
        url = (draft.blocks.get("prometheus") or {}).get("url")
        if not url:
            why = "metricsProviders names no URL of Prometheus"
            return Outcome(Verdict.DROPPED, "", why)
        draft.set(scope.profile, "usageSource", "prometheus")
        why = "prometheus.queries need CPU and memory of nodes and pods; one query is not enough"
        return Outcome(Verdict.DIFFERS, "usageSource: prometheus", why)
    if value.source == "KubernetesMetrics" or value.metrics_server:
        return writes("usageSource")(draft, scope, "metrics-server")
    return writes("usageSource")(draft, scope, "requests")


class Secret(msgspec.Struct):
    """Which Secret has a token."""

    namespace: str = ""
    name: str = ""


class AuthToken(msgspec.Struct, rename="camel"):
    """How to authenticate at Prometheus."""

    secret_reference: Secret | None = None


class PrometheusProvider(msgspec.Struct, rename="camel"):
    """Where Prometheus is."""

    url: str = ""
    auth_token: AuthToken | None = None


class Provider(msgspec.Struct):
    """A source of metrics for all plugins."""

    source: str = ""
    prometheus: PrometheusProvider | None = None


def providers(draft: Draft, _scope: Scope, value: list[Provider]) -> Outcome:
    """Note the URL of Prometheus; plugins choose by themselves what they use."""
    found = next((each.prometheus for each in value if each.prometheus is not None), None)
    if found is None or not found.url:
        return Outcome(Verdict.BUILT_IN, "", "usageSource follows what the plugins use")
    draft.blocks["prometheus"] = {"url": found.url}
    why = "mount its token and set prometheus.bearerTokenFile" if found.auth_token else ""
    return Outcome(
        Verdict.DIFFERS if why else Verdict.TRANSLATED, f"prometheus.url: {found.url}", why
    )
