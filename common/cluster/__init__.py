# SPDX-License-Identifier: Apache-2.0
"""Reading a cluster: wire structs, compact records, the state that watches fill, snapshots."""
