"""Tests in this folder run on the real control plane; a skip fails the run."""

from tests.support.stand import *  # noqa: F403 - what a conftest has to hold is listed there
