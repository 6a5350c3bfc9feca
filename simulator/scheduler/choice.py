# SPDX-License-Identifier: Apache-2.0
"""Which of the feasible nodes a pod gets: scores, extenders' scores, and ties.

Follows prioritizeNodes (pkg/scheduler/schedule_one.go) of v1.36. Where extenders are
configured, ties are broken at random only between nodes that one of them has scored; a node that
an extender leaves out loses every tie, as with the real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import structlog

from common.cluster.records import PodRecord
from common.fit import Question
from common.fit.index.arrays import Ints
from simulator.api import Json
from simulator.rng import Rng
from simulator.scheduler.extenders import Extender, ExtenderError, NodeOf
from simulator.scheduler.scores import totals
from simulator.scheduler.wire import HostScore

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def own_scores(ask: Question, names: Sequence[str]) -> Ints:
    """Return the sums of the built-in scores; nodes that only an extender knows get 0."""
    facts = ask.seek().facts
    row_of = cast("Mapping[str, int]", facts.row_of)
    rows = np.array([row_of.get(name, -1) for name in names], dtype=np.int64)
    known = rows >= 0
    among = np.zeros(facts.capacity, dtype=np.bool_)
    among[rows[known]] = True
    return np.where(known, totals(ask, among)[rows], 0)


async def extender_scores(
    extenders: Sequence[Extender], pod: Json, names: Sequence[str], node_of: NodeOf
) -> dict[str, int]:
    """Return the sums of the extenders' scores for the nodes that any of them scored."""
    asked = [extender for extender in extenders if extender.is_interested(pod)]
    answers = await asyncio.gather(*(_scores(extender, pod, names, node_of) for extender in asked))
    found: dict[str, int] = {}
    for answer in answers:
        for each in answer:
            found[each.host] = found.get(each.host, 0) + each.score
    return found


async def _scores(
    extender: Extender, pod: Json, names: Sequence[str], node_of: NodeOf
) -> list[HostScore]:
    try:
        return await extender.scores(pod, names, node_of)
    except ExtenderError as error:
        # Never fails the pod, whatever `ignorable` says.
        log.debug("extender gave no scores", extender=extender.name, error=str(error))
        return []


def best(
    names: Sequence[str],
    own: Ints,
    scored: Mapping[str, int] | None,
    pod: PodRecord,
    rng: Rng,
) -> str:
    """Return the node with the highest sum; `scored` is None where no extender is configured."""
    sums = own
    if scored is not None:
        sums = own + np.array([scored.get(name, 0) for name in names], dtype=np.int64)
    tied = [names[index] for index in np.flatnonzero(sums == sums.max()).tolist()]
    drawn = [name for name in tied if scored is None or name in scored]
    if not drawn:
        return tied[0]
    return drawn[int(rng.share("tie", pod.uid) * len(drawn))]
