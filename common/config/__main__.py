# SPDX-License-Identifier: Apache-2.0
"""Print the reference page, or with the name of a kind its JSON Schema."""

from __future__ import annotations

import argparse
import json

from common.config.loading import KINDS
from common.config.reference import json_schema, page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m common.config", description=__doc__)
    parser.add_argument("--schema", choices=KINDS, metavar="KIND", help=" or ".join(KINDS))
    kind = parser.parse_args().schema
    print(json.dumps(json_schema(KINDS[kind]), indent=2) if kind else page(), end="")


if __name__ == "__main__":
    main()
