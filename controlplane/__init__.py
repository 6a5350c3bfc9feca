# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes control plane on loopback, without containers.

Everything is compiled from pinned Go modules (`build`), started as ordinary processes
on free loopback ports (`up`), and used by tests as the reference for the behavior of
Kubernetes. This package imports nothing else of Evenkeel.
"""
