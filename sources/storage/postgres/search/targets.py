"""The search targets of PostgreSQL: those of SQLite with translated SQL."""

from msgspec.structs import replace

from sources.storage.postgres.search.dialect import postgres_sql
from sources.storage.search.target import SearchTarget
from sources.storage.sqlite.search.targets.characters import CHARACTERS_TARGET
from sources.storage.sqlite.search.targets.chats import CHATS_TARGET, HUMAN_ONLY_TARGET
from sources.storage.sqlite.search.targets.media import MEDIA_TARGET
from sources.storage.sqlite.search.targets.notes import NOTES_TARGET
from sources.storage.sqlite.search.targets.observations import OBSERVATIONS_TARGET
from sources.storage.sqlite.search.targets.prompts import PROMPTS_TARGET

# The messages before a message, as they are written and in order. The conditions are ranges, as in `index/entries.py`.
_CONTEXT_TEXTS = """
    SELECT m.uuid, (SELECT coalesce(string_agg(text, chr(10) ORDER BY position), '') FROM (
        SELECT CASE p.sender WHEN '' THEN p.role ELSE p.sender END || ': ' || p.content AS text, p.position
        FROM messages p WHERE (p.conversation_id, p.position) < (m.conversation_id, m.position)
            AND p.conversation_id > m.conversation_id - 1 AND p.deleted <> 1 AND p.human_only <> 1
        ORDER BY p.conversation_id DESC, p.position DESC LIMIT 2) AS earlier)
    FROM messages m WHERE m.uuid IN (SELECT value FROM jsonb_array_elements_text(CAST(? AS JSONB)))
"""


def _translated(target: SearchTarget, **changes: str) -> SearchTarget:
    return replace(target, candidate_sql=_in_order(target.candidate_sql), **changes)


def _in_order(sql: str) -> str:
    return f"{postgres_sql(sql)} ORDER BY wanted.place"


_CHATS = {"title_sql": _in_order(CHATS_TARGET.title_sql), "context_sql": _CONTEXT_TEXTS}
POSTGRES_NOTES = _translated(NOTES_TARGET)
POSTGRES_MEDIA = _translated(MEDIA_TARGET)
POSTGRES_CHATS = _translated(CHATS_TARGET, **_CHATS)
POSTGRES_HUMAN_ONLY = _translated(HUMAN_ONLY_TARGET, **_CHATS)
POSTGRES_CHARACTERS = _translated(CHARACTERS_TARGET)
POSTGRES_PROMPTS = _translated(PROMPTS_TARGET)
POSTGRES_OBSERVATIONS = _translated(OBSERVATIONS_TARGET)
