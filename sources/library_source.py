"""The sources whose items are stored in the caller's library: their base classes, and `notes`, `characters` and
`prompts`, which need little more than these."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, Protocol

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from auth.context import RequestContext
from config.errors import NotFound
from config.settings import Settings
from sources import items, source
from sources.kinds import Item, Kind, NumberedItem, read_texts, title_of
from sources.query import Term
from sources.reading.documents import Document, build_document, item_meta, read_document
from sources.reading.retrieval import plan_retrieval
from sources.records import CHARACTER, NOTE, PROMPT, Hit, HitPage, ListPage, RankedMatch, SavedPrompt
from sources.search.arguments import SearchArguments, SourceQuery, build_query, first_match_offset
from sources.search.snippets import NO_TERMS, Highlighter, Snippet
from sources.storage.contract import Library, Search
from sources.text.chunking import run_text_work
from sources.text.token_estimates import TokenScale

# Between a short field that matches and the beginning of a longer one in a snippet.
_FIELD_MARK = " · "
# After the title of a conversation in a snippet that begins with it.
TITLE_MARK = ": "
# Its text, and the place in the item that it comes from.
LongerSnippet = tuple[str | None, items.Loc | None]
_ids_of = attrgetter("id", "part_id")


class ToolText(Struct, frozen=True):
    """Title and description of a tool."""

    title: str
    description: str


class CollectionSearch(Protocol):
    """A collection of a library that can be searched."""

    def search(self, search: Search) -> Awaitable[HitPage]: ...


class LibrarySource(ABC):
    """Turns `search` and `get` of a subclass into the tools `<name>_search` and `<name>_get`.

    `id_argument` is the field of `get_input` that holds the item's id. A subclass implements `search` with `find_hits`,
    `snippet_and_loc`, `cost_tokens`, `get` and `list_items`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    mime_type: ClassVar[str]
    search_input: ClassVar[type[Any]]
    get_input: ClassVar[type[Any]]
    id_argument: ClassVar[str]
    search_tool: ClassVar[ToolText]
    get_tool: ClassVar[ToolText]
    # How many hits of an item a search of several sources expects among the first: they become one result.
    hits_per_result: ClassVar[int] = 1

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def tools(self) -> Sequence[source.SourceTool]:
        return (
            source.SourceTool(
                name=f"{self.name}_search",
                title=self.search_tool.title,
                description=self.search_tool.description,
                input=self.search_input,
                output=items.SearchResponse,
            ),
            source.SourceTool(
                name=f"{self.name}_get",
                title=self.get_tool.title,
                description=self.get_tool.description,
                input=self.get_input,
                output=items.GetResponse,
            ),
        )

    @property
    def resources(self) -> Sequence[source.SourceResource]:
        return ()

    @abstractmethod
    async def search(self, context: RequestContext, library: Library, args: Any) -> source.SourceHits: ...

    @abstractmethod
    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: source.GetArguments
    ) -> items.GetResponse: ...

    @abstractmethod
    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[source.ItemEntry]: ...

    @abstractmethod
    def snippet_and_loc(self, hit: Hit, query: SourceQuery, highlighter: Highlighter) -> tuple[Snippet, items.Loc]:
        """The snippet to show for a hit, and the place in the item that it comes from."""

    @abstractmethod
    def cost_tokens(self, hit: Hit, scale: TokenScale) -> int | UnsetType:
        """The `tokens` of a get that returns all of what the hit's URI names."""

    async def call_tool(self, context: RequestContext, library: Library, name: str, args: Any) -> Any:
        if name == f"{self.name}_search":
            page = await self.search(context, library, args)
            chars = sum([hit.payload.text_chars for hit in page.hits])
            return await run_text_work(chars, self._render_page, page)
        item_id = source.whole_item_id(self.name, self.id_argument, getattr(args, self.id_argument), args.uri)
        return await self.get(context, library, item_id, args)

    def _render_page(self, page: source.SourceHits) -> items.SearchResponse:
        scan_hits([(hit, page.query) for hit in page.hits], ())
        return source.search_response(self, page)

    async def read_resource(
        self, context: RequestContext, library: Library, uri: str, variables: Mapping[str, str]
    ) -> str:
        raise NotFound("resource", uri)

    async def find_hits(self, collection: CollectionSearch, query: SourceQuery) -> source.SourceHits:
        """One page of hits; empty without a search if a filter of the query rules out every item."""
        page = HitPage((), has_more=False, total=0)
        if query.search is not None:
            page = await collection.search(query.search)
        if page.query is not None:
            # The query was corrected or relaxed: snippets highlight the words that were found, not those typed.
            query = structs.replace(query, terms=page.query.terms, read_as=page.query.read_as)
        name, matches, prefix = self.name, page.matches, f"{self.name}://"
        needs_no_escaping = items.needs_no_escaping("".join(map(str, chain.from_iterable(map(_ids_of, matches)))))
        hits: list[source.RankedHit] = []
        for rank, match in enumerate(matches, query.offset):
            item_id, part_id = match.id, match.part_id
            if needs_no_escaping:
                uri = f"{prefix}{item_id}" if part_id is None else f"{prefix}{item_id}/{part_id}"
            else:
                uri = items.uri_of(name, item_id) if part_id is None else items.uri_of(name, item_id, part_id)
            hits.append(
                source.RankedHit(
                    source=name,
                    uri=uri,
                    id=item_id,
                    rank=rank,
                    score=match.score,
                    last_modified=match.last_modified,
                    version=match.version,
                    content_key=_ContentKey(match),
                    bm25=match.bm25,
                    lexical=match.lexical,
                    cosine=match.cosine,
                    boosts=match.boosts,
                    payload=match,
                )
            )
        return source.SourceHits(
            hits=tuple(hits),
            has_more=page.has_more,
            next_offset=query.offset + len(matches) if page.has_more else None,
            total_estimated=page.total,
            read_as=query.read_as,
            query=query,
            semantic=page.semantic,
            floor=page.floor,
            texts=page.texts,
        )

    def longer_snippet(
        self, hit: source.RankedHit, query: SourceQuery, topic: Sequence[Term], shown: items.ResultItem, chars: int
    ) -> LongerSnippet:
        """The snippet of a hit that was rendered a moment ago, as `shown`, with up to `chars` characters."""
        stored: Hit = hit.payload.hit()
        # A snippet that shows the whole text, after a title at most, is not longer with more room.
        whole_chars = len(stored.title) + len(TITLE_MARK) + len(stored.text)
        if whole_chars <= query.snippet_chars and not stored.context and not stored.fields:
            return shown.snippet, shown.loc
        query = structs.replace(query, snippet_chars=chars)
        snippet, loc = self.snippet_and_loc(stored, query, _highlighter(query.terms, tuple(topic)))
        return snippet.text or None, loc

    def render_hit(self, hit: source.RankedHit, query: SourceQuery, topic: Sequence[Term]) -> items.ResultItem:
        stored: Hit = hit.payload.hit()
        snippet, loc = self.snippet_and_loc(stored, query, _highlighter(query.terms, tuple(topic)))
        created_at = last_modified = items.short_time(stored.created_at)
        if stored.last_modified != stored.created_at:
            last_modified = items.short_time(stored.last_modified)
        return items.ResultItem(
            id=stored.id,
            source=self.name,
            title=items.short_title(stored.title),
            snippet=snippet.text or None,
            uri=hit.uri,
            score=hit.score,
            score_type=query.score_type,
            created_at=created_at,
            last_modified=last_modified,
            version=stored.version,
            tags=stored.tags[: items.TAGS_MAX],
            media_type=stored.media_type,
            url=stored.url or None,
            conversation_id=stored.conversation_id,
            message_id=stored.message_id,
            sender=stored.sender,
            loc=loc,
            highlights=snippet.ranges or UNSET,
            via=stored.via or UNSET,
            more_in_item=stored.more_in_item or UNSET,
            cost_tokens=UNSET if query.is_further else self.cost_tokens(stored, query.scale),
        )


class KindSearch(SearchArguments, frozen=True, kw_only=True):
    tags: Annotated[tuple[str, ...], Meta(description="Only items with all of these.")] = ()


class KindGet(source.SourceGetArguments, frozen=True, kw_only=True):
    id: Annotated[str | int | None, Meta(description="id of a hit.")] = None


class KindSource(LibrarySource):
    """The source of a declared kind. A subclass sets `kind` and `title`; the rest can be overridden. An item is read as
    one text with its fields under headings, or as its content if that is all it has besides a title."""

    kind: ClassVar[Kind]
    mime_type = "text/markdown"
    search_input: ClassVar[type[Any]] = KindSearch
    get_input: ClassVar[type[Any]] = KindGet
    id_argument = "id"
    # The filter of a search (`build_query`), and the argument that sets it.
    search_filter: ClassVar[tuple[str, str]] = ("tags", "tags")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        kind = self.kind
        if not hasattr(self, "name"):
            self.name = kind.source  # type: ignore[misc]  # the built-in sources are registered by the name of the class
        if not hasattr(self, "search_tool"):
            self.search_tool = ToolText(  # type: ignore[misc]  # as above
                f"Search {kind.source}", f'Search the user\'s {kind.source}. Example: {{"query": "some words"}}'
            )
            example = '{"id": 3}' if kind.key == "id" else '{"id": "6f1c…"}'
            self.get_tool = ToolText(  # type: ignore[misc]  # as above
                f"Read a {kind.noun}", f"Read a {kind.noun}: all of it unless retrieval is set. Example: {example}"
            )

    async def search(self, context: RequestContext, library: Library, args: Any) -> source.SourceHits:
        filter_name, argument = self.search_filter
        query = build_query(self.name, args, context, self._settings, **{filter_name: getattr(args, argument)})
        return await self.find_hits(library.collection(self.name), query)

    def snippet_and_loc(self, hit: Hit, query: SourceQuery, highlighter: Highlighter) -> tuple[Snippet, items.Loc]:
        """The snippet and the place of a hit. A short field, such as an author, says little about the item, so the
        beginning of a longer one follows."""
        snippet = highlighter.snippet(hit.text, query.snippet_chars, hit.passage)
        loc = items.Loc(field=hit.field, approx_offset=first_match_offset(snippet))
        room = query.snippet_chars - len(snippet.text) - len(_FIELD_MARK)
        if room <= len(snippet.text) or not hit.fields:
            return snippet, loc
        for text in hit.fields.values():
            if len(text) > len(hit.text):
                beginning = NO_TERMS.snippet(text, room).text
                if beginning:
                    snippet = structs.replace(snippet, text=f"{snippet.text}{_FIELD_MARK}{beginning}")
                break
        return snippet, loc

    def cost_tokens(self, hit: Hit, scale: TokenScale) -> int:
        if self.kind.layout == "text":
            return scale.estimate_tokens(hit.text) if hit.item_chars else 0  # the text of an empty item is its title
        return scale.estimate_tokens(build_document(self.kind.title, hit.title, hit.fields.items()).text)

    async def find_item(self, library: Library, item_id: str | int) -> Item | NumberedItem:
        """Returns an item by the id that a client sends."""
        key = source.numeric_id(item_id) if self.kind.key == "id" else str(item_id)
        if key is None:
            raise NotFound(self.kind.name, str(item_id))
        item: Item | NumberedItem = await library.collection(self.name).get(key)
        return item

    async def get(
        self, context: RequestContext, library: Library, item_id: str | int, args: source.GetArguments
    ) -> items.GetResponse:
        item = await self.find_item(library, item_id)
        title = title_of(self.kind, item)
        mode: items.Mode = "full"
        if self.kind.layout == "text":
            document, mode = Document(getattr(item, self.kind.content or "")), "snippet"
        else:
            document = build_document(self.kind.title, title, read_texts(self.kind, item))
        plan = plan_retrieval(args.retrieval, items.request_defaults(context.config), self._settings, mode)

        def read() -> items.GetResponse:
            meta = item_meta(self.name, item, item.id, title, plan.scale.estimate_tokens(document.text))
            return read_document(document, meta, plan, args, self._settings)

        return await run_text_work(len(document.text), read)

    async def list_items(
        self, context: RequestContext, library: Library, limit: int, offset: int
    ) -> ListPage[source.ItemEntry]:
        page = await library.collection(self.name).list(limit, offset)
        return source.entry_page(self.name, page, partial(title_of, self.kind))


class _ContentKey(Struct, frozen=True, eq=False, gc=False):
    """Equal for matches with the same content: two items of equal length with the same matching passage are taken for
    copies. The passages are compared only if the lengths are equal, because some have to be found first."""

    match: RankedMatch

    def __hash__(self) -> int:
        return self.match.item_chars

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _ContentKey) or self.match.item_chars != other.match.item_chars:
            return False
        return self.match.shows_same_text(other.match)


def scan_hits(hits: Iterable[tuple[source.RankedHit, SourceQuery]], topic: Sequence[Term]) -> None:
    """Prepares the snippets of hits of library sources, which are then rendered one by one."""
    texts: dict[tuple[Term, ...], list[str]] = {}
    for ranked, query in hits:
        text: str = ranked.payload.hit_text
        if not text.isascii():
            texts.setdefault(query.terms, []).append(text)
    for terms, of_terms in texts.items():
        _highlighter(terms, tuple(topic)).scan(of_terms)


@lru_cache(maxsize=64)
def _highlighter(terms: tuple[Term, ...], topic: tuple[Term, ...]) -> Highlighter:
    return Highlighter(terms, topic)


# -- notes -------------------------------------------------------------------------------------------------------------
# Texts with a title and keywords.


class NotesSearch(SearchArguments, frozen=True, kw_only=True):
    keywords: Annotated[tuple[str, ...], Meta(description="Only notes with all of these.")] = ()


class NotesGet(source.SourceGetArguments, frozen=True, kw_only=True):
    note_id: Annotated[str | None, Meta(description="id of a hit.")] = None


class NotesSource(KindSource):
    kind = NOTE
    name = "notes"
    title = "Notes"
    search_input = NotesSearch
    get_input = NotesGet
    id_argument = "note_id"
    search_filter = ("tags", "keywords")
    search_tool = ToolText(
        "Search notes",
        "Search the user's notes. Best hits first, each with a snippet and a loc for notes_get. "
        'Example: {"query": "kubernetes upgrade", "keywords": ["work"]}',
    )
    get_tool = ToolText(
        "Read a note",
        "Read a note: a snippet, the passage at loc or query with its neighbours, or all of it. "
        'Example: {"note_id": "6f1c…", "query": "rollback", "retrieval": {"mode": "chunk"}}',
    )


# -- characters --------------------------------------------------------------------------------------------------------
# Character cards, searchable by their text or by tags.


class CharactersSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Like SearchArguments, but the query may also be a list of tags."""

    query: Annotated[str | list[str], Meta(description="Words; or tags, as a list or separated by commas.")]
    limit: Annotated[int, Meta(description="Hits per page, 1..100.")] = 10
    offset: Annotated[int, Meta(description="next_offset of the previous page.")] = 0
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000; default 300.")] = None


class CharactersGet(source.SourceGetArguments, frozen=True, kw_only=True):
    character_id: Annotated[str | int | None, Meta(description="id of a hit.")] = None


class CharactersSource(KindSource):
    kind = CHARACTER
    name = "characters"
    title = "Characters"
    search_input = CharactersSearch
    get_input = CharactersGet
    id_argument = "character_id"
    search_tool = ToolText(
        "Search characters",
        'Search the user\'s character cards by words or tags. Example: {"query": "grumpy wizard"}',
    )
    get_tool = ToolText(
        "Read a character",
        'Read a character card: all of it unless retrieval is set. Example: {"character_id": 3}',
    )

    async def search(self, context: RequestContext, library: Library, args: CharactersSearch) -> source.SourceHits:
        """Searches by tags if the query can be a list of tags and a character has all of them; else by words."""
        # A query may mean tags: the items of a list, or the comma-separated parts of a text.
        tags: tuple[str, ...] = ()
        if isinstance(args.query, list) or "," in args.query:
            parts = args.query if isinstance(args.query, list) else args.query.split(",")
            tags = tuple(part.strip() for part in parts if part.strip())
        if tags and (isinstance(args.query, list) or len(tags) > 1):
            query = self._build_query(context, args, "", tags, f"tags: {', '.join(tags)}")
            # The first page decides, so that all pages of a query are read the same way.
            first = structs.replace(query.search, limit=1, offset=0) if query.search is not None else None
            if first is not None and (await library.characters.search(first)).hits:
                page = await self.find_hits(library.characters, query)
                # A character that has all tags of the query contains the whole query.
                return structs.replace(page, hits=tuple([structs.replace(hit, score=1.0) for hit in page.hits]))
        if isinstance(args.query, str):
            query = self._build_query(context, args, args.query)
        else:
            words = " ".join(args.query)
            query = self._build_query(context, args, words, (), f"words: {words}; no character has all these tags")
        return await self.find_hits(library.collection(self.name), query)

    def _build_query(
        self,
        context: RequestContext,
        args: CharactersSearch,
        words: str,
        tags: tuple[str, ...] = (),
        read_as: str | None = None,
    ) -> SourceQuery:
        arguments = SearchArguments(
            query=words, limit=args.limit, offset=args.offset, snippet_length=args.snippet_length
        )
        query = build_query(self.name, arguments, context, self._settings, tags=tags)
        return structs.replace(query, read_as=read_as) if read_as else query


# -- prompts -----------------------------------------------------------------------------------------------------------
# Named prompts with a system and a user part, searchable by any of their fields.

PromptField = Literal["name", "details", "system_prompt", "user_prompt", "author", "keywords"]


class PromptsSearch(SearchArguments, frozen=True, kw_only=True):
    fields: Annotated[tuple[PromptField, ...], Meta(description="Search only these; default all.")] = ()


class PromptsGet(source.SourceGetArguments, frozen=True, kw_only=True):
    prompt_id_or_name: Annotated[str | int | None, Meta(description="id of a hit, or the prompt's name.")] = None


class PromptsSource(KindSource):
    kind = PROMPT
    name = "prompts"
    title = "Prompts"
    search_input = PromptsSearch
    get_input = PromptsGet
    id_argument = "prompt_id_or_name"
    search_filter = ("fields", "fields")
    search_tool = ToolText(
        "Search prompts",
        'Search the user\'s saved prompts. Example: {"query": "code review", "fields": ["name", "keywords"]}',
    )
    get_tool = ToolText(
        "Read a prompt",
        "Read a saved prompt by id or name: all of it unless retrieval is set. "
        'Example: {"prompt_id_or_name": "Code review"}',
    )

    async def find_item(self, library: Library, item_id: str | int) -> SavedPrompt:
        return await find_prompt(library, item_id)


async def find_prompt(library: Library, id_or_name: str | int) -> SavedPrompt:
    """Looks a prompt up by its id, then by its name, which may also be a number."""
    number = source.numeric_id(id_or_name)
    if number is not None:
        try:
            return await library.prompts.get(number)
        except NotFound:
            if isinstance(id_or_name, int):
                raise
    return await library.prompts.get_by_name(str(id_or_name))
