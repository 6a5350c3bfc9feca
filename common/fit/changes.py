# SPDX-License-Identifier: Apache-2.0
"""Things that could happen to a cluster, for questions about the world after them."""

from __future__ import annotations

import msgspec

from common.cluster.records import NodeName, PodUid
from common.fit.candidate import Candidate


class Arrive(msgspec.Struct, frozen=True, gc=False):
    """A pod comes to run on a node."""

    pod: Candidate
    node: NodeName


class Terminate(msgspec.Struct, frozen=True, gc=False):
    """A pod is told to end; until it is gone it keeps all that it holds."""

    uid: PodUid


class Leave(msgspec.Struct, frozen=True, gc=False):
    """A pod is gone."""

    uid: PodUid


Change = Arrive | Terminate | Leave
