"""How a program reaches its cluster: what its flags and its configuration say together."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from common.clock import Clock
from common.config import Configuration
from common.kube.client import KubeClient, connect
from common.program import Options


def connected(
    config: Configuration, options: Options, *, clock: Clock
) -> AbstractAsyncContextManager[KubeClient]:
    """Log in to the cluster that the flags name, as hurried as the configuration allows."""
    return connect(
        kubeconfig=options.kubeconfig,
        context=options.context,
        qps=config.client_connection.qps,
        burst=config.client_connection.burst,
        clock=clock,
    )
