# SPDX-License-Identifier: Apache-2.0
"""The parts of the API that only kubectl and other generic clients use."""
