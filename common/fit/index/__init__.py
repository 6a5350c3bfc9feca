# SPDX-License-Identifier: Apache-2.0
"""The cluster arranged for questions of fit."""

from common.fit.index.fit_index import FitIndex

__all__ = ("FitIndex",)
