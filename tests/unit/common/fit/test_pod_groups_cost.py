# SPDX-License-Identifier: Apache-2.0
"""A pod may have thousands of labels: what that costs grows with their number, not its square."""

from __future__ import annotations

from common.fit.index.pod_groups import PodGroups


class CountedText(str):
    """A text that counts how often it is hashed."""

    __slots__ = ()
    hashed = 0

    def __hash__(self) -> int:
        CountedText.hashed += 1
        return super().__hash__()


def hashes(labels: int) -> int:
    """Return how many texts are hashed while one pod comes and goes."""
    worn: dict[str, str] = {CountedText(f"k{n}"): CountedText("v") for n in range(labels)}
    pod_groups = PodGroups()
    CountedText.hashed = 0
    for row in range(3):
        pod_groups.move(row, "t", worn, +1, terminating=False)
    for row in range(3):
        pod_groups.move(row, "t", worn, -1, terminating=False)
    return CountedText.hashed


def test_labels_are_hashed_a_few_times_each() -> None:
    assert hashes(400) < 2.5 * hashes(200)
    assert hashes(400) < 20 * 400
