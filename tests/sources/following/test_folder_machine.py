"""A followed folder and a model of it: whatever happens to the files and to the notes, both agree after a run."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from msgspec import Struct

from sources.drafts import NoteDraft
from sources.records import Note
from tests.sources.following.followed_library import STEPS, STEPS_PER_EXAMPLE, FollowedLibrary, FollowingMachine

pytestmark = pytest.mark.slow("is a long run against a model")

NAMES = [f"{folder}{name}.md" for folder in ("", "a/", "b/") for name in ("one", "two", "three")]
names = st.sampled_from(NAMES)


class ModelNote(Struct):
    """`imported` is the file and text of the last import, `text` what the library has, `state` who deleted it."""

    imported: tuple[str, str]
    text: str
    is_edited: bool = False
    state: str = "live"


class FolderModel:
    """The rules of `docs/follow.md`. `rows` maps known files to note ids, `known` to the text that was read."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.known: dict[str, str] = {}
        self.rows: dict[str, str] = {}
        self.notes: dict[str, ModelNote] = {}

    def sync(self) -> None:
        missing = sorted(name for name in self.known if name not in self.files)
        for name in sorted(self.files):
            moved_from = self._moved_from(name, missing)
            if self.known.get(name) != self.files[name]:
                self._read(name, moved_from)
        for name in missing:
            self._withdraw(name)

    def live_texts(self) -> list[str]:
        return sorted(note.text for note in self.notes.values() if note.state == "live")

    def _moved_from(self, name: str, missing: list[str]) -> str | None:
        same = [old for old in missing if self.known[old] == self.files[name]] if name not in self.known else []
        base = name.rpartition("/")[2]
        moved_from = min(same, key=lambda old: (old.rpartition("/")[2] != base, old), default=None)
        if moved_from is not None:
            missing.remove(moved_from)
        return moved_from

    def _read(self, name: str, moved_from: str | None) -> None:
        uuid = self.rows.pop(moved_from or name, None) or self._free_uuid(name)
        if moved_from is not None:
            del self.known[moved_from]
        self._upsert(uuid, (name, self.files[name]))
        self.rows[name], self.known[name] = uuid, self.files[name]

    def _free_uuid(self, name: str) -> str:
        candidates = (name, *(f"{name} {number}" for number in range(1, 100)))
        return next(uuid for uuid in candidates if uuid not in self.rows.values())

    def _upsert(self, uuid: str, draft: tuple[str, str]) -> None:
        note = self.notes.get(uuid)
        if note is None or note.state == "withdrawn":
            self.notes[uuid] = ModelNote(draft, draft[1])
        elif note.state == "live" and draft != note.imported and not note.is_edited:
            note.imported, note.text = draft, draft[1]

    def _withdraw(self, name: str) -> None:
        note = self.notes[self.rows[name]]
        if note.state == "live" and note.is_edited:
            return
        if note.state == "live":
            note.state = "withdrawn"
        del self.known[name], self.rows[name]


class FolderMachine(FollowingMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.vault = self.root / "vault"
        for folder in (".obsidian", "a", "b"):
            (self.vault / folder).mkdir(parents=True)
        self.model = FolderModel()
        self.followed = FollowedLibrary(self.root / "data", self.vault)
        self.texts = 0
        self.is_current = False

    def teardown(self) -> None:
        self.followed.close()
        shutil.rmtree(self.root)

    @rule(name=names)
    def write(self, name: str) -> None:
        self._write(name, self._new_text())

    @rule(name=names, old=names)
    def restore(self, name: str, old: str) -> None:
        """Writes a text that another file has, or had when it was last read."""
        text = self.model.known.get(old)
        if text is not None and text not in self.model.files.values():
            self._write(name, text)

    @rule(name=names, new_name=names)
    def rename(self, name: str, new_name: str) -> None:
        if name in self.model.files and new_name not in self.model.files:
            (self.vault / name).rename(self.vault / new_name)
            self.model.files[new_name] = self.model.files.pop(name)
            self.is_current = False

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name in self.model.files:
            (self.vault / name).unlink()
            del self.model.files[name]
            self.is_current = False

    @precondition(lambda self: self.is_current)
    @rule(name=names)
    def edit_note(self, name: str) -> None:
        note = self._live_note(name)
        if note is not None:
            text = self._new_text()
            self.followed.run(self._update(note.text, text))
            note.text, note.is_edited = text, True

    @precondition(lambda self: self.is_current)
    @rule(name=names)
    def delete_note(self, name: str) -> None:
        note = self._live_note(name)
        if note is not None:
            self.followed.run(self._delete(note.text))
            note.state = "deleted"

    @rule()
    def sync(self) -> None:
        super().sync()
        self.model.sync()

    @invariant()
    def library_agrees_with_the_model(self) -> None:
        if self.is_current:
            stored = self.followed.run(self._notes())
            assert sorted(note.content for note in stored) == self.model.live_texts()

    def _write(self, name: str, text: str) -> None:
        (self.vault / name).write_text(text)
        self.model.files[name] = text
        self.is_current = False

    def _new_text(self) -> str:
        self.texts += 1
        return f"Text number {self.texts}."

    def _live_note(self, name: str) -> ModelNote | None:
        note = self.model.notes.get(self.model.rows.get(name, ""))
        return note if note is not None and note.state == "live" else None

    async def _notes(self) -> list[Note]:
        library = await self.followed.library()
        return list((await library.notes.list(1000, 0)).rows)

    async def _update(self, old: str, new: str) -> None:
        library = await self.followed.library()
        [note] = [note for note in await self._notes() if note.content == old]
        await library.notes.update(note.uuid, NoteDraft(content=new))

    async def _delete(self, text: str) -> None:
        library = await self.followed.library()
        [note] = [note for note in await self._notes() if note.content == text]
        await library.notes.delete(note.uuid)


TestFolderMachine = FolderMachine.TestCase
TestFolderMachine.settings = settings(
    max_examples=max(1, STEPS // STEPS_PER_EXAMPLE),
    stateful_step_count=STEPS_PER_EXAMPLE,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
