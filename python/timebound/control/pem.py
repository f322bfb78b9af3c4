"""Certificates and keys that a configuration names: read when it is checked, so that a service does not find out when it starts, or with its first client.

Read by OpenSSL, as the controller does; the manager reads them by rustls when it starts, which is stricter in places (X.509 version 3 alone).
"""

from __future__ import annotations

import ssl
from pathlib import Path

from timebound.control.configuration import readable
from timebound.scenario.context import Context
from timebound.scenario.tree import Path as TreePath


def certificates(context: Context, path: TreePath, name: str) -> Path:
    """A file with at least one certificate, relative to the configuration; a problem where it is none."""
    file = readable(context, path, name)
    _certificates(context, path, file)
    return file


def chain_and_key(context: Context, path: TreePath, certificate: str, key: str) -> tuple[Path, Path]:
    """Files with a certificate and its private key, named at `certificate` and `key` below `path`; a problem where they do not belong together."""
    at = (*path, "key")
    chain, private = certificates(context, (*path, "certificate"), certificate), readable(context, at, key)
    if not chain.is_file() or not private.is_file():
        return chain, private  # `readable` has said it; OpenSSL would wait for the writer of a pipe
    trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A password, or OpenSSL would ask the terminal for it.
        trial.load_cert_chain(chain, private, password=lambda: "\0")
    except ssl.SSLError as error:
        if not _holds_certificates(chain):
            return chain, private  # said already
        if error.reason == "KEY_VALUES_MISMATCH":
            message, hint = f"{str(private)!r} is the key of another certificate", f"name the key of {chain.name}"
        elif _is_encrypted(private):
            message, hint = (
                f"{str(private)!r} is encrypted",
                "store it without a password, for the service's user alone",
            )
        elif error.reason in (None, "PEM_LIB", "NO_START_LINE"):
            message, hint = f"{str(private)!r} holds no private key", "name a PEM file with a private key"
        else:
            message, hint = f"{str(private)!r} cannot be used: {error.reason}", "make another certificate and key"
        context.error(at, message, hint)
    except OSError:
        pass  # `readable` has said it
    return chain, private


def _certificates(context: Context, path: TreePath, file: Path) -> None:
    try:
        holds = not file.is_file() or _holds_certificates(file)
    except OSError:
        return  # `readable` has said it
    if not holds:
        context.error(path, f"{str(file)!r} holds no certificate", "name a PEM file with certificates")


def _holds_certificates(file: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(file)
    except ssl.SSLError:
        return False
    return True


def _is_encrypted(file: Path) -> bool:
    """PKCS #8 (RFC 7468, section 11), and the older form of OpenSSL (RFC 1421, section 4.6.1.1)."""
    text = file.read_bytes()
    return b"ENCRYPTED PRIVATE KEY" in text or b"Proc-Type: 4,ENCRYPTED" in text
