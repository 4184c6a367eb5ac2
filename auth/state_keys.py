"""Random keys that sign what a client carries from one request to the next, so that the server need not keep it."""

import hmac
import secrets

_KEY_BYTES = 32


class StateKeys:
    """The keys of this process, one per purpose, made from one random secret. With Redis, all processes of a deployment
    have the same secret (`auth.redis.state_keys`); one that replaces another is used for new signatures, and the
    earlier one is still accepted."""

    def __init__(self) -> None:
        self._secrets: tuple[bytes, ...] = (secrets.token_bytes(_KEY_BYTES),)

    @property
    def secret(self) -> bytes:
        return self._secrets[0]

    def replace(self, secret: bytes) -> None:
        if secret != self._secrets[0]:
            self._secrets = (secret, self._secrets[0])

    def for_purpose(self, purpose: str) -> tuple[bytes, ...]:
        """Returns the key for new signatures first, then those that are accepted."""
        return tuple(hmac.digest(secret, purpose.encode(), "sha256") for secret in self._secrets)
