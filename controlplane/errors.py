"""What can go wrong while building or running the control plane.

ControlPlaneError      one clear line for a person; the command exits with 1
├── BuildError         a binary could not be compiled
└── StartError         a component did not become ready
"""


class ControlPlaneError(Exception):
    """A failure that a person can act on; its text is the whole message."""


class BuildError(ControlPlaneError):
    """A binary could not be compiled from its Go module."""


class StartError(ControlPlaneError):
    """A component did not become ready in time."""
