# SPDX-License-Identifier: Apache-2.0
"""Errors of building and running the control plane.

ControlPlaneError      one message for the user; the command exits with 1
├── BuildError         a binary could not be compiled
├── FolderError        the folder is in use, is not ours, or holds no control plane
├── ConfigError        an invalid option or scheduler configuration
├── StartError         a component did not become ready, or exited
└── Refused            the API server answered with an error status
"""


class ControlPlaneError(Exception):
    """An error that the user can act on; its text is the whole message."""


class BuildError(ControlPlaneError):
    """A binary could not be compiled from its Go module."""


class FolderError(ControlPlaneError):
    """The folder is in use, is not ours, or holds no control plane."""


class ConfigError(ControlPlaneError):
    """An invalid option or scheduler configuration."""


class StartError(ControlPlaneError):
    """A component did not become ready in time, or exited."""


class Refused(ControlPlaneError):
    """The API server answered with an error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
