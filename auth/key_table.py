"""A key that may sign tokens, where keys are looked for, and a table of them.

A token's `kid` is a stranger's text: it is only ever looked up in a dictionary.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct


class SigningKey(Struct, frozen=True):
    """A key that verifies one algorithm. `key` is what `auth.jws` made of it; nobody else looks inside."""

    algorithm: str
    kid: str | None
    key: object


class SigningKeys(Protocol):
    """Where a verifier finds the key for a token."""

    @property
    def generation(self) -> int:
        """Rises when the keys change, so that what was concluded from the old ones can be dropped."""
        ...

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None: ...


class Fetch(Protocol):
    """Fetches a JWK set. Raises `config.errors.Unavailable`, and nothing else, when it cannot."""

    async def __call__(self, url: str, /) -> bytes: ...


class KeyTable:
    """Keys by algorithm and `kid`. Where the token or the key names none, only a single choice is taken."""

    def __init__(self, keys: Iterable[SigningKey] = ()) -> None:
        keys = tuple(keys)
        self._named = {(key.algorithm, key.kid): key for key in reversed(keys) if key.kid is not None}
        self._lone = _only_ones(keys)
        self._nameless = _only_ones([key for key in keys if key.kid is None])

    def find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        if kid is None:
            return self._lone.get(algorithm)
        return self._named.get((algorithm, kid)) or self._nameless.get(algorithm)


def _only_ones(keys: Sequence[SigningKey]) -> dict[str, SigningKey]:
    count = Counter(key.algorithm for key in keys)
    return {key.algorithm: key for key in keys if count[key.algorithm] == 1}
