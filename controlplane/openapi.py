# SPDX-License-Identifier: Apache-2.0
"""What each release of Kubernetes says of its own API, without building or running it.

The OpenAPI descriptions are part of the source (`api/openapi-spec/v3`), a file for each group and
version. Only they are kept: the module that they come in is a hundred times larger.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from controlplane.build import Report, cache_folder, module_dir
from controlplane.releases import Release


def descriptions(release: Release, report: Report = print) -> Path:
    """Return the folder with a release's descriptions, downloaded once."""
    kept = cache_folder() / "openapi" / release.kubernetes
    if not kept.exists():
        report(f"downloading the API description of Kubernetes {release.kubernetes}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Next to the place where it will be, so that the rename stays on one file system.
        with tempfile.TemporaryDirectory(prefix="download-", dir=kept.parent) as scratch:
            source = module_dir(
                "k8s.io/kubernetes", release.kubernetes, report, cache=Path(scratch) / "modules"
            )
            fresh = Path(scratch) / "v3"
            shutil.copytree(source / "api" / "openapi-spec" / "v3", fresh)
            _keep(fresh, kept)
    return kept


def _keep(fresh: Path, kept: Path) -> None:
    """Move a folder into place; that of another process that was faster is as good."""
    try:
        fresh.rename(kept)
    except OSError:
        if not kept.exists():
            raise
