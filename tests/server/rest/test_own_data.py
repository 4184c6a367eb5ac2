"""Export and deletion of one's own data."""

import asyncio
import gc
import io
import sys
import threading
import zipfile
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from auth.context import READ, WRITE
from auth.tickets import StateKeys
from auth.tokens import InProcessUsedTokens
from server.operations.own_data import EXPORTS_MAX_PER_USER, Confirmations
from sources.exporters.export import create_empty_folder, in_thread
from tests.cases import each_case
from tests.server.in_process import call_app
from tests.server.rest.rest_client import RestClient
from tests.server.rest.test_account import key_of, message_of, send
from tests.sources.source_fixture import LibraryUser


async def test_an_export_can_be_imported_again(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Tides", "high water at noon")
    await ada.add_chat("Talk", "about tides")
    await ben.add_note("Ships", "of Ben")
    key = await key_of(api, "ada", READ, WRITE)
    exported = await send(api, key, "GET", "/api/v1/export")
    assert (exported.status, dict(exported.headers)["content-type"]) == (200, "application/zip")
    with zipfile.ZipFile(io.BytesIO(exported.body)) as archive:
        assert archive.testzip() is None
        lines = b"".join(archive.read(name) for name in archive.namelist() if name.endswith(".jsonl"))
        assert "florilegium/florilegium.json" in archive.namelist()
    assert b"high water at noon" in lines
    assert b"of Ben" not in lines
    assert not any((api.server.runtime.data_root.root / "uploads").iterdir())
    assert (await send(api, key, "GET", "/api/v1/audit?action=export")).json()["events"]


async def test_the_first_call_of_a_user_can_be_an_export(api: RestClient) -> None:
    exported = await send(api, await key_of(api, "zoe", READ), "GET", "/api/v1/export")
    assert exported.status == 200


async def test_exports_of_one_user_do_not_fill_the_disk(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Tides", "high water at noon")
    await ben.add_note("Ships", "of Ben")
    key, other = await key_of(api, "ada", READ), await key_of(api, "ben", READ)
    exports = [send(api, key, "GET", "/api/v1/export") for _ in range(EXPORTS_MAX_PER_USER + 1)]
    *own, of_ben = await asyncio.gather(*exports, send(api, other, "GET", "/api/v1/export"))
    [refused] = [response for response in own if response.status != 200]
    assert refused.status == 503
    assert "2 of your exports are running" in message_of(refused)
    assert dict(refused.headers)["retry-after"] == "60"
    assert of_ben.status == 200
    assert (await send(api, key, "GET", "/api/v1/export")).status == 200
    assert not api.server.runtime.exports


async def test_an_export_is_not_written_on_the_event_loop(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Tides", "high water")
    await ada.add_media("Talk", "high water")
    await ada.add_chat("Chat", "high water")
    key = await key_of(api, "ada", READ)
    calls: set[str] = set()

    def notice(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.endswith(("exporters/lines.py", "exporters/pages.py")):
            calls.add(frame.f_code.co_name)

    sys.setprofile(notice)  # of this thread only, which is that of the event loop
    try:
        exported = await send(api, key, "GET", "/api/v1/export")
    finally:
        sys.setprofile(None)

    assert exported.status == 200
    # The name of a page is short, whatever it contains.
    assert calls <= {"file_name"}


async def test_an_export_ends_when_its_client_disconnects(
    api: RestClient, ada: LibraryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent while the export is written, so that no write to the connection can fail. The thread that writes
    it cannot be stopped, and must not leave anything behind."""
    loop, started, written = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    may_write = threading.Event()

    def create_late(folder: Path) -> None:
        loop.call_soon_threadsafe(started.set)
        may_write.wait(60)
        create_empty_folder(folder)
        loop.call_soon_threadsafe(written.set)

    async def disconnecting(scope: Scope, _receive: Receive, send: Send) -> None:
        async def receive() -> Message:
            await started.wait()
            loop.call_later(0.1, may_write.set)
            return {"type": "http.disconnect"}

        await api.app(scope, receive, send)

    monkeypatch.setattr("sources.exporters.export.create_empty_folder", create_late)
    with pytest.raises(AssertionError):  # no response is sent
        await call_app(disconnecting, "GET", "/api/v1/export", await key_of(api, "ada", READ))
    await written.wait()
    assert not any((api.server.runtime.data_root.root / "uploads").iterdir())


async def test_an_export_that_is_cancelled_while_it_is_read_logs_no_error(failures: list[str]) -> None:
    is_closed = threading.Event()

    def read() -> None:
        is_closed.wait(60)
        raise ValueError("read of closed file")

    before = asyncio.all_tasks()
    reading = asyncio.create_task(in_thread(read))
    await asyncio.sleep(0)
    in_a_thread = asyncio.all_tasks() - before - {reading}
    for _ in range(2):  # the server cancels until the task has ended
        reading.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({reading})
    is_closed.set()
    await asyncio.wait(in_a_thread)

    del reading, in_a_thread
    gc.collect()
    assert failures == []


async def test_data_is_deleted_only_with_a_token(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.add_note("Tides", "high water")
    await ben.add_note("Ships", "high water")
    mine, his = await api.server.bearer("ada", (READ, WRITE)), await api.server.bearer("ben", (READ, WRITE))
    preview = (await send(api, mine, "POST", "/api/v1/account/deletion")).json()
    assert preview["items"] == 1
    for key, token in ((mine, "x"), (mine, f"{preview['token']}0"), (his, preview["token"]), (mine, "..")):
        refused = await send(api, key, "DELETE", f"/api/v1/account/data?token={token}")
        assert (refused.status, message_of(refused)[:42]) == (400, "token: expected the token of prepare_delet")
    query = {"query": "water"}
    assert len((await send(api, mine, "POST", "/api/v1/search", query)).json()["results"]) == 1

    deleted = await send(api, mine, "DELETE", f"/api/v1/account/data?token={preview['token']}")
    assert (deleted.status, deleted.json()["items"]) == (200, 1)
    assert (await send(api, mine, "POST", "/api/v1/search", query)).json()["results"] == []
    assert len((await send(api, his, "POST", "/api/v1/search", query)).json()["results"]) == 1
    assert (await send(api, mine, "GET", "/api/v1/reads")).json()["reads"] == []
    again = await send(api, mine, "DELETE", f"/api/v1/account/data?token={preview['token']}")
    assert again.status == 400
    created = await send(api, mine, "POST", "/api/v1/items/notes", {"title": "New", "content": "water"})
    assert created.status == 201
    assert len((await send(api, mine, "POST", "/api/v1/search", query)).json()["results"]) == 1


@each_case("limits", [{"scopes": (READ,)}, {"profile": "full"}, {"sources": ["notes"]}])
async def test_agents_and_readers_cannot_delete_everything(api: RestClient, limits: dict[str, Any]) -> None:
    scopes = limits.pop("scopes", (READ, WRITE))
    key = await key_of(api, "ada", *scopes, **limits)
    assert (await send(api, key, "POST", "/api/v1/account/deletion")).status == 403
    assert (await send(api, key, "DELETE", "/api/v1/account/data?token=x")).status == 403


async def test_a_token_expires(ada: LibraryUser) -> None:
    now = 1_800_000_000.0
    confirmations = Confirmations(StateKeys(), InProcessUsedTokens(), lambda: now)
    token, expires_at = confirmations.issue(ada.context)
    assert expires_at == now + 600
    now = expires_at
    with pytest.raises(Exception, match="valid once for ten minutes"):
        await confirmations.redeem(ada.context, token)
