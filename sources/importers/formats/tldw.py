"""The databases of tldw, each with a part of what one person has there: ChaChaNotes (notes, characters, conversations),
Media and prompts. Read and never written; what was deleted or lies in the trash stays out.

Items keep their ids, so that a newer file updates what an older one brought.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import UNSET

from config.errors import InvalidParams
from sources.drafts import PromptDraft
from sources.importers.engine.database_rows import Links, Pace, Rows, Table, json_of, known_uuid, text_of
from sources.importers.engine.databases import columns_in, is_database, open_database
from sources.importers.engine.files import size_of
from sources.importers.engine.imported_items import (
    FailedItem,
    ImportedPrompt,
    ImportEvent,
    ReadPosition,
    SkippedItem,
    stable_uuid,
)
from sources.importers.engine.importer import FileProbe, Importer, ImportLimits, ProgressCallback
from sources.importers.engine.threads import line_of, require_text
from sources.importers.engine.times import moment_of
from sources.importers.formats.tldw_chats import (
    CHARACTERS,
    CONVERSATIONS,
    MESSAGES,
    NOTES,
    character,
    conversation,
    note,
    strays,
)
from sources.importers.formats.tldw_media import MEDIA, media
from sources.importers.formats.tldw_rows import NAME, about, is_live

_PROMPTS = Table(
    "Prompts",
    (
        *("id", "uuid", "name", "author", "details", "system_prompt", "user_prompt", "last_modified", "deleted"),
        # Other programs, this one among them, have a table of prompts with all of the above.
        "merge_parent_uuid",
    ),
    ("prompt_format", "prompt_definition_json"),
)
_PROMPT_KEYWORDS = Links("PromptKeywordLinks", "prompt_id", "PromptKeywordsTable")
# A file is known by the tables that only it has.
_FILES = ((NOTES, CHARACTERS, CONVERSATIONS, MESSAGES), (MEDIA,), (_PROMPTS,))


def _recognizes(probe: FileProbe) -> float:
    if probe.is_folder or not is_database(probe):
        return 0.0
    found = columns_in(probe.path, *(table.name for file in _FILES for table in file))
    return 0.95 if any(all(found[table.name] >= set(table.needed) for table in file) for file in _FILES) else 0.0


def _read(
    path: Path, limits: ImportLimits, progress: ProgressCallback, _mark: ReadPosition | None
) -> Iterator[ImportEvent]:
    with open_database(path, limits) as connection:
        rows = Rows(connection, limits)
        tables = next((file for file in _FILES if all(map(rows.has, file))), None)
        if tables is None:
            raise InvalidParams("the database: got other tables, expected those of tldw")
        pace = Pace(progress, size_of(path), sum(rows.count(table) for table in tables if table in _READERS))
        for table in tables:
            if table in _READERS:
                yield from _each(rows, table, pace)
        if MESSAGES in tables:
            yield from strays(rows)
        pace.finish()


def _each(rows: Rows, table: Table, pace: Pace) -> Iterator[ImportEvent]:
    for place in rows.places(table):
        try:
            yield from _READERS[table](rows, place)
        except InvalidParams as error:
            yield FailedItem(f"{table.name}, row {place}", error.message)
        pace.step()


def _prompt(rows: Rows, place: int) -> Iterator[ImportEvent]:
    row = rows.at(_PROMPTS, place)
    if not is_live(row):
        yield SkippedItem("a deleted prompt")
        return
    details, system, user = (text_of(row[field]) for field in ("details", "system_prompt", "user_prompt"))
    for text in (details, system, user):
        require_text(text, rows.limits)
    definition = json_of(row["prompt_definition_json"], rows.limits)
    yield ImportedPrompt(
        PromptDraft(
            uuid=known_uuid(row["uuid"], stable_uuid(NAME, "prompts", line_of(row["name"]))),
            name=line_of(row["name"]),
            author=line_of(row["author"]),
            details=details,
            system_prompt=system,
            user_prompt=user,
            tags=rows.keywords(_PROMPT_KEYWORDS, row["id"]),
            metadata=about(definition=definition),
            # When a prompt was made is not kept; this is when it was last known to be new.
            created_at=moment_of(row["last_modified"]) or UNSET,
        )
    )


_READERS: Mapping[Table, Callable[[Rows, int], Iterator[ImportEvent]]] = {
    NOTES: note,
    CHARACTERS: character,
    CONVERSATIONS: conversation,
    MEDIA: media,
    _PROMPTS: _prompt,
}

IMPORTER = Importer(
    name=NAME,
    title="tldw databases (ChaChaNotes, Media, prompts)",
    recognizes=_recognizes,
    read=_read,
    suffixes=(".db", ".sqlite", ".sqlite3"),
)
