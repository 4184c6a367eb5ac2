"""The tool `server_info`: facts that help a caller to plan its calls. It opens no file of the user."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from auth.quotas import QuotaOverrides, Quotas, apply_overrides
from config.settings import Settings
from server.import_jobs import IMPORT_JOBS_MAX_PER_USER
from server.protocol.call import Call
from server.protocol.catalog import Tool
from server.version import VERSION
from sources.items import CHARS_PER_TOKEN_MAX, SNIPPET_MAX_CHARS
from sources.reading.retrieval import CHUNK_TOKENS_MAX, WINDOW_MAX
from sources.search.arguments import LIMIT_MAX, QUERY_MAX_TERMS
from sources.semantic.service import model_description
from sources.source import Source
from sources.storage.contract import Libraries


class ServerInfoInput(Struct, forbid_unknown_fields=True):
    """No arguments."""


class ServerLimits(Struct, frozen=True):
    request_bytes: Annotated[int, Meta(description="Maximum size of a request body or frame, in bytes.")]
    call_ms: Annotated[int, Meta(description="Maximum duration of a call, in milliseconds.")]
    calls_per_minute: Annotated[float, Meta(description="Calls per user and minute; 0 means no limit.")]
    tool_calls_per_minute: Annotated[float, Meta(description="Calls per user, tool and minute; 0 means no limit.")]
    calls_in_flight: Annotated[int, Meta(description="Concurrent calls on one WebSocket, SSE or stdio connection.")]
    streams: Annotated[int, Meta(description="Open streams and WebSockets per user.")]
    session_s: Annotated[float, Meta(description="Idle time after which a session ends, in seconds.")]
    search_ms: Annotated[int, Meta(description="Maximum duration of a search of all sources, in milliseconds.")]
    query_chars: Annotated[int, Meta(description="Characters of a query that are read.")]
    query_terms: Annotated[int, Meta(description="Words of a query that are searched.")]
    hits: Annotated[int, Meta(description="Maximum limit of a search.")]
    hits_bytes: Annotated[int, Meta(description="Maximum size of a page of hits, in bytes.")]
    snippet_chars: Annotated[int, Meta(description="Maximum snippet_length.")]
    response_tokens: Annotated[int, Meta(description="Maximum max_tokens; longer items are read in pages.")]
    default_tokens: Annotated[int, Meta(description="max_tokens of passages if it is not set.")]
    chunk_tokens: Annotated[int, Meta(description="Maximum chunk_size_tokens.")]
    siblings: Annotated[int, Meta(description="Maximum sibling_window.")]
    chars_per_token: Annotated[float, Meta(description="Maximum chars_per_token.")]
    messages: Annotated[int, Meta(description="Maximum page_size of a conversation.")]


class ServerUsage(Struct, frozen=True):
    bytes: Annotated[int, Meta(description="Size of the files of the user's library.")]
    max_bytes: Annotated[int, Meta(description="Quota for it; writes beyond it fail. 0 means no quota.")]
    max_items: Annotated[int, Meta(description="Quota of items; 0 means no quota.")]
    max_passages: Annotated[int, Meta(description="Quota of passages with embeddings; 0 means no quota.")]
    max_imports: Annotated[int, Meta(description="Imports that may run or wait at the same time.")]


class ServerInfo(Struct, frozen=True):
    name: str
    version: str
    user: Annotated[str, Meta(description="The user name of the caller.")]
    scopes: Annotated[list[str], Meta(description="The scopes of the caller's credential.")]
    protocol_version: Annotated[str, Meta(description="The MCP revision of this call.")]
    sources: Annotated[list[str], Meta(description="The sources of the user's library.")]
    semantic_model: Annotated[str, Meta(description="The model that compares meanings, or off.")]
    limits: ServerLimits
    usage: Annotated[
        ServerUsage | UnsetType, Meta(description="Of the whole library; not for a key restricted to some sources.")
    ] = UNSET


class ServerInfoTool:
    """Without `quotas`, those of the settings apply to every user."""

    def __init__(
        self, settings: Settings, sources: Sequence[Source], libraries: Libraries, quotas: Quotas | None = None
    ) -> None:
        self._settings = settings
        self._libraries = libraries
        self._quotas = quotas
        self._sources = [source.name for source in sources]
        self._model = model_description(settings)
        self._limits = ServerLimits(
            request_bytes=settings.body_max_bytes,
            call_ms=settings.call_deadline_ms,
            # Only users are limited; see `auth.rate_limits`.
            calls_per_minute=settings.rate_user_per_minute if settings.is_auth_configured else 0,
            tool_calls_per_minute=settings.rate_tool_per_minute if settings.is_auth_configured else 0,
            calls_in_flight=settings.fixed.connection_in_flight_max,
            streams=settings.stream_max_per_user,
            session_s=settings.session_ttl_s,
            search_ms=settings.fanout_deadline_ms,
            query_chars=settings.fixed.query_max_chars,
            query_terms=QUERY_MAX_TERMS,
            hits=LIMIT_MAX,
            hits_bytes=settings.search_response_max_bytes,
            snippet_chars=SNIPPET_MAX_CHARS,
            response_tokens=settings.retrieval_max_tokens,
            default_tokens=settings.retrieval_default_tokens,
            chunk_tokens=CHUNK_TOKENS_MAX,
            siblings=WINDOW_MAX,
            chars_per_token=CHARS_PER_TOKEN_MAX,
            messages=settings.message_page_max,
        )

    def as_tool(self) -> Tool:
        return Tool(
            name="server_info",
            title="Server information",
            description=(
                "Returns the server's version, your user name and scopes, the sources you can search, the limits that "
                "apply to your calls, and how much of your quota is used. Takes no arguments. Example: {}"
            ),
            input=ServerInfoInput,
            output=ServerInfo,
            handler=self.server_info,
        )

    async def server_info(self, call: Call, args: ServerInfoInput) -> ServerInfo:
        principal = call.context.principal
        usage: ServerUsage | UnsetType = UNSET
        if principal.sources is None:
            if self._quotas is None:
                limits = apply_overrides(self._settings, QuotaOverrides())
            else:
                limits = await self._quotas.limits(principal.user_id)
            usage = ServerUsage(
                bytes=(await self._libraries.stored_bytes([principal.user_id]))[principal.user_id],
                max_bytes=limits.max_bytes,
                max_items=limits.max_items,
                max_passages=limits.max_passages,
                max_imports=IMPORT_JOBS_MAX_PER_USER,
            )
        return ServerInfo(
            name="florilegium",
            version=VERSION,
            user=principal.user_name,
            scopes=sorted(call.context.scopes),
            protocol_version=call.version,
            sources=[source for source in self._sources if principal.permits_source(source)],
            semantic_model=self._model,
            limits=self._limits,
            usage=usage,
        )
