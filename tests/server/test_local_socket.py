"""The socket of the data directory: what the operator may do there, and that nobody else can."""

import asyncio
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from auth.context import ROLE_SCOPES, SCOPES, Principal, Role
from config.errors import FlorilegiumError, Overloaded
from config.paths import UserId
from server.admission import CallLimits
from server.cli.remote import LocalApi
from server.directory_lock import (
    LOCK_FILE,
    SOCKET_FILE,
    USER_HEADER,
    bind_local_socket,
    connect_to_running_server,
    locked_directory,
)
from sources.drafts import NoteDraft
from tests.live import LiveServer, live, make_settings
from tests.server.clients import message, modern_headers, modern_params
from tests.server.http_client import RawConnection, fetch
from tests.server.rest.rest_client import rest_client_of

NOBODY = 65534
JSON, QUERY = {"Content-Type": "application/json"}, b'{"query": "water"}'
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    return directory


@asynccontextmanager
async def serving(root: Path, **changes: Any) -> AsyncIterator[LiveServer]:
    """A server with its socket and its record, as `florilegium serve` has them."""
    settings = make_settings(root, **changes)
    with locked_directory(root, "serve", "server") as lock, bind_local_socket(root) as local_socket:
        assert lock is not None
        assert local_socket is not None
        async with live(settings, local_socket=local_socket) as server:
            path = local_socket.getsockname()
            lock.publish(server.url, settings.base_url, path, settings.is_auth_configured)
            yield server


def api(root: Path, user: str | None = None) -> LocalApi:
    found = connect_to_running_server(root)
    assert found is not None
    return LocalApi(root, *found, user)


async def users(root: Path) -> set[str]:
    response = await asyncio.to_thread(lambda: api(root).request("GET", "/api/v1/users"))
    return {user["name"] for user in msgspec.json.decode(response)["users"]}


async def titles(root: Path, user: str | None) -> list[str]:
    response = await asyncio.to_thread(lambda: api(root, user).request("POST", "/api/v1/search", {"query": "water"}))
    return [hit["title"] for hit in msgspec.json.decode(response)["results"]]


async def search_error(root: Path, user: str | None) -> str:
    with pytest.raises(FlorilegiumError) as caught:
        await titles(root, user)
    return caught.value.message


async def add_note(server: LiveServer, name: str) -> None:
    user = await rest_client_of(server).library_user(name)
    async with user.libraries.library(user.context) as library:
        await library.notes.create(NoteDraft(title=f"Tides of {name}", content="high water"))


async def test_the_operator_administrates_and_acts_for_the_named_user_only(root: Path) -> None:
    async with serving(root) as server:
        for name in ("ada", "ben"):
            await add_note(server, name)
            assert await titles(root, name) == [f"Tides of {name}"]
        assert await users(root) == {"ada", "ben"}
        assert "scope 'knowledge:read' required" in await search_error(root, None)
        assert await search_error(root, "eve") == "user 'eve' not found"
        await server.runtime.registry.disable_user((await server.user("ben")).id)
        assert "user 'ben' is disabled" in await search_error(root, "ben")


async def test_the_operator_has_no_rate_limit(root: Path) -> None:
    async with serving(root, rate_user_per_minute=1, rate_tool_per_minute=1) as server:
        await add_note(server, "ada")
        for _ in range(3):
            assert await titles(root, "ada") == ["Tides of ada"]


async def test_others_cannot_keep_the_operator_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by all connections, nor a user by their own, nor by streams, nor by a long queue."""

    def refuse(_limits: CallLimits, _user_id: UserId) -> None:
        raise Overloaded("too many calls")

    limits = {"connections_max": 6, "trusted_proxies": ["127.0.0.1"], "stream_max_per_user": 1}
    async with serving(root, **limits) as server, AsyncExitStack() as stack:
        await add_note(server, "ada")
        own = await server.bearer("ada")
        for number in range(6):
            connection = await stack.enter_async_context(RawConnection.open(server.url))
            if number < 3:
                await connection.request("GET", "/api/v1/account", own)
                assert (await connection.response()).status == 200
        principal = (await rest_client_of(server).library_user("ada")).context.principal
        stack.enter_context(server.runtime.open_streams.enter(principal))
        monkeypatch.setattr(CallLimits, "require_capacity", refuse)
        assert await users(root) == {"ada"}
        assert await titles(root, "ada") == ["Tides of ada"]
        assert await api(root, "ada").run("import", {"paths": [], "dry_run": True})


async def test_a_tcp_client_cannot_claim_the_rights_of_the_socket(root: Path) -> None:
    forged = {
        USER_HEADER: "ada",
        "X-Forwarded-For": "unix:",
        "Forwarded": "for=unix",
        "X-Real-IP": str(root / SOCKET_FILE),
        "Host": "localhost",
    }
    async with serving(root, trusted_proxies=["127.0.0.1"]) as server:
        await add_note(server, "ada")
        for method, path in (("POST", "/api/v1/search"), ("GET", "/api/v1/users"), ("POST", "/mcp")):
            for headers in ({USER_HEADER: "ada"}, forged):
                assert (await fetch(server.url, method, path, headers, QUERY)).status == 401, (path, headers)
        # An own credential stays what it is.
        own = {**JSON, **await server.bearer("ben"), USER_HEADER: "ada"}
        assert (await fetch(server.url, "POST", "/api/v1/search", own, QUERY)).json()["results"] == []


async def test_a_ticket_of_the_operator_is_not_accepted_on_tcp(root: Path) -> None:
    async with serving(root) as server:
        await add_note(server, "ada")
        answer = await asyncio.to_thread(lambda: api(root, "ada").request("POST", "/mcp/ticket"))
        url = f"{server.url.replace('http', 'ws')}/mcp/ws?ticket={msgspec.json.decode(answer)['ticket']}"
        with pytest.raises(InvalidStatus, match="HTTP 401"):
            await connect(url, proxy=None)


@pytest.mark.sqlite
async def test_an_administrator_cannot_take_over_the_library_of_an_account(root: Path) -> None:
    """The account has the name of the setting single_user_name."""
    async with serving(root) as server:
        registry, keys = server.runtime.registry, dict[str, dict[str, str]]()
        roles: dict[str, Role] = {"local": "writer", "eve": "admin"}
        for name, role in roles.items():
            user = await registry.add_user(name, "", "", role)
            _, secret = await registry.create_key(user.id, "test", ROLE_SCOPES[role])
            keys[name] = {**JSON, "Authorization": f"Bearer {secret}"}
        note = b'{"title": "Tides", "content": "high water"}'
        assert (await fetch(server.url, "POST", "/api/v1/items/notes", keys["local"], note)).status == 201
        path = "/api/v1/users/eve/adopt-local"
        for headers in (keys["eve"], await server.bearer("eve", SCOPES)):
            refused = await fetch(server.url, "POST", path, headers, b"{}")
            assert (refused.status, b"only the operator can do this" in refused.body) == (403, True)
        assert (await fetch(server.url, "POST", "/api/v1/search", keys["local"], QUERY)).json()["results"]
        await asyncio.to_thread(lambda: api(root).request("POST", path))
        assert (await fetch(server.url, "POST", "/api/v1/search", keys["eve"], QUERY)).json()["results"]


async def test_a_refusal_of_the_operator_is_not_repeated_to_strangers(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_limits: CallLimits, _principal: Principal, _tool: str) -> None:
        raise Overloaded("too many calls", 5.0, is_repeatable=True)

    params = {"name": "knowledge_search", "arguments": {"query": "water"}}
    body, headers = message("tools/call", modern_params(params), 1), modern_headers("tools/call", params)
    async with serving(root) as server:
        await add_note(server, "ada")
        monkeypatch.setattr(CallLimits, "take", refuse)
        assert b"too many calls" in await asyncio.to_thread(lambda: post(root, "ada", headers, body))
        assert (await fetch(server.url, "POST", "/mcp", headers, msgspec.json.encode(body))).status == 401


def post(root: Path, user: str, headers: Mapping[str, str], body: Any) -> bytes:
    found = connect_to_running_server(root)
    assert found is not None
    connection = HTTPConnection("localhost")
    connection.sock = found[0]
    with closing(connection):
        connection.request("POST", "/mcp", msgspec.json.encode(body), {**headers, USER_HEADER: user})
        return connection.getresponse().read()


async def test_without_authentication_a_tcp_client_stays_the_single_user(root: Path) -> None:
    async with serving(root, jwt_secret="") as server:
        await add_note(server, "ada")
        answer = await fetch(server.url, "POST", "/api/v1/search", {**JSON, USER_HEADER: "ada"}, QUERY)
        assert answer.json()["results"] == []


async def test_operations_of_commands_do_not_exist_on_tcp(root: Path) -> None:
    async with serving(root, jwt_secret="") as server:
        missing = await fetch(server.url, "POST", "/api/v1/local/nothing", {}, b"{}")
        for command in ("import", "demo", "embed", "reindex"):
            path = f"/api/v1/local/{command}"
            answer = await fetch(server.url, "POST", path, {USER_HEADER: "local"}, b"{}")
            assert (answer.status, answer.body) == (404, missing.body.replace(b"nothing", command.encode()))
            assert path not in (await fetch(server.url, "GET", "/openapi.json")).body.decode()


@contextmanager
def another_account(work: Callable[[], str]) -> Iterator[str]:
    """Runs `work` as another account, in a forked process that lives as long as the block. Yields what it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, work().encode())
            os.close(writing)
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        with os.fdopen(reading) as answer:
            yield answer.read()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def request_users(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
            connection.sendall(b"GET /api/v1/users HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return connection.recv(100).decode()[:12]
        except OSError as error:
            return type(error).__name__


@needs_root
async def test_another_account_is_refused_by_the_mode_and_by_the_server(root: Path) -> None:
    open_to_all(root)
    async with serving(root):
        path = root / SOCKET_FILE
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600

        def attempt() -> str:
            with another_account(lambda: request_users(path)) as answer:
                return answer

        assert await asyncio.to_thread(attempt) == "PermissionError"
        path.chmod(0o666)
        assert await asyncio.to_thread(attempt) in ("HTTP/1.1 503", "", "ConnectionResetError", "BrokenPipeError")
        assert await users(root) == set()


def open_to_all(root: Path) -> None:
    """A directory in which every account can replace files, on a path that every account can use."""
    for directory in (root, *root.parents):
        if directory.stat().st_mode & 0o005 != 0o005:
            directory.chmod(0o755)
    root.chmod(0o777)


def replace_files(root: Path, names: Sequence[str]) -> str:
    """Listens on a socket and puts it, or a record that names it, in the place of those of the server."""
    own = root / "impostor.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(own))
    own.chmod(0o666)
    listener.listen()
    os.set_inheritable(listener.detach(), True)  # open as long as the process
    for name in names:
        (root / name).rename(root / f"{name}.before")
        if name == LOCK_FILE:
            (root / name).write_text((root / "forged record").read_text())
        else:
            (root / name).symlink_to(own)
    return "replaced"


@needs_root
@pytest.mark.parametrize("replaced", [(SOCKET_FILE,), (LOCK_FILE,), (SOCKET_FILE, LOCK_FILE)], ids=str)
def test_a_command_does_not_talk_to_the_socket_of_another_account(root: Path, replaced: tuple[str, ...]) -> None:
    open_to_all(root)
    with locked_directory(root, "serve", "server") as lock, bind_local_socket(root) as local_socket:
        assert lock is not None
        assert local_socket is not None
        local_socket.listen()
        lock.publish("http://127.0.0.1:1", "http://127.0.0.1:1", SOCKET_FILE, False)
        found = connect_to_running_server(root)
        assert found is not None
        found[0].close()
        # The record that the other account writes names its own socket.
        forged = root / "forged record"
        forged.write_text((root / LOCK_FILE).read_text().replace(SOCKET_FILE, "impostor.sock"))
        forged.chmod(0o644)
        with another_account(lambda: replace_files(root, replaced)) as answer:
            assert answer == "replaced"
            assert connect_to_running_server(root) is None


def test_a_link_in_the_place_of_the_socket_is_replaced_and_not_followed(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    (root / SOCKET_FILE).symlink_to(other)
    with bind_local_socket(root) as local_socket:
        assert local_socket is not None
        assert stat.S_ISSOCK((root / SOCKET_FILE).lstat().st_mode)
    assert other.read_text() == "precious"
    assert not (root / SOCKET_FILE).exists()


async def test_a_worker_that_stops_leaves_the_socket_to_the_others(root: Path) -> None:
    with bind_local_socket(root) as local_socket:
        assert local_socket is not None
        async with live(make_settings(root), local_socket=local_socket.dup()):
            pass
        assert (root / SOCKET_FILE).is_socket()


def test_a_record_that_is_a_link_is_not_read(root: Path, tmp_path: Path) -> None:
    with locked_directory(root, "serve", "server") as lock, bind_local_socket(root) as local_socket:
        assert lock is not None
        assert local_socket is not None
        local_socket.listen()
        lock.publish("http://127.0.0.1:1", "http://127.0.0.1:1", SOCKET_FILE, False)
        (root / LOCK_FILE).rename(tmp_path / "record")
        (root / LOCK_FILE).symlink_to(tmp_path / "record")
        assert connect_to_running_server(root) is None


def test_a_path_that_is_too_long_is_replaced_by_a_private_directory(tmp_path: Path) -> None:
    root = tmp_path / ("long" * 30)
    root.mkdir()
    with locked_directory(root, "serve", "server") as lock, bind_local_socket(root) as local_socket:
        assert lock is not None
        assert local_socket is not None
        path = Path(local_socket.getsockname())
        assert not path.is_relative_to(root)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        local_socket.listen()
        lock.publish("http://127.0.0.1:1", "http://127.0.0.1:1", str(path), False)
        found = connect_to_running_server(root)
        assert found is not None
        found[0].close()
    assert not path.parent.exists()


def test_the_record_of_a_killed_server_is_recognized(root: Path) -> None:
    with locked_directory(root, "serve", "server") as lock:
        assert lock is not None
        lock.publish("http://127.0.0.1:1", "http://127.0.0.1:1", SOCKET_FILE, False)
        record = (root / LOCK_FILE).read_bytes()
    # A killed process leaves the socket and the record.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / SOCKET_FILE))
        listener.listen()
    (root / LOCK_FILE).write_bytes(record)
    assert connect_to_running_server(root) is None
