"""Every setting, once: name, type, default, unit, help and whether it is secret. Nothing is loaded here.

`check` holds the rules between settings; it refuses a combination that would be unsafe or could not work.
"""

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

from msgspec import Meta, Struct
from msgspec.structs import fields

from config.errors import ConfigurationError

_HOUR_S = 3600
_DAY_S = 86_400
_KIB = 1024
_MIB = 1024 * 1024

SYMMETRIC_ALGORITHMS = ("HS256",)
ASYMMETRIC_ALGORITHMS = ("RS256", "ES256", "EdDSA")

# RFC 7518 section 3.2: an HS256 key has at least the 256 bits of its hash.
JWT_SECRET_MIN_BYTES = 32


def _text(help_: str, **limits: Any) -> Meta:
    return Meta(description=help_, extra={"unit": ""}, **limits)


def _secret(help_: str) -> Meta:
    return Meta(description=help_, extra={"unit": "", "secret": True})


def _number(unit: str, help_: str, ge: float, le: float) -> Meta:
    return Meta(description=help_, extra={"unit": unit}, ge=ge, le=le)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator decided. Built by `config.loading.load`; tests build it directly."""

    # Network
    host: Annotated[
        str,
        _text(
            "Address to listen on. Any address but a loopback one needs authentication to be configured.",
            min_length=1,
        ),
    ] = "127.0.0.1"
    port: Annotated[int, _number("", "TCP port to listen on; 0 takes any free port.", 0, 65_535)] = 8765
    public_url: Annotated[
        str,
        _text(
            "The address under which clients reach this server, without a trailing slash, for example "
            "`https://kb.example.com`. Empty: `http://host:port`."
        ),
    ] = ""
    allowed_hosts: Annotated[
        tuple[str, ...],
        _text("Names accepted in the Host header beside the public URL's and, on a loopback address, loopback names."),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        _text(
            "Web origins whose pages may call this server, such as `https://app.example.com`, beside its own and, "
            "on a loopback address, those of loopback pages."
        ),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...],
        _text("Addresses or networks of reverse proxies whose X-Forwarded headers are believed."),
    ] = ()

    # Storage
    data_dir: Annotated[
        str,
        _text(
            "Directory of the control database and of all users' databases. "
            "Empty: `$XDG_DATA_HOME/florilegium`, or `~/.local/share/florilegium`."
        ),
    ] = ""

    durability: Annotated[
        Literal["normal", "full"],
        _text(
            "What a power failure may take: with normal the last writes, with full nothing. "
            "A crash of the process takes nothing either way."
        ),
    ] = "normal"
    library_open_max: Annotated[
        int,
        _number("users", "Users whose libraries are open at once; 0 takes 128, or fewer if files run out.", 0, 100_000),
    ] = 0
    library_jobs_max: Annotated[
        int,
        _number("jobs", "Reads and writes of libraries that run at once; 0 is the number of cores.", 0, 1_000),
    ] = 0
    library_queue_max: Annotated[
        int, _number("jobs", "Reads, and writes, that may wait for one file of one user.", 1, 10_000)
    ] = 256
    library_deadline_ms: Annotated[
        int, _number("ms", "Longest time one read or write of a library may take; a search has its own.", 10, 3_600_000)
    ] = 10_000
    library_cache_kib: Annotated[
        int, _number("KiB", "Pages kept in memory for each open file, once for reading and once for writing.", 64, _MIB)
    ] = 1_024
    migration_copies_max: Annotated[
        int,
        _number("copies", "Copies of a library's file, made before its schema is changed, that are kept.", 0, 100),
    ] = 2
    item_max_chars: Annotated[
        int, _number("characters", "Longest text of a note, message, card or media item.", 1_000, 100_000_000)
    ] = 10_000_000
    title_max_chars: Annotated[
        int, _number("characters", "Longest title, name, address or other short text of an item.", 100, 100_000)
    ] = 2_000
    tags_max: Annotated[int, _number("tags", "Tags one item may have.", 1, 10_000)] = 100
    tag_max_chars: Annotated[int, _number("characters", "Longest tag.", 1, 1_000)] = 100
    metadata_max_bytes: Annotated[
        int, _number("bytes", "Largest metadata, attachment list or card of one item, as JSON.", 2, 16 * _MIB)
    ] = 256 * _KIB
    batch_max_items: Annotated[int, _number("items", "Items written by one call.", 1, 1_000_000)] = 10_000
    chunk_size_chars: Annotated[int, _number("characters", "Longest chunk that media is cut into.", 100, 100_000)] = (
        1_500
    )
    chunk_overlap_chars: Annotated[
        int, _number("characters", "Text that a chunk repeats from the one before it.", 0, 10_000)
    ] = 150
    idempotency_ttl_s: Annotated[
        float, _number("s", "How long a write with an idempotency key is remembered.", 1, 365 * _DAY_S)
    ] = 7 * _DAY_S
    idempotency_max_keys: Annotated[
        int, _number("keys", "Idempotency keys remembered for each file of a user.", 1, 10_000_000)
    ] = 10_000
    search_ranked_rows_max: Annotated[
        int,
        _number("rows", "Matches that are ranked; of words more common than that, the newest are.", 100, 100_000_000),
    ] = 20_000
    message_scan_max_rows: Annotated[
        int,
        _number(
            "rows",
            "Messages looked through for a part of a word; in a library with more of them an index is made for it.",
            10,
            100_000_000,
        ),
    ] = 20_000

    # Logging
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _text("The least serious kind of line that is logged.")
    ] = "info"
    log_format: Annotated[
        Literal["auto", "text", "json"],
        _text("Form of a log line on standard error; auto is text on a terminal and JSON elsewhere."),
    ] = "auto"
    log_requests: Annotated[bool, _text("Whether each request is logged with one line.")] = True

    # Requests
    body_max_bytes: Annotated[
        int,
        _number("bytes", "Largest request body, WebSocket message or stdio line accepted.", _KIB, 1024 * _MIB),
    ] = 4 * _MIB
    head_max_bytes: Annotated[
        int,
        _number("bytes", "Largest request line and headers together, beside the credential.", _KIB, 64 * _MIB),
    ] = 64 * _KIB
    head_timeout_s: Annotated[
        float, _number("s", "Time a connection has to send a whole request line and headers.", 0.1, _HOUR_S)
    ] = 30
    call_deadline_ms: Annotated[
        int, _number("ms", "Longest time one call may run before it is cancelled.", 10, _HOUR_S * 1000)
    ] = 30_000
    answer_timeout_s: Annotated[
        float, _number("s", "Time a client has to answer a question of a tool (legacy era).", 1, _DAY_S)
    ] = 300
    connection_in_flight_max: Annotated[
        int,
        _number("calls", "Calls that one WebSocket or stdio connection may have running at once.", 1, 10_000),
    ] = 32
    shutdown_grace_s: Annotated[
        float, _number("s", "Time that running calls are given to finish when the server stops.", 0, _HOUR_S)
    ] = 10
    list_page_size: Annotated[
        int, _number("items", "Tools, resources or prompts in one page of a list.", 1, 10_000)
    ] = 100
    list_ttl_ms: Annotated[
        int,
        _number("ms", "How long a client may keep a list before it asks again.", 0, _DAY_S * 1000),
    ] = 60_000
    tool_names: Annotated[
        Literal["underscore", "dotted"],
        _text(
            "How tools are listed: knowledge_search or knowledge.search, which some clients refuse. Both can be called."
        ),
    ] = "underscore"
    client_profiles: Annotated[
        tuple[str, ...],
        _text(
            "Profiles of legacy clients at `/mcp`, by the name they introduce themselves with, as `NAME=PROFILE`: "
            "`openai-mcp=research`."
        ),
    ] = ()
    config_max_bytes: Annotated[
        int, _number("bytes", "Largest config a request may carry in its header or address.", 64, 64 * _KIB)
    ] = 2 * _KIB

    # Search
    search_deadline_ms: Annotated[
        int, _number("ms", "Longest time one search of one source may run.", 10, _HOUR_S * 1000)
    ] = 2_000
    search_scoring: Annotated[
        Literal["comparable", "minmax"],
        _text(
            "How hits are scored: comparable means the same in every source and on every page; minmax spreads the hits "
            "of each query and source over 0 to 1."
        ),
    ] = "comparable"
    search_snippet_chars: Annotated[
        int, _number("characters", "Length of a snippet when the caller names none.", 1, 1_000)
    ] = 300
    query_max_chars: Annotated[
        int, _number("characters", "Longest query read; the rest is left out, and the answer says so.", 1, 100_000)
    ] = 1_000
    query_max_terms: Annotated[
        int, _number("words", "Words of a query that are searched for; the answer says when there were more.", 1, 1_000)
    ] = 32
    get_default_tokens: Annotated[
        int, _number("tokens", "Budget of one answer with passages when the caller names none.", 100, 1_000_000)
    ] = 5_000
    get_max_tokens: Annotated[
        int, _number("tokens", "Largest budget of one answer; what is longer is read page by page.", 100, 1_000_000)
    ] = 20_000
    get_chunk_tokens: Annotated[
        int, _number("tokens", "Size of a passage where an item has no stored chunks.", 16, 4_000)
    ] = 300
    get_chunk_overlap_tokens: Annotated[
        int, _number("tokens", "What two such neighbouring passages share.", 0, 2_000)
    ] = 30
    get_sibling_window: Annotated[
        int, _number("passages", "Passages on each side of a match that are read with it.", 0, 50)
    ] = 2
    prompt_max_chars: Annotated[
        int,
        _number("characters", "Longest text that one of the user's prompts may become, arguments filled in.", 1, 10**9),
    ] = 1_000_000
    chat_page_max: Annotated[
        int, _number("messages", "Messages in one page of a conversation, at most.", 1, 10_000)
    ] = 200
    fanout_deadline_ms: Annotated[
        int,
        _number(
            "ms", "Longest time a search of all sources waits; a late source is left out, and told.", 10, 3_600_000
        ),
    ] = 2_500
    # One more is looked for, to see whether there is one. Together they stay within a block of the engine's ranking: a
    # second block would be scored for that one.
    fanout_depth: Annotated[
        int, _number("hits", "Hits asked of each source at a time, which are then ranked together.", 1, 100)
    ] = 20
    fanout_examined_max: Annotated[
        int, _number("hits", "Hits one search of all sources looks through for those not seen yet.", 100, 1_000_000)
    ] = 1_000
    fanout_siblings_max: Annotated[
        int,
        _number("hits", "Hits of one conversation or document that keep their rank; further ones follow.", 1, 100),
    ] = 3
    fanout_source_max: Annotated[
        int, _number("hits", "Hits of one source among any ten that keep their rank while others have some.", 1, 10)
    ] = 6
    answer_default_bytes: Annotated[
        int, _number("bytes", "Size of a page of hits whose caller names no limit and no snippet length.", 2_000, _MIB)
    ] = 7_000
    answer_max_bytes: Annotated[
        int, _number("bytes", "Size of any page of hits of all sources; the next page goes on there.", 2_000, 64 * _MIB)
    ] = 64 * _KIB
    memory_examined_max: Annotated[
        int,
        _number("messages", "Matches of a concept looked through for exchanges and conversations.", 10, 100_000),
    ] = 300
    memory_exchange_max_messages: Annotated[
        int, _number("messages", "Messages gone back from a match to where its exchange began.", 1, 1_000)
    ] = 30
    observations_batch_max: Annotated[
        int, _number("observations", "Observations that one call may record.", 1, 10_000)
    ] = 50
    dedupe: Annotated[
        Literal["hide", "demote", "off"],
        _text("What becomes of hits that a session has seen: they are left out, come last, or stay."),
    ] = "hide"
    breaker_failures: Annotated[
        int, _number("failures", "Failures of a source in a row after which a user's searches pass it by.", 1, 1_000)
    ] = 5
    breaker_pause_s: Annotated[float, _number("s", "How long a failing source is passed by.", 0.1, _DAY_S)] = 30
    breaker_max: Annotated[
        int, _number("sources", "Failing sources of users that are kept in mind at once.", 1, 10_000_000)
    ] = 10_000

    # Conversations
    conversation_page_max: Annotated[
        int, _number("conversations", "Conversations in one page of the list over REST.", 1, 10_000)
    ] = 200
    conversation_found_max: Annotated[
        int, _number("messages", "Messages that one search of messages answers.", 1, 10_000)
    ] = 200
    conversation_messages_max: Annotated[
        int, _number("messages", "Messages of a conversation in one answer over REST; the rest is asked for.", 1, 10**6)
    ] = 5_000
    conversation_answer_max_bytes: Annotated[
        int, _number("bytes", "Text of the messages in such an answer, after which it ends.", _KIB, 1024 * _MIB)
    ] = 16 * _MIB
    conversation_shown_chars: Annotated[
        int, _number("characters", "Text of each message that conversation_search shows.", 1, 1_000_000)
    ] = 2_000
    conversation_examined_max: Annotated[
        int, _number("messages", "Messages conversation_search looks through for those it may show.", 1, 1_000_000)
    ] = 4_000
    bus_thread_max: Annotated[
        int, _number("threads", "Threads of the message bus that one user may have.", 1, 10_000_000)
    ] = 10_000
    bus_agent_max: Annotated[
        int, _number("agents", "Registered agents of all users together; they are kept in memory.", 1, 10_000_000)
    ] = 10_000
    bus_agent_max_per_user: Annotated[
        int, _number("agents", "Registered agents of one user; the one unseen longest is forgotten.", 1, 100_000)
    ] = 100
    bus_agent_ttl_s: Annotated[
        float, _number("s", "Time without a call after which an agent must register again.", 1, 365 * _DAY_S)
    ] = 7 * _DAY_S
    bus_reply_token_max: Annotated[
        int, _number("tokens", "Reply tokens of all users together; they are kept in memory.", 1, 10_000_000)
    ] = 100_000
    bus_reply_token_max_per_user: Annotated[
        int, _number("tokens", "Reply tokens of one user; the oldest is forgotten.", 1, 1_000_000)
    ] = 1_000
    bus_reply_token_ttl_s: Annotated[
        float, _number("s", "Time within which a reply token must be used.", 1, 30 * _DAY_S)
    ] = _HOUR_S
    bus_sync_required: Annotated[
        bool,
        _text("Whether a message on the bus must name the seq and the reply token after which it was written."),
    ] = False

    # Import
    import_max_bytes: Annotated[
        int, _number("bytes", "Largest file or archive that is imported.", _KIB, 1024 * 1024 * _MIB)
    ] = 1024 * _MIB
    import_unpacked_max_bytes: Annotated[
        int, _number("bytes", "How much an archive may be when it is unpacked.", _KIB, 1024 * 1024 * _MIB)
    ] = 16 * 1024 * _MIB
    import_unpacked_ratio_max: Annotated[
        int,
        _number(
            "times",
            "How much larger than packed a file of an archive may be; text is ten to forty times as large.",
            10,
            100_000,
        ),
    ] = 200
    import_file_max_bytes: Annotated[
        int, _number("bytes", "Largest file of an archive that was not written by our own export.", _KIB, 1024 * _MIB)
    ] = 64 * _MIB
    import_max_conversations: Annotated[
        int, _number("conversations", "Files, conversations and namespaces in one archive.", 1, 10_000_000)
    ] = 100_000
    import_problems_max: Annotated[
        int, _number("problems", "Problems that an import tells; all are counted.", 1, 10_000)
    ] = 100
    import_line_max_bytes: Annotated[
        int, _number("bytes", "Longest line, or single value, of a file that is imported.", _KIB, 1024 * _MIB)
    ] = 32 * _MIB
    import_depth_max: Annotated[
        int, _number("levels", "How deep JSON in an imported file may be nested.", 4, 1_000)
    ] = 100
    import_parser_cpu_s: Annotated[
        int, _number("s", "Processor time that the process parsing one document may use.", 1, 3_600)
    ] = 10
    import_parser_memory_mib: Annotated[
        int, _number("MiB", "Memory that the process parsing one document may use.", 128, 65_536)
    ] = 512
    import_parser_deadline_s: Annotated[
        float, _number("s", "Longest time until one document is parsed.", 1, _HOUR_S)
    ] = 30
    import_batch_items: Annotated[
        int, _number("items", "Items and messages that an import writes in one transaction.", 1, 100_000)
    ] = 2_000
    import_batch_chars: Annotated[
        int, _number("characters", "Text that an import writes in one transaction.", _KIB, 1024 * _MIB)
    ] = 2 * _MIB
    import_jobs_max: Annotated[
        int, _number("imports", "Imports over REST that run at once, of all users together.", 1, 1_000)
    ] = 2
    import_jobs_kept: Annotated[
        int, _number("imports", "Finished imports over REST whose results can still be asked for.", 1, 100_000)
    ] = 100
    import_deadline_s: Annotated[
        float, _number("s", "Longest time an import may take; repeated, it goes on where it was.", 1, _DAY_S)
    ] = _HOUR_S

    # Chat
    chat_upstream_url: Annotated[
        str,
        _text(
            "Address of an OpenAI-compatible API that answers chats, such as https://api.openai.com/v1. "
            "Empty: answers are passages of the caller's library."
        ),
    ] = ""
    chat_upstream_key: Annotated[str, _secret("Bearer token for that API.")] = ""
    chat_upstream_model: Annotated[str, _text("Model that `/chat` asks for. Empty: the one that the caller names.")] = (
        ""
    )
    chat_upstream_timeout_s: Annotated[
        float, _number("s", "Longest silence of that API before and within an answer.", 0.1, _HOUR_S)
    ] = 120
    chat_turn_max_s: Annotated[
        float, _number("s", "Longest time a turn of a chat may take, however it goes on.", 1, _DAY_S)
    ] = 1800
    chat_answer_max_bytes: Annotated[
        int, _number("bytes", "Largest answer of that API that is taken, and of a streamed one kept.", _KIB, 256 * _MIB)
    ] = 8 * _MIB
    chat_retry_s: Annotated[
        float, _number("s", "Time within which a turn that is sent again is the same turn, stored once.", 0, _DAY_S)
    ] = 300
    chat_message_max_chars: Annotated[
        int, _number("characters", "Longest message that `/chat` takes.", 1, 10_000_000)
    ] = 10_000
    chat_history_max_chars: Annotated[
        int, _number("characters", "Longest `history` that `/chat` takes, as JSON.", 2, 100_000_000)
    ] = 500_000
    chat_files_max: Annotated[int, _number("files", "Files that one message of `/chat` may bring.", 0, 1_000)] = 10
    chat_file_max_chars: Annotated[
        int, _number("characters", "Text of such a file that is read; the rest is left out, and told.", 1, 10_000_000)
    ] = 20_000
    chat_context_max_tokens: Annotated[
        int, _number("tokens", "Text of the library that one message of a chat is answered from.", 100, 1_000_000)
    ] = 2_000
    chat_passages_max: Annotated[int, _number("passages", "Passages of the library in it.", 1, 50)] = 6

    # Sessions and streams
    session_ttl_s: Annotated[float, _number("s", "Time without a call after which a session ends.", 1, 30 * _DAY_S)] = (
        1800
    )
    session_max: Annotated[int, _number("sessions", "Sessions kept at once, of all users together.", 1, 10_000_000)] = (
        10_000
    )
    session_max_per_user: Annotated[int, _number("sessions", "Sessions kept at once for one user.", 1, 1_000_000)] = 100
    session_seen_max: Annotated[
        int, _number("items", "Delivered items one session remembers; the oldest are forgotten.", 1, 1_000_000)
    ] = 2_000
    session_queries_max: Annotated[int, _number("queries", "Recent queries one session remembers.", 1, 1_000)] = 20
    session_state_max: Annotated[
        int,
        _number("items", "What the sessions of all users remember together, in items.", 1_000, 1_000_000_000),
    ] = 1_000_000
    session_state_max_per_user: Annotated[
        int, _number("items", "What the sessions of one user remember together, in items.", 1_000, 1_000_000_000)
    ] = 50_000
    stream_max_per_user: Annotated[
        int,
        _number("streams", "Event streams and WebSocket connections one user may have open at once.", 1, 100_000),
    ] = 16
    ws_ticket_ttl_s: Annotated[
        float, _number("s", "Time within which a WebSocket ticket must be used.", 1, _HOUR_S)
    ] = 30
    ws_ping_interval_s: Annotated[
        float, _number("s", "Time between two pings on an open WebSocket connection.", 1, _HOUR_S)
    ] = 20
    sse_keepalive_s: Annotated[
        float,
        _number(
            "s",
            "Silence after which a comment keeps proxies from closing an event stream.",
            1,
            _HOUR_S,
        ),
    ] = 15
    access_recheck_s: Annotated[
        float,
        _number(
            "s",
            "How often open streams and sockets look whether their user still has access.",
            0.1,
            _HOUR_S,
        ),
    ] = 1

    # Authentication
    require_auth: Annotated[
        bool,
        _text("Refuse callers without a credential even on a loopback address; API keys alone are then enough."),
    ] = False
    single_user_name: Annotated[
        str,
        _text(
            "The user of callers without a credential, when no authentication is configured.",
            pattern=r"^[A-Za-z0-9._@+-]{1,128}\Z",
        ),
    ] = "local"
    jwt_secret: Annotated[str, _secret("Shared secret that signs tokens with HS256, of at least 32 bytes.")] = ""
    jwt_key_file: Annotated[
        str, _text("File with the public key that signs tokens: PEM, or a JWK or JWK set in JSON.")
    ] = ""
    jwt_jwks_url: Annotated[
        str, _text("URL of the identity provider's JWK set; https, unless it is on a loopback address.")
    ] = ""
    jwt_algorithms: Annotated[
        tuple[str, ...],
        _text(
            "Signature algorithms accepted. Empty: HS256 with a secret; RS256, ES256 and EdDSA with a key file or URL."
        ),
    ] = ()
    jwt_issuer: Annotated[
        str,
        _text("The `iss` a token must carry; needed with a key file or URL. Empty: the base URL of this server."),
    ] = ""
    jwt_audience: Annotated[
        str,
        _text("The `aud` a token must carry. Empty: the resource URL, which is the public URL and `/mcp`."),
    ] = ""
    jwt_leeway_s: Annotated[
        float,
        _number("s", "Difference between clocks that is forgiven when a token's times are checked.", 0, 600),
    ] = 30
    jwt_token_types: Annotated[tuple[str, ...], _text("Values accepted in a token's `typ` header, in any case.")] = (
        "at+jwt",
        "JWT",
    )
    jwt_user_claim: Annotated[str, _text("Claim that names the user.", min_length=1)] = "sub"
    jwt_client_claim: Annotated[str, _text("Claim that names the client program.", min_length=1)] = "client_id"
    jwt_scope_claim: Annotated[
        str, _text("Claim that lists the scopes, as a list or as text with spaces.", min_length=1)
    ] = "scope"
    jwt_default_scopes: Annotated[tuple[str, ...], _text("Scopes of a token that names none.")] = ()
    jwt_create_users: Annotated[
        bool, _text("Create the user of a good token that is not yet known, instead of refusing it.")
    ] = False
    authorization_servers: Annotated[
        tuple[str, ...],
        _text("Issuer URLs of the authorization servers that clients are sent to for a token."),
    ] = ()

    # Credential caches
    token_cache_max: Annotated[
        int,
        _number("tokens", "Verified credentials remembered at once.", 1, 10_000_000),
    ] = 10_000
    token_cache_ttl_s: Annotated[
        float,
        _number("s", "Longest time a verified credential is remembered; never beyond its expiry.", 0, _DAY_S),
    ] = 60
    token_failure_cache_ttl_s: Annotated[
        float, _number("s", "Longest time a refused credential is remembered.", 0, _HOUR_S)
    ] = 5
    token_max_bytes: Annotated[
        int, _number("bytes", "Largest credential looked at; a longer one is refused unread.", 256, _MIB)
    ] = 16 * _KIB
    jwks_ttl_s: Annotated[float, _number("s", "Time after which the JWK set is fetched again.", 1, 30 * _DAY_S)] = 600
    jwks_refresh_min_s: Annotated[
        float,
        _number(
            "s",
            "Least time between two fetches of the JWK set, however many unknown keys are named.",
            1,
            _DAY_S,
        ),
    ] = 30
    jwks_stale_max_s: Annotated[
        float,
        _number("s", "How long the last JWK set stays in use while fetching it fails.", 0, 365 * _DAY_S),
    ] = _DAY_S
    jwks_timeout_s: Annotated[float, _number("s", "Longest time one fetch of the JWK set may take.", 0.1, 300)] = 5
    jwks_max_bytes: Annotated[int, _number("bytes", "Largest JWK set accepted.", _KIB, 64 * _MIB)] = _MIB
    key_last_used_flush_s: Annotated[
        float, _number("s", "How often the last-used times of API keys are written down.", 1, _DAY_S)
    ] = 60

    # Rate limits
    rate_user_per_minute: Annotated[float, _number("calls/min", "Calls one user may make; 0 is no limit.", 0, 1e9)] = (
        1200
    )
    rate_user_burst: Annotated[
        int, _number("calls", "Calls one user may make at once after a pause.", 1, 1_000_000_000)
    ] = 200
    rate_tool_per_minute: Annotated[
        float, _number("calls/min", "Calls one user may make to one tool; 0 is no limit.", 0, 1e9)
    ] = 600
    rate_tool_burst: Annotated[
        int, _number("calls", "Calls one user may make to one tool at once after a pause.", 1, 1_000_000_000)
    ] = 100
    rate_failures_per_minute: Annotated[
        float, _number("failures/min", "Failed sign-ins allowed from one address; 0 is no limit.", 0, 1e9)
    ] = 60
    rate_failures_burst: Annotated[
        int,
        _number("failures", "Failed sign-ins allowed from one address at once after a pause.", 1, 1_000_000_000),
    ] = 30
    rate_keys_max: Annotated[
        int,
        _number(
            "keys",
            "Users, tools or addresses counted at once; the one unseen longest is forgotten.",
            1,
            100_000_000,
        ),
    ] = 100_000

    # Operations
    metrics_token: Annotated[
        str,
        _secret("Bearer token that opens `/metrics`; a credential with the scope `admin` opens it too."),
    ] = ""

    @property
    def has_jwt_key(self) -> bool:
        return bool(self.jwt_secret or self.jwt_key_file or self.jwt_jwks_url)

    @property
    def auth_configured(self) -> bool:
        """Whether a caller without a credential is refused."""
        return self.has_jwt_key or self.require_auth

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.public_url or f"http://{host}:{self.port}"

    @property
    def resource_url(self) -> str:
        """The resource identifier of RFC 8707 and RFC 9728, compared byte by byte."""
        return self.base_url + "/mcp"

    @property
    def audience(self) -> str:
        return self.jwt_audience or self.resource_url

    @property
    def issuer(self) -> str:
        return self.jwt_issuer or self.base_url

    def __repr__(self) -> str:
        """Only what was changed, and never a secret: a repr ends in logs and tracebacks."""
        changed = (s for s in SETTINGS if getattr(self, s.name) != s.default)
        shown = (f"{s.name}={'********' if s.secret else repr(getattr(self, s.name))}" for s in changed)
        return f"Settings({', '.join(shown)})"


class Setting(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    group: str
    type_text: str
    default: Any
    unit: str
    help: str
    secret: bool

    @property
    def environment(self) -> str:
        return f"FLORILEGIUM_{self.name.upper()}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect there. A name other than localhost may resolve to anything."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# The first setting of each group; a group reaches to the next one's first.
_GROUPS = {
    "host": "Network",
    "data_dir": "Storage",
    "log_level": "Logging",
    "body_max_bytes": "Requests",
    "search_deadline_ms": "Search",
    "conversation_page_max": "Conversations",
    "import_max_bytes": "Import",
    "chat_upstream_url": "Chat",
    "session_ttl_s": "Sessions and streams",
    "require_auth": "Authentication",
    "token_cache_max": "Credential caches",
    "rate_user_per_minute": "Rate limits",
    "metrics_token": "Operations",
}


def _rows() -> Iterator[Setting]:
    group = ""
    for field in fields(Settings):
        kind, meta = get_args(field.type)
        group = _GROUPS.get(field.name, group)
        yield Setting(
            name=field.name,
            group=group,
            type_text=_type_text(kind, meta),
            default=field.default,
            unit=meta.extra["unit"],
            help=meta.description,
            secret=meta.extra.get("secret", False),
        )


def _type_text(kind: Any, meta: Meta) -> str:
    """What a value must be, so that it reads well after "expected"."""
    if get_origin(kind) is Literal:
        return " or ".join(get_args(kind))
    if meta.pattern:
        return f"text matching `{meta.pattern}`"
    if meta.min_length:
        return "text that is not empty"
    name = {bool: "true or false", str: "text", int: "whole number", float: "number"}.get(kind, "list of texts")
    return name if meta.ge is None else f"{name} from {meta.ge:.15g} to {meta.le:.15g}"


SETTINGS: tuple[Setting, ...] = tuple(_rows())


def check(settings: Settings) -> None:
    """Refuse combinations that are unsafe or cannot work: every problem at once, one sentence a line."""
    rules = (
        _key_problems,
        _algorithm_problems,
        _url_problems,
        _proxy_problems,
        _client_problems,
        _exposure_problems,
    )
    problems = [problem for rule in rules for problem in rule(settings)]
    if problems:
        raise ConfigurationError("\n".join(problems))


def _key_problems(settings: Settings) -> Iterator[str]:
    sources = ("jwt_secret", "jwt_key_file", "jwt_jwks_url")
    given = [name for name in sources if getattr(settings, name)]
    if len(given) > 1:
        yield f"{' and '.join(given)} are set together; expected one of them at most: unset the others"
    if settings.jwt_secret and len(settings.jwt_secret.encode()) < JWT_SECRET_MIN_BYTES:
        yield (
            f"jwt_secret is too short; expected at least {JWT_SECRET_MIN_BYTES} bytes: "
            "make one with `openssl rand -base64 48`"
        )
    if (settings.jwt_key_file or settings.jwt_jwks_url) and not settings.jwt_issuer:
        yield f"jwt_issuer is empty; expected, beside {given[-1]}, the `iss` that accepted tokens carry"


def _algorithm_problems(settings: Settings) -> Iterator[str]:
    known = (*SYMMETRIC_ALGORITHMS, *ASYMMETRIC_ALGORITHMS)
    for name in settings.jwt_algorithms:
        if name not in known:
            yield f"jwt_algorithms names {name!r}; expected only {', '.join(known)}"
    symmetric = set(SYMMETRIC_ALGORITHMS).intersection(settings.jwt_algorithms)
    asymmetric = set(ASYMMETRIC_ALGORITHMS).intersection(settings.jwt_algorithms)
    # RFC 8725 section 3.1: with both kinds allowed, a public key could be taken for an HMAC secret.
    if symmetric and asymmetric:
        yield "jwt_algorithms mixes HS256 with public-key algorithms; expected one kind: remove the other"
    elif settings.jwt_secret and asymmetric:
        yield "jwt_algorithms names public-key algorithms; expected HS256 beside jwt_secret: leave it empty"
    elif (settings.jwt_key_file or settings.jwt_jwks_url) and symmetric:
        yield "jwt_algorithms names HS256; expected others beside a key file or URL: leave it empty"


def _url_problems(settings: Settings) -> Iterator[str]:
    if settings.public_url and not _is_plain_url(settings.public_url):
        yield (
            f"public_url is {settings.public_url!r}; expected http:// or https:// and a host, "
            "without query, fragment or trailing slash, such as https://kb.example.com"
        )
    if settings.jwt_jwks_url and not _is_safe_to_fetch(settings.jwt_jwks_url):
        yield (
            f"jwt_jwks_url is {settings.jwt_jwks_url!r}; expected https:// and a host, "
            "or http:// and a loopback address: keys fetched in the clear can be replaced on the way"
        )
    yield from _upstream_problems(settings)
    for origin in settings.allowed_origins:
        if not _is_origin(origin):
            yield (
                f"allowed_origins names {origin!r}; expected lower-case scheme://host or scheme://host:port "
                "without a path, such as https://app.example.com"
            )
    for url in settings.authorization_servers:
        if not _is_plain_url(url.removesuffix("/")):
            yield (
                f"authorization_servers names {url!r}; expected an issuer URL without query or fragment, "
                "such as https://login.example.com"
            )


def _upstream_problems(settings: Settings) -> Iterator[str]:
    url = settings.chat_upstream_url
    if url and not _is_plain_url(url):
        yield (
            f"chat_upstream_url is {url.rpartition('@')[2]!r}; expected http:// or https:// and a host, without user, "
            "query, fragment or trailing slash, such as https://api.openai.com/v1"
        )
    elif url and settings.chat_upstream_key and not _is_safe_to_fetch(url):
        yield (
            f"chat_upstream_url is {url!r}; expected https://, or a loopback address, beside chat_upstream_key: "
            "a key sent in the clear can be read on the way"
        )


def _proxy_problems(settings: Settings) -> Iterator[str]:
    for network in settings.trusted_proxies:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            yield f"trusted_proxies names {network!r}; expected an address or a network such as 10.0.0.0/8"


def _client_problems(settings: Settings) -> Iterator[str]:
    for entry in settings.client_profiles:
        name, _, profile = entry.rpartition("=")
        if not name or not profile:
            yield f"client_profiles names {entry!r}; expected NAME=PROFILE, such as openai-mcp=research"


def _exposure_problems(settings: Settings) -> Iterator[str]:
    if not is_loopback(settings.host) and not settings.auth_configured:
        yield (
            f"host is {settings.host!r}, which others can reach, and no authentication is configured; "
            "set a JWT key (jwt_secret, jwt_key_file or jwt_jwks_url), "
            "or set require_auth = true and create keys with `florilegium key create`, or bind to 127.0.0.1"
        )


def _split(url: str) -> SplitResult | None:
    """The parts of a URL, or nothing if it is malformed. White space, which `urlsplit` drops, is refused."""
    if any(character <= " " for character in url):
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port  # parsed, and refused, only when it is read
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


def _is_origin(text: str) -> bool:
    """RFC 6454 section 6.2, as a browser writes it; `*` and `null` are no origins but everybody."""
    parts = _split(text)
    return parts is not None and text == f"{parts.scheme}://{parts.netloc}".lower()
