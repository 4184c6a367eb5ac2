"""The keys that may sign tokens, each bound to one algorithm: from a secret, from a file, or from a URL."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from auth.key_table import Fetch, KeyTable, SigningKey, SigningKeys
from config.errors import ConfigurationError
from config.settings import ASYMMETRIC_ALGORITHMS, SYMMETRIC_ALGORITHMS, Settings


class FixedKeys:
    """Keys that stay the same while the process runs."""

    generation = 0

    def __init__(self, keys: Iterable[SigningKey]) -> None:
        self._table = KeyTable(keys)

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        return self._table.find(algorithm, kid)


def accepted_algorithms(settings: Settings) -> tuple[str, ...]:
    """The fixed list. HS256 never stands beside the others: a public key must not become a shared secret."""
    return settings.jwt_algorithms or (SYMMETRIC_ALGORITHMS if settings.jwt_secret else ASYMMETRIC_ALGORITHMS)


def signing_keys(
    settings: Settings, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
) -> SigningKeys | None:
    """The configured keys, or None where no JWT is accepted. A file is read now, a URL at the first token."""
    if settings.jwt_secret:
        return FixedKeys([_secret_key(settings.jwt_secret)])
    if settings.jwt_key_file:
        return FixedKeys(_keys_of_file(settings))
    if settings.jwt_jwks_url:
        from auth.jwks import RemoteKeys, UrlFetch  # noqa: PLC0415 - only this way needs an HTTP client

        return RemoteKeys(settings, fetch or UrlFetch(settings.jwks_timeout_s, settings.jwks_max_bytes), clock)
    return None


def _secret_key(secret: str) -> SigningKey:
    from auth.jws import key_from_secret  # noqa: PLC0415 - PyJWT takes 0.2 s to import; stdio has no use for it

    return key_from_secret(secret)


def _keys_of_file(settings: Settings) -> Sequence[SigningKey]:
    from auth.jws import keys_from_file  # noqa: PLC0415 - as above

    try:
        content = Path(settings.jwt_key_file).read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"jwt_key_file {settings.jwt_key_file!r} cannot be read: {(error.strerror or 'unknown').lower()}"
        ) from error
    keys = keys_from_file(content)
    accepted = accepted_algorithms(settings)
    usable = [key for key in keys if key.algorithm in accepted]
    if not usable:
        raise ConfigurationError(
            f"jwt_key_file {settings.jwt_key_file!r} holds no usable public key for {', '.join(accepted)}; "
            "expected PEM, a JWK or a JWK set with an RSA key of 2048 bits or more, a P-256 or an Ed25519 key"
        )
    return usable
