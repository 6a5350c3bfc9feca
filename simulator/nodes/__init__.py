"""Nodes: kubelets that run pods, the load these make, and the pipeline that measures it."""
