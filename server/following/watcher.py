"""Reports changed paths below folders, from the file events of the operating system."""

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from loguru import logger

from sources.following.scan import DATABASE_COMPANIONS, is_hidden

# Events are collected for this long. The first pause of one step ends the collection earlier.
_DEBOUNCE_MS = 400
_STEP_MS = 250
_TIMEOUT_MS = 5_000


class FolderWatcher:
    """Watches a set of folders, each with everything in it. `on_changes` is called on the event loop with the names of
    changed files by folder; `on_ready` when the folders are watched, and with False if they cannot be."""

    def __init__(
        self, on_changes: Callable[[Mapping[str, Sequence[bytes]]], None], on_ready: Callable[[bool], None]
    ) -> None:
        self._on_changes = on_changes
        self._on_ready = on_ready
        self._folders: Mapping[str, str] = {}
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def watch(self, folders: Mapping[str, str]) -> None:
        """Starts to watch these folders, given with their identities, instead of the previous ones."""
        if folders == self._folders:
            return
        self._end()
        self._folders = dict(folders)
        if folders:
            self._stop = threading.Event()
            arguments = (sorted(folders), self._stop, asyncio.get_running_loop())
            self._thread = threading.Thread(target=self._run, args=arguments, name="folder-watcher", daemon=True)
            self._thread.start()

    async def close(self) -> None:
        thread = self._thread
        self._end()
        if thread is not None:
            await asyncio.to_thread(thread.join, 2)

    def _end(self) -> None:
        if self._stop is not None:
            self._stop.set()
        self._stop = self._thread = None
        self._folders = {}

    def _run(self, folders: list[str], stop: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        def notify(callback: Callable[[Any], None], value: object) -> None:
            if not stop.is_set() and not loop.is_closed():
                loop.call_soon_threadsafe(callback, value)

        from watchfiles._rust_notify import RustNotify  # noqa: PLC0415 - most servers follow nothing
        from watchfiles._rust_notify import WatchfilesRustInternalError as WatchError  # noqa: PLC0415 - as above

        try:
            with RustNotify(folders, False, False, 0, True, True) as watcher:
                notify(self._on_ready, True)
                while not stop.is_set():
                    changes = watcher.watch(_DEBOUNCE_MS, _STEP_MS, _TIMEOUT_MS, stop)
                    if isinstance(changes, set):
                        notify(self._on_changes, changed_names({path for _, path in changes}, folders))
        except (OSError, WatchError) as error:
            logger.warning("Followed folders cannot be watched and are scanned instead: {}", error)
            notify(self._on_ready, False)


def changed_names(paths: Collection[str], folders: Sequence[str]) -> dict[str, list[bytes]]:
    """Returns the names of the paths relative to each folder that contains them, without those in hidden folders."""
    changes: dict[str, list[bytes]] = {}
    for folder in folders:
        root = os.fsencode(folder).rstrip(b"/") + b"/"
        names = {_without_companion(path[len(root) :]) for path in map(os.fsencode, paths) if path.startswith(root)}
        visible = [name for name in names if not is_hidden(name)]
        if visible:
            changes[folder] = visible
    return changes


def _without_companion(name: bytes) -> bytes:
    """A change of a write-ahead log is one of its database."""
    for end in DATABASE_COMPANIONS:
        name = name.removesuffix(end)
    return name
