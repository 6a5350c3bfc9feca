# SPDX-License-Identifier: Apache-2.0
"""Which objects a selector selects: by labels, by fields, and nodes by both.

Selectors are values: they hash, compare equal when they say the same (order and
repetitions do not count), and once built are known to be valid. The rules are those of
apimachinery/pkg/labels/selector.go, pkg/fields/selector.go, LabelSelectorAsSelector in
pkg/apis/meta/v1/helpers.go and component-helpers' nodeaffinity.go in v0.36. `a=b` and
`a in (b)` mean the same and become the same requirement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, Self

import msgspec

from common.api.selectors import (
    LabelSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    WireNodeSelector,
)


class SelectorError(ValueError):
    """A selector that Kubernetes would refuse; `position` counts characters from 0."""

    def __init__(self, words: str, position: int | None = None) -> None:
        super().__init__(words if position is None else f"{words} (at character {position + 1})")
        self.words = words
        self.position = position


class Operator(StrEnum):
    """How a requirement's values relate to the label, spelt as in objects."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_NO_VALUES: Final[frozenset[str]] = frozenset()
_IN, _NOT_IN, _EXISTS, _ABSENT, _GT, _LT = Operator  # a member is looked up slowly
_LABEL_OPERATORS: Final = {str(operator): operator for operator in (_IN, _NOT_IN, _EXISTS, _ABSENT)}
_NODE_OPERATORS: Final = {str(operator): operator for operator in Operator}


class Requirement(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """What one label must be, or must not be."""

    key: str
    operator: Operator
    values: frozenset[str] = _NO_VALUES

    @classmethod
    def checked(cls, key: str, operator: Operator, values: Iterable[str] = ()) -> Self:
        """Return the requirement, or raise SelectorError when it is nonsense."""
        given = tuple(values)
        problem = _key_problem(key) or _values_problem(key, operator, given)
        if problem:
            raise SelectorError(problem)
        return cls(key, operator, frozenset(given))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether labels fulfil this requirement."""
        value = labels.get(self.key)
        operator = self.operator
        if operator is _IN:
            return value in self.values
        if operator is _NOT_IN:
            return value not in self.values
        if operator is _EXISTS:
            return value is not None
        if operator is _ABSENT:
            return value is None
        return value is not None and self._compares(value)

    def _compares(self, text: str) -> bool:
        (bound,) = map(_int64, self.values)
        value = _int64(text)
        if value is None or bound is None:
            return False
        return value > bound if self.operator is _GT else value < bound

    def __str__(self) -> str:
        values = ",".join(sorted(self.values))
        sign = _SIGNS[self.operator]
        if self.operator in (_IN, _NOT_IN) and len(self.values) > 1:
            return f"{self.key} {self.operator.lower()} ({values})"
        return sign + self.key if self.operator is _ABSENT else self.key + sign + values


_SIGNS: Final = {_IN: "=", _NOT_IN: "!=", _EXISTS: "", _ABSENT: "!", _GT: ">", _LT: "<"}


class Selector(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """Requirements on labels, all of which must hold; none at all selects everything."""

    requirements: tuple[Requirement, ...] = ()
    never: bool = False
    """Selects nothing, whatever the requirements."""

    @classmethod
    def of(cls, requirements: Iterable[Requirement]) -> Self:
        """Return the selector of these requirements, in an order of its own."""
        return cls(tuple(sorted(set(requirements), key=_order)))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object with these labels is selected."""
        for requirement in self.requirements:
            if not requirement.matches(labels):
                return False
        return not self.never

    def plus(self, *requirements: Requirement) -> Selector:
        """Return a selector that demands these as well."""
        return self if self.never else self.of((*self.requirements, *requirements))

    def __str__(self) -> str:
        """Return the text form; `parse` reads it back, except for NOTHING."""
        return "<nothing>" if self.never else ",".join(map(str, self.requirements))


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(never=True)


def from_label_selector(wire: LabelSelector | None) -> Selector:
    """Compile an object's selector: none selects nothing, an empty one everything."""
    if wire is None:
        return NOTHING
    requirements = [Requirement.checked(k, _IN, (v,)) for k, v in wire.match_labels.items()]
    for expression in wire.match_expressions:
        operator = _operator(expression.operator, _LABEL_OPERATORS)
        requirements.append(Requirement.checked(expression.key, operator, expression.values))
    return Selector.of(requirements) if requirements else EVERYTHING


def from_labels(labels: Mapping[str, str] | None) -> Selector:
    """Compile a plain map, such as a pod's nodeSelector; unchecked, as in Go."""
    if not labels:
        return EVERYTHING
    return Selector.of(Requirement(k, _IN, frozenset({v})) for k, v in labels.items())


def parse(text: str) -> Selector:
    """Compile the text form: `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>5`."""
    return _Parser(text).selector()


class FieldRequirement(msgspec.Struct, frozen=True, order=True, gc=False):
    """What one field must be, or must not be; a missing field is the empty text."""

    field: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        escaped = _TO_ESCAPE.sub(r"\\\g<0>", self.value)
        return f"{self.field}{'!=' if self.negated else '='}{escaped}"


class FieldSelector(msgspec.Struct, frozen=True, gc=False):
    """Requirements on fields, all of which must hold."""

    requirements: tuple[FieldRequirement, ...] = ()

    @classmethod
    def of(cls, requirements: Iterable[FieldRequirement]) -> Self:
        """Return the selector of these requirements, in an order of its own."""
        return cls(tuple(sorted(set(requirements))))

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Tell whether an object with these fields is selected."""
        return all((fields.get(r.field, "") == r.value) != r.negated for r in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def parse_fields(text: str) -> FieldSelector:
    r"""Compile `metadata.name=x,status.phase!=Running`; `\` escapes `,`, `=` and itself."""
    found = []
    for term in _FIELD_TERM.finditer(text):
        operator = _FIELD_OPERATOR.search(term[0])
        if operator is None and term[0]:
            raise SelectorError(
                f"'{term[0]}' compares nothing: =, == or != is wanted", term.start()
            )
        if operator is not None and term[0] != operator[0]:
            found.append(_field_requirement(term, operator))
    return FieldSelector.of(found)


class NodeTerm(msgspec.Struct, frozen=True, gc=False):
    """Labels and fields that a node must have, all of them."""

    labels: Selector = EVERYTHING
    fields: FieldSelector = FieldSelector()

    @classmethod
    def from_wire(cls, wire: NodeSelectorTerm) -> NodeTerm | None:
        """Compile a term; an empty one selects no node. Raises SelectorError."""
        if not (wire.match_expressions or wire.match_fields):
            return None
        labels = [
            Requirement.checked(e.key, _operator(e.operator, _NODE_OPERATORS), e.values)
            for e in wire.match_expressions
        ]
        return cls(Selector.of(labels), FieldSelector.of(map(_node_field, wire.match_fields)))

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Tell whether a node is selected; fields are skipped for one without a name."""
        if not self.labels.matches(labels):
            return False
        return not (self.fields.requirements and name) or self.fields.matches({_NAME: name})


class NodeSelector(msgspec.Struct, frozen=True, gc=False):
    """Terms of which one must hold; without any, no node is selected.

    Terms that cannot be understood select nothing and leave the others alone, as in the
    scheduler's filter; `errors` says what is wrong with them. (Its scores are stricter:
    one such preferred term makes a pod unschedulable.)
    """

    terms: tuple[NodeTerm, ...] = ()
    errors: tuple[str, ...] = ()

    @classmethod
    def from_wire(cls, wire: WireNodeSelector) -> Self:
        """Compile required node affinity, or that of a volume."""
        return cls._compile(wire.node_selector_terms or ())

    @classmethod
    def from_term(cls, wire: NodeSelectorTerm) -> Self:
        """Compile a single term, such as a preferred one."""
        return cls._compile((wire,))

    @classmethod
    def _compile(cls, wire: Iterable[NodeSelectorTerm]) -> Self:
        terms, errors = [], []
        for each in wire:
            try:
                terms.append(NodeTerm.from_wire(each))
            except SelectorError as error:
                errors.append(str(error))
        return cls(tuple(term for term in terms if term is not None), tuple(errors))

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        """Tell whether a node with these labels and this name is selected."""
        return any(term.matches(labels, name) for term in self.terms)


_NAME: Final = "metadata.name"

# Names and values of labels: apimachinery/pkg/api/validate/content/kube.go and dns.go.
_NAME_PART: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX_PART: Final = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
)
_INTEGER: Final = re.compile(r"[+-]?0{0,63}+[0-9]{0,19}")

_TOKEN: Final = re.compile(r"[ \t\r\n]*+(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]++|\Z)")
_SYMBOLS: Final = frozenset({"", "==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_BINARY: Final = {
    "=": _IN, "==": _IN, "in": _IN, "!=": _NOT_IN, "notin": _NOT_IN, ">": _GT, "<": _LT,
}  # fmt: skip

_FIELD_TERM: Final = re.compile(r"(?:\\.|[^,])++", re.DOTALL)
_FIELD_OPERATOR: Final = re.compile(r"!=|==?")
_FIELD_VALUE: Final = re.compile(r"(?:\\[\\,=]|[^\\,=])*+")
_ESCAPED: Final = re.compile(r"\\(.)")
_TO_ESCAPE: Final = re.compile(r"[\\,=]")


def _order(requirement: Requirement) -> tuple[str, str, list[str]]:
    return requirement.key, requirement.operator, sorted(requirement.values)


def _operator(text: str, known: Mapping[str, Operator]) -> Operator:
    operator = known.get(text)
    if operator is None:
        raise SelectorError(f"there is no operator '{text}', only {', '.join(known)}")
    return operator


@lru_cache(maxsize=1024)
def _key_problem(key: str) -> str:
    prefix, slash, name = key.rpartition("/")
    if len(name) > 63 or not _NAME_PART.fullmatch(name):
        return f"'{key}' cannot be the name of a label"
    if slash and (len(prefix) > 253 or not _PREFIX_PART.fullmatch(prefix)):
        return f"'{key}' cannot be the name of a label: the part before / is no DNS name"
    return ""


def _values_problem(key: str, operator: Operator, values: tuple[str, ...]) -> str:
    if operator in (_EXISTS, _ABSENT):
        return f"'{key}': {operator} takes no values" if values else ""
    if not values:
        return f"'{key}': {operator} needs a value"
    if operator in (_GT, _LT) and (len(values) > 1 or _int64(values[0]) is None):
        return f"'{key}': {operator} needs one integer"
    bad = [v for v in values if v and (len(v) > 63 or not _NAME_PART.fullmatch(v))]
    return f"'{bad[0]}' cannot be the value of a label" if bad else ""


def _int64(text: str) -> int | None:
    """Read an integer as Go's strconv.ParseInt does, which allows no blanks and no `_`."""
    if not _INTEGER.fullmatch(text) or not text[-1:].isdigit():
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _field_requirement(term: re.Match[str], operator: re.Match[str]) -> FieldRequirement:
    value = term[0][operator.end() :]
    good = _FIELD_VALUE.match(value)
    if good is None or good.end() < len(value):
        at = term.start() + operator.end() + (good.end() if good else 0)
        raise SelectorError(rf"in '{value}' the characters \ , = need a \ before them", at)
    field = term[0][: operator.start()]
    return FieldRequirement(field, _ESCAPED.sub(r"\1", value), operator[0] == "!=")


def _node_field(wire: NodeSelectorRequirement) -> FieldRequirement:
    if wire.operator not in (_IN, _NOT_IN):
        raise SelectorError(f"there is no operator '{wire.operator}' for fields, only In, NotIn")
    if len(wire.values) != 1:
        raise SelectorError(f"'{wire.key}': {wire.operator} takes one value for a field")
    return FieldRequirement(wire.key, wire.values[0], wire.operator == _NOT_IN)


class _Parser:
    """Reads the text form, one token after the other."""

    def __init__(self, text: str) -> None:
        self._tokens = [(found[1], found.start(1)) for found in _TOKEN.finditer(text)]
        self._next = 0

    def selector(self) -> Selector:
        found = [] if self._peek() == "" else [self._requirement()]
        while self._peek() != "":
            self._expect(",")
            found.append(self._requirement())
        return Selector.of(found)

    def _requirement(self) -> Requirement:
        negated = self._accept("!")
        start = self._tokens[self._next][1]
        key = self._word("the name of a label")
        try:
            if negated:
                return Requirement.checked(key, _ABSENT)
            if self._peek() in ("", ","):
                return Requirement.checked(key, _EXISTS)
            return Requirement.checked(key, *self._condition())
        except SelectorError as error:
            where = start if error.position is None else error.position
            raise SelectorError(error.words, where) from None

    def _condition(self) -> tuple[Operator, set[str]]:
        sign = self._peek()
        if sign not in _BINARY:
            raise self._wrong("an operator")
        self._next += 1
        if sign in ("in", "notin"):
            return _BINARY[sign], self._set()
        return _BINARY[sign], {"" if self._peek() in ("", ",") else self._word("a value")}

    def _set(self) -> set[str]:
        self._expect("(")
        values = {self._value()}
        while self._accept(","):
            values.add(self._value())
        self._expect(")")
        return values

    def _value(self) -> str:
        return "" if self._peek() in (",", ")") else self._word("a value")

    def _word(self, wanted: str) -> str:
        word = self._peek()
        if word in _SYMBOLS:
            raise self._wrong(wanted)
        self._next += 1
        return word

    def _accept(self, symbol: str) -> bool:
        found = self._peek() == symbol
        self._next += found
        return found

    def _expect(self, symbol: str) -> None:
        if not self._accept(symbol):
            raise self._wrong(f"'{symbol}'")

    def _peek(self) -> str:
        return self._tokens[self._next][0]

    def _wrong(self, wanted: str) -> SelectorError:
        word, position = self._tokens[self._next]
        found = f"'{word}'" if word else "the end"
        return SelectorError(f"{wanted} is wanted, not {found}", position)
