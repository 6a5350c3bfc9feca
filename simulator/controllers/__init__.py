"""What kube-controller-manager does in a real cluster, one module a controller."""
