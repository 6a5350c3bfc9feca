# SPDX-License-Identifier: Apache-2.0
"""What the simulator cannot do says what to do instead."""

from __future__ import annotations

from pathlib import Path

from bench.stands.http import open_http
from tests.support.stands.simulated import simulated_api


async def test_a_body_in_protobuf_is_answered_with_the_way_around(tmp_path: Path) -> None:
    async with simulated_api(tmp_path) as api, open_http(api.kubeconfig) as http:
        answer = await http.post(
            "/apis/apps/v1/namespaces/default/deployments",
            content=b"k8s\x00",
            headers={"Content-Type": "application/vnd.kubernetes.protobuf"},
        )
    assert answer.status_code == 415
    assert "--dry-run=client -o yaml" in answer.json()["message"]
