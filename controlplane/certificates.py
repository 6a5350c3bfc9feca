# SPDX-License-Identifier: Apache-2.0
"""Certificates of the control plane: an authority, servers, clients, the token key.

Everything is ECDSA on P-256, which takes milliseconds where RSA takes tenths of a
second. A client certificate is an identity: its common name is the user, each of its
organizations is a group, which is how kube-apiserver reads it.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.errors import ConfigError

VALIDITY = datetime.timedelta(days=365)
CLOCK_SKEW = datetime.timedelta(hours=1)
LONGEST_NAME = 64  # ub-common-name of X.509


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate (or a public key) with its private key, as PEM."""

    certificate: bytes
    key: bytes

    def write(self, certificate: Path, key: Path) -> None:
        """Write both; only the owner may read the key."""
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)


class Authority:
    """A certificate authority."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, ())
        builder = _builder(subject, subject, key.public_key(), key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        builder = builder.add_extension(_usage(signs_certificates=True), True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, certificate: Path, key: Path) -> Authority:
        """Read an authority that `pair.write` has written."""
        loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{key} is not an ECDSA key")
        return cls(x509.load_pem_x509_certificate(certificate.read_bytes()), loaded)

    @property
    def pair(self) -> KeyPair:
        return KeyPair(_pem(self._certificate), _key_pem(self._key))

    def server(self, name: str, hosts: Iterable[str]) -> KeyPair:
        """Issue a certificate for a server known by these host names and addresses."""
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        return self._issue(_subject(name, ()), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Issue a client certificate for `user`, a member of `groups`."""
        return self._issue(_subject(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate.subject
        builder = _builder(subject, issuer, key.public_key(), self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_usage(signs_certificates=False), True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), False)
        if names is not None:
            builder = builder.add_extension(names, False)
        return KeyPair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))


def token_keys() -> KeyPair:
    """Make the pair that signs and verifies the tokens of service accounts."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(public, _key_pem(key))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuing: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALIDITY)
        # Python 3.13 verifies strictly and refuses chains without key identifiers.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuing), False)
    )


def _subject(name: str, groups: Sequence[str]) -> x509.Name:
    for part in (name, *groups):
        if not 0 < len(part) <= LONGEST_NAME:
            raise ConfigError(f"{part!r} cannot be in a certificate: 1 to {LONGEST_NAME} letters")
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
