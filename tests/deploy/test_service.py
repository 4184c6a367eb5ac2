"""Signals, socket activation and notifications of a real server process."""

import asyncio
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from auth.context import SCOPES
from auth.tokens import mint_token
from config.errors import ConfigurationError
from config.settings import SETTINGS, Settings
from server.cli.serve import ServiceManager, inherited_sockets
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.serving import RELOADABLE, reload_targets
from tests.cases import each_case
from tests.deploy.server_process import NotifySocket, ServerProcess, listen, server_process, url_of, write_config
from tests.live import JWT_SECRET, make_settings
from tests.server.clients import JSON_AND_EVENTS, handshake
from tests.server.http_client import WAIT_MAX_S, RawConnection, fetch

pytestmark = pytest.mark.slow("restarts server processes under load")

OTHER_SECRET = "another secret of more than 32 bytes"


@pytest.fixture
def notifications(tmp_path: Path) -> Iterator[NotifySocket]:
    channel = NotifySocket(tmp_path / "notify")
    yield channel
    channel.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen() as opened:
        yield opened


def token(url: str, secret: str = JWT_SECRET) -> dict[str, str]:
    settings = Settings(jwt_secret=secret, port=int(url.rpartition(":")[2]))
    minted = mint_token(settings, "ada", SCOPES, lifetime_s=3600.0, now=time.time(), client_id="test-client")
    return {"Authorization": f"Bearer {minted}"}


async def wait_until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_MAX_S):
        while not await condition():
            await asyncio.sleep(0.02)


# -- restart ------------------------------------------------------------------------------------------------------


class Load:
    """Clients that call without a pause: on connections that are kept, and on new ones."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._headers = token(url)
        self._is_over = asyncio.Event()
        self.statuses: Counter[int | str] = Counter()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            for is_kept in (True, True, True, False, False):
                group.create_task(self._call(is_kept=is_kept))
            try:
                yield
            finally:
                self._is_over.set()

    async def _call(self, *, is_kept: bool) -> None:
        limits = httpx2.Limits(max_keepalive_connections=1 if is_kept else 0)
        async with httpx2.AsyncClient(base_url=self._url, limits=limits, timeout=WAIT_MAX_S) as client:
            number = 0
            while not self._is_over.is_set():
                number += 1
                try:
                    # A POST, which no client and no proxy repeats by itself.
                    response = await client.post("/api/v1/search", json={"query": "tea"}, headers=self._headers)
                    self.statuses[response.status_code] += 1
                except httpx2.HTTPError as error:
                    self.statuses[repr(error)] += 1

    async def grow(self, calls: int) -> None:
        """Waits until this many further calls have been answered."""
        goal = self.statuses.total() + calls
        async with asyncio.timeout(2 * WAIT_MAX_S):
            while self.statuses.total() < goal:
                await asyncio.sleep(0.02)


async def test_no_request_fails_while_the_server_is_restarted(
    tmp_path: Path, notifications: NotifySocket, listener: socket.socket
) -> None:
    config = write_config(tmp_path, rate_user_per_minute=0, rate_tool_per_minute=0, idle_timeout_s=30)
    load = Load(url_of(listener))
    codes = []
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(server_process(config, notifications, listener))
        await notifications.wait_for("READY=1")
        async with load.running():
            for _ in range(2):
                await load.grow(20)
                server.signal(signal.SIGTERM)
                await notifications.wait_for("STOPPING=1")
                codes.append((await server.wait())[0])
                server = await stack.enter_async_context(server_process(config, notifications, listener))
                await notifications.wait_for("READY=1")
            await load.grow(20)
        server.signal(signal.SIGTERM)
        codes.append((await server.wait())[0])

    assert load.statuses.keys() == {200}
    assert codes == [0, 0, 0]


async def test_a_kept_connection_gets_one_more_answer_while_the_server_stops(
    tmp_path: Path, notifications: NotifySocket, listener: socket.socket
) -> None:
    config, url = write_config(tmp_path, shutdown_grace_s=10), url_of(listener)
    headers = {**JSON_AND_EVENTS, **token(url)}
    async with (
        server_process(config, notifications, listener) as server,
        RawConnection.open(url) as kept,
        RawConnection.open(url) as stream,
    ):
        await notifications.wait_for("READY=1")
        opened = await fetch(url, "POST", "/mcp", headers, msgspec.json.encode(handshake()))
        session = {"Mcp-Session-Id": opened.header("mcp-session-id") or ""}
        await stream.request("GET", "/mcp", {**headers, **session})
        await stream.head()
        await kept.request("GET", "/healthz", {})
        before = await kept.response()

        server.signal(signal.SIGTERM)
        # Streams end at the moment from which no connections are accepted.
        assert await stream.event() is None
        await kept.request("GET", "/healthz", {})
        after = await kept.response()
        await kept.closed()

    assert (before.status, before.header("connection")) == (200, None)
    assert (after.status, after.header("connection")) == (200, "close")


async def test_readiness_ends_before_connections_are_refused(
    tmp_path: Path, notifications: NotifySocket, listener: socket.socket
) -> None:
    config, url = write_config(tmp_path, shutdown_delay_s=30, shutdown_grace_s=1), url_of(listener)
    async with server_process(config, notifications, listener) as server, RawConnection.open(url) as connection:
        await notifications.wait_for("READY=1")
        server.signal(signal.SIGTERM)
        await notifications.wait_for("STOPPING=1")

        await wait_until(lambda: has_status(url, "/readyz", 503))
        await connection.request("GET", "/healthz", {})
        assert (await connection.response()).status == 200
        assert (await fetch(url, "POST", "/api/v1/search", {**token(url), **JSON}, b'{"query": "tea"}')).status == 200


JSON = {"Content-Type": "application/json"}


async def has_status(url: str, path: str, status: int, headers: dict[str, str] | None = None) -> bool:
    return (await fetch(url, "GET", path, headers or {})).status == status


# -- reload -------------------------------------------------------------------------------------------------------


async def reload(server: ServerProcess) -> list[str]:
    server.signal(signal.SIGHUP)
    started = await server.notifications.wait_for("RELOADING=1")
    await server.notifications.wait_for("READY=1")
    return started


async def test_sighup_applies_what_can_change_and_names_what_cannot(
    tmp_path: Path, notifications: NotifySocket, listener: socket.socket
) -> None:
    url = url_of(listener)
    note = b'{"title": "Tea"}'
    async with server_process(write_config(tmp_path, metrics_token="first"), notifications, listener) as server:
        await notifications.wait_for("READY=1")
        assert await has_status(url, "/metrics", 200, {"Authorization": "Bearer first"})
        before = time.monotonic_ns() // 1000
        write_config(
            tmp_path, metrics_token="second", jwt_secret=OTHER_SECRET, jwt_previous_secrets=[JWT_SECRET],
            user_max_items=1, batch_max_items=7,
        )  # fmt: skip

        started = await reload(server)

        assert await has_status(url, "/metrics", 200, {"Authorization": "Bearer second"})
        assert await has_status(url, "/metrics", 401, {"Authorization": "Bearer first"})
        created = [await fetch(url, "POST", "/api/v1/items/notes", {**token(url, s), **JSON}, note) for s in SECRETS]
        write_config(tmp_path, metrics_token="third", port="no number")
        await reload(server)
        assert await has_status(url, "/metrics", 200, {"Authorization": "Bearer second"})
        server.signal(signal.SIGTERM)
        code, log = await server.wait()

    assert [response.status for response in created] == [201, 507]
    [reloaded_at] = [int(line.removeprefix("MONOTONIC_USEC=")) for line in started if "MONOTONIC" in line]
    assert before <= reloaded_at <= time.monotonic_ns() // 1000
    messages = [msgspec.json.decode(line)["message"] for line in log.splitlines()]
    changed = "jwt_previous_secrets, jwt_secret, metrics_token, user_max_items"
    assert f"settings reloaded; changed: {changed}" in messages
    assert "these changed settings need a restart: batch_max_items" in messages
    assert any(message.startswith("the settings were not reloaded: port") for message in messages)
    assert not any(secret in log for secret in (*SECRETS, "second", "third"))
    assert code == 0


SECRETS = (OTHER_SECRET, JWT_SECRET)


async def test_every_reloadable_setting_is_applied_by_some_part(tmp_path: Path) -> None:
    async with open_runtime(make_settings(tmp_path)) as runtime:
        applied = {name for target in reload_targets(runtime, Metrics()) for name in target.names}

    assert applied == RELOADABLE == {setting.name for setting in SETTINGS if setting.is_reloadable}


# -- the service manager ------------------------------------------------------------------------------------------


async def test_the_watchdog_is_notified_while_the_event_loop_runs(notifications: NotifySocket) -> None:
    environ = {"NOTIFY_SOCKET": notifications.path, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(os.getpid())}
    manager = ServiceManager(environ)
    async with manager.watchdog():
        for _ in range(3):
            assert await notifications.wait_for("WATCHDOG=1") == ["WATCHDOG=1"]

    assert environ == {}
    assert manager.watchdog_s == 0.1


@each_case("environ", [{}, {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}])
async def test_nothing_is_watched_without_a_manager_that_watches(environ: dict[str, str]) -> None:
    assert ServiceManager(dict(environ)).watchdog_s == 0


async def test_abstract_addresses_are_notified_and_absent_ones_are_ignored() -> None:
    name = f"florilegium-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(f"\0{name}")
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready("http://127.0.0.1:8765")
        assert channel.recv(4096) == b"READY=1\nSTATUS=Serving at http://127.0.0.1:8765"
    ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).stopping()


def test_sockets_for_another_process_are_not_taken() -> None:
    environ = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "http"}

    assert inherited_sockets(None, environ) == []
    assert environ == {}


def test_a_descriptor_that_does_not_listen_is_refused(tmp_path: Path) -> None:
    with socket.socket() as idle, (tmp_path / "file").open("w") as file, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        for descriptor in (idle.fileno(), file.fileno(), local.fileno(), 9999):
            with pytest.raises(ConfigurationError, match=f"{descriptor}: expected a listening TCP socket"):
                inherited_sockets(descriptor, {})


async def test_an_inherited_socket_needs_authentication_if_others_can_reach_it(
    tmp_path: Path, notifications: NotifySocket
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as everywhere:
        async with server_process(write_config(tmp_path, jwt_secret=""), notifications, everywhere) as server:
            code, log = await server.wait()

    assert code == 2
    assert "'0.0.0.0' is reachable from other machines, but no authentication is configured" in log
