"""The profiles of the product, as data. A tool that belongs to no profile but `full` is callable all the same, unless
the caller's credential is bound to another.
"""

from collections.abc import Iterable

from config.errors import ConfigurationError
from config.settings import Settings
from server.protocol.call import DEFAULT_PROFILE
from server.protocol.profiles import Profile, Profiles, UnknownProfile

_KNOWLEDGE = ("knowledge_search", "knowledge_get")
# The names that OpenAI's deep research asks for.
_PAIR = ("search", "fetch")
_SOURCES = (
    *("notes_search", "notes_get"),
    *("media_search", "media_get", "media_transcript"),
    *("chats_search", "chats_get"),
    *("characters_search", "characters_get"),
    *("prompts_search", "prompts_get"),
)
_MEMORY = ("memory_search", "memory_get_observations", "memory_read")
_RECORDING = ("observations_record",)
_WRITING = (
    *("notes_create", "notes_update", "notes_append", "notes_delete"),
    *("chats_append", "prompts_save", "media_add_text", "items_tag"),
)
_CONVERSATIONS = ("conversation_search",)
_BUS = ("msg_search",)
# Registering, opening threads and posting in them: the bus is written to by REST alone.
BUS_WRITE = "bus_write"
_HOUSEKEEPING = ("session_configure", "session_reset", "server_info")

_WHAT = (
    "Florilegium holds the caller's own library: notes, media, chats, characters and prompts. Nothing in it belongs to "
    "anyone else. "
)
_SESSION = (
    "An answer of knowledge_search names its session. Give it back as session with the next call: what you were shown "
    "is then not shown again, and suppressed counts what was held back; exhausted says that nothing new is left, and a "
    "search in other words may find more. "
)
_READ = (
    "Read narrowly: each hit tells what the whole item would cost (cost_tokens) and where it matched (loc). Pass the "
    'hit\'s uri and loc with retrieval {"mode": "chunk_with_siblings", "max_tokens": 1500}; take the whole item only '
    "when you need it. "
)
_WIDE = (
    "Search wide first: knowledge_search asks all sources at once, and its scores mean the same in each. Plain words "
    'find items that hold any of them, best first; "phrases", prefix*, -word, tag:, source: and after:2026-01-31 '
    "narrow that down. Several short searches find more than one long question. Page with next_offset. "
)
_HONEST = (
    "Trust what an answer says of itself: sources tells which source failed or came too late, read_as how your query "
    "was understood, cut and truncated that there is more to read."
)

_DEFAULT_TEXT = (
    f"{_WHAT}{_WIDE}One source alone has its own tools, such as notes_search with notes_get. {_READ}{_SESSION}{_HONEST}"
)
_COMPACT_TEXT = f"{_WHAT}{_WIDE}{_READ}{_SESSION}{_HONEST}"
_RESEARCH_TEXT = (
    f"{_WHAT}First search, then fetch: search answers id, title and url of each hit; fetch reads one hit by its id. "
    "Search wide, with several short queries in different words, before you fetch; fetch only hits whose title "
    "promises an answer, and cite them by url. A text too long for one answer is cut, and metadata says so."
)
_MEMORY_TEXT = (
    "Florilegium remembers what was learned in the caller's earlier sessions, in three layers. search gives short "
    "rows: an id, a type, a title. get_observations reads a few of them in full; most questions are answered there. "
    "read shows the conversation itself, by the path and lines of a row: it is long, so read a range. Where nothing "
    "was learned, search finds exchanges of conversations instead, and says so. Nothing here belongs to anyone else."
)
_LETTA_TEXT = (
    "conversation_search finds messages of the caller's earlier conversations by a text as it stands, newest first; "
    "roles and dates narrow it. Nothing in them belongs to anyone else."
)
_BUS_TEXT = (
    "msg_search finds messages of the caller's threads by words, best first: all of them have to be there, OR, NOT, "
    'NEAR, "phrases" and prefix* are obeyed. Search for a decision before you reopen it; thread_id keeps to one thread.'
)
_FULL_TEXT = (
    f"{_DEFAULT_TEXT} session_configure sets what calls of a session go by where they do not say, session_reset "
    "forgets what it has seen, and server_info tells the limits that apply. Write with notes_create, notes_append and "
    "the other tools that write: pass expected_version, so that nobody's change is lost, and an idempotency_key with "
    "what you may have to repeat."
)


def _own(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Tools that are listed under their own names."""
    return tuple((name, name) for name in names)


PROFILES: tuple[Profile, ...] = (
    Profile(
        name=DEFAULT_PROFILE,
        entries=_own((*_KNOWLEDGE, *_PAIR, *_SOURCES)),
        instructions=_DEFAULT_TEXT,
        includes_other_tools=True,
        has_resources=True,
    ),
    Profile(name="compact", entries=_own(_KNOWLEDGE), instructions=_COMPACT_TEXT),
    Profile(name="research", entries=_own(_PAIR), instructions=_RESEARCH_TEXT),
    Profile(
        name="memory",
        entries=tuple((name.removeprefix("memory_"), name) for name in _MEMORY),
        instructions=_MEMORY_TEXT,
    ),
    Profile(name="letta", entries=_own(_CONVERSATIONS), instructions=_LETTA_TEXT),
    Profile(name="bus", entries=_own(_BUS), instructions=_BUS_TEXT, actions=frozenset((BUS_WRITE,))),
    Profile(
        name="full",
        entries=_own(
            (*_KNOWLEDGE, *_PAIR, *_SOURCES, *_MEMORY, *_RECORDING, *_WRITING, *_CONVERSATIONS, *_BUS, *_HOUSEKEEPING)
        ),
        instructions=_FULL_TEXT,
        includes_other_tools=True,
        has_resources=True,
    ),
)
PROFILE_NAMES: tuple[str, ...] = tuple(profile.name for profile in PROFILES)


def profiles_of(settings: Settings) -> Profiles:
    """The profiles, and which of them the settings give to legacy clients by name."""
    clients = dict(entry.rsplit("=", 1) for entry in settings.client_profiles)
    try:
        return Profiles(PROFILES, clients)
    except UnknownProfile as error:
        raise ConfigurationError(
            f"client_profiles names the profile {error.identity!r}; expected one of {', '.join(PROFILE_NAMES)}"
        ) from error
