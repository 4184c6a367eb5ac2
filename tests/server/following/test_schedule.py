"""When followed sources are read: requests are never lost, and no run delays changes for long."""

from auth.follows import FollowRecord
from config.paths import UserId
from config.settings import Settings
from server.following.schedule import DueWork, FollowSchedule

RECORD = FollowRecord(
    id="f",
    user_id=UserId("u"),
    location="/vault",
    format=None,
    interval_s=None,
    keeps_deleted=False,
    writes_back=False,
    is_confined=False,
    created_at=0.0,
)


def test_changes_after_a_first_import_of_minutes_are_read_within_seconds() -> None:
    schedule = FollowSchedule(RECORD, Settings())
    work = schedule.due(1000.0)
    assert work == DueWork(None)
    schedule.finish(work, [], 1300.0, took_s=300.0, scan_s=0.3)
    schedule.add_changes([b"Tea.md"], 1301.0)
    assert schedule.due(1303.0) == DueWork([b"Tea.md"])


def test_request_during_a_run_is_due_after_it() -> None:
    schedule = FollowSchedule(RECORD, Settings())
    work = schedule.due(1000.0)
    assert work is not None
    schedule.request_changed()
    schedule.finish(work, [], 1000.5, took_s=0.5, scan_s=0.1)
    assert schedule.due(1000.5) == DueWork(None)
    assert schedule.due(1000.6) is None
