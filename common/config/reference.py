"""The reference page, made from the models so that it cannot be wrong.

Each kind has one table with every key: its type, its default, what it means.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel

from common.config.durations import Duration
from common.config.loading import KINDS, block_of, effective
from common.config.shared import Configuration
from common.config.values import Says

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_REQUIRED: Final = object()
_NOTHING: Final = object()
_HEAD: Final = ("apiVersion", "kind")
_INTRODUCTION: Final = """\
<!-- Made by `python -m common.config`; edit the models in common/config instead. -->
# Configuration

Both programs take `--config FILE`; without it every key has its default.
A file states `apiVersion: evenkeel.io/v1alpha1` and its `kind`; keys are camelCase.
Unknown keys, keys that stand twice and values out of range are refused at start, with their line.
Durations carry their unit: `100ms`, `30s`, `5m`, `1h30m`; a bare number is refused.
Keys such as `breaker.window` stand in a block: `breaker: {window: 20}`.
The load settings (`cpuThreshold` to `estimates`) should be the same for both programs.
The rebalancer warns when an extender's differ from its own.
"""
_EXAMPLES: Final = {
    "RebalancerConfiguration": "cpuThreshold: 75\nmode: observe\nexcludedNamespaces: "
    "[kube-system, kube-public, databases]\nbreaker: {halfOpenAfter: 20m}",
    "ExtenderConfiguration": "cpuThreshold: 75\noverloaded: filter",
}


class Row(NamedTuple):
    """One key of a kind."""

    key: str
    type: str
    default: Any
    meaning: str


def page() -> str:
    """Return `docs/configuration.md`."""
    return "\n".join([_INTRODUCTION, *(_section(name, kind) for name, kind in KINDS.items())])


def json_schema(kind: type[Configuration]) -> dict[str, Any]:
    """Return the JSON Schema of a kind, for editors; the programs check more than it says."""
    schema = kind.model_json_schema(by_alias=True)
    return schema | {"required": ["apiVersion", "kind"]}


def rows(model: type[BaseModel], defaults: Mapping[str, Any], prefix: str = "") -> Iterator[Row]:
    """Yield every key of a model, those of its blocks right after it."""
    for info in sorted(model.model_fields.values(), key=lambda info: info.alias not in _HEAD):
        alias, block = str(info.alias), block_of(info.annotation)
        default = _REQUIRED if alias in _HEAD else defaults.get(alias, _own_default(info))
        yield Row(
            f"{prefix}{alias}",
            _type(info.annotation, info.metadata),
            _NOTHING if block and default else default,
            info.description or "",
        )
        if block:
            yield from rows(
                block, default if isinstance(default, Mapping) else {}, f"{prefix}{alias}."
            )


def _own_default(info: FieldInfo) -> Any:
    if info.is_required():
        return _REQUIRED
    default = info.get_default(call_default_factory=False)
    if isinstance(default, BaseModel):
        return default.model_dump(mode="json", by_alias=True)
    return str(default) if isinstance(default, Duration) else default


def _section(name: str, kind: type[Configuration]) -> str:
    example = f"apiVersion: evenkeel.io/v1alpha1\nkind: {name}\n{_EXAMPLES[name]}"
    lines = [f"## {name}", "", "```yaml", example, "```", ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{row.key}` | {row.type} | {_shown(row.default)} | {row.meaning} |"
        for row in rows(kind, effective(kind()))
    ]
    return "\n".join([*lines, ""])


def _shown(default: Any) -> str:
    if default is _REQUIRED:
        return "required"
    if default is None:
        return "none"
    if default is _NOTHING:
        return ""
    if isinstance(default, list):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{default}`" if default and isinstance(default, str) else f"`{json.dumps(default)}`"


def _type(annotation: Any, metadata: list[Any] | tuple[Any, ...] = ()) -> str:
    words = [part.words for part in metadata if isinstance(part, Says)]
    return words[-1] if words else _plain_type(annotation)


def _plain_type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0], annotation.__metadata__)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(part) for part in inner if part is not type(None))
    if origin is tuple:
        return f"list of {_type(inner[0])}"
    if origin is Literal:
        return f"`{inner[0]}`"
    if block_of(annotation):
        return "block"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return " or ".join(f"`{member.value}`" for member in annotation)
    return "block of strategy: mode"
