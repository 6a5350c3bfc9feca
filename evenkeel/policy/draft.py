# SPDX-License-Identifier: Apache-2.0
"""The configuration that a policy becomes, while it is being written.

A policy has settings for each profile and each plugin where Evenkeel has one for the whole
configuration, so values are collected first. Where they differ the stricter one holds: fewer pods
are moved than before, never more. A strategy whose limits cannot be expressed stays in observe
mode, whatever `mode` is set to later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from common.config import Mode, RebalancerConfiguration, Strategy
from common.config.durations import Duration

HYGIENE: Final = "Hygiene"
_NAME: Final = "kubernetes.io/metadata.name"


class Verdict(StrEnum):
    """What becomes of something in a policy."""

    TRANSLATED = "translated"
    DIFFERS = "differs"
    BUILT_IN = "built in"
    DROPPED = "dropped"


class Note(msgspec.Struct, frozen=True):
    """What became of one plugin or argument."""

    place: str
    verdict: Verdict
    here: str
    why: str = ""

    def __str__(self) -> str:
        written = f"{self.place} → {self.here}" if self.here else self.place
        return f"{self.verdict.value}: {written}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True, slots=True)
class Scope:
    """The plugin of a profile that an argument belongs to."""

    profile: int
    profiles: int
    plugin: str
    strategies: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def place(self, argument: str) -> str:
        """Return how a person finds an argument in the policy."""
        where = f"profiles[{self.profile}]." if self.profiles > 1 else ""
        return where + ".".join(filter(None, (self.plugin, argument)))


@dataclass(slots=True)
class NamespaceFilter:
    """The namespaces that a strategy is limited to."""

    include: tuple[str, ...]
    exclude: tuple[str, ...]

    def takes(self, namespace: str | None) -> bool:
        """Whether pods of a namespace take part; None stands for all that no filter names."""
        if self.include:
            return namespace in self.include
        return namespace not in self.exclude


@dataclass(slots=True)
class Draft:
    """What has been collected so far."""

    known: frozenset[str] = frozenset(Strategy)
    notes: list[Note] = field(default_factory=list)
    strategies: list[str] = field(default_factory=list)
    filters: list[tuple[str, NamespaceFilter]] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, Any] = field(default_factory=dict)
    hygiene: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    _values: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)

    def enable(self, *strategies: str) -> None:
        """Enable strategies, in the order in which the policy asks for them."""
        self.strategies += [each for each in strategies if each not in self.strategies]

    def hold(self, strategies: Iterable[str], why: str) -> None:
        """Keep strategies in observe mode, because a limit of theirs is lost."""
        for each in strategies:
            self.held.setdefault(each, why)

    def set(self, profile: int, key: str, value: Any) -> None:
        """Set a key as one profile wants it."""
        self._values.setdefault(key, []).append((profile, value))

    def value(self, key: str) -> Any:
        """Return the last value of a key; None without one."""
        found = self._values.get(key)
        return found[-1][1] if found else None

    def document(self, profiles: int) -> dict[str, Any]:
        """Return the configuration; what was merged or held is noted."""
        enabled = [each for each in self.strategies if each in self.known]
        values = {key: self._merged(key, found, profiles) for key, found in self._values.items()}
        modes = {each: Mode.OBSERVE.value for each in enabled if each in self.held}
        rules = list(self._rules(enabled))
        return {
            "apiVersion": RebalancerConfiguration().api_version,
            "kind": RebalancerConfiguration.__name__,
            "mode": Mode.OBSERVE.value,
            "enabledStrategies": enabled,
            **({"modes": modes} if modes else {}),
            **{key: value for key, value in values.items() if value is not None},
            **self.blocks,
            **self._hygiene(),
            **({"namespaces": rules} if rules else {}),
        }

    def _hygiene(self) -> dict[str, Any]:
        """Each profile has its own rule, so nothing has to be merged."""
        if not self.hygiene or HYGIENE not in self.known:
            return {}
        return {"hygiene": {check: list(rules.values()) for check, rules in self.hygiene.items()}}

    def _merged(self, key: str, found: list[tuple[int, Any]], profiles: int) -> Any:
        merge = MERGES.get(key, _first)
        by_profile: dict[int, Any] = {}
        for profile, value in found:
            before = by_profile.get(profile, value)
            by_profile[profile] = before if before == value else merge([before, value])
        values = list(by_profile.values())
        missing = len(by_profile) < profiles
        if key in PERMISSIONS and missing:
            why = "not every profile permits it, and there is one configuration for all"
            self.notes.append(Note(key, Verdict.DROPPED, "", why))
            return None
        differ = any(value != values[0] for value in values) or (missing and key in SELECTORS)
        if not differ:
            return values[0]
        if key in SELECTORS:
            why = "profiles select different pods, and there is one configuration for all"
            self.notes.append(Note(key, Verdict.DROPPED, "", why))
            self.hold(self.strategies, why)
            return None
        kept = merge(values)
        why = "profiles or plugins differ; the stricter value holds for all"
        self.notes.append(Note(key, Verdict.DIFFERS, f"{key}: {shown(kept)}", why))
        return kept

    def _rules(self, enabled: list[str]) -> Iterable[dict[str, Any]]:
        """Yield rules for namespaces; the first that matches holds, so each one says all."""
        named = sorted({n for _, each in self.filters for n in (*each.include, *each.exclude)})
        everywhere = self._observed(None, enabled)
        by_modes: dict[tuple[str, ...], list[str]] = {}
        for namespace in named:
            by_modes.setdefault(self._observed(namespace, enabled), []).append(namespace)
        for observed, namespaces in by_modes.items():
            if observed or everywhere:
                names = ", ".join(namespaces)
                yield _rule(f"{_NAME} in ({names})", observed)
        if everywhere:
            yield _rule("", everywhere)

    def _observed(self, namespace: str | None, enabled: list[str]) -> tuple[str, ...]:
        out = {name for name, each in self.filters if not each.takes(namespace)}
        return tuple(each for each in enabled if each in out)


def _rule(selector: str, observed: tuple[str, ...]) -> dict[str, Any]:
    modes = dict.fromkeys(observed, Mode.OBSERVE.value)
    return {"selector": selector, **({"modes": modes} if modes else {})}


def shown(value: Any) -> str:
    """Return a value as a file would state it, on one line."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _first(values: list[Any]) -> Any:
    return values[0]


def _longest(values: list[Any]) -> Any:
    return max(values, key=lambda each: Duration(each).seconds)


def _lowest_priority(values: list[Any]) -> Any:
    numbers = [each for each in values if "value" in each]
    return min(numbers, key=lambda each: each["value"]) if numbers else values[0]


def _all_of_them(values: list[Any]) -> Any:
    return sorted({name for each in values for name in each})


PERMISSIONS: Final = frozenset({"localStorage"})
"""Keys that let more pods be moved: they hold only if all profiles have them."""
SELECTORS: Final = frozenset({"podSelector", "namespaceSelector"})
MERGES: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "cpuThreshold": min,
    "memoryThreshold": min,
    "imbalanceThreshold": min,
    "maxInFlightPerNode": min,
    "minReplicas": max,
    "minPodAge": _longest,
    "priorityThreshold": _lowest_priority,
    "protectedStorageClasses": _all_of_them,
}
"""How values of several profiles become one: the stricter one of them."""
