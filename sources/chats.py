"""The source `chats`: conversations, searched message by message. A message is what a chunk is in other sources."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, structs

from auth.context import RequestContext
from config.errors import InvalidParams, NotFound
from config.numbers import clamp
from sources import source
from sources.items import Anchor, GetResponse, Loc, Mode, PageInfo, ResultItem, request_defaults
from sources.library_source import TITLE_MARK, LibrarySource, ToolText
from sources.reading.cursors import START, Position, read_cursor
from sources.reading.documents import AnchorPosition, build_response, content_budget, item_meta, read_snippet
from sources.reading.retrieval import (
    ContentBudget,
    ItemPassage,
    RetrievalPlan,
    plan_retrieval,
    take_around,
    take_forward,
)
from sources.records import Conversation, Hit, ListPage, Message
from sources.search import arguments
from sources.search.snippets import NO_TERMS, Highlighter, Snippet
from sources.storage.contract import Library, Search
from sources.text.chunking import run_text_work
from sources.text.token_estimates import TokenScale, json_text

PAGE_SIZE = 50
# How many messages are read at a time to fill a budget.
_BATCH_MESSAGES = 100
_MESSAGE_URI = "chats://{id}/{message_id}"
# The columns of the index without the messages before each message.
_WITHOUT_CONTEXT = ("title", "own")
# Comes before a message in a snippet that begins with the messages before it.
_MESSAGE_MARK = " → "
# Attachments and citations of a message that are larger than this are only counted.
_EXTRA_MAX_CHARS = 2_000


class ChatsSearch(arguments.SearchArguments, frozen=True, kw_only=True):
    by: Annotated[Literal["both", "title", "message", "no_context"], Meta(description="What must match.")] = "both"
    character_id: Annotated[int | None, Meta(description="Of this character.")] = None
    sender: Annotated[str | None, Meta(description="Of this sender.")] = None
    namespace: Annotated[str | None, Meta(description="Its name.")] = None


class ChatsGet(source.SourceGetArguments, frozen=True, kw_only=True):
    conversation_id: Annotated[str | None, Meta(description="conversation_id of a hit.")] = None
    page: Annotated[int | None, Meta(description="From 1.")] = None
    page_size: Annotated[int | None, Meta(description="Messages; default 50.")] = None


class ChatsSource(LibrarySource):
    name = "chats"
    title = "Chats"
    mime_type = "text/plain"
    search_input = ChatsSearch
    get_input = ChatsGet
    id_argument = "conversation_id"
    hits_per_result = 2
    search_tool = ToolText(
        "Search chats",
        "Search the messages and titles of the user's conversations; each hit is a message or a title. "
        'Example: {"query": "flight to Lisbon", "sender": "user"}',
    )
    get_tool = ToolText(
        "Read a chat",
        "Read a conversation page by page, or with retrieval the messages around loc or query. "
        'Example: {"conversation_id": "9b2e…", "loc": {"message_index": 41}, '
        '"retrieval": {"mode": "chunk_with_siblings"}}',
    )

    @property
    def resources(self) -> Sequence[source.SourceResource]:
        return (
            source.SourceResource(
                uri=_MESSAGE_URI,
                name="chats-message",
                title="One message of a chat",
                description="A message of one of the user's conversations.",
                mime_type=self.mime_type,
            ),
        )

    async def read_resource(
        self, context: RequestContext, library: Library, uri: str, variables: Mapping[str, str]
    ) -> str:
        if uri != _MESSAGE_URI:
            raise NotFound("resource", uri)
        message = await library.chats.get_message(variables["message_id"])
        # A URI names both, and one with another conversation is not a second URI of the message.
        if message.conversation_id != variables["id"]:
            raise NotFound("message", variables["message_id"])
        return _message_text(message)

    async def search(self, context: RequestContext, library: Library, args: ChatsSearch) -> source.SourceHits:
        character_id = args.character_id
        if character_id is not None and not 0 <= character_id < 2**63:
            # Neither engine can store it. 0 is not a character's id either, so nothing is found.
            character_id = 0
        query = arguments.build_query(
            self.name,
            args,
            context,
            self._settings,
            supported_filters=("sender",),
            by="both" if args.by == "no_context" else args.by,
            character_id=character_id,
            senders=(args.sender,) if args.sender else (),
            namespace=args.namespace or None,
            fields=_WITHOUT_CONTEXT if args.by == "no_context" else (),
        )
        return await self.find_hits(library.collection(self.name), query)

    def snippet_and_loc(self, hit: Hit, query: arguments.SourceQuery, highlighter: Highlighter) -> tuple[Snippet, Loc]:
        """For a hit by title, the snippet shows the title and the first message. For a message that matches only
        through those before it, the snippet begins with what matches in them."""
        is_message = hit.message_id is not None
        if hit.context and not query.is_further:
            # Two thirds for what matches, the rest for the message that the hit names.
            before = highlighter.snippet(hit.context, query.snippet_chars * 2 // 3)
            room = query.snippet_chars - len(before.text) - len(_MESSAGE_MARK)
            message = NO_TERMS.snippet(hit.text, room).text if room > 0 else ""
            snippet = structs.replace(before, text=f"{before.text}{_MESSAGE_MARK}{message}" if message else before.text)
            return snippet, Loc(conversation_id=str(hit.id), message_id=hit.message_id, message_index=hit.message_index)
        text = hit.text if is_message else f"{hit.title}{TITLE_MARK}{hit.text}" if hit.text else hit.title
        # The passage of a hit is a range of the message, so it does not apply to a text that begins with the title.
        snippet = highlighter.snippet(text, query.snippet_chars, hit.passage if is_message else None)
        is_cut = is_message and len(hit.text) > query.snippet_chars
        offset = arguments.first_match_offset(snippet) if is_cut else None
        return snippet, Loc(
            conversation_id=str(hit.id),
            message_id=hit.message_id,
            message_index=hit.message_index,
            approx_offset=offset,
        )

    def cost_tokens(self, hit: Hit, scale: TokenScale) -> int | UnsetType:
        """The cost of a message. That of a conversation is known only after all of its messages were read."""
        if hit.message_id is None:
            return UNSET
        return scale.estimate_tokens(_text_with_sender(hit.sender, hit.role or "", hit.branch_label, hit.text))

    async def call_tool(self, context: RequestContext, library: Library, name: str, args: Any) -> Any:
        if isinstance(args, ChatsGet):
            item = source.item_id_from(self.name, self.id_argument, args.conversation_id, args.uri)
            if item.part is not None:
                args = args.at_part({"message_id": item.part})
            return await self._read(context, library, str(item.id), args, args.page, args.page_size)
        return await super().call_tool(context, library, name, args)

    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: source.GetArguments
    ) -> GetResponse:
        return await self._read(context, library, str(item_id), args, None, None)

    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[source.ItemEntry]:
        return source.entry_page(
            self.name, await library.chats.list(limit, offset), lambda conversation: conversation.title
        )

    async def _read(
        self,
        context: RequestContext,
        library: Library,
        conversation_id: str,
        args: source.GetArguments,
        page: int | None,
        page_size: int | None,
    ) -> GetResponse:
        conversation = await library.chats.get(conversation_id)
        loc = args.parsed_loc
        if loc is not None and loc.conversation_id not in (None, conversation.id):
            raise InvalidParams(f"loc.conversation_id: expected {conversation.id!r}, got {loc.conversation_id!r}")
        # A conversation is read page by page, unless the arguments name a place in it.
        names_place = (loc is not None and loc.has_position) or args.query is not None
        mode: Mode = "chunk_with_siblings" if names_place and page is None else "full"
        plan = plan_retrieval(args.retrieval, request_defaults(context.config), self._settings, mode)
        size = clamp(PAGE_SIZE if page_size is None else page_size, 1, self._settings.message_page_max)
        meta = item_meta(self.name, conversation, conversation.id, conversation.title)
        # A budget without a page is filled, however many messages that takes.
        fills_budget = plan.has_budget and page is None and page_size is None
        if args.cursor is not None:
            position = read_cursor(args.cursor, meta.uri, conversation.version)
            # A cursor continues a text, whatever the mode.
            plan = structs.replace(plan, mode="full")
            if fills_budget:
                return await _read_budget(library, conversation, meta, plan, position, "cursor")
            rest = await library.chats.messages_around(conversation.id, position.index, 0, size)
            chars = _text_chars(rest)
            return await run_text_work(chars, _read_run, rest, size, position.offset, meta, plan, "cursor", UNSET)
        if plan.mode == "full":
            if fills_budget:
                return await _read_budget(library, conversation, meta, plan, START, "beginning")
            page = max(1, page or 1)
            # One message more than the page has tells whether another page follows.
            messages = await library.chats.messages(conversation.id, size + 1, (page - 1) * size)
            pages = PageInfo(page=page, page_size=size, total=messages.total, has_more=len(messages.rows) > size)
            chars = _text_chars(messages.rows)
            return await run_text_work(chars, _read_run, messages.rows, size, 0, meta, plan, "page", pages)
        return await self._read_around(library, conversation, meta, plan, loc, args.query)

    async def _read_around(
        self,
        library: Library,
        conversation: Conversation,
        meta: ResultItem,
        plan: RetrievalPlan,
        loc: Loc | None,
        query: str | None,
    ) -> GetResponse:
        position, by = await self._anchor(library, conversation, loc, query)
        window = plan.window if plan.mode == "chunk_with_siblings" else 0
        # One more than the window tells whether the conversation continues.
        messages = await library.chats.messages_around(conversation.id, position, window, window + 1)
        if not messages:
            return build_response(meta, plan, by, take_forward([ItemPassage(0, "")], ContentBudget(0)), more=False)
        # The message at the position may have been deleted: then the next one is read, or the last one of all.
        index = next((n for n, message in enumerate(messages) if message.position >= position), len(messages) - 1)
        anchor = messages[index]
        # `loc` does not repeat the message id: each id costs two dozen tokens.
        meta = structs.replace(
            meta,
            loc=Loc(conversation_id=conversation.id, message_index=anchor.position),
            message_id=anchor.id,
            sender=anchor.sender or None,
        )
        highlighter = Highlighter(arguments.read_query(query or "", self._settings).terms)

        def read() -> GetResponse:
            if plan.mode == "snippet":
                offset = max(0, (loc.approx_offset if loc is not None else None) or 0)
                return read_snippet(anchor.content, meta, plan, AnchorPosition(offset, by), highlighter)
            nearby = messages[: index + window + 1]
            passages = [_passage(message, has_attachment=plan.attachments) for message in nearby]
            # If the passage has to be cut, it is cut around the match, whose offset does not count the sender.
            given = loc.approx_offset if loc is not None and by == "loc" else None
            within = arguments.locate_match(highlighter, anchor.content) if given is None else max(0, given)
            focus = len(_message_text(anchor)) - len(anchor.content) + within if within else 0
            excerpt = take_around(passages, index, content_budget(meta, plan), window, focus)
            more = excerpt.truncated or messages[-1].position >= excerpt.end.index
            return build_response(meta, plan, by, excerpt, more=more)

        return await run_text_work(_text_chars(messages), read)

    async def _anchor(
        self, library: Library, conversation: Conversation, loc: Loc | None, query: str | None
    ) -> tuple[int, Anchor]:
        """The position of the message to read, and which argument chose it."""
        if loc is not None and loc.message_id is not None:
            message = await library.chats.get_message(loc.message_id)
            if message.conversation_id != conversation.id:
                raise NotFound("message", loc.message_id)
            return message.position, "loc"
        if loc is not None and loc.message_index is not None:
            if loc.message_index < 0:
                raise InvalidParams(f"loc.message_index: expected 0 or more, got {loc.message_index}")
            return loc.message_index, "loc"
        parsed = arguments.read_query(query or "", self._settings)
        if parsed.expression is not None:
            deadline_ms = self._settings.search_deadline_ms
            search = Search(query=parsed, limit=1, within=conversation.id, by="message", deadline_ms=deadline_ms)
            hits = (await library.chats.search(search)).hits
            if hits and hits[0].message_index is not None:
                return hits[0].message_index, "query"
        return 0, "beginning"


async def _read_budget(
    library: Library, conversation: Conversation, meta: ResultItem, plan: RetrievalPlan, position: Position, by: Anchor
) -> GetResponse:
    """Reads as many messages as the budget holds."""
    max_chars = content_budget(meta, plan).max_chars + position.offset
    messages: list[Message] = []
    chars, index = 0, position.index
    while chars <= max_chars:
        batch = await library.chats.messages_around(conversation.id, index, 0, _BATCH_MESSAGES)
        messages += batch
        chars += sum(len(_message_text(message)) for message in batch)
        if len(batch) < _BATCH_MESSAGES:
            break
        index = batch[-1].position + 1
    return await run_text_work(chars, _read_run, messages, len(messages), position.offset, meta, plan, by, UNSET)


def _read_run(
    messages: Sequence[Message],
    size: int,
    skip: int,
    meta: ResultItem,
    plan: RetrievalPlan,
    by: Anchor,
    pages: PageInfo | UnsetType,
) -> GetResponse:
    """Reads at most `size` of the messages. If there are more, the conversation continues."""
    run = [_passage(message, has_attachment=plan.attachments) for message in messages[:size]] or [ItemPassage(0, "")]
    excerpt = take_forward(run, content_budget(meta, plan, pages), skip)
    is_truncated = excerpt.truncated or excerpt.end.index <= run[-1].index
    more = is_truncated or len(messages) > size
    return build_response(meta, plan, by, structs.replace(excerpt, truncated=is_truncated), more=more, pages=pages)


def _text_chars(messages: Sequence[Message]) -> int:
    return sum(len(message.content) for message in messages)


def _message_text(message: Message) -> str:
    return _text_with_sender(message.sender, message.role, message.branch_label, message.content)


def _text_with_sender(sender: str | None, role: str, branch_label: str, content: str) -> str:
    return f"{sender or role}{branch_label}: {content}"


def _passage(message: Message, *, has_attachment: bool) -> ItemPassage:
    return ItemPassage(message.position, _message_text(message), None, _attachment(message) if has_attachment else None)


def _attachment(message: Message) -> dict[str, Any]:
    attachment: dict[str, Any] = {
        "message_id": message.id,
        "message_index": message.position,
        "role": message.role,
        "created_at": message.created_at,
    }
    optional = ("sender", "model", "tool", "parent_id")
    attachment |= {name: value for name in optional if (value := getattr(message, name))}
    if not message.is_canonical:
        attachment["is_canonical"] = False
    if message.is_human_only:
        attachment["human_only"] = True
    for name in ("attachments", "citations"):
        extra = getattr(message, name)
        if extra:
            is_small = len(json_text(extra)) <= _EXTRA_MAX_CHARS
            attachment[name] = extra if is_small else f"{len(extra)} omitted: too large"
    return attachment
