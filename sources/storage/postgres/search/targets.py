"""The search targets of PostgreSQL: those of SQLite with translated SQL."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from msgspec.structs import replace

from sources.storage.postgres.index.entries import MESSAGE_CONTEXT
from sources.storage.postgres.search.dialect import postgres_sql
from sources.storage.search.engine import SearchTarget
from sources.storage.sqlite.schema.messages import BOUNDED_TEXT, CHARS_BETWEEN, CONTEXT_CHARS
from sources.storage.sqlite.search.chat_targets import CHATS_TARGET, HUMAN_ONLY_TARGET
from sources.storage.sqlite.search.targets import (
    KIND_TARGETS,
    MEDIA_TARGET,
    NOTES_TARGET,
    OBSERVATIONS_TARGET,
)

# Contexts up to this length are read with every message that may become a hit, so that most searches need no other
# statement for them. Longer ones are read for the hits that show them.
_SHORT_CONTEXT_CHARS = 2_000
# The messages before a message, as they are indexed, and as they are written and in order. The conditions are ranges,
# as in `index/entries.py`.
_CONTEXTS = f"""
    SELECT string_agg({BOUNDED_TEXT}, ' ' ORDER BY position DESC) FILTER (WHERE chars_between <= {CONTEXT_CHARS})
            AS indexed,
        string_agg(written, chr(10) ORDER BY position) AS text
    FROM (SELECT text, written, role, position, {CHARS_BETWEEN} AS chars_between
        FROM (SELECT coalesce(p.text_seg, p.content) AS text, p.role, p.position,
                CASE p.sender WHEN '' THEN p.role ELSE p.sender END || ': ' || p.content AS written
            FROM messages p WHERE (p.conversation_id, p.position) < (m.conversation_id, m.position)
                AND p.conversation_id > m.conversation_id - 1 AND p.deleted <> 1 AND p.human_only <> 1
            ORDER BY p.conversation_id DESC, p.position DESC LIMIT 2) AS earlier) AS context_messages
"""
_CONTEXT_TEXTS = f"""
    SELECT m.uuid, coalesce(context.text, '') FROM messages m LEFT JOIN LATERAL ({_CONTEXTS}) AS context ON TRUE
    WHERE m.uuid IN (SELECT value FROM jsonb_array_elements_text(CAST(? AS JSONB)))
"""


def _translated(target: SearchTarget, candidate_sql: str = "", **changes: str) -> SearchTarget:
    return replace(target, candidate_sql=_in_order(candidate_sql or target.candidate_sql), **changes)


def _in_order(sql: str) -> str:
    return f"{postgres_sql(sql)} ORDER BY wanted.place"


def _with_contexts(sql: str) -> str:
    """Selects the context of a message as it is written after the other columns, with the same rows as the indexed
    one."""
    indexed = "CASE m.human_only WHEN 1 THEN '' ELSE coalesce(context.indexed, '') END"
    text = f"CASE WHEN length(context.text) <= {_SHORT_CONTEXT_CHARS} THEN context.text END"
    sql = postgres_sql(sql).replace(MESSAGE_CONTEXT, indexed).replace("m.is_canonical", f"m.is_canonical, {text}")
    return f"{sql} LEFT JOIN LATERAL ({_CONTEXTS}) AS context ON TRUE"


_CHATS = {"title_sql": _in_order(CHATS_TARGET.title_sql), "context_sql": _CONTEXT_TEXTS}
POSTGRES_NOTES = _translated(NOTES_TARGET)
POSTGRES_MEDIA = _translated(MEDIA_TARGET)
POSTGRES_CHATS = _translated(CHATS_TARGET, _with_contexts(CHATS_TARGET.candidate_sql), **_CHATS)
POSTGRES_HUMAN_ONLY = _translated(HUMAN_ONLY_TARGET, _with_contexts(HUMAN_ONLY_TARGET.candidate_sql), **_CHATS)
POSTGRES_KINDS = {source: _translated(target) for source, target in KIND_TARGETS.items()}
POSTGRES_OBSERVATIONS = _translated(OBSERVATIONS_TARGET)
