# SPDX-License-Identifier: Apache-2.0
"""HiGHS, as the process that the solver starts.

It imports neither the planner nor anything else of the rebalancer but the problem and its
answer: so it starts in a quarter of the time, and less of its limited memory is used up.
"""
