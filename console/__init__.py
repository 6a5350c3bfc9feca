# SPDX-License-Identifier: Apache-2.0
"""The console: a web page that shows what Evenkeel sees, plans and does."""
