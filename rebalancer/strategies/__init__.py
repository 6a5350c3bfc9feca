"""Strategies: each looks at the cluster and states goals, never victims."""
