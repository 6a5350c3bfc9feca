"""Benchmarks: each prints figures beside a limit or a peer, measured in one run."""
