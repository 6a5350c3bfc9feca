# SPDX-License-Identifier: Apache-2.0
"""Reads a policy, and walks through it by the rows of the table.

What is not in the table is named and left out; what has the wrong type is an error with its line.
The result is loaded with the loader of the rebalancer before anyone sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec

from common.config import ConfigError, RebalancerConfiguration, Strategy, parse_config
from common.config.document import Document, Path, Unreadable, read, written
from evenkeel.errors import UsageError
from evenkeel.output import as_yaml
from evenkeel.policy.draft import Draft, Note, Scope, Verdict
from evenkeel.policy.outcomes import Outcome
from evenkeel.policy.table import PLUGINS, POLICY, Argument, Plugin

API_VERSION: Final = "descheduler/v1alpha2"
KIND: Final = "DeschedulerPolicy"
_OLD: Final = "descheduler/v1alpha1"
_POINTS: Final = ("presort", "sort", "deschedule", "balance", "filter", "preevictionfilter")
_EVICTOR: Final = "DefaultEvictor"
_UTILIZATION: Final = frozenset({"LowNodeUtilization"})
_PART: Final = re.compile(r"\.([^.\[`]+)|\[(\d+)\]")
_IGNORED: Final = frozenset({"apiVersion", "kind"})


class Converted(NamedTuple):
    """A configuration, and what became of each part of the policy."""

    configuration: dict[str, Any]
    notes: tuple[Note, ...]

    @property
    def text(self) -> str:
        """Return the configuration as a file."""
        return as_yaml(self.configuration)


class PluginSet(msgspec.Struct):
    """Which plugins run at one point."""

    enabled: list[str] | None = None
    disabled: list[str] | None = None


class PluginConfig(msgspec.Struct):
    """The arguments of a plugin."""

    name: str
    args: dict[str, Any] | None = None


class Profile(msgspec.Struct, rename="camel"):
    """Plugins that run together, with one evictor."""

    name: str = ""
    plugin_config: list[PluginConfig] | None = None
    plugins: dict[str, PluginSet | None] | None = None


class _WrongValue(Exception):
    """A value of the policy is none that its argument takes."""


def convert(text: str, source: str, known: frozenset[str] = frozenset(Strategy)) -> Converted:
    """Return the configuration that a policy becomes; `source` is named in errors."""
    try:
        return _converted(_document(text, source), source, known)
    except _WrongValue as error:
        raise UsageError(f"{source}: {error}") from None


def _converted(document: Document, source: str, known: frozenset[str]) -> Converted:
    draft, values = Draft(known=known), document.values
    profiles = _typed(document, values.get("profiles") or [], list[Profile], ("profiles",))
    _policy(draft, document, values)
    for number, profile in enumerate(profiles):
        _profile(draft, document, profile, Scope(number, len(profiles), ""))
    if not draft.strategies:
        raise UsageError(f"{source}: enables no plugin that moves pods")
    configuration = draft.document(len(profiles))
    for name, why in draft.held.items():
        if name in draft.known:
            draft.notes.append(Note(name, Verdict.DIFFERS, f"modes.{name}: observe", why))
    found = Converted(configuration, tuple(draft.notes))
    _loads(found, source)
    return found


def _loads(found: Converted, source: str) -> None:
    """The loader has the last word: a selector or a name may be no valid one."""
    try:
        parse_config(found.text, RebalancerConfiguration, f"{source} (translated)")
    except ConfigError as error:
        raise UsageError("; ".join(error.problems)) from None


def _document(text: str, source: str) -> Document:
    try:
        document = read(text)
    except Unreadable as error:
        raise UsageError(f"{source}: {error}") from None
    values = document.values
    if isinstance(values, dict) and values.get("kind") == "ConfigMap":
        return _document(_packed(values, source), source)
    if not isinstance(values, dict) or values.get("kind") != KIND:
        raise UsageError(f"{source}: is not a {KIND}")
    if values.get("apiVersion") == _OLD:
        raise UsageError(
            f"{source}: {_OLD} is too old: write its strategies as plugins of a profile in "
            f"{API_VERSION} first (descheduler 0.27 to 0.30 read both, and its user guide shows "
            "how they correspond)"
        )
    if values.get("apiVersion") != API_VERSION:
        raise UsageError(f"{source}: apiVersion must be {API_VERSION}")
    return document


def _packed(values: Mapping[str, Any], source: str) -> str:
    """Return the policy in a ConfigMap, as the chart of the descheduler installs it."""
    data = values.get("data")
    found = data.values() if isinstance(data, dict) else ()
    policies = [each for each in found if isinstance(each, str) and KIND in each]
    if len(policies) != 1:
        raise UsageError(f"{source}: the ConfigMap must hold one {KIND}, not {len(policies)}")
    return policies[0]


def _policy(draft: Draft, document: Document, values: Mapping[str, Any]) -> None:
    scope = Scope(0, 1, "", arguments=values)
    rest = {key: value for key, value in values.items() if key not in _IGNORED | {"profiles"}}
    _arguments(draft, document, scope, POLICY, rest, ())


def _profile(draft: Draft, document: Document, profile: Profile, scope: Scope) -> None:
    enabled = list(_enabled(profile.plugins or {}))
    given = {each.name: each.args or {} for each in profile.plugin_config or ()}
    places = {each.name: place for place, each in enumerate(profile.plugin_config or ())}
    known = {plugin.name: plugin for plugin in PLUGINS}
    for name in [*enabled, _EVICTOR]:
        path = ("profiles", scope.profile, "pluginConfig", places.get(name, 0), "args")
        if name in known:
            here = replace(scope, plugin=name, arguments=given.get(name, {}))
            _plugin(draft, document, known[name], here, path)
        else:
            why = "a plugin that descheduler itself does not have"
            draft.notes.append(Note(scope.place(name), Verdict.DROPPED, "", why))
    for name in given:
        if name not in enabled and name != _EVICTOR:
            why = "it is configured but not enabled"
            draft.notes.append(Note(scope.place(name), Verdict.DROPPED, "", why))


def _enabled(points: Mapping[str, PluginSet | None]) -> Iterator[str]:
    """Yield the plugins that run at any point; the evictor is added by itself."""
    seen = {_EVICTOR}
    for point in _POINTS:
        found = points.get(point) or PluginSet()
        for name in found.enabled or ():
            if name not in seen and name not in (found.disabled or ()):
                seen.add(name)
                yield name


def _plugin(draft: Draft, document: Document, plugin: Plugin, scope: Scope, path: Path) -> None:
    strategies = plugin.strategies(scope.arguments)
    scope = replace(scope, strategies=strategies)
    draft.enable(*strategies)
    if strategies:
        draft.notes.append(_strategies_note(draft, scope, plugin))
    if plugin.begin is not None:
        plugin.begin(draft, scope)
    _arguments(draft, document, scope, plugin.arguments, _flat(scope.arguments, plugin), path)
    if plugin.name in _UTILIZATION and not scope.arguments.get("metricsUtilization"):
        draft.set(scope.profile, "usageSource", "requests")
        here, why = "usageSource: requests", "without metricsUtilization requests are compared"
        place = scope.place("metricsUtilization")
        draft.notes.append(Note(place, Verdict.TRANSLATED, here, why))


def _strategies_note(draft: Draft, scope: Scope, plugin: Plugin) -> Note:
    there = [each for each in scope.strategies if each in draft.known]
    if not there:
        why = f"this version has no strategy {', '.join(scope.strategies)}"
        return Note(scope.place(""), Verdict.DROPPED, "", why)
    return Note(scope.place(""), Verdict.DIFFERS, ", ".join(there), _plain(plugin.difference))


def _plain(words: str) -> str:
    return words.replace("`", "")


def _flat(arguments: Mapping[str, Any], plugin: Plugin) -> dict[str, Any]:
    """Return arguments by name; blocks whose parts have rows of their own are taken apart."""
    blocks = {each.name.partition(".")[0] for each in plugin.arguments if "." in each.name}
    found: dict[str, Any] = {}
    for key, value in arguments.items():
        if key in blocks and isinstance(value, dict):
            found |= {f"{key}.{part}": each for part, each in value.items()}
        elif key not in _IGNORED:
            found[key] = value
    return found


def _arguments(
    draft: Draft,
    document: Document,
    scope: Scope,
    rows: Sequence[Argument],
    given: Mapping[str, Any],
    path: Path,
) -> None:
    by_name = {row.name: row for row in rows}
    # In the order of the rows: some read what others have written.
    for row in rows:
        if (value := given.get(row.name)) is not None:
            where = (*path, *row.name.split("."))
            found = _applied(draft, document, scope, row, value, where)
            place = scope.place(row.name)
            draft.notes.append(Note(place, found.verdict, found.here, found.why))
    for key in given.keys() - by_name:
        draft.notes.append(Note(scope.place(key), Verdict.DROPPED, "", "unknown argument"))


def _applied(
    draft: Draft, document: Document, scope: Scope, row: Argument, value: Any, path: Path
) -> Outcome:
    typed = _typed(document, value, row.type, path)
    try:
        return row.apply(draft, scope, typed)
    except (ValueError, msgspec.ValidationError) as error:
        raise _wrong(document, path, str(error)) from None


def _typed(document: Document, value: Any, kind: Any, path: Path) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _wrong(document, path, str(error)) from None


def _wrong(document: Document, path: Path, why: str) -> _WrongValue:
    """Name the value itself, where the error says in which part of an argument it is."""
    what, _, where = why.partition(" - at `$")
    parts = _PART.findall(where)
    path = (*path, *(int(number) if number else name for name, number in parts))
    return _WrongValue(f"line {document.line_of(path)}: {written(path)}: {what.replace('`', '')}")
