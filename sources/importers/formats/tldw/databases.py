"""The databases of tldw: ChaChaNotes (notes, characters, conversations), Media, and prompts. Deleted items and the
trash are not imported.

Items keep their ids, so that a newer file updates what an older one imported, and what refers to an item by its number
still does. A number that another item of the library has cannot be kept.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from config.errors import InvalidParams
from sources.importers.engine.databases import open_database
from sources.importers.engine.file_probe import FileProbe
from sources.importers.engine.files import file_size
from sources.importers.engine.imported_items import FailedItem, ImportEvent, ReadPosition
from sources.importers.engine.importer import Importer
from sources.importers.engine.limits import ImportLimits
from sources.importers.engine.progress import ProgressCallback
from sources.importers.engine.table_reader import RowProgress, TableReader, TableSpec, has_tables
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
from sources.importers.formats.tldw.followed import FOLLOWED_DATABASES
from sources.importers.formats.tldw.media import MEDIA, read_media
from sources.importers.formats.tldw.prompts import (
    OLD_KEYWORD_LINKS,
    OLD_KEYWORDS,
    OLD_PROMPTS,
    PROMPTS,
    read_old_prompt,
    read_prompt,
)
from sources.importers.formats.tldw.rows import NAME

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


_ROW_READERS: Mapping[TableSpec, Callable[[TableReader, int], Iterator[ImportEvent]]] = {
    NOTES: read_note,
    CHARACTERS: read_character,
    CONVERSATIONS: read_conversation,
    MEDIA: read_media,
    PROMPTS: read_prompt,
    OLD_PROMPTS: read_old_prompt,
}
