# SPDX-License-Identifier: Apache-2.0
"""Certificates say who someone is, and only their authority can make them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.certificates import Authority, KeyPair, token_keys
from controlplane.errors import ConfigError

AUTHORITY = Authority.create("test-ca")


def parsed(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def test_a_client_certificate_names_the_user_and_every_group() -> None:
    certificate = parsed(AUTHORITY.client("alice", ("staff", "system:masters")).certificate)
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [name.value for name in names] == ["alice"]
    assert [group.value for group in groups] == ["staff", "system:masters"]


def test_a_server_certificate_names_hosts_and_addresses() -> None:
    certificate = parsed(AUTHORITY.server("api", ("127.0.0.1", "localhost")).certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("pair", "purpose"),
    [
        (AUTHORITY.client("alice"), ExtendedKeyUsageOID.CLIENT_AUTH),
        (AUTHORITY.server("api", ("localhost",)), ExtendedKeyUsageOID.SERVER_AUTH),
    ],
    ids=["client", "server"],
)
def test_a_certificate_serves_one_purpose_and_signs_no_others(
    pair: KeyPair, purpose: x509.ObjectIdentifier
) -> None:
    certificate = parsed(pair.certificate)
    extensions = certificate.extensions
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_only_the_authority_itself_has_signed_its_certificates() -> None:
    certificate = parsed(AUTHORITY.client("alice").certificate)
    certificate.verify_directly_issued_by(parsed(AUTHORITY.pair.certificate))
    impostor = Authority.create("test-ca")
    with pytest.raises(InvalidSignature):
        certificate.verify_directly_issued_by(parsed(impostor.pair.certificate))


def test_an_authority_goes_on_signing_after_it_was_read_back(tmp_path: Path) -> None:
    AUTHORITY.pair.write(tmp_path / "crt", tmp_path / "key")
    again = Authority.read(tmp_path / "crt", tmp_path / "key")
    parsed(again.client("bob").certificate).verify_directly_issued_by(
        parsed(AUTHORITY.pair.certificate)
    )


def test_a_key_is_readable_for_its_owner_only(tmp_path: Path) -> None:
    AUTHORITY.pair.write(tmp_path / "crt", tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_certificate_and_key_belong_together() -> None:
    pair = AUTHORITY.client("alice")
    key = serialization.load_pem_private_key(pair.key, password=None)
    assert key.public_key() == parsed(pair.certificate).public_key()


def test_the_token_keys_belong_together() -> None:
    pair = token_keys()
    key = serialization.load_pem_private_key(pair.key, password=None)
    assert key.public_key() == serialization.load_pem_public_key(pair.certificate)


@pytest.mark.parametrize("user", ["", "x" * 65])
def test_a_name_that_no_certificate_can_hold_is_refused(user: str) -> None:
    with pytest.raises(ConfigError, match="cannot be in a certificate"):
        AUTHORITY.client(user)
