# SPDX-License-Identifier: Apache-2.0
"""Talking to one API server: requests, watches, leases, events, and what can go wrong.

Nothing is imported here: `errors` and `resources` are free, `client` brings the official
client and its 60 MB with it.
"""
