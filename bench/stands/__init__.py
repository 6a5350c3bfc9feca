# SPDX-License-Identifier: Apache-2.0
"""The programs as processes beside a real control plane, for benchmarks and end-to-end tests."""
