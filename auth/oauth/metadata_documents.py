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
from config.errors import Unavailable
from config.outgoing_http import OutgoingRequestError
from config.public_http import PublicFetch
from config.settings import Settings

_URL_MAX_CHARS = 1_000
# The draft requires a path and forbids dot segments, a fragment and a user name.
_URL = re.compile(r"https://[^/?#@\\\s]+/[^#\\\s]*\Z")
_FETCHES_MAX = 8
# How long a document that could not be fetched is not tried again.
_FAILURE_TTL_S = 30.0
# A document is public, so it cannot contain a shared secret. A client that could also prove itself with a key of its
# own is treated as a public client: its redirect URIs and PKCE protect it.
_AUTH_METHODS = ("", "none", "private_key_jwt")


class _CachedDocument(Struct, frozen=True):
    client: OAuthClient | None
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
        self._fetch = fetch or PublicFetch(
            settings.oauth_client_metadata_timeout_s,
            settings.oauth_client_metadata_max_bytes,
            settings.oauth_client_metadata_hosts,
        )
        self._clock = clock
        self._cache: LRUCache[str, _CachedDocument] = LRUCache(settings.oauth_client_metadata_max)
        self._pending: dict[str, asyncio.Task[_CachedDocument]] = {}

    async def find(self, url: str) -> OAuthClient:
        """Returns the client of a document. Raises RequestRejected with what is wrong with it."""
        document = self._cache.get(url)
        if document is None or self._clock() >= document.cached_until:
            document = await self._load_once(url)
        if document.client is None:
            raise RequestRejected(f"the metadata document of the application cannot be used: {document.problem}")
        return document.client

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
            client, problem, ttl_s = self._read(url, await self._fetch.get_json(url)), "", self._ttl_s
        except (OutgoingRequestError, OAuthError) as error:
            problem = error.reason if isinstance(error, OutgoingRequestError) else error.message
            client, ttl_s = None, min(_FAILURE_TTL_S, self._ttl_s)
            logger.info("client metadata document {} not accepted: {}", url, error)
        document = _CachedDocument(client, problem, self._clock() + ttl_s)
        self._cache[url] = document
        return document

    def _read(self, url: str, body: bytes) -> OAuthClient:
        document = _decode(body)
        if document.get("client_id") != url:
            raise _invalid("client_id: expected the URL of the document")
        if "client_secret" in document or document.get("token_endpoint_auth_method", "") not in _AUTH_METHODS:
            raise _invalid("token_endpoint_auth_method: expected none, because the document is public")
        metadata = read_metadata(document, self._uris_max)
        metadata = msgspec.structs.replace(metadata, token_endpoint_auth_method="none")  # noqa: S106 - a method
        return OAuthClient(url, "document", metadata, None, 0.0, None)


def is_document_url(client_id: str) -> bool:
    """Whether a client id can be the URL of a metadata document. Ids of stored clients never are."""
    if len(client_id) > _URL_MAX_CHARS or not client_id.isascii() or not _URL.match(client_id):
        return False
    path = urlsplit(client_id).path
    return path != "/" and not {".", ".."} & set(path.lower().replace("%2e", ".").split("/"))


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
