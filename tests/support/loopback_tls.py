"""Keys and certificates for a deployment on loopback: a CA, its server, and an owner's key pair.

They are made for one trial and end with it. A real deployment has certificates of its own.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedhist.base.files import write_private

DAY = datetime.timedelta(days=1)
PEM, OPENSSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH
PLAIN = serialization.NoEncryption()


@dataclass(frozen=True)
class Certificates:
    """Where the files of a TLS server are: PEM."""

    ca: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, address: str) -> Certificates:
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("fedhist loopback CA")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name(address), ca_name, key.public_key())
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    made = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    made.ca.write_bytes(ca.public_bytes(PEM))
    made.certificate.write_bytes(certificate.public_bytes(PEM))
    write_private(
        made.key, key.private_bytes(PEM, serialization.PrivateFormat.TraditionalOpenSSL, PLAIN)
    )
    return made


def make_owner_key(path: Path) -> Path:
    """Make a SuperNode's key pair as ``ssh-keygen -t ecdsa -b 384`` does; return the public one."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = path.with_name(f"{path.name}.pub")
    write_private(path, key.private_bytes(PEM, serialization.PrivateFormat.OpenSSH, PLAIN))
    public.write_bytes(
        key.public_key().public_bytes(OPENSSH, serialization.PublicFormat.OpenSSH) + b"\n"
    )
    return public


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
    )
