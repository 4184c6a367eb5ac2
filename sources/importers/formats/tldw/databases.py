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
from sources.importers.engine.databases import open_database
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import file_size
from sources.importers.engine.imported_items import FailedItem, ImportedPrompt, ImportEvent, ReadPosition, SkippedItem
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.progress import ProgressCallback
from sources.importers.engine.table_reader import KeywordLinks, RowProgress, TableReader, TableSpec, has_tables
from sources.importers.engine.times import stored_time
from sources.importers.engine.values import clean_line, json_or_none, require_storable, text_or_empty
from sources.importers.formats.tldw.chats import (
    CHARACTERS,
    CONVERSATIONS,
    MESSAGES,
    NOTES,
    read_character,
    read_conversation,
    read_note,
    read_orphans,
)
from sources.importers.formats.tldw.media import MEDIA, read_media
from sources.importers.formats.tldw.rows import NAME, import_metadata, is_live, item_number, item_uuid

_PROMPTS = TableSpec(
    "Prompts",
    (
        *("id", "uuid", "name", "author", "details", "system_prompt", "user_prompt", "last_modified", "deleted"),
        # Tells tldw's table apart from those of other programs, including this one, that have all columns above.
        "merge_parent_uuid",
    ),
    ("prompt_format", "prompt_definition_json"),
)
_PROMPT_KEYWORDS = KeywordLinks("PromptKeywordLinks", "prompt_id", "PromptKeywordsTable")
# `prompts.db` of tldw before 2025, which has neither UUIDs nor times.
_OLD_PROMPTS = TableSpec("Prompts", ("id", "name", "details", "system", "user"), ("author",))
_OLD_PROMPT_KEYWORDS = KeywordLinks("PromptKeywords", "prompt_id", "Keywords")
_OLD_KEYWORDS = TableSpec("Keywords", ("id", "keyword"))
_OLD_KEYWORD_LINKS = TableSpec("PromptKeywords", ("prompt_id", "keyword_id"))
# The tables by which each kind of database is recognized.
_DATABASES = (
    (NOTES, CHARACTERS, CONVERSATIONS, MESSAGES),
    (MEDIA,),
    (_PROMPTS,),
    (_OLD_PROMPTS, _OLD_KEYWORDS, _OLD_KEYWORD_LINKS),
)


class TldwImporter(Importer):
    name = NAME
    title = "tldw databases (ChaChaNotes, Media, prompts)"
    suffixes = (".db", ".sqlite", ".sqlite3")
    reads_files_alone = True

    def recognizes(self, probe: FileProbe) -> float:
        return 0.95 if any(has_tables(probe, tables) for tables in _DATABASES) else 0.0

    def read(
        self, path: Path, limits: ImportLimits, progress: ProgressCallback, position: ReadPosition | None
    ) -> Iterator[ImportEvent]:
        with open_database(path, limits) as connection:
            reader = TableReader(connection, limits)
            database = next((tables for tables in _DATABASES if all(map(reader.has, tables))), None)
            if database is None:
                raise InvalidParams("not a tldw database")
            tables = [table for table in database if table in _ROW_READERS]
            row_progress = RowProgress(progress, file_size(path), sum(map(reader.count, tables)))
            for table in tables:
                yield from _read_table(reader, table, row_progress)
            if MESSAGES in database:
                yield from read_orphans(reader)
            row_progress.finish()


IMPORTER = TldwImporter()


def _read_table(reader: TableReader, table: TableSpec, progress: RowProgress) -> Iterator[ImportEvent]:
    for rowid in reader.rowids(table):
        try:
            yield from _ROW_READERS[table](reader, rowid)
        except InvalidParams as error:
            yield FailedItem(f"{table.name}, row {rowid}", error.message)
        progress.step()


def _read_prompt(reader: TableReader, rowid: int) -> Iterator[ImportEvent]:
    row = reader.row(_PROMPTS, rowid)
    if not is_live(row):
        yield SkippedItem("deleted prompt")
        return
    details, system, user = (text_or_empty(row[field]) for field in ("details", "system_prompt", "user_prompt"))
    for text in (details, system, user):
        require_storable(text, reader.limits)
    name = clean_line(row["name"])
    yield ImportedPrompt(
        PromptDraft(
            uuid=item_uuid(row["uuid"], "prompts", name),
            preferred_id=item_number(row),
            name=name,
            author=clean_line(row["author"]),
            details=details,
            system_prompt=system,
            user_prompt=user,
            tags=reader.keywords(_PROMPT_KEYWORDS, row["id"]),
            metadata=import_metadata(definition=json_or_none(row["prompt_definition_json"], reader.limits)),
            # tldw does not store when a prompt was created.
            created_at=stored_time(row["last_modified"]) or UNSET,
        )
    )


def _read_old_prompt(reader: TableReader, rowid: int) -> Iterator[ImportEvent]:
    row = reader.row(_OLD_PROMPTS, rowid)
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


_ROW_READERS: Mapping[TableSpec, Callable[[TableReader, int], Iterator[ImportEvent]]] = {
    NOTES: read_note,
    CHARACTERS: read_character,
    CONVERSATIONS: read_conversation,
    MEDIA: read_media,
    _PROMPTS: _read_prompt,
    _OLD_PROMPTS: _read_old_prompt,
}
