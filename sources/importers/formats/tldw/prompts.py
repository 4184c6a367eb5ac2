"""Prompts of tldw: today's database, and `prompts.db` of versions before 2025, which has neither UUIDs nor times."""

from collections.abc import Iterator

from msgspec import UNSET

from sources.drafts import PromptDraft
from sources.importers.engine.imported_items import DeletedItem, ImportedPrompt, ImportEvent, SkippedItem
from sources.importers.engine.table_reader import KeywordLinks, TableReader, TableRow, TableSpec
from sources.importers.engine.times import stored_time
from sources.importers.engine.values import clean_line, json_or_none, require_storable, text_or_empty
from sources.importers.formats.tldw.rows import import_metadata, is_live, item_number, item_uuid

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
