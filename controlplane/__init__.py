"""A real Kubernetes control plane on loopback, without containers.

Everything is compiled from pinned Go modules (`build`), started as ordinary processes
on free loopback ports (`up`), and judged by tests as the authority on how Kubernetes
behaves. This package imports nothing else of Evenkeel.
"""
