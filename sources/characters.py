"""The source `characters`: character cards, searchable by their text or by tags."""

from typing import Annotated

from msgspec import Meta, Struct, structs

from auth.context import RequestContext
from sources.library_source import KindSource, ToolText
from sources.records import CHARACTER
from sources.search.arguments import SearchArguments, SourceQuery, build_query
from sources.source import SourceGetArguments, SourceHits
from sources.storage.contract import Library


class CharactersSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Like SearchArguments, but the query may also be a list of tags."""

    query: Annotated[str | list[str], Meta(description="Words; or tags, as a list or separated by commas.")]
    limit: Annotated[int, Meta(description="Hits per page, 1..100.")] = 10
    offset: Annotated[int, Meta(description="next_offset of the previous page.")] = 0
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000; default 300.")] = None


class CharactersGet(SourceGetArguments, frozen=True, kw_only=True):
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

    async def search(self, context: RequestContext, library: Library, args: CharactersSearch) -> SourceHits:
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
