# SPDX-License-Identifier: Apache-2.0
"""One cycle of the real loop on a fuzzed cluster: read, assess, plan, look again, write.

Real are the tables behind the decoder, the load tracker, the decider, the loop and the writer;
the API server is a client that accepts every Migration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from common.cache.reader import CACHED_KINDS
from common.cache.state import ClusterState
from common.cluster.records import NodeName, PodUid
from common.config import RebalancerConfiguration
from common.kube.envelopes import Broken, ObjectDecoder
from common.kube.resources import Resource
from common.load import Belief, Load, LoadTracker
from common.metrics import Metrics
from common.usage.source import Sample, Usage
from rebalancer.leading import Leadership
from rebalancer.loop import LoopParts, RebalanceLoop
from rebalancer.planner import Plan
from rebalancer.store import MigrationStore
from rebalancer.triggers import Triggers
from tests.support.clock import FakeClock, without_threads
from tests.support.stands.kube_api import PartialKubeApi
from tests.support.worlds.fuzz_objects import FuzzCluster
from tests.support.worlds.loop import OpenPolicy, no_usage_events
from tests.support.worlds.observer import FakeObserver

NOW_S = 1_800_000_000.0
CONFIG = RebalancerConfiguration.model_validate(
    {
        "mode": "act",
        "enabledStrategies": ["NodeMaintenance", "ResourceOptimization", "LoadBalancing"],
        "excludedPodSelector": "keep=me",
        "observations": 1,
        "revalidateAfter": "0s",
        "revalidateWithin": "1s",
    }
)
_STATE = ClusterState()
"""One for all clusters: making one takes as long as a cycle."""
_READ = {r.table(_STATE): ObjectDecoder(r.type_) for r in CACHED_KINDS}
_CPU, _MEM = 8000.0, 32.0 * 2**30


class HastyClock(FakeClock):
    """Lets the time that is waited for pass at once."""

    async def sleep(self, seconds: float) -> None:
        self._monotonic += seconds


class FuzzRun(PartialKubeApi):
    """A cluster on its way through the loop."""

    def __init__(self, cluster: FuzzCluster) -> None:
        self.cluster = cluster
        self.refused: list[str] = []
        """Objects that could not be taken in."""
        self.specs: list[dict[str, Any]] = []
        """What was written, as JSON."""
        self._looks = 0
        self._tracker = LoadTracker()
        self._clock = HastyClock(now=NOW_S)
        self._fill()
        metrics = Metrics("test")
        parts = LoopParts(
            observer=FakeObserver(self.believe),
            store=MigrationStore(self, _STATE, clock=self._clock, metrics=metrics),
            policy=OpenPolicy(),
            triggers=Triggers(self._clock),
            leadership=Leadership(),
            usage_events=no_usage_events(self._clock),
        )
        self.loop = RebalanceLoop(parts, lambda: CONFIG, clock=self._clock, metrics=metrics)

    async def cycle(self) -> Plan:
        """Plan and write once; whatever fails is raised."""
        without_threads()  # going to a thread and back takes longer than planning
        await self.loop.cycle()
        assert self.loop.plan is not None
        return self.loop.plan

    def believe(self, predecessors: Mapping[PodUid, Load]) -> Belief:
        self._looks += 1
        snapshot, now_s = _STATE.snapshot(), NOW_S + self._looks
        self._tracker.observe(self._sample(now_s), snapshot, now_s)
        return Belief(snapshot, self._tracker.view(snapshot, now_s, predecessors))

    async def create(self, resource: Resource, body: Any, **_: Any) -> bytes:
        """Accept a Migration as the API server would."""
        made = msgspec.json.decode(msgspec.json.encode(body))
        self.specs.append(made["spec"])
        made["metadata"] |= {
            "uid": f"m{len(self.specs)}",
            "resourceVersion": str(len(self.specs)),
            "creationTimestamp": "2027-01-15T08:00:00Z",
        }
        return msgspec.json.encode(made)

    async def delete(self, resource: Resource, *, name: str, **_: Any) -> bytes:
        raise AssertionError(f"nothing is to be deleted: {resource.plural} {name}")

    def _fill(self) -> None:
        for table in _READ:
            for key in list(table.keys()):
                table.forget(key)
        for name, manifests in self.cluster.objects.items():
            table = getattr(_STATE, name)
            decoder = _READ[table]
            for manifest in manifests:
                read = decoder.one(msgspec.Raw(msgspec.json.encode(manifest)))
                assert not isinstance(read, Broken), read
                try:
                    table.upsert(read)
                except ValueError as error:
                    self.refused.append(
                        f"{manifest['kind']} {manifest['metadata']['name']}: {error}"
                    )

    def _sample(self, end_s: float) -> Sample:
        nodes = {
            NodeName(name): Usage(cpu * _CPU / 100, mem * _MEM / 100, end_s, 30.0)
            for name, (cpu, mem) in self.cluster.node_percent.items()
        }
        pods = {
            key: Usage(cpu * _CPU / 100, mem * _MEM / 100, end_s, 30.0)
            for key, (cpu, mem) in self.cluster.pod_percent.items()
        }
        return Sample(nodes=nodes, pods=pods)
