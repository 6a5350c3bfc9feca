# SPDX-License-Identifier: Apache-2.0
"""May a move begin or go on now: limits, breakers and extenders put together."""
