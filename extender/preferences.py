# SPDX-License-Identifier: Apache-2.0
"""What makes kube-scheduler prefer nodes for a pod, beside their load and their requests.

A pod that any of this concerns needs all nodes, because the preferred ones need not be cool.
Each answer may only err towards "it matters", and costs no more for a large cluster: terms
and images are indexed by the events that change them.

Score plugins: pkg/scheduler/framework/plugins/{nodeaffinity, interpodaffinity, tainttoleration,
podtopologyspread, imagelocality, dynamicresources, volumebinding} in v1.36 and v1.37. Those
that score requests (noderesources) have the same aim as load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from common.api.objects import Taint
from common.cluster.records import NodeRecord, PodRecord
from common.cluster.selectors import Selector
from common.cluster.shapes import PodShape, PodTerm
from common.cluster.tolerations import tolerated

_MAX_SELECTORS: Final = 1_000
"""A pod that more selectors than this could match is not compared with them."""
_MAX_NAMESPACES: Final = 16
"""A term that names more namespaces than this counts for all of them."""
_MB: Final = 1024 * 1024
_MIN_IMAGE_BYTES: Final = 23 * _MB
_MAX_IMAGE_BYTES: Final = 1000 * _MB
"""`minThreshold` and `maxContainerThreshold` of imagelocality/image_locality.go."""


def has_own(shape: PodShape) -> bool:
    """Return whether a pod prefers some nodes by its own spec."""
    return bool(
        shape.preferred_nodes
        or shape.preferred_affinity
        or shape.preferred_anti_affinity
        or any(not constraint.hard for constraint in shape.spread)
    )


def avoids(shape: PodShape, taints: Iterable[Taint]) -> bool:
    """Return whether a pod does not tolerate one of these taints."""
    return any(not tolerated(taint, shape.tolerations) for taint in taints)


class OthersTerms:
    """The affinity terms of pods on nodes that pull or push other pods.

    Required affinity pulls too: `HardPodAffinityWeight` is 1 by default. Replicas have one
    shape, so its terms are taken in once and not once for each replica.
    """

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[PodShape, int]] = {}
        """By identity, because comparing shapes is slow; with the number of their pods."""
        self._named: dict[str, dict[Selector, int]] = {}
        """By namespace: selectors of pods, with the number of shapes that have them."""
        self._anywhere: dict[Selector, int] = {}
        """Those of terms whose namespaces are selected by labels, which we do not read."""

    def on_pod(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Process a pod event."""
        before, after = _pulling_shape(old), _pulling_shape(new)
        if before is after:
            return
        if after is not None:
            self._add(after)
        if before is not None:
            self._remove(before)

    def concern(self, pod: PodRecord) -> bool:
        """Return whether a term may match this pod."""
        named = self._named.get(pod.namespace, {})
        if len(named) + len(self._anywhere) > _MAX_SELECTORS:
            return True
        labels = pod.labels
        return any(s.matches(labels) for s in named) or any(
            s.matches(labels) for s in self._anywhere
        )

    def _add(self, shape: PodShape) -> None:
        _, pods = self._shapes.get(id(shape), (shape, 0))
        self._shapes[id(shape)] = shape, pods + 1
        if not pods:
            self._count(shape, +1)

    def _remove(self, shape: PodShape) -> None:
        _, pods = self._shapes[id(shape)]
        if pods > 1:
            self._shapes[id(shape)] = shape, pods - 1
        else:
            del self._shapes[id(shape)]
            self._count(shape, -1)

    def _count(self, shape: PodShape, change: int) -> None:
        for term in _terms(shape):
            if not term.namespace_selector.never or len(term.namespaces) > _MAX_NAMESPACES:
                _adjust(self._anywhere, term.selector, change)
                continue
            for namespace in term.namespaces:
                selectors = self._named.setdefault(namespace, {})
                _adjust(selectors, term.selector, change)
                if not selectors:
                    del self._named[namespace]


def _adjust(selectors: dict[Selector, int], selector: Selector, change: int) -> None:
    left = selectors.get(selector, 0) + change
    if left:
        selectors[selector] = left
    else:
        selectors.pop(selector, None)


def _pulling_shape(pod: PodRecord | None) -> PodShape | None:
    if pod is None or not pod.node or pod.finished:
        return None
    shape = pod.shape
    pulls = shape.preferred_affinity or shape.preferred_anti_affinity or shape.affinity
    return shape if pulls else None


def _terms(shape: PodShape) -> Iterator[PodTerm]:
    yield from shape.affinity
    for weighted in (*shape.preferred_affinity, *shape.preferred_anti_affinity):
        yield weighted.term


class Images:
    """On how many nodes each image is."""

    def __init__(self) -> None:
        self._nodes = 0
        self._images: dict[str, tuple[int, int]] = {}
        """By name: on how many nodes it is, and its size in bytes."""

    def on_node(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        """Process a node event."""
        self._nodes += (new is not None) - (old is not None)
        before = old.images if old is not None else ()
        after = new.images if new is not None else ()
        if before != after:
            self._change(after, +1)
            self._change(before, -1)

    def matter(self, shape: PodShape) -> bool:
        """Return whether the ImageLocality plugin may prefer some nodes for this pod.

        It gives no points to an image below 23 MB times the share of nodes that have it, so
        an image on a few nodes of many does not matter, nor one that all nodes have.
        """
        most = least = 0
        for image in shape.images:
            nodes, size = self._images.get(_normalized(image), (0, 0))
            if nodes:
                scaled = size * nodes // self._nodes
                most += scaled
                least += scaled if nodes == self._nodes else 0
        # Since Kubernetes 1.37 image volumes raise the largest size that counts.
        counts = {shape.containers, len(shape.images)}
        return any(_points(most, count) != _points(least, count) for count in counts)

    def _change(self, images: Iterable[tuple[str, int]], change: int) -> None:
        for name, size in dict(images).items():
            nodes, known_size = self._images.get(name, (0, 0))
            if nodes + change > 0:
                self._images[name] = nodes + change, max(size, known_size)
            else:
                self._images.pop(name, None)


def _points(scaled_bytes: int, images: int) -> int:
    """Return the score of `calculatePriority` in image_locality.go."""
    most = _MAX_IMAGE_BYTES * max(images, 1)
    return (
        100
        * (min(max(scaled_bytes, _MIN_IMAGE_BYTES), most) - _MIN_IMAGE_BYTES)
        // (most - _MIN_IMAGE_BYTES)
    )


def _normalized(image: str) -> str:
    """Return the name with its implied tag, as `normalizedImageName` does."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
