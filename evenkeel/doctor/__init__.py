# SPDX-License-Identifier: Apache-2.0
"""What `evenkeel doctor` looks at, and what it concludes."""

from evenkeel.doctor.checks import CHECKS, Finding, Level, examine
from evenkeel.doctor.evidence import Evidence, gather

__all__ = ["CHECKS", "Evidence", "Finding", "Level", "examine", "gather"]
