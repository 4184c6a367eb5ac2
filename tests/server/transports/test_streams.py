"""Event streams: their format, keep-alive comments and end."""

import asyncio
from pathlib import Path

from server.protocol.catalog import Change
from tests.live import LiveServer, live, make_settings
from tests.server.clients import JSON_AND_EVENTS, LegacyClient, ModernClient, message
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch
from tests.server.sample_catalog import Gate, SampleCatalog

WAIT = {"name": "wait", "arguments": {"gate": "g"}, "_meta": {"progressToken": 1}}
COMMENT = b"e\r\n: keep-alive\n\n\r\n"
LISTEN = {"notifications": {"toolsListChanged": True}}


async def _wait_for_streams(server: LiveServer, count: int) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while len(server.runtime.open_streams) != count:
            await asyncio.sleep(0.01)


async def test_a_stream_disables_buffering_by_proxies(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    async with RawConnection.open(server.url) as connection:
        await connection.request("GET", "/mcp", ada.headers)
        status, headers = await connection.head()

    named = dict(headers)
    assert status == 200
    assert named["content-type"] == "text/event-stream"
    assert named["cache-control"] == "no-cache, no-transform"
    assert named["x-accel-buffering"] == "no"
    assert "content-length" not in named


async def test_an_event_is_one_line_of_data_followed_by_a_blank_line(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    body = (await ada.call("report")).body.decode()

    blocks = body.removesuffix("\n\n").split("\n\n")
    assert all(block.startswith('event: message\ndata: {"jsonrpc":"2.0",') for block in blocks)
    assert all(block.count("\n") == 1 for block in blocks)


async def test_line_breaks_in_text_do_not_break_an_event(server: LiveServer, shared: SampleCatalog) -> None:
    ada = await ModernClient.of(server, "ada")
    text = "a\n\ndata: {}\r\n\r\nevent: x\r\u2028"
    shared.gates[text].opened.set()

    response = await ada.call("wait", {"gate": text}, progress_token=1)

    assert response.header("content-type") == "text/event-stream"
    assert response.events()[-1]["result"]["structuredContent"]["text"] == text


async def test_a_get_stream_requires_accept_event_stream(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    assert (await ada.get({"Accept": "application/json"})).status == 406


async def test_idle_streams_send_keep_alive_comments(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, sse_keepalive_s=0.05, access_recheck_s=0.02)
    async with live(settings, catalog=samples.catalog) as server:
        ada, modern = await LegacyClient.open(server, "ada"), await ModernClient.of(server, "ada")
        async with ada.listening() as get_stream, ada.streaming(message("tools/call", WAIT, 1)) as call:
            await call.head()
            await call.event()
            async with modern.streaming("subscriptions/listen", LISTEN) as subscription:
                await subscription.head()
                await subscription.event()

                for connection in (get_stream, call, subscription):
                    comments = await connection.raw(2 * len(COMMENT))
                    assert comments == 2 * COMMENT
            samples.gates["g"].opened.set()


async def test_a_get_stream_ends_with_its_session(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    async with ada.listening() as connection:
        assert (await ada.delete()).status == 204

        assert await connection.event() is None


async def test_streams_count_only_while_they_are_open(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, access_recheck_s=0.05, stream_max_per_user=2)
    async with live(settings, catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada")
        for _ in range(3):
            async with ada.listening(), ada.listening():
                await _wait_for_streams(server, 2)
                assert (await ada.get()).status == 503
            await _wait_for_streams(server, 0)


async def test_all_streams_of_a_session_receive_changes(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, access_recheck_s=0.05), catalog=samples.catalog) as server:
        ada = await LegacyClient.open(server, "ada")
        async with ada.listening() as first, ada.listening() as second:
            samples.catalog.changes.publish(Change("tools"))

            assert (await first.event()) == (await second.event())


async def test_an_aborted_stream_is_cleaned_up(server: LiveServer) -> None:
    modern, ada = await ModernClient.of(server, "ada"), await LegacyClient.open(server, "ada")
    before = len(server.runtime.open_streams)

    async with modern.streaming("subscriptions/listen", LISTEN) as subscription, ada.listening():
        await subscription.head()
        await subscription.event()
        subscription.abort()

    await _wait_for_streams(server, before)
    assert (await modern.call("echo")).status == 200


async def test_a_session_survives_an_aborted_stream(server: LiveServer, gate: Gate) -> None:
    ada = await LegacyClient.open(server, "ada")

    async with ada.streaming(message("tools/call", WAIT, 1)) as connection:
        await connection.head()
        await connection.event()
    gate.opened.set()

    assert (await ada.call("echo")).status == 200


async def test_two_calls_of_one_session_can_stream_concurrently(server: LiveServer, shared: SampleCatalog) -> None:
    shared.gates.clear()
    ada = await LegacyClient.open(server, "ada")
    params = {name: {**WAIT, "arguments": {"gate": name}} for name in ("one", "two")}

    async with (
        ada.streaming(message("tools/call", params["one"], 1)) as one,
        ada.streaming(message("tools/call", params["two"], 2)) as two,
    ):
        for connection in (one, two):
            await connection.head()
            await connection.event()
        shared.gates["two"].opened.set()
        assert (await two.event())["id"] == 2
        shared.gates["one"].opened.set()
        assert (await one.event())["id"] == 1


async def test_last_event_id_is_ignored(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    async with RawConnection.open(server.url) as connection:
        await connection.request("GET", "/mcp", {**ada.headers, "Last-Event-ID": "7"})

        assert (await connection.head())[0] == 200


async def test_head_and_options_do_not_open_a_stream(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")

    for method in ("HEAD", "OPTIONS"):
        assert (await fetch(server.url, method, "/mcp", {**JSON_AND_EVENTS, **ada.headers})).status == 405
