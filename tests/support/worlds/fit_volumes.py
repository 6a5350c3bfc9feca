# SPDX-License-Identifier: Apache-2.0
"""What random pods can mount: themes about claims and disks."""

from __future__ import annotations

from collections.abc import Callable

from simulator.build import Manifest
from tests.support.worlds.fit_dice import ClusterCase, Dice, name_of
from tests.support.worlds.fit_storage import UNUSABLE

Theme = Callable[[Dice, ClusterCase, Manifest], None]


def claims(*kinds: str) -> Theme:
    def theme(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
        start = f"{case.prefix}-{pod['metadata']['namespace']}-"
        _mount(pod, *(start + kind for kind in kinds))

    theme.__name__ = " and ".join(f"claim {kind}" for kind in kinds)
    return theme


def unusable(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    namespace = pod["metadata"]["namespace"]
    bad = [
        name_of(claim)
        for claim in case.pvcs
        if UNUSABLE in claim["metadata"]["labels"] and claim["metadata"]["namespace"] == namespace
    ]
    if dice.chance(0.3):
        _ephemeral(pod)
    else:
        _mount(pod, dice.choice([*bad, f"{case.prefix}-nowhere"]))


def _mount(pod: Manifest, *claims: str) -> None:
    volumes = pod["spec"].setdefault("volumes", [])
    for claim in claims:
        volume = {"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": claim}}
        volumes.append(volume)


def any_claim(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    kinds = ["plain", "plain2", "zonal", "made", "labelled"]
    if dice.chance(0.2):
        kinds.append("exclusive")
    claims(*dice.some(kinds, 2))(dice, case, pod)


def _ephemeral(pod: Manifest) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    template = {"volumeClaimTemplate": {"spec": spec}}
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.append({"name": f"e{len(volumes)}", "ephemeral": template})


def disk(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    read_only = dice.chance(0.4)
    number = dice.randint(1, 2)
    kinds: list[Manifest] = [
        {"gcePersistentDisk": {"pdName": f"disk{number}", "readOnly": read_only}},
        {"awsElasticBlockStore": {"volumeID": f"vol-{number}", "readOnly": read_only}},
        {
            "iscsi": {
                "targetPortal": "10.0.0.9:3260",
                "iqn": f"iqn.2001-04.com.example:storage.disk{number}",
                "lun": 0,
                "readOnly": read_only,
            }
        },
        {
            "rbd": {
                "monitors": dice.some(("10.0.0.7:6789", "10.0.0.8:6789"), 2),
                "image": f"image{number}",
                "readOnly": read_only,
            }
        },
    ]
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.append({"name": f"d{len(volumes)}", **dice.choice(kinds)})


def exclusive_and_disk(dice: Dice, case: ClusterCase, pod: Manifest) -> None:
    claims("exclusive")(dice, case, pod)
    disk(dice, case, pod)
