"""What can go wrong while building or running the control plane.

ControlPlaneError      one clear message for a person; the command exits with 1
├── BuildError         a binary could not be compiled
├── FolderError        the folder is in use, is not ours, or holds no control plane
├── ConfigError        an option or a scheduler configuration that cannot work
├── StartError         a component did not become ready, or ended
└── Refused            the API server answered with an error status
"""


class ControlPlaneError(Exception):
    """A failure that a person can act on; its text is the whole message."""


class BuildError(ControlPlaneError):
    """A binary could not be compiled from its Go module."""


class FolderError(ControlPlaneError):
    """The folder is in use, is not ours, or holds no control plane."""


class ConfigError(ControlPlaneError):
    """An option or a scheduler configuration that cannot work."""


class StartError(ControlPlaneError):
    """A component did not become ready in time, or ended before."""


class Refused(ControlPlaneError):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
