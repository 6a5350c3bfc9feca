# SPDX-License-Identifier: Apache-2.0
"""A YAML file as values that remember their line.

Scalars are read as YAML 1.2 does: `off`, `no` and `1:30` are text, not false and 90, so a
message shows what the file says. A duplicate key, an anchor that contains
itself, aliases that multiply, and a second document are refused; each problem carries its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

Path = tuple[str | int, ...]
MANY: Final = 100_000
"""Values that a file may hold; an alias counts like what it stands for."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file."""

    line: int
    path: str
    why: str

    def __str__(self) -> str:
        return (
            f"line {self.line}: {self.path}: {self.why}"
            if self.path
            else f"line {self.line}: {self.why}"
        )


class Unreadable(Exception):
    """The file is not one YAML document of plain values."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


@dataclass(slots=True)
class Document:
    """The values of a file and the line of each of them."""

    values: Any = None
    lines: dict[Path, int] = field(default_factory=dict)

    def line_of(self, path: Path) -> int:
        """Return the line of a path, or of the closest block around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read(text: str) -> Document:
    """Return what stands in `text`; raise `Unreadable` with every problem found."""
    walk = _Walk()
    try:
        root = yaml.compose(text, Loader=_Loader)
        values = None if root is None else walk.value(root, ())
    except yaml.YAMLError as error:
        raise Unreadable([_syntax(error, text)]) from None
    except RecursionError:
        raise Unreadable([Problem(1, "", "is nested too deeply")]) from None
    if walk.problems:
        raise Unreadable(walk.problems)
    return Document(values, walk.lines)


def written(path: Path) -> str:
    """Return a path as people write it: `prometheus.queries` or `enabledStrategies[1]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


class _Loader(yaml.SafeLoader):
    """The safe loader with the scalars of YAML 1.2's core schema."""


_Loader.yaml_implicit_resolvers = {}
_SCALARS: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
    ),
)
for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first
    )


@dataclass(slots=True)
class _Walk:
    """Turns nodes into values, noting lines and problems on the way."""

    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _open: list[yaml.Node] = field(default_factory=list)
    _values: int = 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._values += 1
        if self._values > MANY:
            # An alias of aliases stands for more values than any memory holds.
            raise Unreadable([Problem(_line(node), "", f"more than {MANY:,} values")])
        self.lines.setdefault(path, _line(node))
        if any(node is outer for outer in self._open):
            return self._refuse(node, path, "contains itself")
        self._open.append(node)
        try:
            return self._by_kind(node, path)
        finally:
            self._open.pop()

    def _by_kind(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "has a key that is not a plain string")
                continue
            key = (*path, key_node.value)
            if key_node.value in values:
                self._refuse(key_node, key, f"duplicate key, first set on line {self.lines[key]}")
                continue
            self.lines[key] = _line(key_node)
            values[key_node.value] = self.value(value_node, key)
        return values

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        try:
            return _SCALAR_READER.construct_object(node)
        except (yaml.YAMLError, ValueError):
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            return self._refuse(node, path, f"{node.value} cannot be read as {tag}")

    def _refuse(self, node: yaml.Node, path: Path, why: str) -> None:
        self.problems.append(Problem(_line(node), written(path), why))


_SCALAR_READER: Final = yaml.constructor.SafeConstructor()


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _syntax(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Problem(line, "", f"is not YAML: {error.reason}")
    mark = getattr(error, "problem_mark", None)
    why = getattr(error, "problem", None) or str(error)
    if "another document" in why:
        why = "only one document is expected"
    return Problem(1 if mark is None else mark.line + 1, "", f"is not YAML: {why}")
