"""Random credentials of the authorization server: how they are generated, recognized and hashed.

Each has 256 random bits, so plain SHA-256 is enough to store it. The prefixes let people and secret scanners tell them
apart, and keep one kind from being tried as another.
"""

import base64
import hashlib
import re
import secrets

ACCESS_TOKEN = "floa_"  # noqa: S105 - a prefix, as below
REFRESH_TOKEN = "flor_"  # noqa: S105
CLIENT_SECRET = "flos_"  # noqa: S105
CODE = "floc_"
DEVICE_CODE = "flod_"

_SECRET_BYTES = 32
_CREDENTIAL = re.compile(r"flo[arscd]_[A-Za-z0-9_-]{43}\Z")


def generate_credential(prefix: str) -> str:
    return prefix + base64.urlsafe_b64encode(secrets.token_bytes(_SECRET_BYTES)).decode().rstrip("=")


def hash_credential(credential: str) -> bytes:
    return hashlib.sha256(credential.encode()).digest()


def is_credential(text: str, prefix: str) -> bool:
    """Whether the text has the form of a credential of that kind."""
    return text.startswith(prefix) and _CREDENTIAL.match(text) is not None


def generate_id(prefix: str) -> str:
    return prefix + base64.b32encode(secrets.token_bytes(10)).decode().lower()
