# SPDX-License-Identifier: Apache-2.0
"""What the release of Kubernetes can do that the tests run on (`EVENKEEL_KUBERNETES`)."""

from __future__ import annotations

from typing import Final

import pytest

from controlplane.releases import Release, chosen_release

_MUTATES_SINCE: Final = (1, 36)


def mutates(release: Release) -> bool:
    """Tell whether a release has MutatingAdmissionPolicies in v1."""
    return tuple(map(int, release.minor.split("."))) >= _MUTATES_SINCE


def has_pod_groups(release: Release) -> bool:
    """Tell whether a release serves `scheduling.k8s.io/v1alpha2`, which 1.37 has replaced."""
    return release.minor == "1.36"


MUTATES: Final = mutates(chosen_release())
needs_mutation: Final = pytest.mark.skipif(
    not MUTATES, reason="MutatingAdmissionPolicies need Kubernetes 1.36"
)
needs_pod_groups: Final = pytest.mark.skipif(
    not has_pod_groups(chosen_release()), reason="only Kubernetes 1.36 serves PodGroups v1alpha2"
)
