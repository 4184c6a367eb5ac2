"""API keys as text: how one is made, recognised and hashed. Only the hash is ever stored or compared."""

import base64
import hashlib
import re
import secrets

PREFIX = "flo_"

# 256 random bits are 43 characters of base64url without padding. A plain SHA-256 is enough for a secret of
# that size: nothing can be guessed, so a slow password hash would only slow down the honest caller.
_SECRET_BYTES = 32
_SHAPE = re.compile(r"flo_[A-Za-z0-9_-]{43}\Z")


def new_secret() -> str:
    """A fresh key, shown to its owner once."""
    return PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")


def is_api_key(credential: str) -> bool:
    """Whether the text claims to be one of our keys; what claims to be one is never tried as a JWT."""
    return credential.startswith(PREFIX)


def has_shape(credential: str) -> bool:
    return _SHAPE.match(credential) is not None


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
