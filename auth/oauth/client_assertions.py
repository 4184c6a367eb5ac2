"""Clients that prove their identity with a signed token (RFC 7523, `private_key_jwt`).

Only clients with a metadata document do so. The document has their public keys or names an address with them, which is
fetched under the same rules as the document. Nothing is fetched for a client without a grant.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from cachetools import LRUCache
from msgspec import Struct
from msgspec.structs import replace

from auth.control_database import ControlConnection, ControlDatabase
from auth.jwks import RemoteKeys
from auth.oauth.credentials import hash_credential
from auth.oauth.errors import InvalidClient, RequestRejected
from auth.oauth.metadata import TOKEN_PATH
from auth.oauth.metadata_documents import ClientKeys, MetadataDocuments
from auth.signing_keys import KeyIndex, SigningKey, SigningKeys
from auth.tokens import check_times, unverified_claims, verify_signature
from config.errors import Unauthenticated, Unavailable
from config.outgoing_http import OutgoingRequestError
from config.public_http import PublicFetch
from config.settings import ASYMMETRIC_ALGORITHMS, Settings

ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
# RFC 7523 requires no type; its successor introduces one. Access tokens have another.
_TOKEN_TYPES = frozenset(("", "jwt", "client-authentication+jwt"))


class ClientAssertions:
    def __init__(
        self,
        database: ControlDatabase,
        settings: Settings,
        documents: MetadataDocuments,
        fetch: PublicFetch,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._settings = settings
        self._documents = documents
        self._fetch = fetch
        self._clock = clock
        self._audiences = frozenset((settings.base_url, settings.base_url + TOKEN_PATH))
        # By the address of the keys.
        self._remote_keys: LRUCache[str, RemoteKeys] = LRUCache(settings.oauth_client_metadata_max)

    def client_of(self, assertion: str) -> str:
        """Returns the client that an assertion names, which is not verified yet."""
        try:
            subject = unverified_claims(assertion, self._settings.token_max_bytes).get("sub")
        except Unauthenticated as error:
            raise InvalidClient(f"client_assertion: {error.reason or error.message}") from error
        return subject if isinstance(subject, str) else ""

    async def is_connected(self, client_id: str) -> bool:
        """Whether a person has connected the client, or has just allowed it to."""
        query = "SELECT EXISTS (SELECT 1 FROM oauth_grants WHERE client_id = ? AND revoked_at IS NULL)"
        return bool(await self._database.read(lambda db: db.execute(query, (client_id,)).fetchone()[0]))

    async def verify(self, client_id: str, assertion: str) -> None:
        """Raises InvalidClient, or Unavailable if the keys of the client cannot be fetched."""
        try:
            keys = await self._documents.keys_of(client_id)
        except RequestRejected as error:
            raise InvalidClient(error.message) from error
        if keys is None:
            raise InvalidClient("client_assertion: the metadata document of the client does not name private_key_jwt")
        try:
            claims = await verify_signature(
                assertion,
                self._signing_keys(keys),
                frozenset((keys.algorithm,) if keys.algorithm else ASYMMETRIC_ALGORITHMS),
                _TOKEN_TYPES,
                self._settings.token_max_bytes,
            )
            expires_at, _ = check_times(claims, self._clock(), self._settings.jwt_leeway_s)
        except Unauthenticated as error:
            raise InvalidClient(f"client_assertion: {error.reason or error.message}") from error
        self._check_claims(client_id, claims, expires_at)
        await self._use_once(client_id, str(claims["jti"]), expires_at)

    def _check_claims(self, client_id: str, claims: Mapping[str, Any], expires_at: float) -> None:
        if (claims.get("iss"), claims.get("sub")) != (client_id, client_id):
            raise InvalidClient("client_assertion: expected the client id as iss and sub")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(one, str) and one in self._audiences for one in audiences):
            raise InvalidClient(f"client_assertion: expected aud {self._settings.base_url}")
        lifetime_max_s = self._settings.oauth_assertion_lifetime_max_s
        if expires_at - self._clock() > lifetime_max_s + self._settings.jwt_leeway_s:
            raise InvalidClient(f"client_assertion: expected exp within {lifetime_max_s:g} s")
        if not isinstance(claims.get("jti"), str) or not claims["jti"]:
            raise InvalidClient("client_assertion: expected jti")

    async def _use_once(self, client_id: str, jti: str, expires_at: float) -> None:
        """Stores the id until the assertion expires, so that a copy is not accepted by any process."""
        digest, now = hash_credential(f"{client_id} {jti}"), self._clock()

        def operation(db: ControlConnection) -> bool:
            db.execute("DELETE FROM oauth_assertions WHERE expires_at < ?", (now,))
            statement = "INSERT INTO oauth_assertions (hash, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING"
            return bool(db.execute(statement, (digest, expires_at)).rowcount)

        if not await self._database.write(operation):
            raise InvalidClient("client_assertion: already used")

    def _signing_keys(self, keys: ClientKeys) -> SigningKeys:
        if not keys.address:
            return _DocumentKeys(keys.entries)
        remote = self._remote_keys.get(keys.address)
        if remote is None:
            settings = replace(self._settings, jwt_jwks_url=keys.address)
            remote = self._remote_keys[keys.address] = RemoteKeys(settings, _KeyFetch(self._fetch))
        return remote


class _DocumentKeys:
    """The keys that a document contains."""

    generation = 0

    def __init__(self, entries: tuple[Any, ...]) -> None:
        from auth.signatures import keys_from_jwks  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.signatures

        self._index = KeyIndex(keys_from_jwks(entries))

    async def find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        return self._index.find(algorithm, kid)


class _KeyFetch(Struct, frozen=True):
    """Fetches a JWK set from an address that a stranger chose."""

    fetch: PublicFetch

    async def __call__(self, url: str, /) -> bytes:
        try:
            return await self.fetch.get_json(url)
        except OutgoingRequestError as error:
            raise Unavailable(f"fetch failed: {url} {error.reason}") from error
