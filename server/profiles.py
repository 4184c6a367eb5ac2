"""The built-in profiles. A tool that only `full` lists can still be called, unless the credential is restricted."""

from collections.abc import Iterable

from config.errors import ConfigurationError
from config.settings import Settings
from server.protocol.call import DEFAULT_PROFILE
from server.protocol.catalog import Profile, Profiles, UnknownProfile

_KNOWLEDGE = ("knowledge_search", "knowledge_get")
# The names that OpenAI's deep research requires.
_RESEARCH = ("search", "fetch")
_SOURCES = (
    *("notes_search", "notes_get"),
    *("media_search", "media_get", "media_transcript"),
    *("chats_search", "chats_get"),
    *("characters_search", "characters_get"),
    *("prompts_search", "prompts_get"),
)
_SIMILAR = ("items_similar",)
_MEMORY = ("memory_search", "memory_get_observations", "memory_read")
_RECORDING = ("observations_record",)
_WRITING = (
    *("notes_create", "notes_update", "notes_append", "notes_delete"),
    *("chats_append", "prompts_save", "media_add_text"),
    *("items_create", "items_update", "items_delete", "items_tag", "items_copy"),
)
# Enough to find, read and change everything.
_WRITE = (
    *_KNOWLEDGE,
    *("items_create", "items_update", "items_delete", "items_tag"),
    *("notes_append", "chats_append"),
)
_CONVERSATIONS = ("conversation_search",)
_BUS = ("bus_connect", "msg_post", "msg_list", "msg_search")
# Writing to the bus over REST. No profile names it, so those that include other tools permit it.
BUS_WRITE = "bus_write"
_SESSION_TOOLS = ("session_configure", "session_reset", "server_info", "libraries_list")

# The instructions of the profiles, which models read before their first call.
_ABOUT = (
    "Florilegium holds the user's own library: notes, media, chats, characters and prompts. It contains no data of "
    "other users. "
)
_SESSIONS = (
    "Each knowledge_search response has a session. Pass it as session to the next call, and items you have seen are "
    "not returned again: suppressed counts them, and exhausted means that no new items are left, so try other words. "
)
_READ_NARROWLY = (
    "Read narrowly: results show the passages that match, and often these answer the question. To read on, pass the "
    'uri of a result and your query to knowledge_get with retrieval {"mode": "chunk_with_siblings", "max_tokens": '
    "1500}; read a whole item only when you need it: its size in tokens is given. "
)
_SEARCH_WIDE = (
    "Search wide first: knowledge_search searches all sources at once, with comparable scores. Plain words find items "
    'that contain any of them, best first; "phrases", prefix*, -word, tag:, source: and after:2026-01-31 narrow the '
    "search. Several short searches find more than one long question. Page with next_offset. "
)
_CHECK_RESPONSE = (
    "Check what a response reports: which source failed or timed out, how your query was interpreted, and that there "
    "is more to read."
)

_DEFAULT_TEXT = (
    f"{_ABOUT}{_SEARCH_WIDE}Each source also has its own tools, such as notes_search and notes_get. "
    f"{_READ_NARROWLY}{_SESSIONS}{_CHECK_RESPONSE}"
)
_COMPACT_TEXT = f"{_ABOUT}{_SEARCH_WIDE}{_READ_NARROWLY}{_SESSIONS}{_CHECK_RESPONSE}"
_RESEARCH_TEXT = (
    f"{_ABOUT}First search, then fetch: search returns id, title and url of each hit; fetch reads one hit by its id. "
    "Search wide, with several short queries in different words, before you fetch; fetch only hits whose title "
    "looks relevant, and cite them by url. Text that is too long for one response is truncated, and metadata says so."
)
_MEMORY_TEXT = (
    "Florilegium remembers what was learned in the user's earlier sessions, in three layers. search returns short "
    "rows: an id, a type, a title. get_observations reads a few of them in full; most questions are answered there. "
    "read shows the conversation itself, by the path and lines of a row: it is long, so read a range. If nothing "
    "was learned, search returns exchanges of conversations instead, and says so. All of it belongs to this user."
)
_LETTA_TEXT = (
    "conversation_search finds messages of the user's earlier conversations by literal text, newest first; roles and "
    "dates narrow the search. All conversations belong to this user."
)
_BUS_TEXT = (
    "The user's agents share threads. bus_connect joins a thread, or creates it, and returns its messages; store your "
    "agent_id and token, to resume as the same agent. msg_post posts a message, msg_list reads those after a seq. "
    'msg_search finds messages of all threads, best first. All words must match; OR, NOT, NEAR, "phrases" and prefix* '
    "are supported. Search for a decision before you reopen it; thread_id limits the search to one thread."
)
_WRITE_TEXT = (
    f"{_ABOUT}Find items with knowledge_search and read them with knowledge_get; pass the uri of a hit to the tools "
    "that write. items_create, items_update, items_delete and items_tag work on every source; notes_append adds to a "
    "note, chats_append to a conversation. Search before you create, so that nothing exists twice. Pass "
    "expected_version, the version that you have read, so that no other change is lost, and an idempotency_key with "
    "calls that you may have to repeat. Ask before you delete something that the user did not name."
)
_FULL_TEXT = (
    f"{_DEFAULT_TEXT} session_configure sets defaults for the calls of a session, session_reset clears the items it "
    "has seen, and server_info returns the limits that apply. Write with notes_create, notes_append and the other "
    "writing tools: pass expected_version, so that no change is overwritten, and an idempotency_key with calls that "
    "you may have to repeat."
)


def _own_names(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Returns the entries of tools that are listed under their own names."""
    return tuple((name, name) for name in names)


PROFILES: tuple[Profile, ...] = (
    Profile(
        name=DEFAULT_PROFILE,
        entries=_own_names((*_KNOWLEDGE, *_RESEARCH, *_SOURCES)),
        instructions=_DEFAULT_TEXT,
        includes_other_tools=True,
        has_resources=True,
    ),
    Profile(name="compact", entries=_own_names(_KNOWLEDGE), instructions=_COMPACT_TEXT),
    Profile(name="research", entries=_own_names(_RESEARCH), instructions=_RESEARCH_TEXT),
    Profile(name="write", entries=_own_names(_WRITE), instructions=_WRITE_TEXT),
    Profile(
        name="memory",
        entries=tuple((name.removeprefix("memory_"), name) for name in _MEMORY),
        instructions=_MEMORY_TEXT,
    ),
    Profile(name="letta", entries=_own_names(_CONVERSATIONS), instructions=_LETTA_TEXT),
    Profile(name="bus", entries=_own_names(_BUS), instructions=_BUS_TEXT),
    Profile(
        name="full",
        entries=_own_names(
            (
                *_KNOWLEDGE,
                *_RESEARCH,
                *_SOURCES,
                *_SIMILAR,
                *_MEMORY,
                *_RECORDING,
                *_WRITING,
                *_CONVERSATIONS,
                *_BUS,
                *_SESSION_TOOLS,
            )
        ),
        instructions=_FULL_TEXT,
        includes_other_tools=True,
        has_resources=True,
    ),
)
PROFILE_NAMES: tuple[str, ...] = tuple(profile.name for profile in PROFILES)


def profiles_of(settings: Settings) -> Profiles:
    """Returns the profiles, and the profiles that the settings assign to legacy clients by name."""
    clients = dict(entry.rsplit("=", 1) for entry in settings.client_profiles)
    try:
        return Profiles(PROFILES, clients)
    except UnknownProfile as error:
        raise ConfigurationError(
            f"client_profiles: expected profiles from {', '.join(PROFILE_NAMES)}, got {error.identity!r}"
        ) from error
