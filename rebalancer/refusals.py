# SPDX-License-Identifier: Apache-2.0
"""Why something is not done: every reason, its messages, and whether waiting helps.

`Reason` is the one table of reasons. A reason has a name for machines, which is part of what
users see (plans, conditions, metrics, docs) and never changes, and messages for people. Most
reasons have one message; where the same reason has several causes, each further message is
chosen by its `case`. A message is a clause that completes "it stays, because …" and is
understood without the docs.

    Reason.TARGET_GONE.refusal(node="n7")
    Reason.PDB_UNSETTLED.refusal("pending", pdb="web", count=2)

Reasons that Kubernetes reports about a pod (`ImagePullBackOff`) are not ours and not listed:
`reported` makes refusals of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self

import msgspec


class Refusal(msgspec.Struct, frozen=True, order=True, gc=False):
    """One reason against moving a pod, or against using a node."""

    name: str
    """CamelCase and constant, so that it can be counted: `DaemonSetPod`."""
    message: str
    permanent: bool = True
    """Waiting changes nothing."""

    def for_now(self) -> bool:
        """Tell whether waiting can make it go away."""
        return not self.permanent

    def with_message(self, message: str) -> Refusal:
        """Return the same reason, explained in another way."""
        return msgspec.structs.replace(self, message=message)


class Message(NamedTuple):
    """What a reason says in one case."""

    template: str
    """With the names of the fields that `Reason.refusal` is given, as for `str.format`."""
    permanent: bool
    case: str


def _permanent(template: str, case: str = "") -> Message:
    return Message(template, permanent=True, case=case)


def _for_now(template: str, case: str = "") -> Message:
    return Message(template, permanent=False, case=case)


class Reason(StrEnum):
    """Every reason that Evenkeel gives, by its name."""

    messages: dict[str, Message]
    """By case; the ordinary one has the empty case."""

    def __new__(cls, name: str, *messages: Message) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.messages = {message.case: message for message in messages}
        return member

    def refusal(self, case: str = "", /, **fields: object) -> Refusal:
        """Return the refusal with its message filled in."""
        message = self.messages[case]
        return Refusal(self._value_, message.template.format(**fields), message.permanent)

    # Pods that may not be moved: evictability, in the order of the gates.
    TERMINATING = "Terminating", _permanent("it is being deleted already")
    FINISHED = "Finished", _permanent("it has ended ({phase})")
    NOT_PLACED = "NotPlaced", _for_now("it is on no node yet")
    MIRROR_POD = "MirrorPod", _permanent("the kubelet of its node runs it from a file")
    DAEMON_SET_POD = (
        "DaemonSetPod",
        _permanent("its DaemonSet would recreate it on the same node"),
    )
    OWN_POD = "OwnPod", _permanent("its label {label} marks it as one of Evenkeel's own")
    SYSTEM_PRIORITY = (
        "SystemPriority",
        _permanent("its priority {priority} is that of system pods"),
    )
    EXCLUDED_NAMESPACE = "ExcludedNamespace", _permanent("its namespace {namespace} is excluded")
    NAMESPACE_NOT_SELECTED = (
        "NamespaceNotSelected",
        _permanent("its namespace {namespace} does not match namespaceSelector"),
    )
    EXCLUDED_POD = "ExcludedPod", _permanent("it matches excludedPodSelector")
    POD_NOT_SELECTED = "PodNotSelected", _permanent("it does not match podSelector")
    RESCHEDULING_DISABLED = "ReschedulingDisabled", _permanent("its label {label} is disabled")
    NOT_SAFE_TO_EVICT = "NotSafeToEvict", _permanent("its annotation {annotation} is false")
    DO_NOT_DISRUPT = "DoNotDisrupt", _permanent("its annotation {annotation} is true")
    PREFER_NO_EVICTION = "PreferNoEviction", _permanent("it has the annotation {annotation}")
    PRIORITY_THRESHOLD = (
        "PriorityThreshold",
        _permanent("its priority {priority} is not below priorityThreshold ({threshold})"),
    )
    PRIORITY_THRESHOLD_UNKNOWN = (
        "PriorityThresholdUnknown",
        _for_now("priorityThreshold names PriorityClass {name}, which does not exist"),
    )
    RULE_OBSERVES = "RuleObserves", _for_now("{rule} only observes, while others act")
    WINDOW_CLOSED = "WindowClosed", _for_now("it waits for {schedule}")
    OTHER_SCHEDULER = (
        "OtherScheduler",
        _permanent("scheduler {scheduler} would place its replacement by chance"),
    )
    BARE_POD = "BarePod", _permanent("no controller would replace it")
    OWNER_WITHOUT_CONTROL = (
        "OwnerWithoutControl",
        _permanent("its owner is not marked as its controller, so nothing would replace it"),
    )
    BARE_POD_NOT_COPYABLE = "BarePodNotCopyable", _permanent("no copy can stand in: {obstacles}")
    JOB_POD = "JobPod", _permanent("Job {job} would start its work over")
    JOB_COUNTS_DISRUPTIONS = (
        "JobCountsDisruptions",
        _permanent("Job {job} has no podFailurePolicy that ignores DisruptionTarget"),
    )
    CUSTOM_OWNER = "CustomOwner", _permanent("{owner} is not known to replace its pods")
    NOT_STEERABLE = (
        "NotSteerable",
        _permanent(
            "nothing tells which pod of {owner} replaces which, "
            "so its replacement would land by chance"
        ),
    )
    OWNER_LOOP = (
        "OwnerLoop",
        _permanent("the owners of its {owner} own each other, or are too many"),
    )
    OWNER_MISMATCH = (
        "OwnerMismatch",
        _permanent("it names {owner} as its controller with the uid of another object"),
    )
    OWNER_MISSING = "OwnerMissing", _for_now("its {owner} does not exist")
    OWNER_DELETED = "OwnerDeleted", _permanent("its {owner} is being deleted")
    SURPLUS_POD = (
        "SurplusPod",
        _for_now("{owner} has {current} pods and wants {desired}: it would not be replaced"),
    )
    SCHEDULING_GATES = "SchedulingGates", _permanent("its replacement would wait for {gates}")
    TOO_MANY_TERMS = (
        "TooManyTerms",
        _permanent("it has {terms} terms of affinity, and at most {limit} are judged"),
    )
    POD_GROUP = (
        "PodGroup",
        _permanent("{key} makes it part of a group of {system}, which is placed as a whole"),
    )
    POD_GROUP_WHOLE = (
        "PodGroupWhole",
        _permanent("PodGroup {group} is disrupted as a whole or not at all"),
        _permanent("all pods of PodGroup {group} have to share one {key}", case="topology"),
    )
    POD_GROUP_UNKNOWN = (
        "PodGroupUnknown",
        _for_now(
            "its PodGroup {group} does not exist, or PodGroups are not served or may not be read"
        ),
    )
    POD_GROUP_MINIMUM = (
        "PodGroupMinimum",
        _for_now(
            "PodGroup {group} needs {minimum} running pods, and would have {others} without it"
        ),
    )
    LOCAL_STORAGE = (
        "LocalStorage",
        _permanent("it keeps data on its node (hostPath or emptyDir)"),
    )
    RESOURCE_CLAIMS = (
        "ResourceClaims",
        _permanent("it has resource claims, whose devices we cannot judge"),
    )
    SINGLE_REPLICA = (
        "SingleReplica",
        _permanent("it is the only replica: moving it means downtime"),
        _permanent("a PDB for the only replica would forbid its move", case="temporary PDB"),
        _permanent("it is the only replica, and no surge is possible: {cause}", case="no surge"),
        _for_now(
            "it is the only replica, and no surge is possible now: {cause}", case="no surge now"
        ),
    )
    SURGE_OFF = "SurgeOff", _permanent("its workload is not to get one more replica for a move")
    SURGE_UNKNOWN = (
        "SurgeUnknown",
        _permanent("{value} is none of the values of the annotation {annotation}"),
    )
    SURGE_FORBIDDEN = (
        "SurgeForbidden",
        _permanent("Deployment {name} allows no additional pod (Recreate, or maxSurge 0)"),
    )
    ROLLOUT_PAUSED = "RolloutPaused", _for_now("Deployment {name} is paused")
    AUTOSCALED = (
        "Autoscaled",
        _permanent("HorizontalPodAutoscaler {autoscaler} sets its count"),
    )
    VOLUME_ON_ONE_NODE = (
        "VolumeOnOneNode",
        _permanent("its {volume} cannot be attached to two nodes at once"),
    )
    HOST_PORT = "HostPort", _permanent("it has a port of its node")
    SURGE_REVERTED = (
        "SurgeReverted",
        _for_now(
            "another client undid the last surge of {name} {hours:.1f} h ago; the next is tried "
            "a day later"
        ),
    )
    WRONG_POD_REMOVED = (
        "WrongPodRemoved",
        _permanent("{kind} {name} removed {pod} instead when it was scaled down"),
        _for_now("{name} removed another pod when its last surge ended", case="lately"),
    )
    WORKLOAD_NOT_AT_REST = "WorkloadNotAtRest", _for_now("{workload} is not at rest: {unrest}")
    TOO_FEW_REPLICAS = (
        "TooFewReplicas",
        _permanent("its workload has {replicas} replicas, minReplicas is {wanted}"),
    )
    ROLLOUT_IN_PROGRESS = (
        "RolloutInProgress",
        _for_now("{workload} was changed and its controller has not observed the change yet"),
        _for_now(
            "{workload} is being rolled out: {updated} of {wanted} pods are updated",
            case="updating",
        ),
        _for_now(
            "{workload} is being rolled out: {old} of {current} pods are still old",
            case="replacing",
        ),
    )
    WORKLOAD_UNHEALTHY = (
        "WorkloadUnhealthy",
        _for_now("{workload} has {available} of {replicas} pods available"),
    )
    STATEFUL_SET_INCOMPLETE = (
        "StatefulSetIncomplete",
        _for_now("StatefulSet {name} has {ready} of {desired} pods Ready and available"),
    )
    WORKLOAD_COOLDOWN = (
        "WorkloadCooldown",
        _for_now("its workload was moved {ago} ago, workloadCooldown is {cooldown:g}s"),
    )
    LINEAGE_COOLDOWN = (
        "LineageCooldown",
        _for_now("it or its predecessor was moved {ago} ago, lineageCooldown is {cooldown:g}s"),
    )
    NO_PDB = "NoPdb", _permanent("no PDB covers it, and podsWithoutPdb is refuse")
    LOCAL_VOLUME = "LocalVolume", _permanent("the volume of its claim {claim} is on its node")
    PROTECTED_STORAGE_CLASS = (
        "ProtectedStorageClass",
        _permanent("the storage class of its claim {claim} is protected"),
    )
    SHARED_VOLUME = (
        "SharedVolume",
        _for_now("another pod on its node also uses {claim}, which only one node can attach"),
    )
    SEVERAL_PDBS = (
        "SeveralPdbs",
        _permanent("PDBs {pdbs} cover it, which the Eviction API refuses"),
    )
    TEMPORARY_PDB_GIVES_WAY = (
        "TemporaryPdbGivesWay",
        _for_now("of PDBs {pdbs} the temporary one is about to be removed"),
        _for_now("{answer}", case="answered"),
    )
    PDB_UNSETTLED = (
        "PdbUnsettled",
        _for_now("PDB {pdb} was changed and its pods have not been counted since"),
        _for_now("PDB {pdb} waits for {count} evictions to show", case="pending"),
        _for_now("PDB {pdb} is new and its pods have not been counted yet", case="new"),
    )
    PDB_EXHAUSTED = (
        "PdbExhausted",
        _for_now(
            "PDB {pdb} allows {left} more disruptions: {healthy} of {expected} pods healthy, "
            "{desired} needed"
        ),
        _for_now(
            "PDB {pdb} allows {left} more disruptions: {healthy} of {expected} pods healthy, "
            "{desired} needed, {taken} spent by this plan",
            case="planned",
        ),
        _permanent(
            "PDB {pdb} can never allow a disruption: {healthy} of {expected} pods healthy, "
            "{desired} needed",
            case="never",
        ),
        _for_now("{answer}", case="answered"),
    )
    TOO_YOUNG = (
        "TooYoung",
        _for_now("it has been running for {age}, minPodAge is {wanted:g}s"),
        _for_now("it is only {age_s:.0f} s old; nodes count from {wanted} on (minNodeAge)", "node"),
        _for_now(
            "it is only {age_s:.0f} s old; nodes are emptied from {wanted} on "
            "(consolidation.minNodeAge)",
            case="emptied",
        ),
    )
    NOT_MEASURED = (
        "NotMeasured",
        _for_now("no fresh sample tells what it uses"),
        _for_now(
            "none of its containers is running, so moving it would relieve nothing", "not running"
        ),
    )
    UNJUDGEABLE = "Unjudgeable", _for_now("judging it failed with {error}")

    # Nodes that do not take part: strategies.
    NOT_READY = (
        "NotReady",
        _for_now("it is not Ready"),
        _for_now("the containers of {pod} run on {node}, not Ready yet", case="pod"),
    )
    CORDONED = "Cordoned", _for_now("it is cordoned")
    UNKNOWN_LOAD = "UnknownLoad", _for_now("its load is not known: {cause}")
    CONTROL_PLANE = "ControlPlane", _permanent("it is a control-plane node")
    UNDER_MAINTENANCE = "UnderMaintenance", _for_now("it is under maintenance")
    KEPT_EMPTY = (
        "KeptEmpty",
        _for_now(
            "Consolidation empties it and keeps it empty, so that an autoscaler can remove it"
        ),
        _for_now("{node} is not marked as being emptied yet", case="not marked"),
    )
    NODE_KEPT = (
        "NodeKept",
        _permanent("its annotations tell autoscalers to keep it"),
    )
    NOT_EMPTIED = (
        "NotEmptied",
        _for_now("no plan could empty it whole within the last 10 minutes"),
    )
    BEING_REMOVED = "BeingRemoved", _for_now("an autoscaler is removing it (taint {taint})")
    NO_STRATEGY_FOR_LOAD = (
        "NoStrategyForLoad",
        _permanent("{rule} enables no strategy that moves pods for load"),
    )
    NOMINATED = "Nominated", _for_now("the scheduler keeps room there for pod {pod}")
    PENDING_POD_FIRST = (
        "PendingPodFirst",
        _for_now("pod {pod} is waiting for a node and would fit there"),
    )
    UNDER_PRESSURE = "UnderPressure", _for_now("it has {pressure}")
    STARTS_NO_PODS = (
        "StartsNoPods",
        _for_now("pods do not start there: {failures}"),
        _for_now("{node}: {causes}", case="last resort"),
    )
    RESIZE_PENDING = (
        "ResizePending",
        _for_now("the resize of {pod} in place waits for room there (Deferred)"),
        _for_now("the resize of {pod} in place is not possible there (Infeasible)", "infeasible"),
    )
    NO_EVICTABLE_POD = "NoEvictablePod", _for_now("none of its pods may be moved")
    NOTHING_FITS = (
        "NothingFits",
        _for_now("none of the movable pods of its pool could run there"),
    )
    NOTHING_MOVABLE = (
        "NothingMovable",
        _for_now("none of the pods of the most loaded nodes of its pool may be moved"),
    )
    SEEN_TOO_RARELY = (
        "SeenTooRarely",
        _for_now("it has been far from its pool in too few samples so far"),
    )

    # Targets that a pod may not go to: the planner's constraints.
    TARGET_REFUSED = (
        "TargetRefused",
        _for_now("{node} takes no pods: {causes}"),
        _for_now("{node} is to be emptied", case="emptied"),
    )
    SAME_NODE = "SameNode", _for_now("it is on {node} already")
    DOES_NOT_FIT = "DoesNotFit", _for_now("its replacement does not fit on {node}: {causes}")
    NO_ROOM = "NoRoom", _for_now("its replacement does not fit on {node}: {causes}")
    ABOVE_CEILING = (
        "AboveCeiling",
        _for_now("{node} would use {percent:.1f} % {resource}, its ceiling is {ceiling:g} %"),
        _for_now("it is larger than the room under any ceiling", case="everywhere"),
        _for_now(
            "it is larger than the room under the ceiling of any node where it may run",
            case="where it may run",
        ),
    )
    RESOURCE_UNKNOWN = (
        "ResourceUnknown",
        _for_now("how much {resource} {node} has to spare is not known"),
    )
    WORST_NODE_WORSE = (
        "WorstNodeWorse",
        _for_now("{node} would use {percent:.1f} %, more than the worst node now ({worst:.1f} %)"),
        _for_now("a node would be worse than the worst is now", case="chain"),
    )
    UNWELCOME = (
        "Unwelcome",
        _for_now("{node} has a PreferNoSchedule taint that it does not tolerate"),
    )
    LESS_PREFERRED = (
        "LessPreferred",
        _for_now("{node} suits its preferred node affinity less than its node (PreferredNodes)"),
    )
    NOT_ASKED_FOR = "NotAskedFor", _for_now("{node} does not suit it better than its node")
    LEVELS_LOST = (
        "LevelsLost",
        _for_now("with it on {node} the pool would be uneven (imbalanceThreshold)"),
    )
    PILED_UP_ON_HOST = (
        "PiledUpOnHost",
        _for_now("{node} holds as many replicas of it as one host may"),
    )
    PILED_UP_IN_ZONE = (
        "PiledUpInZone",
        _for_now("the zone of {node} holds as many replicas of it as one zone may"),
    )
    SPREAD_WORSE = (
        "SpreadWorse",
        _for_now("on {node} a ScheduleAnyway constraint would be violated more"),
        _for_now("with it on {node} a DoNotSchedule constraint would be violated", case="hard"),
    )

    # Pods that a plan leaves where they are, and goals that it does not meet.
    NOT_NEEDED = "NotNeeded", _for_now("the goals are met without moving it")
    NODE_NOT_ASKED = "NodeNotAsked", _for_now("no goal requires that its node loses a pod")
    HIGHER_PRIORITY = (
        "HigherPriority",
        _for_now("its priority is {priority}, and pods of priority {most} or lower are enough"),
    )
    GOAL_UNMET = "GoalUnmet", _for_now("a goal of {node} is not met; the plan says why")
    NO_LONGER_NEEDED = "NoLongerNeeded", _for_now("the newer samples do not call for it")
    NO_COMBINATION = (
        "NoCombination",
        _for_now("single pods would fit elsewhere, but no set of them was found that is enough"),
    )
    MOVABLE_PODS_TOO_FEW = (
        "MovablePodsTooFew",
        _for_now(
            "{node} has to lose {excess:.1f} points of {resource}, "
            "its movable pods use {movable:.1f}"
        ),
        _for_now("all movable pods of {node} are moved already", case="all move"),
    )
    NO_MOVABLE_POD = (
        "NoMovablePod",
        _for_now("no pod of {node} may be moved"),
        _for_now("no pod of {node} may be moved ({causes})", case="refused"),
    )
    SOURCE_REFUSED = (
        "SourceRefused",
        _for_now("{node} gives no pods: {causes}"),
        _permanent("{node} gives no pods now", case="meanwhile"),
    )
    NOT_WORTH_IT = (
        "NotWorthIt",
        _for_now(
            "moving it would gain {gain:.1f} points of utilization for {evictions}, "
            "and {needed:.1f} are required (minGain)"
        ),
    )
    LARGER_THAN_ANY_ROOM = (
        "LargerThanAnyRoom",
        _for_now("every movable pod of {node} is larger than the room under any ceiling"),
    )
    NO_TARGET = "NoTarget", _for_now("no other node takes pods")
    DOMAINS_TOO_FEW = (
        "DomainsTooFew",
        _for_now(
            "there are {domains} domains, minDomains asks for {wanted}, and {pods} pods count"
        ),
    )
    NO_ORDER = (
        "NoOrder",
        _for_now("no order of the moves was found in which it can go"),
        _for_now("no order of the moves was found any more in which it can go", case="meanwhile"),
    )
    CHAIN_TOO_LONG = (
        "ChainTooLong",
        _for_now("its {moves} moves belong together, and {limit} never lets all of them start"),
    )
    DEFERRED = "Deferred", _for_now("{limit} puts it off")

    # Moves that may not begin now, or not go on: limits, pacing, selection.
    POD_GONE = (
        "PodGone",
        _permanent("the pod no longer exists"),
        _permanent("someone else removed the pod before its copy was Ready", case="before copy"),
        _permanent("someone else removed the pod before its surge was complete", case="surge"),
    )
    PAUSED = (
        "Paused",
        _for_now("paused is set"),
        _for_now("moves are paused {words}", case="by"),
    )
    OBSERVING = (
        "Observing",
        _for_now("{strategy} only observes"),
        _for_now("{strategy} only observes, by the modes of {rule}", case="rule"),
    )
    STRATEGY_OFF = (
        "StrategyOff",
        _permanent("{strategy} is not among enabledStrategies"),
        _permanent("{strategy} is not among enabledStrategies of {rule}", case="pool"),
    )
    NOT_ON_SOURCE = (
        "NotOnSource",
        _permanent("the Migration names node {source}, and the pod is on {node}"),
    )
    OTHER_OWNER = (
        "OtherOwner",
        _for_now("the pod's controller or workload is not the one that the Migration names"),
    )
    MAINTENANCE_ENDED = (
        "MaintenanceEnded",
        _permanent("{node} is not under maintenance any more"),
        _permanent("no node is under maintenance any more", case="none"),
    )
    NOT_CORDONED = (
        "NotCordoned",
        _for_now("{node} is not cordoned yet"),
    )
    NOT_ANNOUNCED = (
        "NotAnnounced",
        _for_now("it has not been announced yet how full the other nodes will be"),
    )
    TARGET_GONE = (
        "TargetGone",
        _permanent("{node} no longer exists"),
        _for_now("its target no longer exists", case="revalidated"),
        _permanent("{node} and its alternatives are not Ready, cordoned or gone", case="all"),
    )
    TARGET_UNDER_MAINTENANCE = (
        "TargetUnderMaintenance",
        _permanent("{node} is to be emptied itself"),
    )
    TARGET_CONTROL_PLANE = "TargetControlPlane", _permanent("{node} is a control-plane node")
    TARGET_CORDONED = "TargetCordoned", _permanent("{node} is cordoned")
    TARGET_NOT_READY = "TargetNotReady", _for_now("{node} is not Ready")
    TARGET_STARTS_NO_PODS = "TargetStartsNoPods", _permanent("{node}: {cause}")
    TARGET_TOO_FULL = "TargetTooFull", _for_now("{node} would use {use}")
    MAX_RESCHEDULE_PODS = (
        "MaxReschedulePods",
        _for_now("{count} pods of this cycle were or are being moved, and {limit} is the limit"),
    )
    MAX_REMOVALS = (
        "MaxRemovals",
        _for_now("{limit} pods are removed in this cycle, the limit (hygiene.maxRemovals)"),
    )
    MAX_PER_POOL = (
        "MaxPerPool",
        _for_now(
            "{count} pods of {pool} were or are being moved in this cycle, and {limit} is its limit"
        ),
    )
    MAX_PER_NAMESPACE = (
        "MaxPerNamespace",
        _for_now(
            "{count} pods of namespace {namespace} were moved in this cycle or are being moved, "
            "and {limit} is the limit"
        ),
    )
    MAX_IN_FLIGHT_PER_NODE = (
        "MaxInFlightPerNode",
        _for_now("{count} moves away from {node} are under way, and {limit} is the limit"),
    )
    MAINTENANCE_PARALLELISM = (
        "MaintenanceParallelism",
        _for_now("{count} moves away from {node} are under way, and {limit} is the limit"),
    )
    MAX_INBOUND_PER_NODE = (
        "MaxInboundPerNode",
        _for_now("{count} moves towards {node} are under way, and {limit} is the limit"),
    )
    STATEFUL_SET_ONE_AT_A_TIME = (
        "StatefulSetOneAtATime",
        _for_now("{count} pods of its StatefulSet are being moved, and {limit} is the limit"),
    )
    SURGE_ONE_AT_A_TIME = (
        "SurgeOneAtATime",
        _for_now("{count} surges of its workload are under way, and {limit} is the limit"),
    )
    GUIDES_AT_ONCE = (
        "GuidesAtOnce",
        _for_now("the API server guides {count} moves, and {limit} is the limit"),
    )
    POD_GROUP_AT_ONCE = (
        "PodGroupAtOnce",
        _for_now("{count} pods of its PodGroup are being moved, and it can spare {limit}"),
    )
    WORKLOAD_AT_ONCE = (
        "WorkloadAtOnce",
        _for_now("{count} pods of its workload are being moved, and {limit} is the limit"),
    )
    CANARY = (
        "Canary",
        _for_now("{scheduler} has not called an extender yet, so one move at a time tests it"),
        _for_now(
            "no replacement was guided by the API server yet, so one move at a time tests it",
            case="admission",
        ),
    )
    NO_METRICS = (
        "NoMetrics",
        _for_now("there are no metrics, and the configuration does not set usageSource: requests"),
    )
    NO_EXTENDER = (
        "NoExtender",
        _for_now("no extender is alive, so nothing would steer the replacement"),
    )
    NOT_ACKNOWLEDGED = (
        "NotAcknowledged",
        _for_now("extender {extender} knows Migrations up to {seen}, and this one is {version}"),
        _for_now("extender {extender} knows none yet, and this one is {version}", case="none"),
        _for_now("not every extender knows yet where the copy belongs", case="copy"),
    )
    DEAF_EXTENDER = "DeafExtender", _for_now("{cause}")
    SAMPLING = "Sampling", _for_now("{cause}, and allowSampling is false")
    BREAKER_OPEN = (
        "BreakerOpen",
        _for_now("nothing is moved: {cause}"),
        _for_now("nothing is moved in namespace {namespace}: {cause}", case="namespace"),
    )
    BREAKER_HALF_OPEN = (
        "BreakerHalfOpen",
        _for_now("{cause}; one move at a time tests whether it works again"),
        _for_now(
            "{cause}; one move at a time in namespace {namespace} tests whether it works again",
            case="namespace",
        ),
    )
    WORKLOAD_QUARANTINED = (
        "WorkloadQuarantined",
        _for_now("its workload is not moved: {cause}"),
        _for_now(
            "{cause}; one pod of its workload at a time tests whether it works again",
            case="half-open",
        ),
    )
    NODE_BUSY = "NodeBusy", _for_now("another move from or to {node} is still under way")
    MIGRATING = (
        "Migrating",
        _for_now("it is being moved already"),
        _for_now("the copy of its last move has not been removed yet", case="copy left"),
    )
    MIGRATED = "Migrated", _for_now("it was moved just now")
    MIGRATION_FAILED = "MigrationFailed", _for_now("its last move came to nothing {ago_s:.0f}s ago")
    NO_NEWER_SAMPLE = (
        "NoNewerSample",
        _for_now("{node} was not measured again in time (revalidateWithin)"),
    )

    # Migrations that wait or fail.
    WITHDRAWN = "Withdrawn", _permanent("the Migration is being deleted")
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        _permanent("the deadline passed: {cause}"),
        _permanent("the deadline passed before the condition {step} became true", case="step"),
        _permanent(
            "the deadline passed before the condition {step} became true: {cause}",
            case="step with cause",
        ),
        _permanent(
            "too little time is left before the deadline to evict the pod, so it stays",
            case="too late to evict",
        ),
    )
    SPEC_CONTRADICTS = (
        "SpecContradicts",
        _permanent("the pod does not match the spec: {difference}"),
    )
    ROOM_NOT_MADE = "RoomNotMade", _permanent("{pod}, which has to leave first, stays")
    WAITS_FOR_ROOM = "WaitsForRoom", _for_now("{pod}, which has to leave first, is still there")
    PLACE_TAKEN = (
        "PlaceTaken",
        _permanent("{pod} of the same workload has come to {node} meanwhile"),
    )
    REPLACEMENT_LOST = (
        "ReplacementLost",
        _permanent("{pod} went away before it was Ready"),
        _permanent("the copy is gone before the original went", case="copy"),
    )
    COPY_ON_SOURCE = "CopyOnSource", _permanent("{pod} came to the node that it is to leave")
    COUNT_CHANGED = (
        "CountChanged",
        _permanent("another client set the count of {workload} to {count}, which stands"),
        _permanent(
            "another client ({manager}) also declares the count of {workload}, which stands",
            case="claimed",
        ),
    )
    RAISE_REVERTED = (
        "RaiseReverted",
        _permanent("another client lowered the count of {workload} to {count} again"),
    )
    WORKLOAD_CHANGED = (
        "WorkloadChanged",
        _permanent("{workload} was changed during the surge"),
        _permanent("{workload} no longer exists", case="gone"),
    )
    WORKLOAD_UNREAD = "WorkloadUnread", _for_now("{workload} cannot be read: {error}")
    SCALE_FORBIDDEN = "ScaleForbidden", _permanent("its count may not be changed: {error}")
    SCALE_UNSURE = "ScaleUnsure", _for_now("{error}")
    AT_QUOTA = (
        "AtQuota",
        _permanent("ResourceQuota {quota} has no {resource} left for an additional pod"),
    )
    SURGE_NOT_CREATED = (
        "SurgeNotCreated",
        _permanent("the additional pod cannot be created: {error}"),
    )
    SIBLING_NOT_READY = (
        "SiblingNotReady",
        _for_now("{pod} of the same workload is not Ready"),
        _for_now("{count} of {wanted} pods of its workload exist", case="count"),
    )
    COST_TAKEN = (
        "CostTaken",
        _permanent("{pod} of the same workload has the lowest deletion cost itself"),
    )
    COST_NOT_SET = (
        "CostNotSet",
        _for_now("the deletion cost is not set yet: {error}"),
        _for_now("the deletion cost of {pod} was set just now", case="settling"),
    )
    NOT_REMOVED_YET = "NotRemovedYet", _for_now("{kind} {name} has not removed a pod yet")
    RAISE_STAYS = (
        "RaiseStays",
        _for_now("the count of {workload} is not lowered yet: {error}"),
    )
    REPLACEMENT_NOT_READY = (
        "ReplacementNotReady",
        _for_now("{pod} is Ready and will be available in {left:.0f} s", case="available"),
        _for_now("{pod} is not Ready"),
        _for_now("{cause}", case="cause"),
    )
    NO_REPLACEMENT_YET = "NoReplacementYet", _for_now("no replacement has been created yet")
    REPLACEMENT_PENDING = (
        "ReplacementPending",
        _for_now("its replacement has no node yet"),
        _for_now("{cause}", case="cause"),
    )
    GUIDE_UNKNOWN = (
        "GuideUnknown",
        _for_now("the API servers may not know yet where its replacement belongs"),
    )
    GUIDED_TO_FULL_NODE = (
        "GuidedToFullNode",
        _permanent("{pod} may only run on {node} and has waited {seconds:g} s for it: {cause}"),
    )
    MARK_FAILED = (
        "MarkFailed",
        _for_now("the marks could not be set: {error}"),
        _for_now("the marks could not be removed: {error}", case="removal"),
    )
    GUIDANCE_UNKNOWN = (
        "GuidanceUnknown",
        _for_now("no extender has reported yet whether it was called"),
    )
    CACHE_STALE = "CacheStale", _for_now("the cache is not up to date: {cause}")
    EVICTION_REFUSED = "EvictionRefused", _permanent("{answer}")
    THROTTLED = "Throttled", _for_now("{answer}")
    NOT_SENT = "NotSent", _for_now("{answer}")
    EVICTION_UNSURE = "EvictionUnsure", _for_now("{answer}")
    EVICTION_FAILED = "EvictionFailed", _for_now("{answer}")
    NOT_SEEN = "NotSeen", _for_now("{answer}")
    ORIGINAL_GONE = "OriginalGone", _permanent("the pod no longer exists, or is ending")
    COPY_STOPPED = "CopyStopped", _for_now("no copy is made: {cause}")
    COPY_UNAVAILABLE = (
        "CopyUnavailable",
        _for_now("{error}"),
        _for_now("it existed and no longer does", case="gone"),
    )
    COPY_REFUSED = "CopyRefused", _permanent("{error}")
    COPY_STAYS = (
        "CopyStays",
        _for_now("{error}"),
        _permanent("{error}", case="forbidden"),
    )
    COPY_ENDED = "CopyEnded", _permanent("its copy {pod} ended or was deleted")
    NAME_TAKEN = "NameTaken", _permanent("pod {pod} belongs to someone else")

    # Why a replacement has no node yet; whatever else keeps it from starting, Kubernetes names.
    UNSCHEDULABLE = "Unschedulable", _for_now("{pod} fits on no node")
    SCHEDULING_GATED = "SchedulingGated", _for_now("{pod} waits for {gate}")
    NOT_SCHEDULED = "NotScheduled", _for_now("{pod} has no node yet")

    # Temporary PDBs: why there is none, or why it goes.
    TEMPORARY_PDB_OFF = "TemporaryPdbOff", _permanent("temporaryPdb is off")
    NOTHING_TO_GUARD = (
        "NothingToGuard",
        _permanent("no workload of a kind that can be guarded owns it"),
    )
    WOULD_FORBID = (
        "WouldForbid",
        _permanent(
            "{workload} wants {desired} pods and temporaryPdb keeps {kept}: none could move"
        ),
    )
    COVERED_BY_PDB = "CoveredByPdb", _permanent("PDB {pdb} covers its pods")
    WORKLOAD_GONE = "WorkloadGone", _permanent("the workload that it guarded no longer exists")
    EXPIRED = "Expired", _permanent("its time is over")
    UNUSED = "Unused", _permanent("no pod of its workload is being moved any more")
    RELEASED = "Released", _permanent("the last move ended")
    TEMPORARY_PDB_REFUSED = "TemporaryPdbRefused", _permanent("{error}")
    TEMPORARY_PDB_UNAVAILABLE = "TemporaryPdbUnavailable", _for_now("{error}")
    TEMPORARY_PDB_STAYS = (
        "TemporaryPdbStays",
        _for_now("{error}"),
        _permanent("{error}", case="forbidden"),
        _for_now("PDB {pdb} keeps changing", case="conflicts"),
    )


_SHOWN = 200
"""Characters of an error that are shown; it may quote an object."""


def unjudgeable(error: Exception) -> Refusal:
    """Return the reason against moving a pod that could not be judged: it stays."""
    text = f"{type(error).__name__}: {error}"
    return Reason.UNJUDGEABLE.refusal(error=text[:_SHOWN])


def reported(code: str, message: str) -> Refusal:
    """Return a reason that Kubernetes gives, such as `ImagePullBackOff`; it may go away."""
    return Refusal(code, message, permanent=False)
