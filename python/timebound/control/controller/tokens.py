"""Bearer tokens (RFC 6750) of the REST interface: who may read, who may change. Their file holds hashes, so reading it gives nobody a token."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Scope = Literal["read", "admin"]
"""`admin` may do what `read` may."""

_LINE = re.compile(r"(\S+)\s+([0-9a-f]{64})\s+(\S.*)")


class TokenError(Exception):
    """A file that is no file of tokens."""


@dataclass(frozen=True, slots=True)
class Token:
    """A line of the file."""

    scope: Scope
    digest: str
    name: str
    """Whose it is, for the audit log."""


def new_token(scope: Scope, name: str) -> tuple[str, str]:
    """A new token, and the line of the file that makes it one."""
    token = f"tb_{secrets.token_urlsafe(32)}"
    return token, f"{scope} {digest_of(token)} {name}"


def digest_of(token: str) -> str:
    """What the file holds of a token. It is random and long: no need for a slow hash."""
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(file: Path) -> tuple[Token, ...]:
    """The tokens of a file: lines of scope, SHA-256 in hex, and a name; empty lines and those that begin with # are passed over.

    Raises:
        TokenError: a line that is none of this, with its number.
        OSError: the file cannot be read.
    """
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or match[1] not in get_args(Scope):
            raise TokenError(f"{file}:{number}: no token: write a line of `timebound controller --new-token`")
        scope: Scope = "admin" if match[1] == "admin" else "read"
        found.append(Token(scope, match[2], match[3]))
    return tuple(found)


def find(tokens: tuple[Token, ...], presented: str) -> Token | None:
    """The line of a token, compared in constant time."""
    digest, found = digest_of(presented), None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found
