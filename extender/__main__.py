"""`python -m extender`: the service that kube-scheduler asks."""

from __future__ import annotations

import argparse
import gc
import sys
from typing import Final

from common.config import ExtenderConfiguration
from common.program import Program, main, port
from extender.program import ExtenderOptions, run

# A sample of a large cluster is taken in, in a thread, for most of a second. By default the
# interpreter lets that thread go on for 5 ms whenever a request wants its turn.
_SWITCH_S: Final = 0.0005
# Answers leave little behind that a collector would find; by default it looks every 700
# objects, and in all that a large answer is made of every few requests.
_COLLECT: Final = (20_000, 20, 20)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this program has."""
    parser.add_argument(
        "--port",
        metavar="P",
        type=port,
        default=8888,
        help="port that kube-scheduler asks; 0 is a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--health-bind-address",
        metavar="A",
        default="",
        help="address of the health port, if not that of the service; probes and Prometheus "
        "come from outside the pod",
    )
    parser.add_argument(
        "--tls-cert-file", metavar="F", default="", help="certificate of the service (PEM)"
    )
    parser.add_argument("--tls-private-key-file", metavar="F", default="", help="and its key")
    parser.add_argument(
        "--client-ca-file",
        metavar="F",
        default="",
        help="only clients with a certificate of these authorities are answered",
    )


PROGRAM: Final = Program(
    name="extender",
    summary="Steers pods: a scheduler extender for the stock kube-scheduler.",
    configuration=ExtenderConfiguration,
    options=ExtenderOptions,
    health_port=8889,
    run=run,
    add_flags=add_flags,
    debug_page="/debug/nodes",
)

if __name__ == "__main__":
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(*_COLLECT)
    sys.exit(main(PROGRAM))
