# SPDX-License-Identifier: Apache-2.0
"""All servers of these tests are local: their certificates come from authorities of the tests."""

from tests.support.http import trust_no_public_authority

trust_no_public_authority()
