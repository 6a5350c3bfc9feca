# SPDX-License-Identifier: Apache-2.0
"""Which node a series is about.

Monitoring names machines in its own ways: by node name, by host name, by address, with or
without the port of an exporter. A name that two nodes share identifies neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from common.cluster.records import NodeName, NodeRecord

_PORT: Final = re.compile(r":\d+$", re.ASCII)


class NodeNames:
    """Finds nodes by their names, host names and addresses."""

    def __init__(self, nodes: Iterable[NodeRecord], label: str = "node") -> None:
        self._label = label
        self._by_alias: dict[str, NodeName | None] = {}
        nodes = tuple(nodes)
        for node in nodes:
            for alias in set(node.addresses):
                self._by_alias[alias] = None if alias in self._by_alias else node.name
        # A node's name is its own, whatever another node's addresses say.
        self._by_alias.update((node.name, node.name) for node in nodes)

    def find(self, labels: Mapping[str, str]) -> NodeName | None:
        """Return the node that these labels name, by the node label or else by `instance`."""
        named = labels.get(self._label) or labels.get("instance", "")
        return self._by_alias.get(named) or self._by_alias.get(host_of(named))


def host_of(instance: str) -> str:
    """Return an `instance` without its port: `10.0.0.1:9100`, `[fd00::1]:9100`, `worker-1`."""
    if instance.startswith("["):
        return instance[1:].partition("]")[0]
    return instance if instance.count(":") > 1 else _PORT.sub("", instance)
