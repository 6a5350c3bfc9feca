# SPDX-License-Identifier: Apache-2.0
"""The demo: a cluster gets hot under the plain scheduler, and Evenkeel makes it level.

`command` runs it; `programs` and `stands` start the processes; `client` reads from them;
`progress` tracks how far the demo is; `text`, `screen` and `views` show it.
"""

from simulator.demo.command import demo

__all__ = ("demo",)
