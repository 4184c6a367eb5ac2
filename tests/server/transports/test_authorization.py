"""Every endpoint with every state of a credential, as one table; and the effect of scopes.

A cell holds the HTTP status or the WebSocket close code, `!` if the response has `invalid_token`, and the required
scope. `in` means that the request was admitted.
"""

import asyncio
import base64
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from websockets.exceptions import InvalidStatus

from auth.context import ADMIN, READ, SCOPES, WRITE
from auth.signing_keys import sign
from tests.cases import each_case
from tests.live import JWT_SECRET, LiveServer, live, make_settings
from tests.server.clients import JSON_AND_EVENTS, LegacyClient, ModernClient, WebSocketClient, handshake, message
from tests.server.http_client import WAIT_MAX_S, HttpResponse, fetch
from tests.server.sample_catalog import SampleCatalog

TABLE = """
state            legacy    modern    stream    delete    ticket    websocket basic     metrics
none             401       401       401       401       401       401       401       401
not bearer       401!      401!      401!      401!      401!      401       401       401!
empty            401!      401!      401!      401!      401!      401       401       401!
malformed        401!      401!      401!      401!      401!      401       401       401!
unsigned         401!      401!      401!      401!      401!      401       401       401!
bad signature    401!      401!      401!      401!      401!      401       401       401!
expired          401!      401!      401!      401!      401!      401       401       401!
not yet valid    401!      401!      401!      401!      401!      401       401       401!
wrong audience   401!      401!      401!      401!      401!      401       401       401!
wrong issuer     401!      401!      401!      401!      401!      401       401       401!
unknown user     401!      401!      401!      401!      401!      401       401       401!
revoked          401!      401!      401!      401!      401!      401       401       401!
user disabled    401!      401!      401!      401!      401!      401       401       401!
user deleted     401!      401!      401!      401!      401!      401       401       401!
key unknown      401!      401!      401!      401!      401!      401       401       401!
key revoked      401!      401!      401!      401!      401!      401       401       401!
key expired      401!      401!      401!      401!      401!      401       401       401!
key of disabled  401!      401!      401!      401!      401!      401       401       401!
no scope         403 read  403 read  403 read  403 read  403 read  403       403       403 admin
foreign scope    403 read  403 read  403 read  403 read  403 read  403       403       403 admin
read only        in        in        in        in        in        in        in        403 admin
write only       in        in        in        in        in        in        in        403 admin
all scopes       in        in        in        in        in        in        in        in
key good         in        in        in        in        in        in        in        in
"""
COLUMN = 10
STATE_COLUMN = 17


def _cells() -> list[tuple[str, str, str]]:
    head, *rows = TABLE.strip().splitlines()
    endpoints = head[STATE_COLUMN:].split()
    return [
        (row[:STATE_COLUMN].strip(), endpoint, row[start : start + COLUMN].strip())
        for row in rows
        for endpoint, start in zip(endpoints, range(STATE_COLUMN, len(head) + COLUMN, COLUMN), strict=False)
    ]


# -- states of a credential -------------------------------------------------------------------------------------


def _token(server: LiveServer, name: str, secret: str = JWT_SECRET, **claims: Any) -> str:
    """Returns a token of a user. A claim replaces the default, or removes it if None."""
    settings, now = server.runtime.settings, time.time()
    payload = {
        "iss": settings.issuer,
        "aud": settings.audience,
        "sub": name,
        "jti": f"jti-{name}",
        "exp": now + 3600,
        "client_id": "test-client",
        "scope": " ".join(SCOPES),
        **claims,
    }
    return sign(msgspec.json.encode({key: value for key, value in payload.items() if value is not None}), secret, "JWT")


def _unsigned(server: LiveServer, name: str) -> str:
    header = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').decode().rstrip("=")
    return f"{header}.{_token(server, name).split('.')[1]}.AAAA"


async def _key(server: LiveServer, name: str, expires_at: float | None = None) -> tuple[str, str]:
    """Creates a key and returns its id and secret."""
    record, secret = await server.runtime.registry.create_key((await server.user(name)).id, "test", SCOPES, expires_at)
    return record.id, secret


async def _credential(server: LiveServer, state: str, name: str) -> str | None:  # noqa: PLR0912 - one case per state
    """Returns the credential for a state, of a user that only this test uses."""
    user, registry = await server.user(name), server.runtime.registry
    match state:
        case "none":
            return None
        case "empty":
            return ""
        case "malformed":
            return "not-a-token"
        case "unsigned":
            return _unsigned(server, name)
        case "bad signature":
            return _token(server, name, secret="another secret that is long enough, too")
        case "expired":
            return _token(server, name, exp=time.time() - 3600)
        case "not yet valid":
            return _token(server, name, nbf=time.time() + 3600)
        case "wrong audience":
            return _token(server, name, aud="https://another.example/mcp")
        case "wrong issuer":
            return _token(server, name, iss="https://another.example")
        case "unknown user":
            return _token(server, f"stranger-{name}")
        case "revoked":
            await registry.revoke_token(f"jti-{name}", time.time() + 3600)
        case "user disabled":
            await registry.disable_user(user.id)
        case "user deleted":
            await registry.delete_user(user.id)
        case "no scope":
            return _token(server, name, scope=None)
        case "foreign scope":
            return _token(server, name, scope="openid profile knowledge")
        case "read only":
            return _token(server, name, scope=READ)
        case "write only":
            return _token(server, name, scope=WRITE)
        case "key unknown":
            return "flo_" + secrets.token_urlsafe(32)
        case "key good":
            return (await _key(server, name))[1]
        case "key revoked":
            key_id, secret = await _key(server, name)
            await registry.revoke_key(key_id)
            return secret
        case "key expired":
            expires_at = time.time() + 0.3
            secret = (await _key(server, name, expires_at))[1]
            while time.time() < expires_at:
                await asyncio.sleep(0.005)
            return secret
        case "key of disabled":
            secret = (await _key(server, name))[1]
            await registry.disable_user(user.id)
            return secret
    return _token(server, name)


# -- endpoints --------------------------------------------------------------------------------------------------


def _cell(response: HttpResponse, server: LiveServer) -> str:
    """Returns the cell for an HTTP response, and checks that an error has a challenge and reveals nothing else."""
    if response.status not in (401, 403):
        return "in"
    challenge = response.header("www-authenticate") or ""
    metadata = f'Bearer resource_metadata="{server.url}/.well-known/oauth-protected-resource/mcp", '
    assert challenge.startswith(metadata), challenge
    expected = {"date", "content-type", "content-length", "x-request-id", "www-authenticate"}
    optional = {"cache-control", "x-content-type-options", "cross-origin-resource-policy", "connection"}
    assert {name for name, _ in response.headers} - optional == expected
    assert set(response.json()) <= {"jsonrpc", "id", "error"}
    assert set(response.json()["error"]) <= {"code", "message", "data"}
    rest = challenge.removeprefix(metadata)
    if response.status == 403:
        scope = rest.removeprefix('error="insufficient_scope", scope="').removesuffix('"')
        assert response.json()["error"]["data"] == {"scope": scope}
        return f"403 {scope.rpartition(':')[2]}"
    assert rest.endswith(f'scope="{READ} {WRITE}"'), challenge
    return "401!" if rest.startswith('error="invalid_token"') else "401"


async def _legacy(server: LiveServer, headers: Mapping[str, str]) -> str:
    response = await fetch(server.url, "POST", "/mcp", {**JSON_AND_EVENTS, **headers}, msgspec.json.encode(handshake()))
    return _cell(response, server)


async def _modern(server: LiveServer, headers: Mapping[str, str]) -> str:
    return _cell(await ModernClient(server, headers).request("server/discover"), server)


async def _in_session(server: LiveServer, headers: Mapping[str, str], method: str) -> HttpResponse:
    """Sends GET or DELETE for the caller's own session, or for an unknown one if it could not open any."""
    handshake_response = await fetch(
        server.url, "POST", "/mcp", {**JSON_AND_EVENTS, **headers}, msgspec.json.encode(handshake())
    )
    session = {"Mcp-Session-Id": handshake_response.header("mcp-session-id") or "none"}
    async with asyncio.timeout(WAIT_MAX_S):
        if method == "GET" and handshake_response.status == 200:
            client = LegacyClient(server, {**headers, **session})
            async with client.listening():
                return HttpResponse(200, (), b"")
        return await fetch(server.url, method, "/mcp", {**headers, **session})


async def _stream(server: LiveServer, headers: Mapping[str, str]) -> str:
    return _cell(await _in_session(server, headers, "GET"), server)


async def _delete(server: LiveServer, headers: Mapping[str, str]) -> str:
    return _cell(await _in_session(server, headers, "DELETE"), server)


async def _ticket(server: LiveServer, headers: Mapping[str, str]) -> str:
    return _cell(await fetch(server.url, "POST", "/mcp/ticket", headers, b""), server)


async def _metrics(server: LiveServer, headers: Mapping[str, str]) -> str:
    return _cell(await fetch(server.url, "GET", "/metrics", headers), server)


async def _connect(url: str, headers: Mapping[str, str]) -> str:
    try:
        async with WebSocketClient.open(url, headers) as socket:
            return "in" if "result" in await socket.initialize() else "an error"
    except InvalidStatus as rejected:
        return str(rejected.response.status_code)


async def _websocket(server: LiveServer, headers: Mapping[str, str]) -> str:
    return await _connect(server.ws, headers)


async def _basic(server: LiveServer, headers: Mapping[str, str]) -> str:
    """Sends the same credential as a Basic password."""
    authorization = headers.get("Authorization")
    if authorization is None:
        return await _connect(server.ws, {})
    password = base64.b64encode(f"anyone:{authorization.removeprefix('Bearer ')}".encode()).decode()
    return await _connect(server.ws, {"Authorization": f"Basic {password}"})


ENDPOINTS: dict[str, Callable[[LiveServer, Mapping[str, str]], Awaitable[str]]] = {
    "legacy": _legacy,
    "modern": _modern,
    "stream": _stream,
    "delete": _delete,
    "ticket": _ticket,
    "websocket": _websocket,
    "basic": _basic,
    "metrics": _metrics,
}


@each_case(("state", "endpoint", "expected"), _cells())
async def test_each_endpoint_handles_each_credential_as_in_the_table(
    server: LiveServer, state: str, endpoint: str, expected: str
) -> None:
    credential = await _credential(server, state, f"{state}-{endpoint}".replace(" ", "-"))
    scheme = "Digest" if state == "not bearer" else "Bearer"
    headers = {} if credential is None else {"Authorization": f"{scheme} {credential}"}

    assert await ENDPOINTS[endpoint](server, headers) == expected


async def test_the_table_is_complete() -> None:
    cells = _cells()

    assert {endpoint for _, endpoint, _ in cells} == set(ENDPOINTS)
    assert len(cells) == len({state for state, _, _ in cells}) * len(ENDPOINTS)
    assert all(expected for _, _, expected in cells)


# -- methods ----------------------------------------------------------------------------------------------------

BODIES: list[Any] = [
    handshake(),
    message("ping", {}, 1),
    message("tools/list", {}, 1),
    message("tools/call", {"name": "echo"}, 1),
    message("server/discover", {}, 1),
    message("notifications/cancelled", {"requestId": 1}),
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    [message("ping", {}, 1)],
    b"not json",
    b"",
    b"x" * 5_000_000,
]


@each_case("headers", [{}, {"Authorization": "Bearer invalid"}])
async def test_without_a_valid_credential_every_body_gets_the_same_response(
    server: LiveServer, headers: dict[str, str]
) -> None:
    client = LegacyClient(server, headers)

    responses = {(await client.post(body)).comparable() for body in BODIES}

    assert len(responses) == 1
    assert responses.pop()[0] == 401


@each_case("method", ["GET", "DELETE", "PUT", "OPTIONS", "PATCH"])
async def test_without_a_credential_no_method_reveals_a_session(server: LiveServer, method: str) -> None:
    ada = await LegacyClient.open(server, "ada")
    without_session = await fetch(server.url, method, "/mcp")
    with_session = await fetch(server.url, method, "/mcp", {"Mcp-Session-Id": ada.session_id})

    assert without_session.status == 401
    assert without_session.comparable() == with_session.comparable()


async def test_a_token_in_the_query_string_is_ignored(server: LiveServer) -> None:
    token = await server.token("ada")

    for name in ("access_token", "token", "authorization"):
        assert (await fetch(server.url, "GET", f"/mcp?{name}={token}")).status == 401
        assert await _connect(f"{server.ws}?{name}={token}", {}) == "401"


async def test_a_session_id_is_not_a_credential(server: LiveServer) -> None:
    ada = await LegacyClient.open(server, "ada")
    del ada.headers["Authorization"]

    assert (await ada.request("ping")).status == 401


# -- tickets ----------------------------------------------------------------------------------------------------


async def _get_ticket(server: LiveServer, name: str) -> str:
    response = await fetch(server.url, "POST", "/mcp/ticket", await server.bearer(name), b"")
    assert response.header("cache-control") == "no-store"
    assert response.json()["expires_in"] == server.runtime.settings.fixed.ws_ticket_ttl_s
    return str(response.json()["ticket"])


async def test_a_ticket_opens_one_connection_of_its_user(server: LiveServer) -> None:
    ticket = await _get_ticket(server, "ada")

    async with WebSocketClient.open(f"{server.ws}?ticket={ticket}") as socket:
        await socket.initialize()
        assert (await socket.call("echo"))["result"]["structuredContent"]["user"] == "ada"

    assert await _connect(f"{server.ws}?ticket={ticket}", {}) == "401"


@each_case("ticket", ["", "unknown", "%00", "a&ticket=b", "%FF%FE"])
async def test_an_unknown_ticket_is_rejected(server: LiveServer, ticket: str) -> None:
    assert await _connect(f"{server.ws}?ticket={ticket}", {}) == "401"


async def test_an_invalid_ticket_is_rejected_despite_a_valid_header(server: LiveServer) -> None:
    assert await _connect(f"{server.ws}?ticket=unknown", await server.bearer("ada")) == "401"


async def test_an_expired_ticket_is_rejected(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, ws_ticket_ttl_s=0.02), catalog=samples.catalog) as server:
        ticket, expires_at = await _get_ticket(server, "ada"), time.time() + 0.02
        while time.time() < expires_at:
            await asyncio.sleep(0.005)

        assert await _connect(f"{server.ws}?ticket={ticket}", {}) == "401"


async def test_a_ticket_of_a_disabled_user_is_rejected(server: LiveServer) -> None:
    ticket = await _get_ticket(server, "dora")
    await server.runtime.registry.disable_user((await server.user("dora")).id)

    assert await _connect(f"{server.ws}?ticket={ticket}", {}) == "401"


async def test_unused_tickets_per_user_are_limited(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, stream_max_per_user=2), catalog=samples.catalog) as server:
        for _ in range(2):
            await _get_ticket(server, "ada")

        rejected = await fetch(server.url, "POST", "/mcp/ticket", await server.bearer("ada"), b"")

        assert rejected.status == 503
        assert int(rejected.header("retry-after") or 0) >= 1
        assert await _get_ticket(server, "ben")


# -- scopes -----------------------------------------------------------------------------------------------------


@each_case(
    ("scopes", "hidden"),
    [
        ((READ,), {"write_note", "administer"}),
        ((WRITE,), {"echo", "wait", "report", "shout", "ask_name", "explode", "miss", "locate", "administer"}),
        ((READ, WRITE), {"administer"}),
        (SCOPES, set()),
    ],
)
async def test_every_transport_lists_the_same_tools_for_the_same_scopes(
    server: LiveServer, shared: SampleCatalog, scopes: tuple[str, ...], hidden: set[str]
) -> None:
    headers = await server.bearer("ada", scopes)
    legacy = LegacyClient(server, headers)
    legacy.headers["Mcp-Session-Id"] = (await legacy.post(handshake())).header("mcp-session-id") or ""

    lists = [
        (await legacy.request("tools/list")).json(),
        (await ModernClient(server, headers).request("tools/list")).json(),
    ]
    async with WebSocketClient.open(server.ws, headers) as socket:
        await socket.initialize()
        lists.append(await socket.request("tools/list"))

    for response in lists:
        assert {tool["name"] for tool in response["result"]["tools"]} == set(shared.catalog.tools) - hidden


@each_case(("tool", "scope"), [("write_note", WRITE), ("administer", ADMIN), ("write.note", WRITE)])
async def test_calling_a_tool_without_its_scope_is_forbidden(server: LiveServer, tool: str, scope: str) -> None:
    headers = await server.bearer("ada", (READ,))
    legacy = LegacyClient(server, headers)
    legacy.headers["Mcp-Session-Id"] = (await legacy.post(handshake())).header("mcp-session-id") or ""

    http_responses = [
        await legacy.call(tool, request_id=1),
        await ModernClient(server, headers).call(tool, request_id=1),
    ]
    async with WebSocketClient.open(server.ws, headers) as socket:
        await socket.initialize()
        websocket_response = await socket.call(tool)

    for response in http_responses:
        assert response.status == 403
        assert f'error="insufficient_scope", scope="{scope}"' in (response.header("www-authenticate") or "")
    for body in (*(response.json() for response in http_responses), websocket_response):
        assert body["id"] == 1
        assert (body["error"]["code"], body["error"]["data"]) == (403, {"scope": scope})


# -- failed attempts and single-user mode -----------------------------------------------------------------------------


async def test_failed_attempts_are_limited_by_address_and_a_valid_credential_still_passes(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    limited = make_settings(tmp_path, rate_failures_per_minute=1, rate_failures_burst=3)
    async with live(limited, catalog=samples.catalog) as server:
        statuses = [
            (await LegacyClient(server, {"Authorization": f"Bearer x{n}"}).post(handshake())).status for n in range(5)
        ]

        assert statuses == [401, 401, 401, 429, 429]
        assert await _connect(server.ws, {"Authorization": "Bearer y"}) == "429"
        assert (await LegacyClient(server, await server.bearer("ada")).post(handshake())).status == 200


async def test_in_single_user_mode_a_caller_without_credential_is_the_local_user(
    tmp_path: Path, samples: SampleCatalog
) -> None:
    async with live(make_settings(tmp_path, jwt_secret=""), catalog=samples.catalog) as server:
        response = await ModernClient(server, {}).call("echo")

        assert response.json()["result"]["structuredContent"]["user"] == "local"
        assert (await ModernClient(server, {"Authorization": "Bearer invalid"}).call("echo")).status == 401
