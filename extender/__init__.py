"""The service that the stock kube-scheduler asks where pods should go."""
