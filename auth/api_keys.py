"""API keys as text: how they are generated, recognised and hashed. Only the hash is stored or compared."""

import base64
import hashlib
import re
import secrets

PREFIX = "flo_"

# 256 random bits are 43 characters of base64url without padding. A secret of that size cannot be guessed, so plain
# SHA-256 is enough; a slow password hash would only slow down legitimate callers.
_SECRET_BYTES = 32
_KEY = re.compile(r"flo_[A-Za-z0-9_-]{43}\Z")


def generate_key() -> str:
    """Returns a new key, to be shown to its owner once."""
    return PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")


def has_key_prefix(credential: str) -> bool:
    """Whether the credential claims to be an API key. Such a credential is never tried as a JWT."""
    return credential.startswith(PREFIX)


def is_well_formed(credential: str) -> bool:
    return _KEY.match(credential) is not None


def hash_key(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
