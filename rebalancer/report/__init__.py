"""A plan for machines and for people."""

from rebalancer.report.document import PlanDocument, as_json, document, schema
from rebalancer.report.terminal import render

__all__ = ["PlanDocument", "as_json", "document", "render", "schema"]
