"""Keys that verify token signatures, and the lookup by algorithm and `kid`.

A token's `kid` is untrusted: it is only used as a dictionary key.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct


class SigningKey(Struct, frozen=True):
    """A key for one algorithm. `key` is opaque outside `auth.signatures`.

    `previous` are the keys that it replaced, whose signatures are still valid. Shared secrets have no `kid` that could
    tell them apart.
    """

    algorithm: str
    kid: str | None
    key: object
    previous: tuple[object, ...] = ()


class SigningKeys(Protocol):
    """Where a verifier looks up the key of a token."""

    @property
    def generation(self) -> int:
        """Increases when the keys change, so that results based on the old keys can be dropped."""
        ...

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None: ...


class JwksFetch(Protocol):
    """Fetches a JWK set. Raises only `config.errors.Unavailable`."""

    async def __call__(self, url: str, /) -> bytes: ...


class KeyIndex:
    """Keys by algorithm and `kid`.

    If the token has no `kid`, or no key has that `kid`, a key is used only where there is no choice: the single key of
    the algorithm, or its single key without a `kid`.
    """

    def __init__(self, keys: Iterable[SigningKey] = ()) -> None:
        keys = tuple(keys)
        self._by_kid = {(key.algorithm, key.kid): key for key in reversed(keys) if key.kid is not None}
        self._single = _single_keys(keys)
        self._single_without_kid = _single_keys([key for key in keys if key.kid is None])

    def find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        if kid is None:
            return self._single.get(algorithm)
        return self._by_kid.get((algorithm, kid)) or self._single_without_kid.get(algorithm)


def _single_keys(keys: Sequence[SigningKey]) -> dict[str, SigningKey]:
    """Returns the key of each algorithm that has exactly one."""
    count = Counter(key.algorithm for key in keys)
    return {key.algorithm: key for key in keys if count[key.algorithm] == 1}
