"""The demo: a cluster gets hot under the plain scheduler, and Evenkeel makes it level.

`command` runs it, `programs` and `stands` are the processes, `sight` is what is read of
them, `story` what it means, `words`, `screen` and `views` how it is told.
"""

from simulator.demo.command import demo

__all__ = ("demo",)
