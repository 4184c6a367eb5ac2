"""The tables of tldw that make up its items, for reading only those that changed."""

from sources.importers.engine.followed_tables import FollowedDatabase, FollowedTable, LookupTable
from sources.importers.engine.table_reader import KeywordLinks, TableSpec
from sources.importers.formats.tldw.chats import (
    CHARACTERS,
    CONVERSATION_KEYWORDS,
    CONVERSATIONS,
    MESSAGE_CONTENT,
    MESSAGE_IMAGES,
    MESSAGE_METADATA,
    MESSAGES,
    NOTE_KEYWORDS,
    NOTES,
)
from sources.importers.formats.tldw.media import CHUNKS, MEDIA, MEDIA_KEYWORDS, TRANSCRIPTS, VERSIONS
from sources.importers.formats.tldw.prompts import PROMPT_KEYWORDS, PROMPTS


def _items(spec: TableSpec, *parts: FollowedTable, lookups: tuple[LookupTable, ...] = ()) -> FollowedTable:
    return FollowedTable(spec.name, spec.required, spec.optional, parts=parts, lookups=lookups)


def _part(spec: TableSpec, parent_column: str, *, is_counted: bool = True) -> FollowedTable:
    return FollowedTable(spec.name, spec.required, spec.optional, parent_column, is_counted=is_counted)


def _keywords(links: KeywordLinks) -> FollowedTable:
    keywords = LookupTable(links.keyword_table, ("id", "keyword"), "keyword_id", ("deleted",))
    columns = (links.item_column, "keyword_id")
    return FollowedTable(links.link_table, columns, parent_column=links.item_column, lookups=(keywords,))


_MESSAGE_TABLE = FollowedTable(
    MESSAGES.name,
    MESSAGES.required + MESSAGE_CONTENT.required,
    parent_column="conversation_id",
    parts=(_part(MESSAGE_IMAGES, "message_id"), _part(MESSAGE_METADATA, "message_id")),
)
_CHARACTER = LookupTable(CHARACTERS.name, CHARACTERS.required, "character_id", CHARACTERS.optional)

FOLLOWED_DATABASES = (
    FollowedDatabase(
        (
            _items(NOTES, _keywords(NOTE_KEYWORDS)),
            _items(CHARACTERS),
            _items(CONVERSATIONS, _MESSAGE_TABLE, _keywords(CONVERSATION_KEYWORDS), lookups=(_CHARACTER,)),
        )
    ),
    FollowedDatabase(
        (
            _items(
                MEDIA,
                # Chunks are replaced when a text is chunked again, and do not change what is stored.
                _part(CHUNKS, "media_id", is_counted=False),
                _part(TRANSCRIPTS, "media_id"),
                _part(VERSIONS, "media_id"),
                _keywords(MEDIA_KEYWORDS),
            ),
        )
    ),
    FollowedDatabase((_items(PROMPTS, _keywords(PROMPT_KEYWORDS)),)),
)
