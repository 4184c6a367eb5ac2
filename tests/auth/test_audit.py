"""What the audit log keeps, for how long, and what a crash or a full queue loses."""

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from auth.audit import READ_ACTION, Audit, AuditEvent, AuditFile, AuditFilter, AuditLog, PostgresAuditLog
from auth.context import READ, ClientId, Principal
from auth.registry import ControlLocation, Registry
from auth.tickets import RejectedCredentials
from config.errors import StorageError
from config.paths import UserId, new_user_id
from tests.auth.auth_fixture import NOW, FakeClock, make_settings

ALL = AuditFilter()
DAY_S = 86_400


def principal(client: str = "k_laptop") -> Principal:
    return Principal(new_user_id(), "ada", ClientId(client), frozenset((READ,)), "key", client)


@pytest.fixture
async def audit_log(control_location: ControlLocation) -> AuditLog:
    """An empty log on each engine."""
    if isinstance(control_location, Path):
        return AuditFile(control_location.with_name("audit.db"))
    async with Registry.open(control_location):  # creates the tables
        return PostgresAuditLog(control_location)


def open_audit(log: AuditLog, **changes: Any) -> Audit:
    clock = changes.pop("clock", FakeClock())
    options = {name: changes.pop(name) for name in ("flush_s", "queue_max") if name in changes}
    return Audit(log, make_settings(**changes), clock, **options)


async def test_events_are_listed_newest_first_and_filtered(audit_log: AuditLog) -> None:
    audit, ada, ben = open_audit(audit_log), principal(), principal("k_phone")
    audit.record("sign_in", ada.user_id, client="browser", address="192.0.2.7")
    audit.record("key.create", ben.user_id, target="k_phone", detail="knowledge:read")
    audit.record_read(ada, "notes://1")

    events = await audit.select(ALL, 10)
    assert [event.action for event in events] == [READ_ACTION, "key.create", "sign_in"]
    assert events[2] == AuditEvent(
        time=NOW, action="sign_in", user_id=ada.user_id, client="browser", address="192.0.2.7", id=round(NOW * 1e6)
    )
    assert [e.action for e in await audit.select(AuditFilter(user_id=ben.user_id), 10)] == ["key.create"]
    assert [e.target for e in await audit.select(AuditFilter(actions=(READ_ACTION,)), 10)] == ["notes://1"]
    assert [e.action for e in await audit.select(AuditFilter(before=events[0].id), 1)] == ["key.create"]
    assert await audit.select(AuditFilter(since=NOW + 1), 10) == []
    await audit.close()


async def test_repeated_reads_of_one_batch_are_one_entry(audit_log: AuditLog) -> None:
    audit, ada, ben = open_audit(audit_log, flush_s=60), principal(), principal("k_phone")
    for reader, uri in ((ada, "notes://1"), (ada, "notes://1"), (ben, "notes://1"), (ada, "notes://2")):
        audit.record_read(reader, uri)
    events = {(event.client, event.target): event.count for event in await audit.select(ALL, 10)}
    assert events == {("k_laptop", "notes://1"): 2, ("k_phone", "notes://1"): 1, ("k_laptop", "notes://2"): 1}
    await audit.close()


async def test_closing_writes_what_is_pending(tmp_path: Path) -> None:
    audit = open_audit(AuditFile(tmp_path / "audit.db"), flush_s=60)
    audit.record_read(principal(), "notes://1")
    await audit.close()
    assert [event.target for event in AuditFile(tmp_path / "audit.db").select(ALL, 10)] == ["notes://1"]


async def test_reads_are_not_recorded_if_the_setting_says_so(audit_log: AuditLog) -> None:
    audit = open_audit(audit_log, audit_reads=False)
    audit.record_read(principal(), "notes://1")
    audit.record("sign_in", principal().user_id)
    assert [event.action for event in await audit.select(ALL, 10)] == ["sign_in"]
    await audit.close()


async def test_a_full_queue_drops_reads_and_says_how_many(audit_log: AuditLog) -> None:
    audit, ada = open_audit(audit_log, queue_max=100, flush_s=60), principal()
    for number in range(130):
        audit.record_read(ada, f"notes://{number}")
    audit.record("sign_in", ada.user_id)
    events = await audit.select(ALL, 1000)
    assert sum(event.action == READ_ACTION for event in events) == 100
    assert [event.count for event in events if event.action == "audit.dropped"] == [30]
    assert "sign_in" in {event.action for event in events}
    await audit.close()


async def test_old_events_are_deleted(audit_log: AuditLog) -> None:
    clock = FakeClock()
    old = [AuditEvent(time=NOW - 91 * DAY_S, action="sign_in", user_id="u") for _ in range(2_500)]
    audit_log.append([*old, AuditEvent(time=NOW - 89 * DAY_S, action="sign_out", user_id="u")])
    audit = open_audit(audit_log, clock=clock, audit_retention_days=90)
    audit.record("key.create", "u")
    while len(events := await audit.select(ALL, 10)) > 2:  # deleted by the thread that writes
        await asyncio.sleep(0.01)
    await audit.close()
    assert [event.action for event in events] == ["key.create", "sign_out"]


async def test_purging_a_user_removes_the_reads_and_keeps_security_events(audit_log: AuditLog) -> None:
    audit, ada, ben = open_audit(audit_log), principal(), principal("k_phone")
    for reader in (ada, ben):
        audit.record_read(reader, "notes://secret")
        audit.record("sign_in", reader.user_id)
    await audit.delete_reads(UserId(ada.user_id))
    assert {(e.action, e.user_id) for e in await audit.select(ALL, 10)} == {
        ("sign_in", ada.user_id),
        ("sign_in", ben.user_id),
        (READ_ACTION, ben.user_id),
    }
    await audit.close()


async def test_a_file_that_cannot_be_written_does_not_disturb_callers(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    path.write_bytes(b"this is not a database, and longer than a header of one " * 20)
    audit = Audit(AuditFile(path), make_settings(), FakeClock())
    audit.record("sign_in", "u")
    audit.record_read(principal(), "notes://1")
    with pytest.raises(StorageError):
        await audit.select(ALL, 10)
    path.unlink()
    assert {event.action for event in await audit.select(ALL, 10)} == {"sign_in", READ_ACTION}
    await audit.close()


async def test_texts_are_short_and_printable(audit_log: AuditLog) -> None:
    audit = open_audit(audit_log)
    audit.record("sign_in", "u", client="a\x1b[2Jb\n", detail="x" * 5_000)
    [event] = await audit.select(ALL, 10)
    assert (event.client, len(event.detail)) == ("a\ufffd[2Jb\ufffd", 500)
    await audit.close()


async def test_processes_number_their_events_in_turn(audit_log: AuditLog) -> None:
    event = AuditEvent(time=NOW, action="sign_in", user_id="u")

    await asyncio.gather(*(asyncio.to_thread(audit_log.append, [event] * 5) for _ in range(4)))

    ids = [event.id for event in audit_log.select(ALL, 100)]
    await asyncio.to_thread(audit_log.close)
    assert ids == sorted(range(round(NOW * 1e6), round(NOW * 1e6) + 20), reverse=True)


async def test_the_file_is_private_and_a_newer_one_is_rejected(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.db")
    file.append([AuditEvent(time=NOW, action="sign_in", user_id="u")])
    assert stat.S_IMODE((tmp_path / "audit.db").stat().st_mode) == 0o600
    with closing(sqlite3.connect(tmp_path / "audit.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="written by a newer version"):
        file.select(ALL, 10)


_KILLED = """
import sys, time
from pathlib import Path
from auth.audit import Audit, AuditFile, AuditFilter
from config.settings import Settings
audit = Audit(AuditFile(Path(sys.argv[1])), Settings(), flush_s=60)
audit.record("sign_in", "u")
while not audit.log.select(AuditFilter(), 1):
    time.sleep(0.01)
print("recorded", flush=True)
time.sleep(60)
"""


@pytest.mark.slow("kills processes")
async def test_a_security_event_survives_kill_9(tmp_path: Path) -> None:
    """It is written at once although the interval for reads is a minute."""
    path = tmp_path / "audit.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _KILLED, str(path), stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"recorded\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert [event.action for event in AuditFile(path).select(ALL, 10)] == ["sign_in"]


async def test_errors_name_the_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    path.write_bytes(b"not a database, but long enough to be read as one" * 20)

    with pytest.raises(StorageError, match="the audit log is not an SQLite file"):
        AuditFile(path).select(AuditFilter(), 1)


async def test_rejected_credentials_cannot_fill_the_log(audit_log: AuditLog) -> None:
    audit, clock = open_audit(audit_log), FakeClock()
    rejections = RejectedCredentials(audit, 2, clock)
    for number in range(1000):
        rejections.record(f"192.0.2.{number % 100}", f"token {number}")
    during = await audit.select(ALL, 1000)
    clock.advance(3600)
    rejections.record("192.0.2.0", "token 0")
    after = await audit.select(ALL, 1000)
    await audit.close()

    assert [(event.address, event.detail, event.count) for event in reversed(during)] == [
        ("192.0.2.0", "token 0", 1),
        ("192.0.2.1", "token 1", 1),
    ]
    counts = {(event.address, event.detail): event.count for event in after[: -len(during)]}
    assert counts == {
        ("192.0.2.0", "token 0"): 1,
        ("192.0.2.0", "repeated"): 9,
        ("192.0.2.1", "repeated"): 9,
        ("other addresses", "repeated"): 980,
    }
