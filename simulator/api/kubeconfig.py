"""A kubeconfig for a simulated cluster, which asks nobody who they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

_NAME: Final = "evenkeel-simulator"


def write_kubeconfig(path: Path, url: str) -> Path:
    """Write a kubeconfig that leads to `url`; return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": {"server": url}}],
        "users": [{"name": _NAME, "user": {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
