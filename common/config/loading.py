# SPDX-License-Identifier: Apache-2.0
"""From a file to a configuration, or to one line per problem.

A person who edits the file sees the file, the line, the key and what to write instead; no
class of pydantic's and no traceback ever gets out of here.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from common.api.contract import API_VERSION
from common.config.choices import Strategy
from common.config.document import Document, Path, Problem, Unreadable, read, written
from common.config.extender import ExtenderConfiguration
from common.config.pools import Pool
from common.config.rebalancer import RebalancerConfiguration
from common.config.shared import Configuration, LoadSettings
from common.config.versions import HISTORY, History, converted

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

log: structlog.stdlib.BoundLogger = structlog.get_logger()

C = TypeVar("C", bound=Configuration)
Warn = Callable[[str], None]
"""Is told what was converted from an older version, with file, line and what to write instead."""

KINDS: Final[Mapping[str, type[Configuration]]] = {
    "RebalancerConfiguration": RebalancerConfiguration,
    "ExtenderConfiguration": ExtenderConfiguration,
}
_STRATEGIES: Final = frozenset(Strategy)
# Paths of credentials may differ from pod to pod; they do not change what load is.
_NOT_LOAD: Final = {
    "prometheus": {"bearer_token_file", "ca_file", "insecure_skip_verify", "timeout"}
}


class ConfigError(Exception):
    """A configuration that cannot be used; one line per problem."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _logged(warning: str) -> None:
    log.warning("deprecated configuration", warning=warning)


def load_config(path: str | None, kind: type[C], warn: Warn = _logged) -> C:
    """Return the configuration in the file at `path`; without one the defaults."""
    return kind() if path is None else parse_config(file_text(path), kind, path, warn)


def parse_config(
    text: str,
    kind: type[C],
    source: str,
    warn: Warn = _logged,
    *,
    history: History = HISTORY,
) -> C:
    """Return the configuration in a text; `source` is named in errors.

    What was written for an older version is converted, and `warn` is told.
    """
    try:
        document = read(text)
        warnings = _convert(document, history)
        found = _checked(document, kind)
        for warning in warnings:
            warn(f"{source}: {warning}")
        return found
    except Unreadable as error:
        problems = sorted(error.problems, key=lambda problem: problem.line)
        raise ConfigError(*(f"{source}: {problem}" for problem in problems)) from None


def effective(config: Configuration) -> dict[str, Any]:
    """Return the whole configuration as a file would state it; it holds no secrets."""
    head = {"apiVersion": config.api_version, "kind": config.kind}
    return head | config.model_dump(mode="json", by_alias=True)


def differences(old: Configuration, new: Configuration) -> dict[str, Any]:
    """Return the keys of the new configuration whose values differ, with their new values."""
    before, after = effective(old), effective(new)
    return {key: value for key, value in after.items() if before.get(key) != value}


def load_settings_hash(config: LoadSettings) -> str:
    """Return a hash over what decides load; equal where two programs agree on it."""
    settings = config.model_dump(include=set(LoadSettings.model_fields), exclude=_NOT_LOAD)
    settings["estimates"] |= {
        "cpu": config.estimates.cpu_milli,
        "memory": config.estimates.mem_bytes,
    }
    # Without pools the hash is that of versions before pools, so that an upgrade warns of nothing.
    del settings["pools"]
    if config.pools:
        settings["pools"] = [_load_of_pool(pool) for pool in config.pools]
    if config.prometheus is not None and not config.prometheus.resources:
        del settings["prometheus"]["resources"]  # for the same reason
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _load_of_pool(pool: Pool) -> list[Any]:
    """Return what a pool says about load; its name, modes, limits and windows say nothing."""
    said = [pool.node_selector, pool.cpu_threshold, pool.memory_threshold]
    return [*said, dict(pool.resource_thresholds)] if pool.resource_thresholds else said


def file_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(f"{path}: cannot be read: {why.lower()}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not text in UTF-8") from None


def _convert(document: Document, history: History) -> list[Problem]:
    """Bring the values of an older version up to date; return what to warn of."""
    if not isinstance(document.values, dict):
        return []
    document.values, warnings = converted(document, document.values, history)
    return warnings


def _checked(document: Document, kind: type[C]) -> C:
    values = {} if document.values is None else document.values
    if not isinstance(values, dict):
        raise Unreadable([Problem(1, "", "must be a block of keys")])
    if wrong := wrong_head(document, values, kind):
        raise Unreadable(wrong)
    try:
        return kind.model_validate(values, by_alias=True, by_name=False)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise Unreadable([_problem(document, kind, detail) for detail in details]) from None


def wrong_head(
    document: Document, values: Mapping[str, Any], kind: type[Configuration]
) -> list[Problem]:
    """Judge apiVersion and kind first: in a file of another kind the rest is noise."""
    name, found = kind.__name__, values.get("kind")
    problems = []
    if (version := values.get("apiVersion")) != API_VERSION:
        problems.append(("apiVersion", _instead(API_VERSION, version)))
    if found != name and isinstance(found, str) and found in KINDS:
        problems.append(
            ("kind", f"this file is for another program: expected {name}, found {found}")
        )
    elif found != name:
        problems.append(("kind", _instead(name, found)))
    return [Problem(document.line_of((key,)), key, why) for key, why in problems]


def _instead(wanted: str, found: Any) -> str:
    return (
        f"must be {wanted}, not {_shown(found)}"
        if found is not None
        else f"missing: write {wanted}"
    )


def _problem(document: Document, kind: type[Configuration], detail: ErrorDetails) -> Problem:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    keys = detail.get("ctx", {}).get("keys", ())
    places = [(*path, key) for key in keys] or [path]
    line = next(
        (document.lines[place] for place in places if place in document.lines),
        document.line_of(path),
    )
    return Problem(line, written(places[0]), explanation(detail, _siblings(kind, path)))


def _siblings(kind: type[BaseModel], path: Path) -> list[str]:
    """Return the known keys of the block that the last part of `path` stands in."""
    model: type[BaseModel] | None = kind
    for part in path[:-1]:
        # Places in a list, and strategies by which a block is arranged, lead to the same block.
        if not isinstance(part, int) and part not in _STRATEGIES:
            model = _block(model, part) if model else None
    return [str(info.alias) for info in model.model_fields.values()] if model else []


def _block(model: type[BaseModel], key: str | int) -> type[BaseModel] | None:
    for info in model.model_fields.values():
        if info.alias == key:
            return block_of(info.annotation)
    return None


def block_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model in `Model`, `Model | None` or an annotated one of these."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = getattr(annotation, "__args__", ())
    return next((found for part in inner if (found := block_of(part))), None)


def explanation(detail: ErrorDetails, siblings: list[str]) -> str:
    context, shown = detail.get("ctx", {}), _shown(detail["input"])
    match detail["type"]:
        case "extra_forbidden":
            return "unknown key" + _nearest(str(detail["loc"][-1]), siblings)
        case "missing":
            return "missing"
        case "enum" | "literal_error":
            expected = str(context["expected"]).replace("'", "")
            return f"must be {expected}, not {shown}"
        case "value_error":
            return str(context["error"])
        case "duration" | "rule":
            return str(context["why"])
        case kind if kind in _BOUNDS:
            words, key = _BOUNDS[kind]
            return f"must be {words} {context[key]:g}, not {shown}"
        case kind:
            said = "the text " * isinstance(detail["input"], str)
            return f"must be {_EXPECTED.get(kind, 'something else')}, not {said}{shown}"


_BOUNDS: Final = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}
_EXPECTED: Final = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text (put it in quotes)",
    "tuple_type": "a list",
    "mapping_type": "a block of keys",
    "dict_type": "a block of keys",
    "model_type": "a block of keys",
}


def _nearest(key: str, known: list[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower(), by_lower, n=1)
    return f", did you mean {by_lower[close[0]]}?" if close else ""


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a block of keys"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    text = " ".join(text.split()) if text.strip() else "an empty text"
    return text if len(text) <= 60 else text[:60] + "…"
