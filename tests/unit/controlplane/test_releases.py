# SPDX-License-Identifier: Apache-2.0
"""A release is found by the names that people give it, and no other is guessed."""

from __future__ import annotations

import pytest

from controlplane.errors import ConfigError
from controlplane.releases import DEFAULT, RELEASES, find_release


@pytest.mark.parametrize("name", ["1.34", "v1.34", "1.34.10", "v1.34.10"])
def test_a_release_is_found_by_its_minor_version_and_by_its_own(name: str) -> None:
    assert find_release(name).kubernetes == "v1.34.10"


@pytest.mark.parametrize("name", ["1.3", "1.34.1", "1.31", "v1.99", "", "latest"])
def test_a_release_that_was_never_built_is_refused_with_those_that_were(name: str) -> None:
    with pytest.raises(ConfigError, match=r"choose one of v1\.32\.13, .*v1\.37\.1$"):
        find_release(name)


def test_every_minor_version_from_the_oldest_to_the_newest_is_there_once() -> None:
    assert [release.minor for release in RELEASES] == [f"1.{number}" for number in range(32, 38)]
    assert DEFAULT in RELEASES
