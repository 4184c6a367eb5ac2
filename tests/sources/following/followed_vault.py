"""A vault that a library follows, which tests read run by run."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from auth.context import RequestContext
from auth.follows import FollowRecord
from auth.registry import UserRecord
from config.settings import Settings
from server.following.service import run_source
from sources.following.note_files import SourceLayout, source_layout
from sources.importers.engine.limits import import_limits
from tests.sources.storage.library_fixture import LibraryFixture

RUN_MAX_S = 60


def write(folder: Path, **notes: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for title, text in notes.items():
        (folder / f"{title}.md").write_text(text)
    return folder


def owner_of(context: RequestContext) -> UserRecord:
    return UserRecord(context.user_id, "ada", "", "ada", 0.0, None, 0, 0.0, "writer", "operator")


class FollowedVault:
    """A vault, followed without a sandbox: the kernel would deny what this server must not even try."""

    def __init__(self, libraries: LibraryFixture, root: Path) -> None:
        self.vault = write(root / "vaults" / "ada" / "vault")
        (self.vault / ".obsidian").mkdir()
        self.outside = write(root / "outside")
        self.settings = Settings(data_dir=str(root / "data"), import_sandbox="off")
        self._libraries = libraries

    def library(self) -> Any:
        return self._libraries.library("ada")

    def record(self, **fields: Any) -> FollowRecord:
        defaults: dict[str, Any] = {
            "id": "followed",
            "user_id": self._libraries.context("ada").user_id,
            "location": str(self.vault),
            "format": None,
            "interval_s": None,
            "keeps_deleted": False,
            "writes_back": False,
            "is_confined": False,
            "created_at": 0.0,
        }
        return FollowRecord(**{**defaults, **fields})

    def layout(self) -> SourceLayout:
        return source_layout(self.vault, None, import_limits(self.settings))

    async def run(self, before_batch: Callable[[], Awaitable[None]] | None = None, **fields: Any) -> None:
        async with self.library() as library, asyncio.timeout(RUN_MAX_S):
            owner = owner_of(self._libraries.context("ada"))
            await run_source(library, self.record(**fields), owner, self.settings, before_batch=before_batch)

    async def texts(self) -> str:
        async with self.library() as library:
            return "\n".join(note.content for note in (await library.notes.list(100, 0)).rows)
