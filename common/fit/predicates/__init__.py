# SPDX-License-Identifier: Apache-2.0
"""The registry of predicates, in the order in which kube-scheduler runs its filters.

`PREDICATES` is looked up at each question, so that a test can take one out.
"""

from __future__ import annotations

from common.fit.predicates.base import Predicate
from common.fit.predicates.declared_features import DECLARED_FEATURES
from common.fit.predicates.host_ports import HOST_PORTS
from common.fit.predicates.node_affinity import NODE_AFFINITY
from common.fit.predicates.node_name import NODE_NAME
from common.fit.predicates.pod_affinity import POD_AFFINITY
from common.fit.predicates.resource_claims import RESOURCE_CLAIMS
from common.fit.predicates.resources import RESOURCES
from common.fit.predicates.taints import TAINTS
from common.fit.predicates.topology_spread import TOPOLOGY_SPREAD
from common.fit.predicates.unschedulable import UNSCHEDULABLE
from common.fit.predicates.volume_binding import VOLUME_BINDING
from common.fit.predicates.volume_limits import VOLUME_LIMITS
from common.fit.predicates.volume_restrictions import VOLUME_RESTRICTIONS
from common.fit.predicates.volume_zone import VOLUME_ZONE

__all__ = ("PREDICATES", "Predicate")

# getDefaultPlugins in pkg/scheduler/apis/config/v1/default_plugins.go; only names come
# first, because nodes that affinity does not name are not checked.
PREDICATES: tuple[Predicate, ...] = (
    NODE_NAME,
    UNSCHEDULABLE,
    TAINTS,
    NODE_AFFINITY,
    HOST_PORTS,
    RESOURCES,
    VOLUME_RESTRICTIONS,
    VOLUME_LIMITS,
    VOLUME_BINDING,
    VOLUME_ZONE,
    TOPOLOGY_SPREAD,
    POD_AFFINITY,
    RESOURCE_CLAIMS,
    DECLARED_FEATURES,
)
