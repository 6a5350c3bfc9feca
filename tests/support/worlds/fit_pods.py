# SPDX-License-Identifier: Apache-2.0
"""Random pods for `fit_cases`: those that run, those that are promised a node, candidates.

A candidate has one or two themes, each about one family of predicates; beside them it is
plain, so that the theme decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator import build
from simulator.build import Manifest
from tests.support.worlds.fit_dice import (
    APPS,
    NAMESPACES,
    PRIORITIES,
    STATE,
    TERMINATING,
    ClusterCase,
    Dice,
    name_of,
)
from tests.support.worlds.fit_themes import PROMISED, RUNNING, THEMES

POD_COUNT = (14, 26)
ABOUT = "fit.evenkeel.io/about"


def bound_pods(dice: Dice, case: ClusterCase) -> Iterator[Manifest]:
    """Return the pods that run."""
    taken: set[tuple[str, ...]] = set()
    for number in range(dice.randint(*POD_COUNT)):
        pod = _pod(dice, f"{case.prefix}-p{number}")
        pod["spec"]["nodeName"] = name_of(dice.choice(case.nodes))
        for theme, share in RUNNING.items():
            if dice.chance(share):
                theme(dice, case, pod)
        _give_up_ports(pod, taken)
        if dice.chance(0.15):
            pod["metadata"]["annotations"][STATE] = TERMINATING
        elif dice.chance(0.05):
            pod["status"] = {"phase": dice.choice(("Succeeded", "Failed"))}
        elif dice.chance(0.1):
            pod["status"] = _resized(dice, pod)
        yield pod


def nominated_pods(dice: Dice, case: ClusterCase) -> Iterator[Manifest]:
    """Return pods that a node is promised to; a gate keeps them from being placed."""
    for number in range(dice.randint(2, 6)):
        pod = _pod(dice, f"{case.prefix}-w{number}")
        pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        pod["status"] = {"nominatedNodeName": name_of(dice.choice(case.nodes))}
        if dice.chance(0.8):
            pod["spec"]["priorityClassName"] = "fit-high" if dice.chance(0.8) else "fit-low"
        if dice.chance(0.15):
            pod["spec"]["schedulerName"] = "another-scheduler"
        for theme, share in PROMISED.items():
            if dice.chance(share):
                theme(dice, case, pod)
        yield pod


def candidates(dice: Dice, case: ClusterCase, count: int) -> Iterator[Manifest]:
    """Return the pods to be judged."""
    for number in range(count):
        pod = _pod(dice, f"{case.prefix}-c{number}")
        if dice.chance(0.2):
            pod["spec"]["priorityClassName"] = dice.choice(tuple(PRIORITIES))
        chosen = dice.sample(THEMES, 1 if dice.chance(0.7) else 2)
        for theme in chosen:
            theme(dice, case, pod)
        about = ", ".join(theme.__name__.strip("_") for theme in chosen)
        pod["metadata"]["annotations"][ABOUT] = about
        yield pod


def _pod(dice: Dice, name: str) -> Manifest:
    labels = {"app": dice.choice(APPS), "rev": dice.choice(("1", "2"))}
    if dice.chance(0.3):
        labels["tier"] = dice.choice(("front", "back"))
    return build.pod(
        name,
        namespace=dice.choice(NAMESPACES),
        labels=labels,
        cpu=dice.choice(("50m", "100m")),
        memory="64Mi",
    )


def _give_up_ports(pod: Manifest, taken: set[tuple[str, ...]]) -> None:
    """Leave no port to two pods of a node: when one of them ends, the scheduler forgets both."""
    container = pod["spec"]["containers"][0]
    free = []
    for port in container.get("ports", ()):
        fields = (port["hostPort"], port.get("hostIP"), port.get("protocol"))
        key = (pod["spec"]["nodeName"], *map(str, fields))
        if key not in taken:
            taken.add(key)
            free.append(port)
    container["ports"] = free


def _resized(dice: Dice, pod: Manifest) -> Manifest:
    """Return the status of a pod that was resized in place and has not arrived there yet."""
    larger = {"cpu": dice.choice(("700m", "1500m")), "memory": "128Mi"}
    seen = {"name": "app", "resources": {"requests": larger}, "allocatedResources": larger}
    rest = {"image": build.IMAGE, "imageID": "", "ready": True, "restartCount": 0}
    return {"phase": "Running", "containerStatuses": [{**seen, **rest}]}
