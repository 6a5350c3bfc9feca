# SPDX-License-Identifier: Apache-2.0
"""A plan for machines and for people."""

from rebalancer.report.document import (
    MoveDocument,
    PlanDocument,
    as_json,
    document,
    move_document,
    schema,
)
from rebalancer.report.terminal import render

__all__ = [
    "MoveDocument",
    "PlanDocument",
    "as_json",
    "document",
    "move_document",
    "render",
    "schema",
]
