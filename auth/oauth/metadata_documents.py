"""Clients that are identified by the URL of a document with their metadata (Client ID Metadata Documents).

The document proves that the client belongs to the host of the URL. It is fetched only for people who are signed in, and
cached, so that strangers cannot make this server send requests.
"""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from cachetools import LRUCache
from loguru import logger
from msgspec import Struct

from auth.oauth.clients import OAuthClient, read_metadata
from auth.oauth.errors import OAuthError, RequestRejected
from auth.oauth.grants import PRIVATE_KEY
from config.errors import Unavailable
from config.outgoing_http import OutgoingRequestError
from config.public_http import PublicFetch
from config.settings import ASYMMETRIC_ALGORITHMS, Settings

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
    def __init__(
        self,
        settings: Settings,
        fetch: PublicFetch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._uris_max = settings.oauth_redirect_uris_max
        self._ttl_s = settings.oauth_client_metadata_ttl_s
        self._fetch = fetch or document_fetch(settings)
        self._clock = clock
        self._cache: LRUCache[str, _CachedDocument] = LRUCache(settings.oauth_client_metadata_max)
        self._pending: dict[str, asyncio.Task[_CachedDocument]] = {}

    async def find(self, url: str) -> OAuthClient:
        """Returns the client of a document. Raises RequestRejected with what is wrong with it."""
        return (await self._find(url))[0]

    async def keys_of(self, url: str) -> ClientKeys | None:
        """Returns the keys with which the client of a document proves its identity, or None if it has none. Raises
        RequestRejected as `find` does."""
        return (await self._find(url))[1]

    async def _find(self, url: str) -> tuple[OAuthClient, ClientKeys | None]:
        document = self._cache.get(url)
        if document is None or self._clock() >= document.cached_until:
            document = await self._load_once(url)
        if document.client is None:
            raise RequestRejected(f"the metadata document of the application cannot be used: {document.problem}")
        return document.client, document.keys

    async def _load_once(self, url: str) -> _CachedDocument:
        """Joins a fetch of the same document, or starts one."""
        task = self._pending.get(url)
        if task is None:
            if len(self._pending) >= _FETCHES_MAX:
                raise Unavailable("too many metadata documents are being fetched; try again")
            task = self._pending[url] = asyncio.create_task(self._load(url))
            task.add_done_callback(lambda _: self._pending.pop(url, None))
        return await asyncio.shield(task)

    async def _load(self, url: str) -> _CachedDocument:
        try:
            client, keys = self._read(url, await self._fetch.get_json(url))
            problem, ttl_s = "", self._ttl_s
        except (OutgoingRequestError, OAuthError) as error:
            problem = error.reason if isinstance(error, OutgoingRequestError) else error.message
            client, keys, ttl_s = None, None, min(_FAILURE_TTL_S, self._ttl_s)
            logger.info("client metadata document {} not accepted: {}", url, error)
        document = _CachedDocument(client, keys, problem, self._clock() + ttl_s)
        self._cache[url] = document
        return document

    def _read(self, url: str, body: bytes) -> tuple[OAuthClient, ClientKeys | None]:
        """A document is public, so it cannot contain a shared secret."""
        document = _decode(body)
        if document.get("client_id") != url:
            raise _invalid("client_id: expected the URL of the document")
        method = document.get("token_endpoint_auth_method") or "none"
        if "client_secret" in document or method not in ("none", PRIVATE_KEY):
            raise _invalid(
                f"token_endpoint_auth_method: expected none or {PRIVATE_KEY}, because the document is public"
            )
        metadata = read_metadata(document, self._uris_max)
        metadata = msgspec.structs.replace(metadata, token_endpoint_auth_method=method)
        keys = _read_keys(document) if method == PRIVATE_KEY else None
        return OAuthClient(url, "document", metadata, None, 0.0, None), keys


def document_fetch(settings: Settings) -> PublicFetch:
    return PublicFetch(
        settings.oauth_client_metadata_timeout_s,
        settings.oauth_client_metadata_max_bytes,
        settings.oauth_client_metadata_hosts,
    )


def is_document_url(client_id: str) -> bool:
    """Whether a client id can be the URL of a metadata document. Ids of stored clients never are."""
    if len(client_id) > _URL_MAX_CHARS or not client_id.isascii() or not _URL.match(client_id):
        return False
    path = urlsplit(client_id).path
    return path != "/" and not {".", ".."} & set(path.lower().replace("%2e", ".").split("/"))


def _read_keys(document: dict[str, Any]) -> ClientKeys:
    """RFC 7591 section 2: either the keys or their address."""
    algorithm = document.get("token_endpoint_auth_signing_alg") or ""
    if algorithm not in ("", *ASYMMETRIC_ALGORITHMS):
        raise _invalid(f"token_endpoint_auth_signing_alg: expected {', '.join(ASYMMETRIC_ALGORITHMS)}")
    jwks, address = document.get("jwks"), document.get("jwks_uri") or ""
    if (jwks is None) == (not address):
        raise _invalid(f"expected jwks or jwks_uri with {PRIVATE_KEY}")
    if jwks is None:
        if not isinstance(address, str) or len(address) > _URL_MAX_CHARS or not address.startswith("https://"):
            raise _invalid("jwks_uri: expected an https URL")
        return ClientKeys(address=address, algorithm=algorithm)
    entries = jwks.get("keys") if isinstance(jwks, dict) else None
    if not isinstance(entries, list) or not 0 < len(entries) <= _KEYS_MAX:
        raise _invalid(f"jwks: expected a JWK set with at most {_KEYS_MAX} keys")
    return ClientKeys(entries=tuple(entries), algorithm=algorithm)


def _decode(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _invalid("expected a JSON object") from error
    if not isinstance(document, dict):
        raise _invalid("expected a JSON object")
    return document


def _invalid(description: str) -> OAuthError:
    return OAuthError("invalid_client_metadata", description)
