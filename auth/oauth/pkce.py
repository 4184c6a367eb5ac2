"""Proof Key for Code Exchange (RFC 7636), with S256 only: a `plain` challenge could be read from the browser."""

import base64
import hashlib
import hmac
import re

METHOD = "S256"
# A SHA-256 digest in base64url without padding.
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}\Z")


def is_challenge(text: str) -> bool:
    return _CHALLENGE.match(text) is not None


def is_proof_of(challenge: str, verifier: str) -> bool:
    """Whether the challenge was made from the verifier."""
    if not _VERIFIER.match(verifier):
        return False
    digest = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
    return hmac.compare_digest(digest, challenge.encode())
