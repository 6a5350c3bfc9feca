# SPDX-License-Identifier: Apache-2.0
"""Nodes with real kubelets, containerd and runc, as processes of this machine.

Every node has its own mount, cgroup and UTS namespace and its own cgroup in every v1 hierarchy,
so that its kubelet measures only itself and its pods. All nodes share one network namespace,
which is not the host's (`relay`). Nothing is mounted outside of these namespaces, and when the
last process of a node ends, the kernel removes them.
"""
