"""Certificates for tests, made without `openssl`: elliptic keys, valid for two days."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(
    folder: Path,
    name: str,
    authority: str | None = None,
    *,
    subject: str | None = None,
    address: str | None = None,
    password: str | None = None,
) -> None:
    """`NAME.pem` and its key `NAME.key`, signed by `authority` (a name in the same folder), or by itself.

    `subject` is its common name (otherwise `name`), `address` one it may be reached at, `password` what the key is locked with.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    common = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject or name)])
    issuer, signer = common, key
    if authority is not None:
        issuer = x509.load_pem_x509_certificate((folder / f"{authority}.pem").read_bytes()).subject
        loaded = serialization.load_pem_private_key((folder / f"{authority}.key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(common).issuer_name(issuer).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(minutes=5)).not_valid_after(now + datetime.timedelta(days=2))
    if authority is None:
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    if address is not None:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        made = made.add_extension(names, critical=False)
    pem = serialization.Encoding.PEM
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        lock = serialization.BestAvailableEncryption(password.encode())
    (folder / f"{name}.pem").write_bytes(made.sign(signer, hashes.SHA256()).public_bytes(pem))
    kept = folder / f"{name}.key"
    kept.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, lock))
    kept.chmod(0o600)
