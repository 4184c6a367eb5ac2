"""When a followed source is read next. No I/O, and time is passed in."""

import math
from collections.abc import Sequence

from msgspec import Struct

from auth.follows import FollowRecord
from config.settings import Settings
from sources.following.state import SyncReport

# A scan of a large folder takes at most this share of the time.
_SCAN_SHARE = 1 / 200
# After a long run, such as that of a large database that changes all the time, others have their turn. The first import
# of a folder takes minutes, after which changes must not wait as long.
_SHORT_RUN_S = 1.0
_PAUSE_PER_RUN = 2.0
_PAUSE_MAX_S = 3.0
_RETRY_S = 0.3
_NAMES_MAX = 1_000
# Files that are created in a new folder before it is watched cause no events.
_FOLDER_RETRY_S = 1.0
_FAILURE_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class DueWork(Struct, frozen=True):
    """`scope` is None for the whole source."""

    scope: Sequence[bytes] | None


class FollowSchedule:
    """The schedule of one followed source. `is_watched`: changes are reported by events."""

    def __init__(self, record: FollowRecord, settings: Settings) -> None:
        self.record = record
        self.is_watched = False
        self.is_running = False
        self._settings = settings
        self._next_full_at = 0.0
        self._not_before = 0.0
        # Whether a run was requested after the last one started.
        self._is_requested = False
        self._names: dict[bytes, float] = {}
        self._failures = 0

    def update(self, record: FollowRecord) -> None:
        """A run that was requested, and a source that is resumed, is due at once."""
        is_requested = (record.run_requested_at or 0.0) > (self.record.run_requested_at or 0.0)
        is_resumed = self.record.paused_at is not None and record.paused_at is None
        if is_requested or is_resumed:
            self.request_full()
        self.record = record

    def request_full(self) -> None:
        """The whole source is due, without a pause after the last run."""
        self._next_full_at = self._not_before = 0.0
        self._is_requested = True

    def request_changed(self) -> None:
        """The whole source is due, because it changed."""
        self._next_full_at = 0.0

    def add_changes(self, names: Sequence[bytes], now: float) -> None:
        """Of many changes at once, a scan finds all."""
        if len(names) + len(self._names) > _NAMES_MAX:
            self.request_changed()
            return
        for name in names:
            self._names[name] = min(now, self._names.get(name, now))

    def due(self, now: float) -> DueWork | None:
        if self.is_running or self.record.paused_at is not None or now < self._not_before:
            return None
        if now >= self._next_full_at:
            self._names.clear()
            # A request during the run sets it again.
            self._next_full_at = math.inf
            self._is_requested = False
            return DueWork(None)
        names = [name for name, at in self._names.items() if at <= now]
        for name in names:
            del self._names[name]
        return DueWork(sorted(names)) if names else None

    def finish(self, work: DueWork, report: SyncReport, now: float, *, took_s: float) -> None:
        self._failures = 0
        self._not_before = now + min(_PAUSE_MAX_S, _PAUSE_PER_RUN * max(0.0, took_s - _SHORT_RUN_S))
        for name in sorted(report.retries):
            self._names.setdefault(name, now + (_FOLDER_RETRY_S if name.endswith(b"/") else _RETRY_S))
        for name, pause_s in report.doubts.items():
            self._names.setdefault(name, now + pause_s)
        if work.scope is None:
            self._next_full_at = min(self._next_full_at, now + max(self._interval_s, report.scan_s / _SCAN_SHARE))

    def fail(self, now: float) -> None:
        if self._is_requested:
            # The source may be there again.
            return
        pause = _FAILURE_PAUSES_S[min(self._failures, len(_FAILURE_PAUSES_S) - 1)]
        self._failures += 1
        self._not_before = now + pause
        self._next_full_at = min(self._next_full_at, now + pause)

    @property
    def _interval_s(self) -> float:
        if self.record.interval_s is not None:
            return self.record.interval_s
        if self.record.is_url:
            return self._settings.follow_url_s
        return self._settings.follow_scan_s if self.is_watched else self._settings.follow_unwatched_scan_s
