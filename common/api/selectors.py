# SPDX-License-Identifier: Apache-2.0
"""Selectors as they stand in objects on the wire.

Only shapes: what they mean, and which of them are nonsense, is said in `selectors`.
Lists are tuples, so that everything but a map of labels can be hashed.
"""

from __future__ import annotations

import msgspec


class LabelSelectorRequirement(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class NodeSelectorRequirement(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class WireNodeSelector(msgspec.Struct, rename="camel", kw_only=True, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = ()
    """The one list that Go writes even when it is nil."""
