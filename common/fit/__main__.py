# SPDX-License-Identifier: Apache-2.0
"""Judge cases from standard input, one JSON line each; answer with one JSON line each.

A case is what kube-scheduler saw, as API objects; all but the pod may be left out:

    {"pod": {…}, "nodes": […], "pods": […], "namespaces": […], "pvs": […], "pvcs": […],
     "storageclasses": […], "csinodes": […], "priorityclasses": […], "replicasets": […],
     "statefulsets": […]}

The answer names the nodes that the pod may run on, and for every other one why not:

    {"feasible": ["n1"], "refused": {"n2": ["Insufficient cpu"]}}
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from common import __version__
from common.fit.cases import Case, verdict
from common.visible import visible, visible_json


def main() -> int:
    """Answer every line; a line that makes no sense ends the run with its number."""
    _parser().parse_args()
    decoder = msgspec.json.Decoder(Case)
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        try:
            answer = verdict(decoder.decode(line))
        except ValueError as error:
            print(f"line {number}: {visible(str(error))}", file=sys.stderr)
            return 1
        print(visible_json(msgspec.json.encode(answer).decode()), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m common.fit", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("--version", action="version", version=f"common.fit {__version__}")
    return made


if __name__ == "__main__":
    sys.exit(main())
