"""Signs the state that a modern client carries between two rounds of one call.

The client cannot change the state: it is authenticated, it expires, and it is bound to one principal, one method and
one set of arguments. State that does not verify is rejected.
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from auth.principal import Owner
from auth.state_keys import StateKeys
from config.errors import InvalidParams

LIFETIME_S = 600.0
_DIGEST_BYTES = hashlib.sha256().digest_size
_INVALID = "requestState: expected the value of the last result; call again without it"


class RequestStateSigner:
    """Uses random keys: state signed before a restart of all processes is rejected, and the client starts over."""

    def __init__(self, keys: StateKeys | None = None, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys or StateKeys()
        self._clock = clock

    def sign(self, state: Any, owner: Owner, method: str, params: Mapping[str, Any]) -> str:
        body = msgspec.json.encode([self._clock() + LIFETIME_S, state])
        return base64.urlsafe_b64encode(self._digests(body, owner, method, params)[0] + body).decode()

    def verify(self, signed: str, owner: Owner, method: str, params: Mapping[str, Any]) -> Any:
        """Returns the state, or raises InvalidParams."""
        try:
            raw = base64.b64decode(signed.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise InvalidParams(_INVALID) from error
        digest, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        accepted = self._digests(body, owner, method, params)
        if not any(hmac.compare_digest(digest, one) for one in accepted):
            raise InvalidParams(_INVALID)
        expires_at, state = msgspec.json.decode(body)
        if self._clock() >= expires_at:
            raise InvalidParams("requestState: expired; call again without it")
        return state

    def _digests(self, body: bytes, owner: Owner, method: str, params: Mapping[str, Any]) -> list[bytes]:
        target = {key: params.get(key) for key in ("name", "uri", "arguments")}
        binding = msgspec.json.encode([owner, method, target], order="sorted")
        message = len(binding).to_bytes(8, "big") + binding + body
        return [hmac.digest(key, message, "sha256") for key in self._keys.for_purpose("request state")]
