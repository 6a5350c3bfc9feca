# SPDX-License-Identifier: Apache-2.0
"""The small part of CEL that the rules of our custom resources use.

Paths under `self` and `oldSelf`, `has()`, `!`, `&&`, `||`, `==`, `!=`, `in`, brackets, and
plain literals. Everything else is rejected when a schema is registered: a rule is either
evaluated as on the real server, or not accepted at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

Values = Mapping[str, Any]
Term = Callable[[Values], Any]

_TOKENS: Final = re.compile(
    r"\s*(?:(?P<text>'[^'\\]*'|\"[^\"\\]*\")|(?P<number>\d+(?![\d.]))"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign>&&|\|\||==|!=|[!().]))"
)
_LITERALS: Final[Mapping[str, Any]] = {"true": True, "false": False}
_ROOTS: Final = ("self", "oldSelf")


class NotUnderstood(ValueError):
    """An expression beyond this part of CEL."""


class NoSuchKey(LookupError):
    """A missing field was accessed without `has()`."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no such key: {key}")


@dataclass(frozen=True)
class Expression:
    """A compiled rule."""

    term: Term
    transition: bool
    """It compares with the old value, so it does not apply to a new object."""

    def holds(self, self_: Any, old: Any = None) -> bool:
        """Say whether a value keeps the rule; raise NoSuchKey as CEL does."""
        return self.term({"self": self_, "oldSelf": old}) is True


@lru_cache(maxsize=256)
def parse(text: str) -> Expression:
    """Read an expression; raise NotUnderstood for what is not supported."""
    parser = _Parser(_tokens(text))
    term = parser.any_of()
    if parser.left:
        raise NotUnderstood(text)
    return Expression(term, parser.transition)


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise NotUnderstood(text)
        found.append(match.group().strip())
        at = match.end()
    return found


class _Parser:
    """Recursive descent, one method per level of binding."""

    def __init__(self, tokens: list[str]) -> None:
        self.left = tokens
        self.transition = False

    def any_of(self) -> Term:
        terms = [self.all_of()]
        while self._took("||"):
            terms.append(self.all_of())
        return terms[0] if len(terms) == 1 else lambda v: _decided(terms, v, by=True)

    def all_of(self) -> Term:
        terms = [self.comparison()]
        while self._took("&&"):
            terms.append(self.comparison())
        return terms[0] if len(terms) == 1 else lambda v: _decided(terms, v, by=False)

    def comparison(self) -> Term:
        left = self.negation()
        if self._took("=="):
            right = self.negation()
            return lambda v: left(v) == right(v)
        if self._took("!="):
            right = self.negation()
            return lambda v: left(v) != right(v)
        if self._took("in"):
            right = self.negation()
            return lambda v: left(v) in right(v)
        return left

    def negation(self) -> Term:
        if self._took("!"):
            term = self.negation()
            return lambda v: not term(v)
        return self.operand()

    def operand(self) -> Term:
        if self._took("("):
            term = self.any_of()
            self._need(")")
            return term
        token = self._next()
        if token == "has":
            return self._has()
        if token in _ROOTS:
            path = self._path(token)
            return lambda v: _read(v, path)
        return _literal(token)

    def _has(self) -> Term:
        self._need("(")
        path = self._path(self._next())
        self._need(")")
        if len(path) < 2:
            raise NotUnderstood("has() of no field")
        return lambda v: path[-1] in _read(v, path[:-1])

    def _path(self, root: str) -> tuple[str, ...]:
        if root not in _ROOTS:
            raise NotUnderstood(root)
        self.transition = self.transition or root == "oldSelf"
        path = [root]
        while self._took("."):
            path.append(self._next())
        if not all(step.isidentifier() for step in path):
            raise NotUnderstood(".".join(path))
        return tuple(path)

    def _took(self, token: str) -> bool:
        if self.left and self.left[0] == token:
            del self.left[0]
            return True
        return False

    def _next(self) -> str:
        if not self.left:
            raise NotUnderstood("it ends too early")
        return self.left.pop(0)

    def _need(self, token: str) -> None:
        if not self._took(token):
            raise NotUnderstood(f"{token} is missing")


def _decided(terms: list[Term], values: Values, *, by: bool) -> bool:
    """Return `by` if any term evaluates to it, even if others fail."""
    error: NoSuchKey | None = None
    for term in terms:
        try:
            if bool(term(values)) == by:
                return by
        except NoSuchKey as missing:
            error = missing
    if error is not None:
        raise error
    return not by


def _literal(token: str) -> Term:
    if token[0] in "'\"":
        return lambda _: token[1:-1]
    if token.isdigit():
        return lambda _: int(token)
    if token in _LITERALS:
        return lambda _: _LITERALS[token]
    raise NotUnderstood(token)


def _read(values: Values, path: tuple[str, ...]) -> Any:
    found: Any = values
    for step in path:
        if not isinstance(found, Mapping) or step not in found:
            raise NoSuchKey(step)
        found = found[step]
    return found
