"""The table of settings: name, type, default, unit, description and whether a value is secret.

`check` validates combinations of settings. Values are loaded in `config.loading`.
"""

# About this package: Every other package may import this one. `settings` is the table of settings and their rules, and
# `loading` reads them. `errors` draws the tree of errors that every package raises. `paths` is the only module that
# turns a user id into a path, `postgres` the only package that talks to asyncpg, and `public_http` the only module that
# fetches addresses that strangers choose.

import ipaddress
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta, Struct, structs

from config.errors import ConfigurationError
from config.openid import OpenIdProvider, provider_problems, read_group_map
from config.postgres.errors import require_postgres_url
from config.times import load_time_zone

# The entry points of storage engines that other distributions add. The name of each is a scheme of `storage_url`.
STORAGE_ENGINES = "florilegium.storage"
_HOUR_S = 3600
_DAY_S = 86_400
_KIB = 1024
_MIB = 1024 * 1024

SYMMETRIC_ALGORITHMS = ("HS256",)
ASYMMETRIC_ALGORITHMS = ("RS256", "ES256", "EdDSA")

# The values of semantic_model that are not URLs.
SEMANTIC_MODELS = ("off", "auto", "fast", "minilm", "multilingual")

# RFC 7518 section 3.2: an HS256 key must have at least 256 bits.
JWT_SECRET_MIN_BYTES = 32


# The settings that `source_limits` can set for one source, as `SOURCE.SETTING=VALUE`. The others concern all sources.
SOURCE_SETTINGS = (
    "search_deadline_ms",
    "retrieval_default_tokens",
    "retrieval_max_tokens",
    "breaker_failures",
    "breaker_pause_s",
)


# What a field of `Settings` is annotated with, besides its description: these, limits, and the unit of a number.
_SECRET = Meta(extra={"secret": True})
# The setting can be changed while the server runs; see `server.serving`.
_RELOAD = Meta(extra={"reload": True})


def _number(unit: str, ge: float, le: float) -> Meta:
    return Meta(extra={"unit": unit}, ge=ge, le=le)


class FixedValues(Struct, frozen=True, kw_only=True):
    """Values that operators cannot change. They are not constants next to the code because tests run servers with
    others, to reach a limit or an interval quickly."""

    # PostgreSQL. From so many passages of a source, an HNSW index, which can miss some, is faster than comparing all of
    # them.
    postgres_connect_timeout_s: float = 5
    postgres_hnsw_min_passages: int = 50_000
    # SQLite: as many jobs as CPU cores (0). More would only wait for each other.
    library_jobs_max: int = 0
    # A call that is expected to wait longer for its turn is refused at once, so that its client can try later.
    library_wait_max_ms: int = 5_000
    # Chunks of media texts. Those that exist keep their size.
    chunk_size_chars: int = 1_500
    chunk_overlap_chars: int = 150
    # Clients repeat a call within minutes; a week also covers a laptop that was closed.
    idempotency_ttl_s: float = 7 * _DAY_S
    idempotency_max_keys: int = 10_000
    # Matches that are ranked, and messages that are scanned for part of a word: a few microseconds each.
    search_ranked_rows_max: int = 20_000
    message_scan_max_rows: int = 20_000

    # Requests: sizes without the credential, which is hashed or parsed as a whole.
    head_max_bytes: int = 64 * _KIB
    token_max_bytes: int = 16 * _KIB
    # A client sees the response only if the rest of its body is read for a while.
    refused_body_timeout_s: float = 5
    # Of several workers, each closes a connection with the first response after this time, so that clients that stay
    # for hours move to a worker that was replaced. WebSockets and streams stay open.
    connection_max_s: float = 300
    # Calls on one WebSocket or stdio connection, and its frames: each costs CPU time before it is counted as a call.
    connection_in_flight_max: int = 32
    ws_frames_per_s: float = 1_000
    ws_frames_burst: int = 1_000
    ws_ticket_ttl_s: float = 30
    # Open streams check that their user still has access.
    access_recheck_s: float = 1
    session_max_per_user: int = 100

    # Search. Longer queries are cut, and the response says so.
    query_max_chars: int = 1_000
    search_snippet_chars: int = 300
    # The second stage of searches in chats (`sources.search.message_boost`).
    search_message_boost: bool = True
    # A page of results without a limit: about 1,150 tokens.
    search_response_default_bytes: int = 6_400
    # The first results of each of several sources, and half of those of a single one. A multiple of the blocks in which
    # an engine ranks (`SHARED_BLOCK_ROWS`); otherwise part of a block would be scored for nothing.
    fanout_depth: int = 10
    # Results that can be paged, and that one search examines to find those the session has not seen.
    fanout_scan_max: int = 1_000
    # Hits of one source among any ten that keep their rank while other sources have hits.
    fanout_source_max: int = 6
    # Passages of items without stored chunks, and passages on each side of a match.
    retrieval_chunk_tokens: int = 300
    retrieval_chunk_overlap_tokens: int = 30
    retrieval_sibling_window: int = 2
    # Background requests to the embeddings API, and the responses of it and of the reranker.
    semantic_endpoint_timeout_s: float = 30
    semantic_endpoint_attempts_max: int = 3
    semantic_response_max_bytes: int = 64 * _MIB
    # The first pages of results.
    reranker_hits_max: int = 50

    # Conversations. The rest of a long one can be requested separately.
    conversation_messages_max: int = 5_000
    # Files, conversations and namespaces in one archive: more than anyone's history has.
    import_max_conversations: int = 100_000
    # Message text in one REST response, after which the response ends and says how to go on.
    conversation_response_max_bytes: int = 16 * _MIB
    # A stream of changes looks for them at this interval, and ends at times. Browsers connect again.
    conversation_events_interval_ms: int = 1_000
    conversation_events_max_s: float = 300
    # Messages that are examined to find exchanges and matches.
    memory_scan_max: int = 300
    conversation_search_scan_max: int = 4_000
    # Threads of AgentChatBus per user.
    bus_thread_max: int = 10_000
    # Chat: a turn, its response, and the files and passages that the model gets.
    chat_turn_max_s: float = 1_800
    chat_response_max_bytes: int = 8 * _MIB
    chat_context_max_tokens: int = 2_000
    chat_passages_max: int = 6

    # Import: see `sources.importers.engine.limits`. A file that is not a Florilegium export is read into memory.
    import_file_max_bytes: int = 64 * _MIB
    import_images_max_bytes: int = 16 * _MIB
    import_reader_deadline_s: float = 120
    # Problems in a report, where all are counted.
    import_problems_max: int = 100
    # What is written per transaction: other writes of the user wait for it.
    import_batch_items: int = 200
    import_batch_chars: int = 128 * _KIB
    # Follow: a look at the times of files, and a scan of folders without file events, are cheap.
    follow_events: bool = True
    follow_poll_s: float = 1
    follow_unwatched_scan_s: float = 10

    # Credentials. A cached one is dropped at once if the control database changes.
    jwt_leeway_s: float = 30
    jwks_refresh_min_s: float = 30
    token_cache_max: int = 10_000
    token_cache_ttl_s: float = 60
    token_failure_cache_ttl_s: float = 5
    # OAuth. RFC 6749 section 4.1.2 recommends ten minutes at most for a code. A refresh token may be sent once more if
    # the response was lost. Five seconds is the default interval of devices (RFC 8628 section 3.2).
    oauth_code_ttl_s: float = 60
    oauth_refresh_retry_s: float = 30
    oauth_device_interval_s: float = 5
    oauth_connections_max_per_user: int = 100
    # At the limit, the oldest client without a connection is deleted.
    oauth_clients_max: int = 10_000
    oauth_client_unused_ttl_s: float = _DAY_S
    oauth_client_metadata_timeout_s: float = 5
    openid_timeout_s: float = 10
    # Sign-in. RFC 9106 section 4 recommends three passes. Further passwords are refused with 503.
    password_hash_passes: int = 3
    password_hash_jobs_max: int = 2
    password_hash_queue_max: int = 50
    passkey_max_per_user: int = 20
    # Calls that are allowed at once after an idle period, and limits of single addresses (/64 networks of IPv6).
    rate_user_burst: int = 200
    rate_tool_burst: int = 100
    rate_failures_burst: int = 30
    rate_sign_in_account_burst: int = 10
    rate_sign_in_address_per_minute: float = 6
    rate_sign_in_address_burst: int = 30


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of a server. `config.loading.load_settings` builds it; tests build it directly."""

    # Network
    host: Annotated[
        str,
        Meta(min_length=1),
        "Address to listen on. Any address other than a loopback address requires authentication.",
    ] = "127.0.0.1"
    port: Annotated[int, _number("", 0, 65_535), "TCP port to listen on. 0 picks a free port."] = 8765
    public_url: Annotated[
        str,
        "Base URL at which clients reach this server, without a trailing slash, for example "
        "`https://kb.example.com`. Empty: `http://host:port`.",
    ] = ""
    allowed_hosts: Annotated[
        tuple[str, ...],
        "Additional values accepted in the Host header, besides the host of the public URL and, on a loopback "
        "address, loopback names.",
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        "Additional web origins whose pages may call this server, such as `https://app.example.com`. The server's "
        "own origin is always accepted; so are loopback origins on a loopback address with authentication and "
        "without a public URL.",
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], "Addresses or networks of reverse proxies whose X-Forwarded headers are trusted."
    ] = ()

    connections_max: Annotated[
        int,
        _number("connections", 0, 1_000_000),
        "Open connections. One user can have half of them, and so can one address that is not a trusted proxy, before "
        "its connections have sent a valid credential. 0: a third of the limit on open files, at most 4096.",
    ] = 0
    workers: Annotated[
        int,
        _number("processes", 1, 256),
        "Processes that serve on the same address. More than one requires `storage_url` and `session_url`.",
    ] = 1
    connection_max_requests: Annotated[
        int,
        _number("requests", 1, 1_000_000_000),
        "With several workers, the requests after which a connection is closed, so that long-lived clients spread "
        "over all workers. It is also closed after 5 minutes.",
    ] = 1_000
    idle_timeout_s: Annotated[
        float, _number("s", 0.1, _HOUR_S), "How long a connection may be idle between two requests."
    ] = 5

    # Storage
    data_dir: Annotated[
        str,
        "Directory of the control database and of all users' databases. Empty: `$XDG_DATA_HOME/florilegium`, or "
        "`~/.local/share/florilegium`.",
    ] = ""
    storage_url: Annotated[
        str,
        "PostgreSQL database of the users and all libraries: `postgresql://user:password@host:port/database`. Its "
        "user must be able to create schemas. Of several hosts (`host:port,host:port`) the primary is used. Empty: "
        "SQLite files in `data_dir`.",
        _SECRET,
    ] = ""
    postgres_connections: Annotated[
        int,
        _number("connections", 3, 500),
        "Connections of a process to PostgreSQL for libraries. Three more are for users.",
    ] = 9
    postgres_statement_cache: Annotated[
        int,
        _number("statements", -1, 100_000),
        "Prepared statements per connection to PostgreSQL. -1: 1000, or 0 if a connection pooler is found. Some "
        "poolers, such as PgBouncer from version 1.21 on, support more than 0.",
    ] = -1

    durability: Annotated[
        Literal["normal", "full"],
        "What a power failure can lose: with `normal` the last writes, with `full` nothing. A crash of the process "
        "loses nothing in either mode.",
    ] = "normal"
    library_open_max: Annotated[
        int,
        _number("users", 0, 100_000),
        "Libraries open at the same time. 0: 128, or fewer if the limit on open files is low.",
    ] = 0
    library_deadline_ms: Annotated[
        int, _number("ms", 10, 3_600_000), "Time limit for one library read or write. Searches have their own limit."
    ] = 10_000
    library_cache_kib: Annotated[
        int, _number("KiB", 64, _MIB), "Page cache of each open database file; readers and the writer have one each."
    ] = 1_024
    user_max_bytes: Annotated[
        int,
        _number("bytes", 0, 10**15),
        "Quota of one user: the size of all files of the library. Writes that add something are refused with 507 "
        "from then on. 0: no quota.",
        _RELOAD,
    ] = 20 * 1024 * _MIB
    user_max_items: Annotated[
        int,
        _number("items", 0, 10**12),
        "Quota of one user: notes, media items, conversations, characters and prompts. 0: no quota.",
        _RELOAD,
    ] = 0
    user_max_passages: Annotated[
        int,
        _number("passages", 0, 10**12),
        "Quota of one user: passages with embeddings. The newest items get theirs first; the others are found by "
        "their words only. 0: no quota.",
        _RELOAD,
    ] = 0
    item_max_chars: Annotated[
        int,
        _number("characters", 1_000, 100_000_000),
        "Maximum length of the text of a note, message, character card or media item.",
    ] = 10_000_000
    metadata_max_bytes: Annotated[
        int,
        _number("bytes", 2, 16 * _MIB),
        "Maximum size of an item's metadata, attachment list or character card, encoded as JSON.",
    ] = 256 * _KIB
    batch_max_items: Annotated[int, _number("items", 1, 1_000_000), "Maximum number of items written by one call."] = (
        10_000
    )

    # Logging
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], "Minimum level of the lines that are logged.", _RELOAD
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json"],
        "Format of log lines on standard error. `auto` is text on a terminal and JSON elsewhere.",
        _RELOAD,
    ] = "auto"
    log_requests: Annotated[bool, "Log one line per request, with user, client, tool, outcome and duration."] = True

    # Requests
    body_max_bytes: Annotated[
        int, _number("bytes", _KIB, 1024 * _MIB), "Maximum size of a request body, WebSocket message or stdio line."
    ] = 4 * _MIB
    client_timeout_s: Annotated[
        float,
        _number("s", 0.1, _HOUR_S),
        "Time limit for a client to send the request line and headers, and to send or read the next 64 KiB of a body.",
    ] = 30
    requests_max_bytes: Annotated[
        int,
        _number("bytes", _KIB, 1024 * 1024 * _MIB),
        "Memory of request bodies and WebSocket messages in flight, decoded, for all users together (estimated). "
        "One user can have a quarter of it, and as many bytes of responses that were not read. Both are at least "
        "four times `body_max_bytes`.",
    ] = 256 * _MIB
    call_deadline_ms: Annotated[
        int, _number("ms", 10, _HOUR_S * 1000), "Time limit for one call, after which it is cancelled."
    ] = 30_000
    shutdown_grace_s: Annotated[
        float,
        _number("s", 0, _HOUR_S),
        "Time in which the server stops, at least 1 s. Running calls may finish; the last quarter, at most 2 s, is for "
        "closing libraries.",
    ] = 10
    shutdown_delay_s: Annotated[
        float,
        _number("s", 0, _HOUR_S),
        "Time after SIGTERM in which connections are still accepted, while `/readyz` is 503, so that a load balancer "
        "chooses another server.",
    ] = 0
    tool_names: Annotated[
        Literal["underscore", "dotted"],
        "How tool names are listed: `knowledge_search`, or `knowledge.search`, which some clients reject. Both can "
        "be called.",
    ] = "underscore"
    client_profiles: Annotated[
        tuple[str, ...],
        "Profiles for legacy clients that connect to `/mcp`, by the client name in their handshake, as "
        "`NAME=PROFILE`: `openai-mcp=research`.",
    ] = ()

    # Search
    search_deadline_ms: Annotated[int, _number("ms", 10, _HOUR_S * 1000), "Time limit for searching one source."] = (
        2_000
    )
    search_running_max: Annotated[
        int,
        _number("searches", 0, 1_000),
        "Searches of all sources that run at the same time; others wait for their turn. 0: one more than the "
        "number of CPU cores.",
    ] = 0
    search_scoring: Annotated[
        Literal["comparable", "minmax"],
        "How hits are scored. `comparable`: absolute scores, comparable across sources and pages. `minmax`: the "
        "hits of each query and source are scaled to 0..1.",
    ] = "comparable"
    time_zone: Annotated[
        str,
        Meta(min_length=1),
        "IANA time zone of the users, for example `Europe/Berlin`. It decides when a day begins in queries such as "
        "`yesterday` and `after:2026-11-15`. A request can set its own.",
    ] = "UTC"
    retrieval_default_tokens: Annotated[
        int, _number("tokens", 100, 1_000_000), "Default token budget of a response that contains passages."
    ] = 5_000
    retrieval_max_tokens: Annotated[
        int,
        _number("tokens", 100, 1_000_000),
        "Maximum token budget of a response. Longer texts are returned in pages.",
    ] = 20_000
    message_page_max: Annotated[
        int, _number("messages", 1, 10_000), "Maximum number of messages, conversations or matches in one response."
    ] = 200
    fanout_deadline_ms: Annotated[
        int,
        _number("ms", 10, 3_600_000),
        "Time limit for searching all sources. Sources that take longer are left out and reported.",
    ] = 2_500
    search_response_max_bytes: Annotated[
        int,
        _number("bytes", 2_000, 64 * _MIB),
        "Maximum size of a page of results from all sources. If they do not fit, the page has fewer of them.",
    ] = 64 * _KIB
    dedupe: Annotated[
        Literal["hide", "demote", "off"],
        "What happens to hits that the session has already seen: `hide` leaves them out, `demote` ranks them last, "
        "`off` keeps them.",
    ] = "hide"
    sources_off: Annotated[
        tuple[str, ...],
        "Sources that are switched off: they have no tools, resources and prompts, and are not searched. Their "
        "data is kept.",
    ] = ()
    source_limits: Annotated[
        tuple[str, ...],
        "Settings of single sources as `SOURCE.SETTING=VALUE`, such as `media.breaker_failures=3`. Possible: "
        f"{', '.join(SOURCE_SETTINGS)}.",
    ] = ()
    breaker_failures: Annotated[
        int, _number("failures", 1, 1_000), "Consecutive failures of a source after which a user's searches skip it."
    ] = 5
    breaker_pause_s: Annotated[float, _number("s", 0.1, _DAY_S), "How long a failing source is skipped."] = 30

    # Semantic search
    semantic_model: Annotated[
        str,
        Meta(min_length=1),
        "How texts are compared by meaning: `auto` (the best of `minilm` and `fast` that is installed, and "
        "`multilingual`, if it is, for libraries in other languages), `off`, `fast`, `minilm`, `multilingual`, or the "
        "URL of an OpenAI-compatible embeddings API, such as `http://127.0.0.1:11434/v1`.",
    ] = "auto"
    semantic_weight: Annotated[
        float,
        _number("share", 0, 1),
        "Weight of meaning in the score of a short query. 0: 0.22 for `fast`, 0.4 for `minilm`, otherwise 0.3.",
    ] = 0
    semantic_timeout_ms: Annotated[
        int,
        _number("ms", 10, 60_000),
        "Time limit for embedding a query, and for reranking. After it, a search finds words only and says so, and "
        "hits keep their order.",
    ] = 1_000
    semantic_endpoint_key: Annotated[str, "Bearer token for the embeddings API.", _SECRET] = ""
    semantic_endpoint_model: Annotated[
        str, "Model name sent to the embeddings API, such as `nomic-embed-text`. Required with a URL."
    ] = ""
    semantic_endpoint_dimension: Annotated[
        int, _number("numbers", 0, 16_384), "Numbers per vector of the embeddings API. Required with a URL."
    ] = 0
    semantic_endpoint_query_prefix: Annotated[
        str,
        Meta(max_length=500),
        "Text that the embeddings API's model expects before a query, such as `search_query: `.",
    ] = ""
    semantic_endpoint_passage_prefix: Annotated[
        str,
        Meta(max_length=500),
        "Text that the embeddings API's model expects before a passage, such as `search_document: `. Changing it "
        "makes all vectors again.",
    ] = ""
    embedding_cpu_percent: Annotated[
        int,
        _number("%", 1, 6400),
        "CPU time that a local model uses in the background, at the lowest priority. 100 is one core, 200 are two.",
    ] = 80
    semantic_memory_mib: Annotated[
        int, _number("MiB", 1, 1024 * 1024), "Memory for the embeddings of all users that are searched at the time."
    ] = 256
    reranker_url: Annotated[
        str,
        "Full URL of a reranker with the request format of Cohere, Jina and TEI, such as "
        "`http://127.0.0.1:8080/rerank`. Empty: hits are not reranked.",
    ] = ""
    reranker_key: Annotated[str, "Bearer token for the reranker.", _SECRET] = ""
    reranker_model: Annotated[str, "Model name sent to the reranker. Empty: none is sent."] = ""

    # Conversations
    bus_content_filter: Annotated[
        bool, "Reject bus messages, topics and system prompts that contain a known kind of secret."
    ] = True
    bus_sync_required: Annotated[
        bool, "Require every bus message to include the last seen `seq` and a reply token."
    ] = False

    # Import
    import_max_bytes: Annotated[
        int,
        _number("bytes", _KIB, 1024 * 1024 * _MIB),
        "Maximum size of an imported file or archive. An archive may have 16 times as much unpacked.",
    ] = 1024 * _MIB
    import_reader_memory_mib: Annotated[
        int, _number("MiB", 128, 65_536), "Memory limit of the process that reads the files of an import."
    ] = 2_048
    import_sandbox: Annotated[
        Literal["auto", "required", "off"],
        "Confinement of the processes that read imported files, by Landlock, seccomp, namespaces and another user "
        "id. `auto` uses what the kernel offers, `required` refuses imports without Landlock and seccomp.",
    ] = "auto"
    import_jobs_max: Annotated[
        int,
        _number("imports", 1, 1_000),
        "REST imports that run at the same time, for all users together, and as many followed sources.",
    ] = 2

    # Follow
    follow_roots: Annotated[
        tuple[str, ...],
        "Folders in which users without the scope `admin` may follow files and folders; `{user}` is the "
        "name of the user, as in `/srv/vaults/{user}`, where a link is not followed. Empty: none. Administrators may "
        "follow any path.",
    ] = ()
    follow_max_per_user: Annotated[
        int, _number("sources", 0, 10_000), "Followed sources of one user, paused ones included."
    ] = 20
    follow_url_hosts: Annotated[
        tuple[str, ...],
        "Hosts, as `name` or `name:port`, whose URLs may be followed although their address is not public or their "
        "port is not that of http or https.",
    ] = ()

    # Chat
    chat_upstream_url: Annotated[
        str,
        "Base URL of an OpenAI-compatible API that answers chats, such as `https://api.openai.com/v1`. Empty: "
        "chats are answered with passages from the caller's library.",
    ] = ""
    chat_upstream_key: Annotated[str, "Bearer token for the upstream API.", _SECRET] = ""
    chat_upstream_model: Annotated[
        str, "Model that `/chat` requests from the upstream API. Empty: the model that the caller requests."
    ] = ""
    chat_upstream_timeout_s: Annotated[
        float, _number("s", 0.1, _HOUR_S), "Time limit for the upstream API to send the next part of a response."
    ] = 120

    # Sessions and streams
    session_url: Annotated[
        str,
        "Redis or Valkey server whose sessions, rate limits, tickets and jobs all processes of a deployment share: "
        "`redis://user:password@host:port/0`, `rediss://` for TLS, or `unix:///path/to/socket`. Empty: they are "
        "kept in this process.",
        _SECRET,
    ] = ""
    redis_prefix: Annotated[
        str,
        Meta(pattern="^[A-Za-z0-9_.-]{1,64}$"),
        "First part of all keys in Redis, so that several deployments can share a server.",
    ] = "florilegium"
    redis_timeout_ms: Annotated[
        int, _number("ms", 10, 60_000), "How long a command may take before Redis counts as unavailable."
    ] = 250
    session_ttl_s: Annotated[float, _number("s", 1, 30 * _DAY_S), "Idle time after which a session ends."] = 1800
    session_max: Annotated[int, _number("sessions", 1, 10_000_000), "Sessions, for all users together."] = 10_000
    session_seen_max: Annotated[
        int, _number("items", 1, 1_000_000), "Delivered items kept per session. The oldest are dropped first."
    ] = 2_000
    stream_max_per_user: Annotated[
        int, _number("streams", 1, 100_000), "Open event streams and WebSocket connections per user."
    ] = 16
    sse_keepalive_s: Annotated[
        float,
        _number("s", 1, _HOUR_S),
        "Idle time after which a comment is sent, so that proxies do not close an event stream.",
    ] = 15

    # Authentication
    require_auth: Annotated[
        bool, "Reject callers without a credential even on a loopback address. API keys are then sufficient."
    ] = False
    single_user_name: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9._@+-]{1,128}\Z"),
        "The user for callers without a credential if no authentication is configured.",
    ] = "local"
    jwt_secret: Annotated[str, "Shared secret that signs tokens with HS256, at least 32 bytes.", _SECRET, _RELOAD] = ""
    jwt_previous_secrets: Annotated[
        tuple[str, ...],
        "Earlier values of jwt_secret. Tokens that were signed with them stay valid until they expire.",
        _SECRET,
        _RELOAD,
    ] = ()
    jwt_key_file: Annotated[
        str, "File with the public key that verifies tokens: PEM, or a JWK or JWK set in JSON.", _RELOAD
    ] = ""
    jwt_jwks_url: Annotated[
        str, "URL of the identity provider's JWK set. Must be https unless it is on a loopback address."
    ] = ""
    jwt_algorithms: Annotated[
        tuple[str, ...],
        "Accepted signature algorithms. Empty: HS256 with a secret; RS256, ES256 and EdDSA with a key file or URL.",
    ] = ()
    jwt_issuer: Annotated[
        str, "Required `iss` of a token. Must be set with a key file or URL. Empty: the base URL of this server."
    ] = ""
    jwt_audience: Annotated[
        str, "Required `aud` of a token. Empty: the resource URL, which is the public URL followed by `/mcp`."
    ] = ""
    jwt_user_claim: Annotated[str, Meta(min_length=1), "Claim that identifies the user."] = "sub"
    jwt_scope_claim: Annotated[
        str, Meta(min_length=1), "Claim that contains the scopes, as a list or as a space-separated string."
    ] = "scope"
    jwt_default_scopes: Annotated[
        tuple[str, ...], "Scopes of a token without a scope claim and without the claims in jwt_role_claims."
    ] = ()
    jwt_required_claims: Annotated[
        tuple[str, ...],
        "Claims that a token must have, as `NAME=VALUE`: `type=access`. Several values of a name are alternatives.",
    ] = ()
    jwt_scope_map: Annotated[
        tuple[str, ...],
        "Scopes of the roles and permissions in a token, as `VALUE=SCOPE SCOPE`: `editor=knowledge:read "
        "knowledge:write`. Values that are not listed have none.",
    ] = ()
    jwt_group_map: Annotated[
        tuple[str, ...],
        "Groups of this server for the users of tokens, by the values of the claim `groups` and of those in "
        "jwt_role_claims, as `VALUE=GROUP ROLE`: `staff=team writer`. A membership ends with a token that lacks the "
        "value.",
    ] = ()
    jwt_role_claims: Annotated[
        tuple[str, ...],
        "Claims whose values are looked up in jwt_scope_map, in addition to the scope claim. `a.b` is the claim "
        "`b` in the object `a`.",
    ] = ("role", "roles", "permissions")
    jwt_insecure_no_issuer: Annotated[
        bool, "Insecure: accept tokens without `iss`, which any service with the same key may have issued."
    ] = False
    jwt_insecure_no_audience: Annotated[
        bool, "Insecure: accept tokens without `aud`, which may have been issued for another service."
    ] = False
    jwt_name_claim: Annotated[
        str,
        "Claim from which the names of created users are made, such as `preferred_username`. Empty: the user "
        "claim. It never identifies a user.",
    ] = ""
    jwt_create_users: Annotated[bool, "Create unknown users of valid tokens instead of rejecting them."] = False
    authorization_servers: Annotated[
        tuple[str, ...], "Issuer URLs of the authorization servers at which clients can obtain a token."
    ] = ()

    # OAuth
    oauth_server: Annotated[
        Literal["auto", "on", "off"],
        "Whether this server is an OAuth authorization server for MCP clients. `auto`: on if authentication is "
        "configured and tokens are not issued elsewhere (`authorization_servers`, `jwt_key_file` or `jwt_jwks_url`).",
    ] = "auto"
    oauth_access_token_ttl_s: Annotated[
        float, _number("s", 60, 30 * _DAY_S), "Lifetime of an OAuth access token. Clients replace it by themselves."
    ] = _HOUR_S
    oauth_refresh_token_ttl_s: Annotated[
        float, _number("s", _HOUR_S, 3650 * _DAY_S), "Time after which a client that did not connect must ask again."
    ] = 90 * _DAY_S
    oauth_registration: Annotated[
        bool, "Let clients register themselves (RFC 7591). Clients with a metadata document need no registration."
    ] = True
    oauth_client_metadata: Annotated[
        bool, "Accept clients that are identified by the URL of their metadata document, which is fetched."
    ] = True
    oauth_client_metadata_hosts: Annotated[
        tuple[str, ...],
        "Hosts (`host` or `host:port`) whose client metadata documents may be fetched although they have private "
        "addresses or another port than 443.",
    ] = ()

    # Sign-in with a browser
    browser_session_idle_s: Annotated[
        float, _number("s", 60, 1e9), "Time after which people who signed in with a browser and left are signed out."
    ] = 7 * 86400
    browser_session_lifetime_s: Annotated[
        float, _number("s", 60, 1e9), "Time after which people must sign in with a browser again."
    ] = 30 * 86400
    password_sign_in: Annotated[bool, "Let people sign in with a name and a password."] = True
    password_requires_passkey: Annotated[
        bool,
        "Require a passkey after a password, which alone leads only to the page on which the passkey is used, or the "
        "first one added.",
    ] = False
    password_min_chars: Annotated[int, _number("characters", 8, 64), "Minimum length of a new password."] = 8
    password_hash_memory_kib: Annotated[
        int, _number("KiB", 64, 4 * _MIB), "Memory that hashing a password takes (Argon2id)."
    ] = 64 * _KIB
    rate_sign_in_account_per_minute: Annotated[
        float,
        _number("attempts/min", 0, 1e6),
        "Failed sign-ins per account, from browsers that have not signed in to it before. Each other browser "
        "has as many of its own. 0: no limit.",
    ] = 0.5
    passkey_sign_in: Annotated[bool, "Let people register passkeys and sign in with them."] = True
    openid_providers: Annotated[
        tuple[OpenIdProvider, ...],
        "OpenID Connect providers at which people can sign in: tables `[[openid_providers]]` in the TOML file, or "
        "a JSON array in the environment; see [Sign-in](sign-in.md#identity-providers).",
        _SECRET,
    ] = ()

    # Sharing
    groups: Annotated[
        Literal["everyone", "admins", "off"],
        "Who may create groups, whose members share a library: everyone who may write, administrators, or nobody but "
        "the operator on the command line. Groups that exist stay.",
    ] = "everyone"

    # Audit log
    audit_retention_days: Annotated[
        float, _number("days", 0, 36_500), "How long events are kept in the audit log. 0: forever."
    ] = 90
    audit_reads: Annotated[bool, "Record which client read which item, so that people can see it."] = True

    # Rate limits
    rate_user_per_minute: Annotated[
        float, _number("calls/min", 0, 1e9), "Calls per user, if authentication is configured. 0: no limit."
    ] = 1200
    rate_tool_per_minute: Annotated[
        float, _number("calls/min", 0, 1e9), "Calls per user and tool, if authentication is configured. 0: no limit."
    ] = 600
    rate_failures_per_minute: Annotated[
        float, _number("failures/min", 0, 1e9), "Failed sign-ins per client address. 0: no limit."
    ] = 60
    rate_oauth_per_minute: Annotated[
        float,
        _number("requests/min", 0, 1e9),
        "Requests to the OAuth endpoints per user, and per client address for those without a valid code or token; one "
        "in 60 may be a new client or device code. 0: no limit.",
    ] = 600

    # Operations
    metrics_token: Annotated[
        str,
        "Bearer token for `/metrics`, which can also be read with a credential that has the scope `admin`.",
        _SECRET,
        _RELOAD,
    ] = ""
    tracing_endpoint: Annotated[
        str,
        "URL of an OpenTelemetry collector that receives traces over OTLP/HTTP, such as "
        "`http://127.0.0.1:4318/v1/traces`. Needs the extra `tracing`. Empty: no traces.",
    ] = ""
    tracing_sample_ratio: Annotated[
        float,
        _number("share", 0, 1),
        "Requests that are traced. A request with `traceparent` is traced if its caller is.",
    ] = 1

    # Not a setting; see its docstring.
    fixed: FixedValues = FixedValues()

    @property
    def has_jwt_key(self) -> bool:
        return bool(self.jwt_secret or self.jwt_key_file or self.jwt_jwks_url)

    @property
    def is_auth_configured(self) -> bool:
        """Whether callers without a credential are rejected."""
        return self.has_jwt_key or self.require_auth

    @property
    def has_oauth_server(self) -> bool:
        """Whether this server issues tokens to OAuth clients itself."""
        is_issued_elsewhere = bool(self.authorization_servers or self.jwt_key_file or self.jwt_jwks_url)
        return self.oauth_server == "on" or (
            self.oauth_server == "auto" and self.is_auth_configured and not is_issued_elsewhere
        )

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url or f"http://{host}:{self.port}"

    def about_url(self, page: str) -> str:
        """Returns the address of a page for people that needs no sign-in; see `server.console.about_pages`."""
        return f"{self.base_url}/about/{page}"

    def of_source(self, source: str) -> "Settings":
        """Returns these settings with those that `source_limits` has for a source."""
        entries = (_split_limit(entry) for entry in self.source_limits)
        limits = {setting: value for name, setting, value in entries if name == source}
        values = msgspec.convert(limits, Settings, strict=False)
        return structs.replace(self, **{name: getattr(values, name) for name in limits}) if limits else self

    @property
    def resource_url(self) -> str:
        """The resource identifier of RFC 8707 and RFC 9728, which clients compare byte by byte."""
        return self.base_url + "/mcp"

    @property
    def audience(self) -> str:
        return self.jwt_audience or self.resource_url

    @property
    def issuer(self) -> str:
        return self.jwt_issuer or self.base_url

    def __repr__(self) -> str:
        """Shows the settings that differ from their defaults. Secrets are masked, since a repr can end up in a log."""
        changes = (s for s in SETTINGS if getattr(self, s.name) != s.default)
        shown = (f"{s.name}={'********' if s.is_secret else repr(getattr(self, s.name))}" for s in changes)
        return f"Settings({', '.join(shown)})"


class Setting(Struct, frozen=True, kw_only=True):
    """A row of the table of settings."""

    name: str
    group: str
    type_text: str
    default: Any
    unit: str
    description: str
    is_secret: bool
    is_reloadable: bool

    @property
    def environment(self) -> str:
        return f"FLORILEGIUM_{self.name.upper()}"


def is_loopback(host: str) -> bool:
    """Whether the host is reachable from this machine only. Names other than localhost may resolve to any address."""
    if host.lower() == "localhost":
        return True
    return is_address(host) and ipaddress.ip_address(host).is_loopback


def is_address(host: str) -> bool:
    """Whether the host is an IP address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# The first setting of each group. A group extends to the first setting of the next.
_GROUPS = {
    "host": "Network",
    "data_dir": "Storage",
    "log_level": "Logging",
    "body_max_bytes": "Requests",
    "search_deadline_ms": "Search",
    "semantic_model": "Semantic search",
    "bus_content_filter": "Conversations",
    "import_max_bytes": "Import",
    "follow_roots": "Follow",
    "chat_upstream_url": "Chat",
    "session_url": "Sessions and streams",
    "require_auth": "Authentication",
    "oauth_server": "OAuth",
    "browser_session_idle_s": "Sign-in with a browser",
    "groups": "Sharing",
    "audit_retention_days": "Audit log",
    "rate_user_per_minute": "Rate limits",
    "metrics_token": "Operations",
}


def _read_table() -> Iterator[Setting]:
    group = ""
    for field in structs.fields(Settings):
        if field.name == "fixed":
            continue
        kind, *annotations = get_args(field.type)
        group = _GROUPS.get(field.name, group)
        metas = [one for one in annotations if isinstance(one, Meta)]
        extra = {name: value for meta in metas for name, value in (meta.extra or {}).items()}
        yield Setting(
            name=field.name,
            group=group,
            type_text=_type_text(kind, metas),
            default=field.default,
            unit=extra.get("unit", ""),
            description=next(one for one in annotations if isinstance(one, str)),
            is_secret="secret" in extra,
            is_reloadable="reload" in extra,
        )


def _type_text(kind: Any, metas: Iterable[Meta]) -> str:
    """Describes valid values, as used after "expected" in error messages."""
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    name = {bool: "true or false", str: "text", int: "integer", float: "number"}.get(kind, "list of strings")
    if kind == tuple[OpenIdProvider, ...]:
        name = "list of providers"
    for meta in metas:
        if meta.pattern:
            return f"text matching `{meta.pattern}`"
        if meta.min_length:
            return "non-empty text"
        if meta.ge is not None:
            return f"{name} from {meta.ge:.15g} to {meta.le:.15g}"
    return name


SETTINGS: tuple[Setting, ...] = tuple(_read_table())


def check(settings: Settings) -> None:
    """Raises ConfigurationError, with one problem per line, for combinations that are unsafe or cannot work."""
    rules = (_jwt_problems, _url_problems, _value_problems, _semantic_problems, _sign_in_problems, _store_problems)
    problems = [problem for rule in rules for problem in rule(settings)]
    if problems:
        raise ConfigurationError("\n".join(problems))


def _jwt_problems(settings: Settings) -> Iterator[str]:
    names = [name for name in ("jwt_secret", "jwt_key_file", "jwt_jwks_url") if getattr(settings, name)]
    if len(names) > 1:
        yield f"{' and '.join(names)}: only one of them can be set"
    if settings.jwt_secret and len(settings.jwt_secret.encode()) < JWT_SECRET_MIN_BYTES:
        yield (f"jwt_secret: expected at least {JWT_SECRET_MIN_BYTES} bytes; create one with `openssl rand -base64 48`")
    if settings.jwt_previous_secrets and not settings.jwt_secret:
        yield "jwt_previous_secrets: expected them together with jwt_secret, which replaced them"
    if any(len(secret.encode()) < JWT_SECRET_MIN_BYTES for secret in settings.jwt_previous_secrets):
        yield f"jwt_previous_secrets: expected at least {JWT_SECRET_MIN_BYTES} bytes each"
    if (settings.jwt_key_file or settings.jwt_jwks_url) and not settings.jwt_issuer:
        yield f"jwt_issuer: required with {names[-1]}; set it to the `iss` of your identity provider's tokens"
    for entry in settings.jwt_required_claims:
        if not all(part.strip() for part in entry.rpartition("=")):
            yield f"jwt_required_claims: expected NAME=VALUE, such as type=access, got {entry!r}"
    try:
        read_group_map(settings.jwt_group_map)
    except ValueError as error:
        yield f"jwt_group_map: expected VALUE=GROUP ROLE, such as staff=team writer, got {str(error)[:80]!r}"
    for entry in settings.jwt_scope_map:
        value, _, scopes = entry.rpartition("=")
        if not value.strip() or not scopes.strip():
            yield f"jwt_scope_map: expected VALUE=SCOPE, such as editor=knowledge:write, got {entry!r}"
    yield from _algorithm_problems(settings)


def _algorithm_problems(settings: Settings) -> Iterator[str]:
    known = (*SYMMETRIC_ALGORITHMS, *ASYMMETRIC_ALGORITHMS)
    for name in settings.jwt_algorithms:
        if name not in known:
            yield f"jwt_algorithms: expected only {', '.join(known)}, got {name!r}"
    symmetric = set(SYMMETRIC_ALGORITHMS).intersection(settings.jwt_algorithms)
    asymmetric = set(ASYMMETRIC_ALGORITHMS).intersection(settings.jwt_algorithms)
    # RFC 8725 section 3.1: with both kinds allowed, a public key could be used as an HMAC secret.
    if symmetric and asymmetric:
        yield "jwt_algorithms: HS256 cannot be combined with public-key algorithms"
    elif settings.jwt_secret and asymmetric:
        yield "jwt_algorithms: only HS256 can be used with jwt_secret; leave jwt_algorithms empty"
    elif (settings.jwt_key_file or settings.jwt_jwks_url) and symmetric:
        yield "jwt_algorithms: HS256 cannot be used with a key file or URL; leave jwt_algorithms empty"


_PLAIN_URL = "an http:// or https:// URL without user, query, fragment or trailing slash"


def _url_problems(settings: Settings) -> Iterator[str]:
    for name, example in (
        ("public_url", "https://kb.example.com"),
        ("chat_upstream_url", "https://api.openai.com/v1"),
        ("tracing_endpoint", "http://127.0.0.1:4318/v1/traces"),
        ("reranker_url", "http://127.0.0.1:8080/rerank"),
    ):
        url = getattr(settings, name)
        if url and not _is_plain_url(url):
            yield f"{name}: expected {_PLAIN_URL}, such as {example}, got {url.rpartition('@')[2]!r}"
    if settings.jwt_jwks_url and not _is_safe_to_fetch(settings.jwt_jwks_url):
        yield (
            "jwt_jwks_url: expected an https:// URL, or http:// with a loopback address, because keys fetched without "
            f"encryption can be replaced in transit; got {settings.jwt_jwks_url.rpartition('@')[2]!r}"
        )
    for name, key_name in (
        ("chat_upstream_url", "chat_upstream_key"),
        ("semantic_model", "semantic_endpoint_key"),
        ("reranker_url", "reranker_key"),
    ):
        url = getattr(settings, name)
        if getattr(settings, key_name) and _is_plain_url(url) and not _is_safe_to_fetch(url):
            yield (
                f"{name}: expected an https:// URL or a loopback address with {key_name}, because a key sent without "
                f"encryption can be read in transit; got {url!r}"
            )
    for origin in settings.allowed_origins:
        parts = _split(origin)
        # As browsers serialize it (RFC 6454 section 6.2). `*` and `null` are not origins.
        if parts is None or origin != f"{parts.scheme}://{parts.netloc}".lower():
            yield (
                "allowed_origins: expected lower-case scheme://host or scheme://host:port without a path, "
                f"such as https://app.example.com, got {origin!r}"
            )
    for url in settings.authorization_servers:
        if not _is_plain_url(url.removesuffix("/")):
            yield (
                "authorization_servers: expected an issuer URL without query or fragment, "
                f"such as https://login.example.com, got {url!r}"
            )


def _semantic_problems(settings: Settings) -> Iterator[str]:
    model = settings.semantic_model
    if model in SEMANTIC_MODELS:
        return
    if not _is_plain_url(model):
        yield (
            f"semantic_model: expected {', '.join(SEMANTIC_MODELS)}, or {_PLAIN_URL}, such as "
            f"http://127.0.0.1:11434/v1, got {model.rpartition('@')[2]!r}"
        )
    for name in ("semantic_endpoint_model", "semantic_endpoint_dimension"):
        if not getattr(settings, name):
            yield f"{name}: required if semantic_model is a URL"


def _value_problems(settings: Settings) -> Iterator[str]:
    """Yields what is wrong with values that a type cannot describe."""
    for network in settings.trusted_proxies:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            yield f"trusted_proxies: expected an address or a network such as 10.0.0.0/8, got {network!r}"
    for root in settings.follow_roots:
        # A relative path would permit folders that depend on the working directory, and an empty one all of it.
        if not root.startswith("/"):
            yield f"follow_roots: expected absolute paths, such as /srv/vaults/{{user}}, got {root!r}"
    for entry in settings.client_profiles:
        name, _, profile = entry.rpartition("=")
        if not name or not profile:
            yield f"client_profiles: expected NAME=PROFILE, such as openai-mcp=research, got {entry!r}"
    yield from limit_problems(settings.source_limits)
    try:
        load_time_zone(settings.time_zone)
    except ValueError as error:
        yield f"time_zone: {error}"


def limit_problems(entries: Iterable[str]) -> Iterator[str]:
    """Yields what is wrong with entries of `source_limits`, as a sentence for the operator."""
    for entry in entries:
        source, setting, value = _split_limit(entry)
        if not source or setting not in SOURCE_SETTINGS:
            names = ", ".join(SOURCE_SETTINGS)
            yield f"source_limits: expected SOURCE.SETTING=VALUE with one of the settings {names}, got {entry!r}"
            continue
        try:
            msgspec.convert({setting: value}, Settings, strict=False)
        except msgspec.ValidationError as error:
            yield f"source_limits: {entry!r}: {error}"


def _split_limit(entry: str) -> tuple[str, str, str]:
    name, _, value = entry.partition("=")
    source, _, setting = name.strip().partition(".")
    return source, setting, value.strip()


def _sign_in_problems(settings: Settings) -> Iterator[str]:
    if not is_loopback(settings.host) and not settings.is_auth_configured:
        yield (
            f"host: {settings.host!r} is reachable from other machines, but no authentication is configured; "
            "set a JWT key (jwt_secret, jwt_key_file or jwt_jwks_url), "
            "or set require_auth = true and create keys with `florilegium key create`, or listen on 127.0.0.1"
        )
    if settings.oauth_server == "on" and not settings.is_auth_configured:
        yield "oauth_server: requires authentication; set require_auth = true or a JWT key"
    yield from provider_problems(settings.openid_providers)
    if settings.openid_providers and not settings.is_auth_configured:
        yield "openid_providers: a server for one user has no sign-in; set require_auth = true"
    if settings.password_requires_passkey and not settings.passkey_sign_in:
        yield "password_requires_passkey: expected passkey_sign_in = true, because people need their passkeys"
    if settings.password_requires_passkey and not settings.is_auth_configured:
        yield "password_requires_passkey: a server for one user has no sign-in; set require_auth = true"


def _store_problems(settings: Settings) -> Iterator[str]:
    """The values may contain passwords, so they are not repeated."""
    if settings.session_url and not _is_redis_url(settings.session_url):
        yield (
            "session_url: expected redis://host:port/0, rediss://host:port/0 or unix:///path/to/socket, with "
            "user:password@ before the host if the server asks for them"
        )
    scheme = settings.storage_url.partition("://")[0]
    if settings.storage_url and scheme not in entry_points(group=STORAGE_ENGINES).names:
        try:
            require_postgres_url("storage_url", settings.storage_url)
        except ConfigurationError as error:
            yield error.message


def _is_redis_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    if parts.scheme == "unix":
        return bool(parts.path.strip("/"))
    database = parts.path.strip("/") or "0"
    return parts.scheme in ("redis", "rediss") and bool(parts.hostname) and database.isascii() and database.isdigit()


def _split(url: str) -> SplitResult | None:
    """Returns the parts of a URL, or None if it is malformed. White space, which `urlsplit` strips, is rejected."""
    if any(character <= " " for character in url):
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # parsed and validated only when accessed
    except ValueError:
        return None
    return parts if parts.hostname and parts.username is None else None


def _is_plain_url(url: str) -> bool:
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https"):
        return False
    return "?" not in url and "#" not in url and not url.endswith("/")


def _is_safe_to_fetch(url: str) -> bool:
    parts = _split(url)
    if parts is None:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
