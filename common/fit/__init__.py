# SPDX-License-Identifier: Apache-2.0
"""Whether a pod may run on a node, judged as kube-scheduler v1.36 does."""

from common.fit.candidate import Candidate, replacement
from common.fit.changes import Arrive, Change, Leave, Terminate
from common.fit.index import FitIndex
from common.fit.question import Question
from common.fit.rejections import Rejection
from common.fit.world import World

__all__ = (
    "Arrive",
    "Candidate",
    "Change",
    "FitIndex",
    "Leave",
    "Question",
    "Rejection",
    "Terminate",
    "World",
    "replacement",
)
