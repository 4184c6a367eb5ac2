"""A library that follows one source, which tests bring up to date step by step. Runs can be interrupted anywhere."""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from auth.follows import FollowRecord
from config.settings import Settings
from server.following.service import run_source
from sources.following.state import SyncReport
from sources.storage.contract import Library
from tests.sources.following.followed_vault import owner_of
from tests.sources.storage.library_fixture import Clock, LibraryFixture, open_library_fixture

T = TypeVar("T")

# `make test-follow` sets these; the test suite takes a small sample.
STEPS = int(os.environ.get("FOLLOW_STEPS", "60"))
KILLS = int(os.environ.get("FOLLOW_KILLS", "3"))
STEPS_PER_EXAMPLE = 30


class FollowedLibrary:
    """Runs coroutines on its own event loop, because the rules of a state machine are no coroutines."""

    def __init__(self, root: Path, location: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._root = root
        self._settings = Settings(data_dir=str(root), import_sandbox="off")
        self._stack = AsyncExitStack()
        self._libraries: LibraryFixture | None = None
        self._record: FollowRecord | None = None
        self._location = location

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def sync(self) -> SyncReport:
        return self.run(self._sync())

    def sync_interrupted(self, after_s: float) -> None:
        """Cancels a run after some time. Whatever it wrote until then stays."""
        with suppress(TimeoutError):
            self.run(asyncio.wait_for(self._sync(), after_s))

    def restart(self) -> None:
        self.run(self._stack.aclose())
        self._stack, self._libraries = AsyncExitStack(), None

    def close(self) -> None:
        self.restart()
        self._loop.close()

    async def library(self) -> Library:
        return await self._stack.enter_async_context((await self._open()).library("ada"))

    async def _open(self) -> LibraryFixture:
        if self._libraries is None:
            self._libraries = await self._stack.enter_async_context(open_library_fixture(self._root, Clock()))
            user_id = self._libraries.context("ada").user_id
            self._record = self._record or FollowRecord(
                id="followed",
                user_id=user_id,
                location=str(self._location),
                format=None,
                interval_s=None,
                keeps_deleted=False,
                writes_back=False,
                is_confined=False,
                created_at=0.0,
            )
        return self._libraries

    async def _sync(self) -> SyncReport:
        libraries = await self._open()
        assert self._record is not None
        async with libraries.library("ada") as library:
            return await run_source(library, self._record, owner_of(libraries.context("ada")), self._settings)


class FollowingMachine(RuleBasedStateMachine):
    """The rules of all models. `is_current` is false until a run has read the last change."""

    followed: FollowedLibrary
    is_current = False

    @rule()
    def sync(self) -> None:
        self.followed.sync()
        self.is_current = True

    @rule(after_s=st.floats(0.0, 1.0))
    def interrupt(self, after_s: float) -> None:
        """The order in which files are read does not depend on the interruption, so the next run completes this one."""
        self.followed.sync_interrupted(after_s)
        self.sync()

    @rule()
    def restart(self) -> None:
        self.followed.restart()
