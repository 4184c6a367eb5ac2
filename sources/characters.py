"""The source `characters`: character cards, found by what they say or by their tags."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from auth.context import RequestContext
from config.errors import NotFound
from sources.items import GetResponse, Loc, ResultItem, uri_of
from sources.library_source import LibrarySource, Wording
from sources.preferences import preferences_of
from sources.reading.documents import Document, document_of, read_document
from sources.reading.responses import meta_of
from sources.reading.retrieval import make_plan
from sources.records import Character, Hit, ListPage
from sources.search.arguments import (
    Narrowing,
    Question,
    SearchArguments,
    find_matches,
    place_in,
    read_query,
    read_question,
    result_item,
)
from sources.search.snippets import Highlighter
from sources.source import Entry, Matches, Reading, entry_page, number_of
from sources.storage.contract import Library

# The fields of a card that hold text, in the order in which a reader wants them.
TEXT_FIELDS = (
    "description",
    "personality",
    "scenario",
    "first_message",
    "message_example",
    "system_prompt",
    "post_history_instructions",
    "creator_notes",
    "creator",
    "character_version",
    "nickname",
)


class CharactersSearch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As every search, but that the query may be a list of tags."""

    query: Annotated[str | list[str], Meta(description="Words, or tags: a list, or separated by commas.")]
    limit: Annotated[int, Meta(description="Hits per page, 1..100.")] = 10
    offset: Annotated[int, Meta(description="next_offset of the page before.")] = 0
    snippet_length: Annotated[int | None, Meta(description="Characters, 1..1000; default 300.")] = None


class CharactersGet(Reading, frozen=True, kw_only=True):
    character_id: Annotated[int, Meta(description="id of a hit.")]


class CharactersSource(LibrarySource):
    name = "characters"
    title = "Characters"
    mime_type = "text/markdown"
    search_input = CharactersSearch
    get_input = CharactersGet
    names_item = "character_id"
    searching = Wording(
        "Search characters",
        'Search the user\'s character cards by words or by tags. Example: {"query": "grumpy wizard"}',
    )
    reading = Wording(
        "Read a character",
        'Read a character card: all of it unless retrieval says otherwise. Example: {"character_id": 3}',
    )

    async def search(self, context: RequestContext, library: Library, asked: CharactersSearch) -> Matches:
        """By tags where the query may be a list of them and some character has them all; by words otherwise."""
        tags = _tags(asked.query)
        if tags:
            question = self._question(context, asked, "", Narrowing(tags=tags), f"tags: {', '.join(tags)}")
            if await _finds(library, question):
                return await find_matches(library.characters, question, _uri, _item)
        words = asked.query if isinstance(asked.query, str) else " ".join(asked.query)
        read_as = None if isinstance(asked.query, str) else f"words: {words}; no character has all these tags"
        question = self._question(context, asked, words, None, read_as)
        return await find_matches(library.characters, question, _uri, _item)

    def _question(
        self,
        context: RequestContext,
        asked: CharactersSearch,
        words: str,
        narrowing: Narrowing | None,
        read_as: str | None,
    ) -> Question:
        arguments = SearchArguments(
            query=words, limit=asked.limit, offset=asked.offset, snippet_length=asked.snippet_length
        )
        query = read_query(words, self._settings)
        question = read_question(self.name, arguments, query, context, self._settings, narrowing)
        return replace(question, read_as=read_as) if read_as else question

    async def get(
        self, context: RequestContext, library: Library, identity: str | int, reading: Reading
    ) -> GetResponse:
        number = number_of(identity)
        if number is None:
            raise NotFound("character", str(identity))
        character = await library.characters.get(number)
        document = character_document(character)
        plan = make_plan(reading.retrieval, preferences_of(context.config), self._settings, "full")
        cost_tokens = plan.scale.estimate_tokens(document.text)
        meta = meta_of(self.name, character, character.id, character.name, cost_tokens)
        return read_document(document, meta, plan, reading, self._settings)

    async def entries(self, context: RequestContext, library: Library, limit: int, offset: int) -> ListPage[Entry]:
        return entry_page(self.name, await library.characters.list(limit, offset), lambda character: character.name)


def character_document(character: Character) -> Document:
    texts = ((field, str(getattr(character, field))) for field in TEXT_FIELDS)
    greetings = (
        ("alternate_greetings", "\n\n".join(character.alternate_greetings)),
        ("group_only_greetings", "\n\n".join(character.group_only_greetings)),
        ("tags", ", ".join(character.tags)),
    )
    return document_of("name", character.name, (*texts, *greetings))


def _tags(query: str | list[str]) -> tuple[str, ...]:
    """The tags a query may mean: the items of a list, or what stands between commas."""
    parts = query if isinstance(query, list) else query.split(",")
    tags = tuple(part.strip() for part in parts if part.strip())
    return tags if isinstance(query, list) or len(tags) > 1 else ()


async def _finds(library: Library, question: Question) -> bool:
    """Whether any page of a search has hits, so that all its pages are read the same way."""
    if question.search is None:
        return False
    return bool((await library.characters.search(replace(question.search, limit=1, offset=0))).hits)


def _uri(hit: Hit) -> str:
    return uri_of("characters", hit.id)


def _item(hit: Hit, question: Question, highlighter: Highlighter) -> ResultItem:
    snippet = highlighter.snippet(hit.text, question.snippet_chars)
    loc = Loc(field=hit.field, approx_offset=place_in(snippet))
    return result_item("characters", hit, question, _uri(hit), snippet, loc)
