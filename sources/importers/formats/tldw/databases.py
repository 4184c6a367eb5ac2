"""The databases of tldw: ChaChaNotes (notes, characters, conversations), Media, and prompts. Deleted items and the
trash are not imported.

Items keep their ids, so that a newer file updates what an older one imported, and what refers to an item by its number
still does. A number that another item of the library has cannot be kept.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import PromptDraft
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import DeletedItem, FailedItem, ImportedPrompt, SkippedItem, file_size
from sources.importers.engine.importer import Importer, ImportEvent, ImportLimits, ProgressCallback, ReadPosition
from sources.importers.engine.table_reader import (
    FollowedDatabase,
    FollowedTable,
    KeywordLinks,
    LookupTable,
    RowProgress,
    TableReader,
    TableRow,
    TableSpec,
    has_tables,
    open_database,
)
from sources.importers.engine.values import clean_line, json_or_none, require_storable, stored_time, text_or_empty
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
    read_character,
    read_conversation,
    read_note,
    read_orphans,
)
from sources.importers.formats.tldw.media import (
    CHUNKS,
    MEDIA,
    MEDIA_KEYWORDS,
    NAME,
    TRANSCRIPTS,
    VERSIONS,
    import_metadata,
    is_live,
    item_number,
    item_uuid,
    read_media,
)

# -- prompts -----------------------------------------------------------------------------------------------------------
# Prompts of tldw: today's database, and `prompts.db` of versions before 2025, which has neither UUIDs nor times.

PROMPTS = TableSpec(
    "Prompts",
    (
        *("id", "uuid", "name", "author", "details", "system_prompt", "user_prompt", "last_modified", "deleted"),
        # Tells tldw's table apart from those of other programs, including this one, that have all columns above.
        "merge_parent_uuid",
    ),
    ("prompt_format", "prompt_definition_json"),
)
PROMPT_KEYWORDS = KeywordLinks("PromptKeywordLinks", "prompt_id", "PromptKeywordsTable")
OLD_PROMPTS = TableSpec("Prompts", ("id", "name", "details", "system", "user"), ("author",))
_OLD_PROMPT_KEYWORDS = KeywordLinks("PromptKeywords", "prompt_id", "Keywords")
OLD_KEYWORDS = TableSpec("Keywords", ("id", "keyword"))
OLD_KEYWORD_LINKS = TableSpec("PromptKeywords", ("prompt_id", "keyword_id"))


def read_prompt(reader: TableReader, rowid: int) -> Iterator[ImportEvent]:
    row = reader.row(PROMPTS, rowid)
    if not is_live(row):
        yield SkippedItem("deleted prompt")
        yield DeletedItem("prompts", _prompt_uuid(row))
        return
    details, system, user = (text_or_empty(row[field]) for field in ("details", "system_prompt", "user_prompt"))
    for text in (details, system, user):
        require_storable(text, reader.limits)
    name = clean_line(row["name"])
    yield ImportedPrompt(
        PromptDraft(
            uuid=_prompt_uuid(row),
            preferred_id=item_number(row),
            name=name,
            author=clean_line(row["author"]),
            details=details,
            system_prompt=system,
            user_prompt=user,
            tags=reader.keywords(PROMPT_KEYWORDS, row["id"]),
            metadata=import_metadata(definition=json_or_none(row["prompt_definition_json"], reader.limits)),
            # tldw does not store when a prompt was created.
            created_at=stored_time(row["last_modified"]) or UNSET,
        )
    )


def read_old_prompt(reader: TableReader, rowid: int) -> Iterator[ImportEvent]:
    row = reader.row(OLD_PROMPTS, rowid)
    details, system, user = (text_or_empty(row[field]) for field in ("details", "system", "user"))
    for text in (details, system, user):
        require_storable(text, reader.limits)
    name = clean_line(row["name"])
    yield ImportedPrompt(
        PromptDraft(
            # The name is unique.
            uuid=item_uuid(None, "prompts", name),
            preferred_id=item_number(row),
            name=name,
            author=clean_line(row["author"]),
            details=details,
            system_prompt=system,
            user_prompt=user,
            tags=reader.keywords(_OLD_PROMPT_KEYWORDS, row["id"]),
            metadata=import_metadata(),
        )
    )


def _prompt_uuid(row: TableRow) -> str:
    return item_uuid(row["uuid"], "prompts", clean_line(row["name"]))


# -- followed ----------------------------------------------------------------------------------------------------------
# The tables of tldw that make up its items, for reading only those that changed.


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


# The tables by which each kind of database is recognized.
_DATABASES = (
    (NOTES, CHARACTERS, CONVERSATIONS, MESSAGES),
    (MEDIA,),
    (PROMPTS,),
    (OLD_PROMPTS, OLD_KEYWORDS, OLD_KEYWORD_LINKS),
)


class TldwImporter(Importer):
    name = NAME
    title = "tldw databases (ChaChaNotes, Media, prompts)"
    suffixes = (".db", ".sqlite", ".sqlite3")
    reads_files_alone = True
    followed_databases = FOLLOWED_DATABASES
    # The folder of a user has many other databases.
    followed_names = ("ChaChaNotes.db", "Media_DB_v2.db", "prompts_user_dbs/user_prompts_v2.sqlite")

    def recognizes(self, probe: FileProbe) -> float:
        return 0.95 if any(has_tables(probe, tables) for tables in _DATABASES) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            # By their tables and not by their names.
            database = next((tables for tables in _DATABASES if all(map(reader.has, tables))), None)
            if database is None:
                raise InvalidParams("not a tldw database")
            tables = [table for table in database if table in _ROW_READERS]
            row_progress = RowProgress(progress, file_size(path), sum(map(reader.count, tables)))
            for table in tables:
                for rowid in reader.rowids(table):
                    try:
                        yield from _ROW_READERS[table](reader, rowid)
                    except InvalidParams as error:
                        yield FailedItem(f"{table.name}, row {rowid}", error.message)
                    row_progress.step()
            if MESSAGES in database:
                yield from read_orphans(reader)
            row_progress.finish()


IMPORTER = TldwImporter()


_ROW_READERS: Mapping[TableSpec, Callable[[TableReader, int], Iterator[ImportEvent]]] = {
    NOTES: read_note,
    CHARACTERS: read_character,
    CONVERSATIONS: read_conversation,
    MEDIA: read_media,
    PROMPTS: read_prompt,
    OLD_PROMPTS: read_old_prompt,
}
