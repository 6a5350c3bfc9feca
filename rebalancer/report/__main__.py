# SPDX-License-Identifier: Apache-2.0
"""Print the JSON Schema of a plan: `python -m rebalancer.report`."""

from __future__ import annotations

from rebalancer.report.document import schema

if __name__ == "__main__":
    print(schema(), end="")
