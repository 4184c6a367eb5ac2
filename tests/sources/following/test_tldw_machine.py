"""A followed database of tldw that another process writes, and a model of it: both agree after a run, although only
what changed is read. Changes are recorded either in `last_modified` or in `sync_log`."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.sources.following.database_owner import DatabaseOwner
from tests.sources.following.followed_library import STEPS, STEPS_PER_EXAMPLE, FollowedLibrary, FollowingMachine
from tests.sources.importers.tldw_files import CHACHA, NEWER_CHACHA, SYNC_LOG

pytestmark = pytest.mark.slow("is a long run against a model")

NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
notes = st.integers(1, 4)
conversations = st.integers(1, 3)
messages = st.integers(1, 3)
keywords = st.integers(1, 2)


def uuid(kind: int, number: int) -> str:
    return f"00000000-0000-4000-8000-{kind:04}{number:08}"


class TldwMachine(FollowingMachine):
    """`notes` maps numbers to texts and keywords, `messages` conversations to the texts of their messages."""

    @initialize(has_log=st.booleans(), journal_mode=st.sampled_from(["WAL", "WAL", "DELETE"]))
    def open(self, has_log: bool, journal_mode: str) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.path = self.root / "ChaChaNotes.db"
        self.journal_mode = journal_mode
        self.has_log = has_log
        self.owner = DatabaseOwner(self.path, journal_mode)
        self.owner.execute(";".join((*CHACHA, *NEWER_CHACHA, SYNC_LOG if has_log else "")) + ";")
        self.owner.execute("INSERT INTO keywords (id, keyword) VALUES (1, 'hot'), (2, 'cold');")
        self.followed = FollowedLibrary(self.root / "data", self.path)
        self.notes: dict[int, tuple[str, set[int]]] = {}
        self.messages: dict[int, dict[int, str]] = {}
        self.number = 0

    def teardown(self) -> None:
        self.owner.close()
        self.followed.close()
        shutil.rmtree(self.root)

    @rule(note=notes)
    def write_note(self, note: int) -> None:
        text = self._new_text()
        self.notes[note] = (text, self.notes.get(note, ("", set()))[1])
        key = uuid(1, note)
        self._change(
            f"INSERT INTO notes (id, title, content, last_modified) VALUES ('{key}', 'Note', '{text}', {self._time()}) "
            f"ON CONFLICT (id) DO UPDATE SET content = '{text}', deleted = 0, version = version + 1, "
            f"last_modified = {self._time()};",
            "notes",
            key,
        )

    @rule(note=notes)
    def delete_note(self, note: int) -> None:
        if note in self.notes:
            _, links = self.notes.pop(note)
            key = uuid(1, note)
            self._change(
                f"UPDATE notes SET deleted = 1, last_modified = {self._time()} WHERE id = '{key}';", "notes", key
            )
            for keyword in links:
                self._change(f"DELETE FROM note_keywords WHERE note_id = '{key}' AND keyword_id = {keyword};")

    @rule(note=notes)
    def remove_note(self, note: int) -> None:
        """Leaves no trace but the number of rows."""
        if note in self.notes:
            del self.notes[note]
            key = uuid(1, note)
            self._change(f"DELETE FROM notes WHERE id = '{key}'; DELETE FROM note_keywords WHERE note_id = '{key}';")

    @rule(note=notes, keyword=keywords)
    def link_keyword(self, note: int, keyword: int) -> None:
        if note in self.notes:
            self.notes[note][1].add(keyword)
            key = uuid(1, note)
            sql = f"INSERT OR IGNORE INTO note_keywords (note_id, keyword_id) VALUES ('{key}', {keyword});"
            self._change(sql, "note_keywords", f"{key}_{keyword}")

    @rule(note=notes, keyword=keywords)
    def unlink_keyword(self, note: int, keyword: int) -> None:
        if keyword in self.notes.get(note, ("", set()))[1]:
            self.notes[note][1].discard(keyword)
            key = uuid(1, note)
            sql = f"DELETE FROM note_keywords WHERE note_id = '{key}' AND keyword_id = {keyword};"
            self._change(sql, "note_keywords", f"{key}_{keyword}")

    @rule(conversation=conversations, message=messages)
    def write_message(self, conversation: int, message: int) -> None:
        text = self._new_text()
        self.messages.setdefault(conversation, {})[message] = text
        parent, key = uuid(2, conversation), uuid(3, 10 * conversation + message)
        self._change(
            f"INSERT INTO conversations (id, title, last_modified) VALUES ('{parent}', 'Talk', {self._time()}) "
            f"ON CONFLICT (id) DO UPDATE SET deleted = 0, last_modified = {self._time()};",
            "conversations",
            parent,
        )
        self._change(
            "INSERT INTO messages (id, conversation_id, sender, content, timestamp) "
            f"VALUES ('{key}', '{parent}', 'user', '{text}', '2026-01-01T00:00:0{message}.000Z') "
            f"ON CONFLICT (id) DO UPDATE SET content = '{text}', deleted = 0, version = version + 1;",
            "messages",
            key,
        )

    @rule(conversation=conversations, message=messages)
    def delete_message(self, conversation: int, message: int) -> None:
        if message in self.messages.get(conversation, {}) and len(self.messages[conversation]) > 1:
            del self.messages[conversation][message]
            parent, key = uuid(2, conversation), uuid(3, 10 * conversation + message)
            self._change(f"UPDATE messages SET deleted = 1 WHERE id = '{key}';", "messages", key)
            self._change(f"UPDATE conversations SET last_modified = {self._time()} WHERE id = '{parent}';")

    @rule(conversation=conversations)
    def delete_conversation(self, conversation: int) -> None:
        if self.messages.pop(conversation, None) is not None:
            key = uuid(2, conversation)
            self._change(
                f"UPDATE messages SET deleted = 1 WHERE conversation_id = '{key}';"
                f"UPDATE conversations SET deleted = 1, last_modified = {self._time()} WHERE id = '{key}';",
                "conversations",
                key,
            )

    @rule()
    def vacuum(self) -> None:
        """May number rows again."""
        self.owner.execute("VACUUM;")
        self.is_current = False

    @rule()
    def checkpoint(self) -> None:
        self.owner.checkpoint()

    @rule()
    def restart_owner(self) -> None:
        self.owner.close()
        self.owner = DatabaseOwner(self.path, self.journal_mode)

    @invariant()
    def library_agrees_with_the_database(self) -> None:
        if self.is_current:
            names = {1: "hot", 2: "cold"}
            expected = sorted((text, sorted(names[link] for link in links)) for text, links in self.notes.values())
            assert self.followed.run(self._stored_notes()) == expected
            texts = sorted(text for texts in self.messages.values() for text in texts.values())
            assert self.followed.run(self._stored_messages()) == texts

    def _new_text(self) -> str:
        self.number += 1
        return f"Text number {self.number}."

    def _time(self) -> str:
        return "'2026-01-01T00:00:00.000Z'" if self.has_log else NOW

    def _change(self, sql: str, entity: str = "", key: str = "") -> None:
        log = f"INSERT INTO sync_log (entity, entity_id) VALUES ('{entity}', '{key}');" if self.has_log and key else ""
        self.owner.execute(f"BEGIN; {sql} {log} COMMIT;")
        self.is_current = False

    async def _stored_notes(self) -> list[tuple[str, list[str]]]:
        library = await self.followed.library()
        rows = (await library.notes.list(100, 0)).rows
        return sorted((note.content, sorted(note.tags)) for note in rows)

    async def _stored_messages(self) -> list[str]:
        library = await self.followed.library()
        found = (await library.chats.list(100, 0)).rows
        pages = [await library.chats.messages(conversation.uuid, 100, 0) for conversation in found]
        return sorted(message.content for page in pages for message in page.rows)


TestTldwMachine = TldwMachine.TestCase
TestTldwMachine.settings = settings(
    max_examples=max(1, STEPS // STEPS_PER_EXAMPLE // 2),
    stateful_step_count=STEPS_PER_EXAMPLE,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
