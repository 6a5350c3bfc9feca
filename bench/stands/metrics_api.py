# SPDX-License-Identifier: Apache-2.0
"""A metrics API with known usage, behind the API server's aggregation layer.

A real metrics-server has to scrape every node, and a thousand simulated kubelets disturb what
is measured. This one answers like it, from one text whose times are replaced: reading samples
costs the programs, the API server and the network the same.

    python -m bench.stands.metrics_api NODES PODS CERTIFICATE KEY
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from bench.process import running
from controlplane import aggregation
from controlplane.certificates import Authority
from controlplane.cluster import ControlPlane
from controlplane.components import CA
from controlplane.waiting import until

HOST = f"{aggregation.SERVICE}.{aggregation.NAMESPACE}.svc"
_ROOT = f"/apis/{aggregation.GROUP}/{aggregation.VERSION}"
_NOW = "@NOW@"


@contextmanager
def metrics_api(plane: ControlPlane, nodes: Sequence[str], pods: Sequence[str]) -> Iterator[None]:
    """Serve usage of these nodes, and pods of namespace default, until the block ends."""
    pki = plane.folder
    certificate, key = pki.certificate("bench-metrics"), pki.key("bench-metrics")
    authority = Authority.read(pki.certificate(CA), pki.key(CA))
    authority.server("bench-metrics", [HOST, "localhost"]).write(certificate, key)
    lists = [pki.root / name for name in ("bench-nodes", "bench-pods")]
    for path, names in zip(lists, (nodes, pods), strict=True):
        path.write_text("\n".join(names))
    arguments = [*map(str, lists), str(certificate), str(key)]
    with running([sys.executable, "-m", "bench.stands.metrics_api", *arguments]) as (_, port):
        ca = pki.certificate(CA).read_bytes()
        plane.api.apply(aggregation.manifests(int(port), ca))
        until(
            lambda: aggregation.available(plane.api),
            timeout_s=60.0,
            what="the metrics API did not become available",
        )
        yield


def _entry(index: int, name: str, *, pod: bool) -> str:
    meta = f'{{"name":"{name}","namespace":"default"}}' if pod else f'{{"name":"{name}"}}'
    head = f'{{"metadata":{meta},"timestamp":"{_NOW}","window":"15s"'
    if pod:
        usage = f'{{"cpu":"{50_000_000 + index * 7_919 % 200_000_000}n","memory":"204801Ki"}}'
        return f'{head},"containers":[{{"name":"app","usage":{usage}}}]}}'
    cpu = 2_000_000_000 + index * 7_654_321 % 4_000_000_000
    return f'{head},"usage":{{"cpu":"{cpu}n","memory":"8388609Ki"}}}}'


def _app(nodes: Sequence[str], pods: Sequence[str]) -> web.Application:
    texts = {
        "nodes": ",".join(_entry(i, name, pod=False) for i, name in enumerate(nodes)),
        "pods": ",".join(_entry(i, name, pod=True) for i, name in enumerate(pods)),
    }

    async def discovery(_: web.Request) -> web.Response:
        resources = [
            {"name": "nodes", "kind": "NodeMetrics", "namespaced": False, "verbs": ["get", "list"]},
            {"name": "pods", "kind": "PodMetrics", "namespaced": True, "verbs": ["get", "list"]},
        ]
        version = f"{aggregation.GROUP}/{aggregation.VERSION}"
        body = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
        return web.json_response(body)

    async def listed(request: web.Request) -> web.Response:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        items = texts[request.match_info["plural"]].replace(_NOW, now)
        text = f'{{"metadata":{{}},"items":[{items}]}}\n'
        return web.Response(text=text, content_type="application/json")

    app = web.Application()
    app.router.add_get(_ROOT, discovery)
    app.router.add_get(_ROOT + "/{plural:nodes|pods}", listed)
    return app


async def _serve(nodes: Sequence[str], pods: Sequence[str], certificate: str, key: str) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    runner = web.AppRunner(_app(nodes, pods), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def main() -> None:
    nodes, pods = (Path(path).read_text().split() for path in sys.argv[1:3])
    asyncio.run(_serve(nodes, pods, *sys.argv[3:5]))


if __name__ == "__main__":
    main()
