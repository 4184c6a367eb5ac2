"""Clients that prove their identity with a signed token (RFC 7523, `private_key_jwt`).

Only clients with a metadata document do so. The document has their public keys or names an address with them, which is
fetched under the same rules as the document. Nothing is fetched for a client without a grant.
"""

import asyncio
import re
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec
from cachetools import LRUCache
from loguru import logger
from msgspec import Struct, structs

from auth.control_database import ControlConnection, ControlDatabase
from auth.oauth.clients import TOKEN_PATH, OAuthClient, read_metadata
from auth.oauth.grants import PRIVATE_KEY, InvalidClient, OAuthError, RequestRejected, invalid_metadata
from auth.registry import hash_credential
from auth.signing_keys import RemoteKeys, SigningKeys, StaticKeys
from auth.tokens import check_times, unverified_claims, verify_signature
from config.errors import Unauthenticated, Unavailable
from config.public_http import OutgoingRequestError, PublicFetch
from config.settings import ASYMMETRIC_ALGORITHMS, Settings

# RFC 7523 section 3 allows to reject assertions that expire unreasonably late; used ones are remembered until then.
_OAUTH_ASSERTION_LIFETIME_MAX_S = 600.0

# A metadata document is a small JSON object that a stranger wrote.
_OAUTH_CLIENT_METADATA_MAX_BYTES = 16 * 1024

# Cached metadata documents, and as many key sets. The least recently used are fetched again.
_OAUTH_CLIENT_METADATA_MAX = 1000

# A client that changes its metadata document waits an hour at most; each sign-in would fetch it otherwise.
_OAUTH_CLIENT_METADATA_TTL_S = 3600.0

# -- metadata documents ------------------------------------------------------------------------------------------------
# Clients that are identified by the URL of a document with their metadata (Client ID Metadata Documents).
#
# The document proves that the client belongs to the host of the URL. It is fetched only for people who are signed in,
# and cached, so that strangers cannot make this server send requests.

_URL_MAX_CHARS = 1_000
# The draft requires a path and forbids dot segments, a fragment and a user name.
_URL = re.compile(r"https://[^/?#@\\\s]+/[^#\\\s]*\Z")
_FETCHES_MAX = 8
# How long a document that could not be fetched is not tried again.
_FAILURE_TTL_S = 30.0
_KEYS_MAX = 20


class ClientKeys(Struct, frozen=True):
    """The public keys of a client: the entries of a JWK set, or its address. `algorithm` is the only one that the
    client uses, if it says so."""

    entries: tuple[Any, ...] = ()
    address: str = ""
    algorithm: str = ""


class _CachedDocument(Struct, frozen=True):
    client: OAuthClient | None
    keys: ClientKeys | None
    problem: str
    cached_until: float


class MetadataDocuments:
    def __init__(self, fetch: PublicFetch) -> None:
        self._fetch = fetch
        self._cache: LRUCache[str, _CachedDocument] = LRUCache(_OAUTH_CLIENT_METADATA_MAX)
        self._pending: dict[str, asyncio.Task[_CachedDocument]] = {}

    async def find(self, url: str) -> tuple[OAuthClient, ClientKeys | None]:
        """Returns the client of a document, and the keys with which it proves its identity, if it has any. Raises
        RequestRejected with what is wrong with the document."""
        document = self._cache.get(url)
        if document is None or time.monotonic() >= document.cached_until:
            # Joins a fetch of the same document, or starts one.
            task = self._pending.get(url)
            if task is None:
                if len(self._pending) >= _FETCHES_MAX:
                    raise Unavailable("too many metadata documents are being fetched; try again")
                task = self._pending[url] = asyncio.create_task(self._load(url))
                task.add_done_callback(lambda _: self._pending.pop(url, None))
            document = await asyncio.shield(task)
        if document.client is None:
            raise RequestRejected(f"the metadata document of the application cannot be used: {document.problem}")
        return document.client, document.keys

    async def _load(self, url: str) -> _CachedDocument:
        try:
            client, keys = self._read(url, await self._fetch.get_json(url))
            problem, ttl_s = "", _OAUTH_CLIENT_METADATA_TTL_S
        except (OutgoingRequestError, OAuthError) as error:
            problem = error.reason if isinstance(error, OutgoingRequestError) else error.message
            client, keys, ttl_s = None, None, _FAILURE_TTL_S
            logger.info("client metadata document {} not accepted: {}", url, error)
        document = _CachedDocument(client, keys, problem, time.monotonic() + ttl_s)
        self._cache[url] = document
        return document

    def _read(self, url: str, body: bytes) -> tuple[OAuthClient, ClientKeys | None]:
        """A document is public, so it cannot contain a shared secret."""
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid_metadata("expected a JSON object") from error
        if not isinstance(document, dict):
            raise invalid_metadata("expected a JSON object")
        if document.get("client_id") != url:
            raise invalid_metadata("client_id: expected the URL of the document")
        method = document.get("token_endpoint_auth_method") or "none"
        if "client_secret" in document or method not in ("none", PRIVATE_KEY):
            raise invalid_metadata(
                f"token_endpoint_auth_method: expected none or {PRIVATE_KEY}, because the document is public"
            )
        metadata = read_metadata(document)
        metadata = msgspec.structs.replace(metadata, token_endpoint_auth_method=method)
        client = OAuthClient(url, "document", metadata, None, 0.0, None)
        if method != PRIVATE_KEY:
            return client, None
        # RFC 7591 section 2: either the keys or their address.
        algorithm = document.get("token_endpoint_auth_signing_alg") or ""
        if algorithm not in ("", *ASYMMETRIC_ALGORITHMS):
            raise invalid_metadata(f"token_endpoint_auth_signing_alg: expected {', '.join(ASYMMETRIC_ALGORITHMS)}")
        jwks, address = document.get("jwks"), document.get("jwks_uri") or ""
        if (jwks is None) == (not address):
            raise invalid_metadata(f"expected jwks or jwks_uri with {PRIVATE_KEY}")
        if jwks is None:
            if not isinstance(address, str) or len(address) > _URL_MAX_CHARS or not address.startswith("https://"):
                raise invalid_metadata("jwks_uri: expected an https URL")
            return client, ClientKeys(address=address, algorithm=algorithm)
        entries = jwks.get("keys") if isinstance(jwks, dict) else None
        if not isinstance(entries, list) or not 0 < len(entries) <= _KEYS_MAX:
            raise invalid_metadata(f"jwks: expected a JWK set with at most {_KEYS_MAX} keys")
        return client, ClientKeys(entries=tuple(entries), algorithm=algorithm)


def document_fetch(settings: Settings) -> PublicFetch:
    return PublicFetch(
        settings.fixed.oauth_client_metadata_timeout_s,
        _OAUTH_CLIENT_METADATA_MAX_BYTES,
        settings.oauth_client_metadata_hosts,
    )


def is_document_url(client_id: str) -> bool:
    """Whether a client id can be the URL of a metadata document. Ids of stored clients never are."""
    if len(client_id) > _URL_MAX_CHARS or not client_id.isascii() or not _URL.match(client_id):
        return False
    path = urlsplit(client_id).path
    return path != "/" and not {".", ".."} & set(path.lower().replace("%2e", ".").split("/"))


ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
# RFC 7523 requires no type; its successor introduces one. Access tokens have another.
_TOKEN_TYPES = frozenset(("", "jwt", "client-authentication+jwt"))


async def use_once(database: ControlDatabase, identity: str, expires_at: float) -> bool:
    """Returns False if an assertion was used before. Its identity is stored until it expires, so that no process
    accepts a copy."""
    digest, now = hash_credential(identity), time.time()

    def operation(db: ControlConnection) -> bool:
        db.execute("DELETE FROM oauth_assertions WHERE expires_at < ?", (now,))
        statement = "INSERT INTO oauth_assertions (hash, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING"
        return bool(db.execute(statement, (digest, expires_at)).rowcount)

    return await database.write(operation)


class ClientAssertions:
    def __init__(
        self, database: ControlDatabase, settings: Settings, documents: MetadataDocuments, fetch: PublicFetch
    ) -> None:
        self._database = database
        self._settings = settings
        self._documents = documents
        self._fetch = fetch
        self._audiences = frozenset((settings.base_url, settings.base_url + TOKEN_PATH))
        # By the address of the keys.
        self._remote_keys: LRUCache[str, RemoteKeys] = LRUCache(_OAUTH_CLIENT_METADATA_MAX)

    def client_of(self, assertion: str) -> str:
        """Returns the client that an assertion names, which is not verified yet."""
        try:
            subject = unverified_claims(assertion, self._settings.fixed.token_max_bytes).get("sub")
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
            keys = (await self._documents.find(client_id))[1]
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
                self._settings.fixed.token_max_bytes,
            )
            expires_at, _ = check_times(claims, time.time(), self._settings.fixed.jwt_leeway_s)
        except Unauthenticated as error:
            raise InvalidClient(f"client_assertion: {error.reason or error.message}") from error
        if (claims.get("iss"), claims.get("sub")) != (client_id, client_id):
            raise InvalidClient("client_assertion: expected the client id as iss and sub")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(one, str) and one in self._audiences for one in audiences):
            raise InvalidClient(f"client_assertion: expected aud {self._settings.base_url}")
        if expires_at - time.time() > _OAUTH_ASSERTION_LIFETIME_MAX_S + self._settings.fixed.jwt_leeway_s:
            raise InvalidClient(f"client_assertion: expected exp within {_OAUTH_ASSERTION_LIFETIME_MAX_S:g} s")
        if not isinstance(claims.get("jti"), str) or not claims["jti"]:
            raise InvalidClient("client_assertion: expected jti")
        if not await use_once(self._database, f"{client_id} {claims['jti']}", expires_at):
            raise InvalidClient("client_assertion: already used")

    def _signing_keys(self, keys: ClientKeys) -> SigningKeys:
        if not keys.address:
            from auth.signatures import keys_from_jwks  # noqa: PLC0415 - PyJWT takes 0.2 s to import; see auth.signatures

            return StaticKeys(keys_from_jwks(keys.entries))
        remote = self._remote_keys.get(keys.address)
        if remote is None:

            async def fetch(url: str, /) -> bytes:
                try:
                    return await self._fetch.get_json(url)
                except OutgoingRequestError as error:
                    raise Unavailable(f"fetch failed: {url} {error.reason}") from error

            settings = structs.replace(self._settings, jwt_jwks_url=keys.address)
            remote = self._remote_keys[keys.address] = RemoteKeys(settings, fetch)
        return remote
