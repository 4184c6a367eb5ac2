"""The agents on the message bus, which are stored in the library of their user."""

# ruff: noqa: S608 - SQL is built from constants only; values are parameters

from uuid import uuid4

from sources.records import RegisteredAgent
from sources.storage.collections.collection import UserDatabase
from sources.storage.tables import validation
from sources.storage.tables.connection import SqlConnection
from sources.storage.tables.indexes import NOTES_INDEX
from sources.storage.tables.validation import COUNT_MAX, is_storable

_SOURCE = "agents"
_INSERT = "INSERT INTO agents (id, name, token_hash, used_at) VALUES (?, ?, ?, ?)"
_SELECT = "SELECT id, name, token_hash, used_at FROM agents WHERE id = ?"
# All but the `limit` most recently used agents.
_DELETE_LEAST_RECENTLY_USED = f"""
    DELETE FROM agents WHERE id IN (SELECT id FROM agents ORDER BY used_at DESC, id DESC LIMIT {COUNT_MAX} OFFSET ?)
"""


class StoredAgents:
    def __init__(self, database: UserDatabase, limits: validation.FieldLimits) -> None:
        self._database = database
        self._limits = limits

    async def register(
        self, name: str, token_hash: bytes, *, time: str, idle_since: str, limit: int
    ) -> RegisteredAgent:
        name = validation.required_short_text(self._limits, "name", name)

        def work(connection: SqlConnection) -> RegisteredAgent:
            connection.execute("DELETE FROM agents WHERE used_at < ?", (idle_since,))
            connection.execute(_DELETE_LEAST_RECENTLY_USED, (max(0, limit - 1),))
            agent = RegisteredAgent(
                id=str(uuid4()), name=_unused_name(connection, name), token_hash=token_hash, used_at=time
            )
            connection.execute(_INSERT, (agent.id, agent.name, agent.token_hash, agent.used_at))
            return agent

        return await self._database.write(_SOURCE, NOTES_INDEX, work)

    async def find(self, agent_id: str) -> RegisteredAgent | None:
        if not is_storable(agent_id):
            return None

        def work(connection: SqlConnection) -> RegisteredAgent | None:
            row = connection.execute(_SELECT, (agent_id,)).fetchone()
            return RegisteredAgent(**dict(zip(RegisteredAgent.__struct_fields__, row, strict=True))) if row else None

        return await self._database.read(_SOURCE, work)

    async def set_used(self, agent_id: str, time: str) -> None:
        def work(connection: SqlConnection) -> None:
            connection.execute("UPDATE agents SET used_at = ?1 WHERE id = ?2 AND used_at < ?1", (time, agent_id))

        await self._database.write(_SOURCE, NOTES_INDEX, work)


def _unused_name(connection: SqlConnection, name: str) -> str:
    existing = {row[0] for row in connection.execute("SELECT name FROM agents")}
    candidates = (name if number == 1 else f"{name} {number}" for number in range(1, len(existing) + 2))
    return next(candidate for candidate in candidates if candidate not in existing)
