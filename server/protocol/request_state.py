"""Seals the state that a modern client carries between two rounds of one call.

The client can read nothing into it and change nothing in it: it is authenticated, expires, and fits one principal,
one method and one set of arguments. Anything else is refused.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from auth.principal import Owner
from config.errors import InvalidParams

LIFETIME_S = 600.0
_DIGEST_BYTES = hashlib.sha256().digest_size


class RequestStateSigner:
    """One random key per process: state sealed before a restart is refused after it, and the call starts anew."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def seal(self, state: Any, owner: Owner, method: str, params: Mapping[str, Any]) -> str:
        body = msgspec.json.encode([self._clock() + LIFETIME_S, state])
        return base64.urlsafe_b64encode(self._sign(body, owner, method, params) + body).decode()

    def open(self, sealed: str, owner: Owner, method: str, params: Mapping[str, Any]) -> Any:
        try:
            raw = base64.b64decode(sealed.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise InvalidParams("requestState is not one of ours") from error
        digest, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if not hmac.compare_digest(digest, self._sign(body, owner, method, params)):
            raise InvalidParams("requestState is not one of ours")
        expires_at, state = msgspec.json.decode(body)
        if self._clock() >= expires_at:
            raise InvalidParams("requestState has expired; call again without it")
        return state

    def _sign(self, body: bytes, owner: Owner, method: str, params: Mapping[str, Any]) -> bytes:
        target = {key: params.get(key) for key in ("name", "uri", "arguments")}
        bound = msgspec.json.encode([owner, method, target], order="sorted")
        return hmac.digest(self._key, len(bound).to_bytes(8, "big") + bound + body, "sha256")
