"""Which paths and URLs a user may follow."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loguru import logger

from auth.follows import FollowRecord, Follows
from auth.registry import UserRecord
from config.errors import Conflict, FlorilegiumError, InvalidParams
from config.paths import UserId
from config.settings import Settings
from server.services import Services
from sources.following.scan import DATABASE_COMPANIONS, SourceMissing, is_hidden
from sources.storage.contract import FollowedItem, Library

# As long as PATH_MAX of Linux.
_LOCATION_MAX_CHARS = 4096
_CONFINED = (
    "location: expected a path in one of the folders that follow_roots names, got another one; "
    "an administrator may follow any path, and has to confirm a name that you chose before a folder named after you is "
    "yours"
)


def allowed_location(
    settings: Settings,
    location: str,
    owner: UserRecord,
    *,
    is_administrator: bool,
    writes_back: bool,
    others: Sequence[FollowRecord],
) -> str:
    """Returns the location in the form in which it is stored. `others` are those that the user already follows."""
    if not location or len(location) > _LOCATION_MAX_CHARS or "\0" in location:
        raise InvalidParams(f"location: expected a path or URL of 1 to {_LOCATION_MAX_CHARS} characters")
    if location.lower().startswith(("http://", "https://")):
        if writes_back:
            raise InvalidParams("write_back: expected a folder, got a URL")
        try:
            parts = urlsplit(location)
            _ = parts.port  # raises ValueError if it is not a number
        except ValueError:
            raise InvalidParams(f"location: expected an http(s) URL, got {location[:200]!r}") from None
        if not parts.hostname or "@" in parts.netloc:
            raise InvalidParams("location: expected a URL with a host and without a password")
        return parts._replace(scheme=parts.scheme.lower(), fragment="").geturl()
    path = Path(location)
    if not path.is_absolute():
        raise InvalidParams(f"location: expected an absolute path or an http(s) URL, got {location[:200]!r}")
    resolved = path.resolve()
    if not is_administrator and not _is_in_follow_roots(settings, resolved, owner):
        # Before anything else: whether a path exists is nothing that a user without access to it should learn.
        raise InvalidParams(_CONFINED)
    if not resolved.is_file() and not resolved.is_dir():
        raise InvalidParams(f"location: expected an existing file or folder, got {location[:200]!r}")
    if writes_back and not resolved.is_dir():
        raise InvalidParams("write_back: expected a folder, got a file")
    require_outside_data(settings, resolved)
    # Two followed sources with the same files would store every item twice.
    for other in others:
        if not other.is_url and (
            resolved.is_relative_to(other.location) or Path(other.location).is_relative_to(resolved)
        ):
            raise Conflict(f"{resolved} overlaps with {other.location}, which is already followed ({other.id})")
    return str(resolved)


def allowed_deployment(settings: Settings, location: str) -> str:
    """Returns the folder of a deployment in the form in which it is stored."""
    path = Path(location)
    if "\0" in location or not path.is_absolute() or not path.is_dir():
        raise InvalidParams(f"location: expected the absolute path of an existing folder, got {location[:200]!r}")
    resolved = path.resolve()
    require_outside_data(settings, resolved)
    return str(resolved)


def checked_path(settings: Settings, record: FollowRecord, owner: UserRecord) -> Path:
    """Returns the path to read now. A link may lead elsewhere by now, and the settings and the owner's role may have
    changed."""
    try:
        resolved = Path(record.location).resolve()
    except (OSError, RuntimeError):  # it was replaced while it was resolved, or by a loop of links
        raise SourceMissing("the followed path does not exist") from None
    if record.deployment is not None and str(resolved) != record.location:
        raise SourceMissing("the folder was replaced by a link to another one")
    # Without authentication, the only user may read all.
    is_only_user = not settings.is_auth_configured and owner.name == settings.single_user_name
    is_confined = record.is_confined or (record.needs_admin and owner.role != "admin" and not is_only_user)
    if is_confined and not _is_in_follow_roots(settings, resolved, owner):
        reason = "follow_roots no longer permits this path"
        raise SourceMissing(f"{reason}, and its owner is not an administrator" if record.needs_admin else reason)
    require_outside_data(settings, resolved)
    return resolved


async def followed_file(services: Services, library: Library, user_id: UserId, kind: str, uuid: str) -> Path | None:
    """Returns the file that an item of a user was read from, if it is in a followed folder that the user may still
    read. Whoever opens it confines reading to its folder, because it can be replaced by a link at any moment."""
    owner = await services.registry.user_by_id(user_id)
    for record in await Follows(services.registry.database).list(user_id):
        name = None if record.is_url else await library.followed_files.file_of(record.id, FollowedItem(kind, "", uuid))
        if name is None or owner is None:
            continue
        with suppress(FlorilegiumError):  # no longer permitted, or missing
            path = await asyncio.to_thread(checked_path, services.settings, record, owner)
            is_folder = await asyncio.to_thread(path.is_dir)
            return path / os.fsdecode(name) if is_folder else path
    return None


def _is_in_follow_roots(settings: Settings, path: Path, owner: UserRecord) -> bool:
    # Only a name that the operator chose names a folder. Others could lead out of the folder of the user.
    name = owner.name if owner.named_by == "operator" else ""
    is_plain_name = name not in ("", ".", "..") and "/" not in name and "\0" not in name
    for root in settings.follow_roots:
        parts = Path(root).parts
        common = tuple(takewhile(lambda part: "{user}" not in part, parts))
        if common != parts and not is_plain_name:
            continue
        # Links above the user's folder were made by the operator. The folder itself is not resolved, because its user
        # could replace it with a link to another user's folder.
        own = (part.replace("{user}", name) for part in parts[len(common) :])
        if path.is_relative_to(Path(*common).resolve().joinpath(*own)):
            return True
    return False


def require_outside_data(settings: Settings, path: Path) -> None:
    """The files of this server are not a source: every import would change them."""
    data = Path(settings.data_dir).resolve()
    if path.is_relative_to(data) or data.is_relative_to(path):
        raise InvalidParams("location: expected a path outside the data directory that does not contain it")


# -- watcher -----------------------------------------------------------------------------------------------------------
# Reports changed paths below folders, from the file events of the operating system.

# Events are collected for this long. The first pause of one step ends the collection earlier.
_DEBOUNCE_MS = 400
_STEP_MS = 250
# How long one call waits for a change.
_TIMEOUT_MS = 5_000
_ADDED = 1  # as watchfiles numbers changes
# On Linux the library also watches everything behind links, so a link to / would be the whole machine. Each folder is
# watched by itself there.
_FOLLOWS_LINKS = sys.platform == "linux"


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

        while not stop.is_set():
            watched = _with_subfolders(folders) if _FOLLOWS_LINKS else folders
            try:
                # Debug output, polling and its delay, recursive, and ignore folders that may not be read.
                with RustNotify(watched, False, False, 0, not _FOLLOWS_LINKS, True) as watcher:
                    notify(self._on_ready, True)
                    has_new_folder = False
                    while not has_new_folder and not stop.is_set():
                        changes = watcher.watch(_DEBOUNCE_MS, _STEP_MS, _TIMEOUT_MS, stop)
                        if not isinstance(changes, set):
                            continue  # nothing changed, or it was stopped
                        notify(self._on_changes, changed_names({path for _, path in changes}, folders))
                        # A new folder is watched by starting again. What happens in it until then is found by the scan
                        # that `_on_ready` requests.
                        added = [path for change, path in changes if change == _ADDED]
                        has_new_folder = _FOLLOWS_LINKS and any(map(_is_folder_without_link, added))
            except (OSError, WatchError) as error:
                if isinstance(error, FileNotFoundError) and all(Path(folder).is_dir() for folder in folders):
                    continue  # a folder in them was removed since it was listed
                logger.warning("Followed folders cannot be watched and are scanned instead: {}", error)
                notify(self._on_ready, False)
                return


def _with_subfolders(folders: Sequence[str]) -> list[str]:
    """Returns the folders with everything in them that a scan visits."""
    found: list[str] = []
    # `os.walk` would follow a link that took the place of a followed folder.
    for folder in filter(_is_folder_without_link, folders):
        for path, names, _ in os.walk(folder):
            found.append(path)
            names[:] = [name for name in names if not name.startswith(".")]
    return found


def _is_folder_without_link(path: str) -> bool:
    folder = Path(path)
    return folder.is_dir() and not folder.is_symlink()


def changed_names(paths: Collection[str], folders: Sequence[str]) -> dict[str, list[bytes]]:
    """Returns the names of the paths relative to each folder that contains them, without those in hidden folders."""
    changes: dict[str, list[bytes]] = {}
    for folder in folders:
        root = os.fsencode(folder).rstrip(b"/") + b"/"
        names = {path.removeprefix(root) for path in map(os.fsencode, paths) if path.startswith(root)}
        for end in DATABASE_COMPANIONS:
            # A change of a write-ahead log is one of its database.
            names = {name.removesuffix(end) for name in names}
        visible = [name for name in names if not is_hidden(name)]
        if visible:
            changes[folder] = visible
    return changes
