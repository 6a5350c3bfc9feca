# SPDX-License-Identifier: Apache-2.0
"""`python -m extender`: the service that kube-scheduler calls."""

from __future__ import annotations

import argparse
import gc
import sys
from typing import Final

from common.cli import HealthPort, Program, main, port
from common.config import ExtenderConfiguration
from extender.main import ExtenderOptions, run

# A thread processes a usage sample of a large cluster for most of a second. By default the
# interpreter lets that thread continue for 5 ms whenever a request is waiting.
_SWITCH_INTERVAL_S: Final = 0.0005
# Requests leave few reference cycles behind. With the default thresholds the collector runs
# every 700 objects, and every few requests it scans all objects of a large request.
_GC_THRESHOLDS: Final = (20_000, 20, 20)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this program has."""
    parser.add_argument(
        "--port",
        metavar="P",
        type=port,
        default=8888,
        help="port that kube-scheduler calls; 0 picks a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--health-bind-address",
        metavar="A",
        default="",
        help="address of the health port (default: that of --bind-address); must be reachable for "
        "probes and Prometheus",
    )
    parser.add_argument(
        "--tls-cert-file", metavar="F", default="", help="serving certificate (PEM)"
    )
    parser.add_argument(
        "--tls-private-key-file",
        metavar="F",
        default="",
        help="private key of the serving certificate (PEM)",
    )
    parser.add_argument(
        "--client-ca-file",
        metavar="F",
        default="",
        help="only accept clients with a certificate of these CAs (PEM)",
    )


PROGRAM: Final = Program(
    name="extender",
    summary="Scheduler extender that directs pods to suitable nodes, for the stock kube-scheduler.",
    configuration=ExtenderConfiguration,
    options=ExtenderOptions,
    health=HealthPort(8889, "/debug/nodes"),
    run=run,
    add_flags=add_flags,
)

if __name__ == "__main__":
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.exit(main(PROGRAM))
