"""Keys that verify token signatures, and the lookup by algorithm and `kid`.

A token's `kid` is untrusted: it is only used as a dictionary key.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from config.errors import ConfigurationError
from config.settings import ASYMMETRIC_ALGORITHMS, SYMMETRIC_ALGORITHMS, Settings

# Key sets are far smaller.
JWKS_MAX_BYTES = 1024 * 1024

# Callers with tokens wait for the first fetch.
JWKS_TIMEOUT_S = 5.0


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


# Fetches a JWK set. Raises only `config.errors.Unavailable`.
JwksFetch = Callable[[str], Awaitable[bytes]]


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


# -- key sources -------------------------------------------------------------------------------------------------------
# Loads the keys that verify tokens from the configured secret, file or URL. Each key is bound to one algorithm.


class StaticKeys:
    """Keys that do not change while the process runs."""

    generation = 0

    def __init__(self, keys: Iterable[SigningKey]) -> None:
        self._index = KeyIndex(keys)

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        return self._index.find(algorithm, kid)


def accepted_algorithms(settings: Settings) -> tuple[str, ...]:
    """Returns either HS256 or public-key algorithms, never both: a public key must not be usable as a shared secret."""
    return settings.jwt_algorithms or (SYMMETRIC_ALGORITHMS if settings.jwt_secret else ASYMMETRIC_ALGORITHMS)


def load_signing_keys(
    settings: Settings, fetch: JwksFetch | None = None, clock: Callable[[], float] = time.monotonic
) -> SigningKeys | None:
    """Returns the configured keys, or None if JWTs are not accepted. A file is read now, a URL at the first token."""
    if settings.jwt_secret:
        from auth.signatures import key_from_secret  # noqa: PLC0415 - PyJWT takes 0.2 s to import; stdio needs none

        return StaticKeys([key_from_secret(settings.jwt_secret, settings.jwt_previous_secrets)])
    if settings.jwt_key_file:
        return StaticKeys(_read_key_file(settings))
    if settings.jwt_jwks_url:
        from auth.jwks import RemoteKeys, UrlFetch  # noqa: PLC0415 - only JWKS needs an HTTP client

        return RemoteKeys(settings, fetch or UrlFetch(JWKS_TIMEOUT_S, JWKS_MAX_BYTES), clock)
    return None


def _read_key_file(settings: Settings) -> Sequence[SigningKey]:
    from auth.signatures import keys_from_file  # noqa: PLC0415 - as above

    try:
        content = Path(settings.jwt_key_file).read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"jwt_key_file {settings.jwt_key_file!r} cannot be read: {(error.strerror or 'unknown error').lower()}"
        ) from error
    keys = keys_from_file(content)
    accepted = accepted_algorithms(settings)
    usable = [key for key in keys if key.algorithm in accepted]
    if not usable:
        raise ConfigurationError(
            f"jwt_key_file {settings.jwt_key_file!r} contains no usable public key for {', '.join(accepted)}; "
            "expected a PEM, JWK or JWK set file with an RSA key of at least 2048 bits, a P-256 key or an Ed25519 key"
        )
    return usable
