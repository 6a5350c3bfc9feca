"""What a move has come to, once its replacement is Ready.

A replacement that was bound without asking an extender is *unguided*, wherever it runs: that
stops moving for load, so it is said only where extenders have spoken since and know of no
question. Without evidence a move is judged by where it led. An extender that could not write
its Lease has steered all the same; and without a living one nothing begins for load anyway.
Pure.
"""

from __future__ import annotations

from typing import Final

from common.cluster.migrations import Outcome
from common.cluster.records import PodRecord
from common.cluster.replacing import nearness
from rebalancer.extenders import Asked
from rebalancer.migration.scene import Scene
from rebalancer.migration.verdicts import Proceed

_LANDINGS: Final = {0: Outcome.AS_PLANNED, 1: Outcome.ALTERNATIVE}
_WORDS: Final = {
    Outcome.AS_PLANNED: "as planned",
    Outcome.ALTERNATIVE: "an alternative to the target",
    Outcome.ELSEWHERE: "where nobody had planned it",
    Outcome.BACK_ON_SOURCE: "where it came from",
    Outcome.UNGUIDED: "which its scheduler chose without asking an extender",
}
_DOUBT: Final = "; no extender could tell whether it was asked"


def landing(scene: Scene, node: str) -> Outcome:
    """Say where a replacement came to, compared with the plan."""
    if node == scene.migration.source:
        return Outcome.BACK_ON_SOURCE
    return _LANDINGS.get(nearness(scene.migration, node), Outcome.ELSEWHERE)


def landed(scene: Scene, pod: PodRecord, asked: Asked) -> Proceed:
    """Return the outcome of a move whose replacement is Ready, as reason and words."""
    outcome = Outcome.UNGUIDED if asked is Asked.NO else landing(scene, pod.node)
    doubt = "" if asked in (Asked.YES, Asked.NO) else _DOUBT
    return Proceed(outcome.value, f"{pod.key} is Ready on {pod.node}, {_WORDS[outcome]}{doubt}")


def succeeded(scene: Scene, node: str) -> Proceed:
    """Return the outcome of a move whose replacement has done its work before it was looked at."""
    outcome, name = landing(scene, node), scene.migration.replacement_pod
    return Proceed(outcome.value, f"{name} has succeeded on {node}, {_WORDS[outcome]}")
