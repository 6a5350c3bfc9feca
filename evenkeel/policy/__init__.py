# SPDX-License-Identifier: Apache-2.0
"""From a policy of the descheduler to a RebalancerConfiguration.

`table.py` has one row for each plugin and argument: what it becomes here, and what differs.
`converting.py` walks through a policy by these rows, and `draft.py` holds what comes of it. The
page about the descheduler is checked against the same rows, so it cannot promise something else.
"""

from evenkeel.policy.converting import Converted, convert
from evenkeel.policy.draft import Note, Verdict
from evenkeel.policy.table import PLUGINS, POLICY, Argument, Plugin

__all__ = ["PLUGINS", "POLICY", "Argument", "Converted", "Note", "Plugin", "Verdict", "convert"]
