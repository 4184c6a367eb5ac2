"""A followed database that another process writes, and a model of it: both agree after a run, wherever rows are."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.sources.following.database_owner import SCHEMA, DatabaseOwner
from tests.sources.following.followed_library import STEPS, STEPS_PER_EXAMPLE, FollowedLibrary, FollowingMachine

pytestmark = pytest.mark.slow("is a long run against a model")

conversations = st.sampled_from(["c1", "c2", "c3"])
messages = st.integers(1, 3)


class DatabaseMachine(FollowingMachine):
    """`rows` maps conversations to their messages."""

    @initialize(journal_mode=st.sampled_from(["WAL", "DELETE"]))
    def open(self, journal_mode: str) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.path = self.root / "browser.db"
        self.journal_mode = journal_mode
        self.owner = DatabaseOwner(self.path, journal_mode)
        self.owner.execute(SCHEMA)
        self.followed = FollowedLibrary(self.root / "data", self.path)
        self.rows: dict[str, dict[int, str]] = {}
        self.number = 0

    def teardown(self) -> None:
        self.owner.close()
        self.followed.close()
        shutil.rmtree(self.root)

    @rule(conversation=conversations, message=messages)
    def write(self, conversation: str, message: int) -> None:
        self.number += 1
        time, text = 1_700_000_000 + self.number, f"Text number {self.number}."
        self.rows.setdefault(conversation, {})[message] = text
        self._execute(
            f"INSERT OR REPLACE INTO conversations VALUES ('{conversation}', 'Title', 1700000000, {time});"
            f"INSERT INTO messages VALUES ('{conversation}-{message}', '{conversation}', 'user', '{text}',"
            f" {1_700_000_000 + message}, {message}, NULL) ON CONFLICT (id) DO UPDATE SET content = '{text}';"
        )

    @rule(conversation=conversations, message=messages)
    def delete_message(self, conversation: str, message: int) -> None:
        if message in self.rows.get(conversation, {}) and len(self.rows[conversation]) > 1:
            del self.rows[conversation][message]
            self._execute(f"DELETE FROM messages WHERE id = '{conversation}-{message}';")

    @rule(conversation=conversations)
    def delete_conversation(self, conversation: str) -> None:
        self.rows.pop(conversation, None)
        self._execute(
            f"DELETE FROM messages WHERE conversation_id = '{conversation}';"
            f"DELETE FROM conversations WHERE id = '{conversation}';"
        )

    @rule()
    def checkpoint(self) -> None:
        self.owner.checkpoint()

    @rule()
    def restart_owner(self) -> None:
        self.owner.close()
        self.owner = DatabaseOwner(self.path, self.journal_mode)

    @rule()
    def kill_owner_and_sync(self) -> None:
        """Leaves a write-ahead log behind that no process has open."""
        self.owner.kill()
        self.sync()
        self.owner = DatabaseOwner(self.path, self.journal_mode)

    @invariant()
    def library_agrees_with_the_database(self) -> None:
        if self.is_current:
            expected = sorted(text for texts in self.rows.values() for text in texts.values())
            assert self.followed.run(self._texts()) == expected

    def _execute(self, sql: str) -> None:
        self.owner.execute(f"BEGIN; {sql} COMMIT;")
        self.is_current = False

    async def _texts(self) -> list[str]:
        library = await self.followed.library()
        found = (await library.chats.list(100, 0)).rows
        pages = [await library.chats.messages(conversation.uuid, 100, 0) for conversation in found]
        return sorted(message.content for page in pages for message in page.rows)


TestDatabaseMachine = DatabaseMachine.TestCase
TestDatabaseMachine.settings = settings(
    max_examples=max(1, STEPS // STEPS_PER_EXAMPLE),
    stateful_step_count=STEPS_PER_EXAMPLE,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
