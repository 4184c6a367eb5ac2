"""The source `chats`: conversations, found message by message. A message is what a chunk is elsewhere."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from config.numbers import clamp
from sources.items import Anchor, GetResponse, Loc, Mode, Pages, ResultItem, uri_of
from sources.library_source import LibrarySource, Wording
from sources.preferences import preferences_of
from sources.reading.cursors import Position, read_cursor
from sources.reading.documents import Anchored, read_snippet
from sources.reading.responses import compose, content_room, meta_of
from sources.reading.retrieval import Passage, Plan, Room, make_plan, take_around, take_forward
from sources.records import Conversation, Hit, ListPage, Message
from sources.search.arguments import (
    Narrowing,
    Question,
    SearchArguments,
    find_matches,
    locate,
    place_in,
    read_query,
    read_question,
    result_item,
)
from sources.search.snippets import Highlighter
from sources.source import Entry, Matches, Reading, SourceResource, entry_page
from sources.storage.contract import Library, Search
from sources.text.token_estimates import json_text

PAGE_SIZE = 50
# Of a message's attachments and citations; larger ones are named but not told.
_EXTRA_MAX_CHARS = 2_000


class ChatsSearch(SearchArguments, frozen=True, kw_only=True):
    by: Annotated[Literal["both", "title", "message"], Meta(description="What has to match.")] = "both"
    character_id: Annotated[int | None, Meta(description="Only chats with this character.")] = None
    sender: Annotated[str | None, Meta(description="Only messages of this sender.")] = None


class ChatsGet(Reading, frozen=True, kw_only=True):
    conversation_id: Annotated[str, Meta(description="conversation_id of a hit.")]
    page: Annotated[int | None, Meta(description="Counts from 1.")] = None
    page_size: Annotated[int | None, Meta(description="Messages, default 50, at most 200.")] = None


class ChatsSource(LibrarySource):
    name = "chats"
    title = "Chats"
    mime_type = "text/plain"
    search_input = ChatsSearch
    get_input = ChatsGet
    names_item = "conversation_id"
    searching = Wording(
        "Search chats",
        "Search the messages and titles of the user's conversations; each hit is a message or a title. "
        'Example: {"query": "flight to Lisbon", "sender": "user"}',
    )
    reading = Wording(
        "Read a chat",
        "Read a conversation page by page, or with retrieval the messages around loc or query. "
        'Example: {"conversation_id": "9b2e…", "loc": {"message_index": 41}, '
        '"retrieval": {"mode": "chunk_with_siblings"}}',
    )

    @property
    def resources(self) -> Sequence[SourceResource]:
        return (
            SourceResource(
                uri="chats://{id}/{message_id}",
                name="chats-message",
                title="One message of a chat",
                description="A message of one of the user's conversations.",
                mime_type=self.mime_type,
                read=_read_message,
            ),
        )

    async def search(self, context: RequestContext, library: Library, asked: ChatsSearch) -> Matches:
        query = read_query(asked.query, self._settings)
        narrowing = Narrowing(
            obeys=frozenset(["sender"]),
            by=asked.by,
            character_id=_storable(asked.character_id),
            senders=(asked.sender,) if asked.sender else (),
        )
        question = read_question(self.name, asked, query, context, self._settings, narrowing)
        return await find_matches(library.chats, question, _uri, _item)

    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse:
        return await self._read(context, library, str(identity), reading, None, None)

    async def _run_get(self, context: RequestContext, library: Library, asked: ChatsGet) -> GetResponse:
        return await self._read(context, library, asked.conversation_id, asked, asked.page, asked.page_size)

    async def entries(self, context: RequestContext, library: Library, limit: int, offset: int) -> ListPage[Entry]:
        return entry_page(self.name, await library.chats.list(limit, offset), lambda chat: chat.title)

    async def _read(
        self,
        context: RequestContext,
        library: Library,
        identity: str,
        reading: Reading,
        page: int | None,
        page_size: int | None,
    ) -> GetResponse:
        chat = await library.chats.get(identity)
        loc = reading.place
        plan = make_plan(reading.retrieval, preferences_of(context.config), self._settings, _usual_mode(reading, page))
        size = clamp(PAGE_SIZE if page_size is None else page_size, 1, self._settings.message_page_max)
        meta = meta_of(self.name, chat, chat.id, chat.title, conversation_id=chat.id)
        if reading.cursor is not None:
            position = read_cursor(reading.cursor, meta.uri, chat.version)
            return await _read_on(library, chat, meta, replace(plan, mode="full"), position, size)
        if plan.mode == "full":
            return await _read_page(library, chat, meta, plan, max(1, page or 1), size)
        return await self._read_around(library, chat, meta, plan, loc, reading.query)

    async def _read_around(
        self,
        library: Library,
        chat: Conversation,
        meta: ResultItem,
        plan: Plan,
        loc: Loc | None,
        query: str | None,
    ) -> GetResponse:
        position, by = await self._anchor(library, chat, loc, query)
        window = plan.window if plan.mode == "chunk_with_siblings" else 0
        messages = await library.chats.messages_around(chat.id, position, window, window + 1)
        if not messages:
            return compose(meta, plan, by, take_forward([Passage(0, "")], Room(0)), more=False)
        anchor = next((n for n, message in enumerate(messages) if message.position >= position), len(messages) - 1)
        found = messages[anchor]
        # Its id stands beside: each costs two dozen tokens.
        place = Loc(message_index=found.position)
        meta = replace(meta, loc=place, message_id=found.id, sender=found.sender or None)
        highlighter = Highlighter(read_query(query or "", self._settings).terms)
        if plan.mode == "snippet":
            offset = max(0, (loc.approx_offset if loc is not None else None) or 0)
            return read_snippet(found.content, meta, plan, Anchored(offset, by), highlighter)
        passages = [_passage(message) for message in messages[: anchor + window + 1]]
        focus = _focus(loc if by == "loc" else None, found, highlighter)
        taken = take_around(passages, anchor, content_room(meta, plan), window, focus)
        more = taken.truncated or messages[-1].position >= taken.end.index
        return compose(meta, plan, by, taken, more=more)

    async def _anchor(
        self, library: Library, chat: Conversation, loc: Loc | None, query: str | None
    ) -> tuple[int, Anchor]:
        """The position of the message to read."""
        if loc is not None and loc.message_id is not None:
            message = await library.chats.get_message(loc.message_id)
            if message.conversation_id != chat.id:
                raise NotFound("message", loc.message_id)
            return message.position, "loc"
        if loc is not None and loc.message_index is not None:
            if loc.message_index < 0:
                raise InvalidParams(f"loc.message_index: got {loc.message_index}, expected 0 or more")
            return loc.message_index, "loc"
        if query and (found := await self._best_message(library, chat, query)) is not None:
            return found, "query"
        return 0, "beginning"

    async def _best_message(self, library: Library, chat: Conversation, query: str) -> int | None:
        parsed = read_query(query, self._settings)
        if parsed.expression is None:
            return None
        search = Search(
            query=parsed, limit=1, within=chat.id, by="message", deadline_ms=self._settings.search_deadline_ms
        )
        hits = (await library.chats.search(search)).hits
        return hits[0].message_index if hits else None


async def _read_message(context: RequestContext, library: Library, variables: Mapping[str, str]) -> str:
    message = await library.chats.get_message(variables["message_id"])
    if message.conversation_id != variables["id"]:
        raise NotFound("message", variables["message_id"])
    return _passage(message).text


def _storable(character_id: int | None) -> int | None:
    """A number no engine can keep is the number of no character, as 0 is."""
    return character_id if character_id is None or 0 <= character_id < 2**63 else 0


def _usual_mode(reading: Reading, page: int | None) -> Mode:
    """Where nothing says how much, a conversation is read in pages; but who names a place wants to read there."""
    wants_place = reading.loc is not None or reading.query is not None
    return "chunk_with_siblings" if wants_place and page is None else "full"


async def _read_page(
    library: Library, chat: Conversation, meta: ResultItem, plan: Plan, page: int, size: int
) -> GetResponse:
    found = await library.chats.messages(chat.id, size + 1, (page - 1) * size)
    pages = Pages(page=page, page_size=size, total=found.total, has_more=len(found.rows) > size)
    return _compose_run(found.rows, size, 0, meta, plan, "page", pages)


async def _read_on(
    library: Library, chat: Conversation, meta: ResultItem, plan: Plan, position: Position, size: int
) -> GetResponse:
    messages = await library.chats.messages_around(chat.id, position.index, 0, size)
    return _compose_run(messages, size, position.offset, meta, plan, "cursor", UNSET)


def _compose_run(
    messages: Sequence[Message],
    size: int,
    skip: int,
    meta: ResultItem,
    plan: Plan,
    by: Anchor,
    pages: Pages | UnsetType,
) -> GetResponse:
    """At most `size` messages of those given, which may be one more, to know whether the conversation goes on."""
    run = [_passage(message) for message in messages[:size]] or [Passage(0, "")]
    taken = take_forward(run, content_room(meta, plan, pages), skip)
    is_short = taken.truncated or taken.end.index <= run[-1].index
    more = is_short or len(messages) > size
    return compose(meta, plan, by, replace(taken, truncated=is_short), more=more, pages=pages)


def _passage(message: Message) -> Passage:
    text = f"{message.sender or message.role}{message.branch_label}: {message.content}"
    return Passage(message.position, text, None, _about(message))


def _focus(loc: Loc | None, message: Message, highlighter: Highlighter) -> int:
    """Where in a message's text the match is, for the case that it has to be cut."""
    place = loc.approx_offset if loc is not None and loc.approx_offset is not None else None
    within = locate(highlighter, message.content) if place is None else max(0, place)
    return len(_passage(message).text) - len(message.content) + within if within else 0


def _about(message: Message) -> dict[str, Any]:
    about: dict[str, Any] = {
        "message_id": message.id,
        "message_index": message.position,
        "role": message.role,
        "created_at": message.created_at,
    }
    told = ("sender", "model", "tool", "parent_id")
    about |= {name: value for name in told if (value := getattr(message, name))}
    if not message.is_canonical:
        about["is_canonical"] = False
    for name in ("attachments", "citations"):
        extra = getattr(message, name)
        if extra:
            about[name] = extra if len(json_text(extra)) <= _EXTRA_MAX_CHARS else f"{len(extra)} left out, too large"
    return about


def _uri(hit: Hit) -> str:
    return uri_of("chats", hit.id) if hit.message_id is None else uri_of("chats", hit.id, hit.message_id)


def _item(hit: Hit, question: Question, highlighter: Highlighter) -> ResultItem:
    """A message, or a conversation whose title matched: then its title is shown with the first message."""
    is_message = hit.message_id is not None
    text = hit.text if is_message else f"{hit.title}: {hit.text}" if hit.text else hit.title
    snippet = highlighter.snippet(text, question.snippet_chars)
    is_cut = is_message and len(hit.text) > question.snippet_chars
    offset = place_in(snippet) if is_cut else None
    loc = Loc(message_id=hit.message_id, message_index=hit.message_index, approx_offset=offset)
    return result_item("chats", hit, question, _uri(hit), snippet, loc)
