# SPDX-License-Identifier: Apache-2.0
"""Tests in this folder run on both stands; a skip fails the run."""

from tests.support.stands.control_plane import *  # noqa: F403 - what a conftest has to hold is listed there
