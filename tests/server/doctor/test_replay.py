"""The connection doctor against real servers, and against what stands in for them when a connection fails."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from auth.context import READ
from server.doctor.replay import FLOWS, ConnectionReplay
from server.doctor.tokens import Check, HopResponse, response_problem
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS, free_port, live, make_settings
from tests.server.http_client import WAIT_MAX_S


async def replay(url: str, client: str = "any", token: str = "") -> list[Check]:
    return await ConnectionReplay(url, FLOWS[client], token, timeout_s=60).run()


async def failure(url: str, client: str = "any", token: str = "") -> tuple[str, str]:
    """The name and message of the last hop, which must have failed."""
    last = (await replay(url, client, token))[-1]
    assert last.outcome == "fail", last
    return last.name, last.message


@asynccontextmanager
async def answering(head: str, body: str = "") -> AsyncIterator[str]:
    """The address of a server that answers every request with the same text."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


async def test_open_server_answers_every_hop(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, jwt_secret="")) as server:
        checks = await replay(server.mcp)

    assert [(check.name, check.outcome) for check in checks] == [
        ("address", "ok"),
        ("challenge", "ok"),
        ("initialize", "ok"),
        ("tools", "ok"),
        ("call", "ok"),
    ]
    assert checks[1].message == "no credential is required"


async def test_clients_with_a_token_reach_their_tools(tmp_path: Path) -> None:
    clients = [name for name, flow in FLOWS.items() if not flow.is_hosted and not flow.origin]
    async with live(make_settings(tmp_path, **NO_RATE_LIMITS)) as server:
        token = await server.token("ada")
        results = {client: await replay(server.mcp, client, token) for client in clients}

    for client, checks in results.items():
        assert {check.outcome for check in checks} == {"ok"}, client
        assert checks[-1] == Check("call", "ok", "knowledge_search answers"), client


async def test_clients_without_a_token_get_as_far_as_the_sign_in(tmp_path: Path) -> None:
    clients = [name for name, flow in FLOWS.items() if flow.has_oauth and not flow.is_hosted and not flow.origin]
    async with live(make_settings(tmp_path, jwt_secret="", require_auth=True, **NO_RATE_LIMITS)) as server:
        results = {client: await replay(server.mcp, client) for client in clients}

    for client, checks in results.items():
        assert [check.outcome for check in checks] == ["ok"] * 7 + ["warn"], client
        assert Check("authorize", "ok", f"people sign in at {server.url}/sign-in") in checks, client


async def test_server_without_an_authorization_server_says_what_to_do(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, jwt_secret="", require_auth=True, oauth_server="off")
    async with live(settings) as server:
        hop, message = await failure(server.mcp, "claude-code")

    assert hop == "resource metadata"
    assert "set oauth_server to on" in message


async def test_api_keys_of_two_users_work_until_they_are_revoked(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, jwt_secret="", require_auth=True)) as server:
        registry = server.runtime.registry
        keys = [await registry.create_key((await server.user(name)).id, "laptop", [READ]) for name in ("ada", "ben")]
        await registry.revoke_key(keys[0][0].id)
        revoked, valid = [await replay(server.mcp, "codex", secret) for _, secret in keys]

    assert (revoked[-1].name, revoked[-1].outcome) == ("initialize", "fail")
    assert "API key that is unknown, revoked or expired" in revoked[-1].message
    assert valid[-1].outcome == "ok"


async def test_refused_token_is_explained_by_its_claims(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        expired = await server.token("ada", now=time.time() - 7200)
        foreign_settings = make_settings(tmp_path / "other", public_url="https://kb.example.com")
        async with live(foreign_settings) as other:
            foreign = await other.token("ada")
        hop, expiry_message = await failure(server.mcp, token=expired)
        _, audience_message = await failure(server.mcp, token=foreign)
        _, garbage_message = await failure(server.mcp, token="not-a-token")

    assert hop == "initialize"
    assert "it expired at" in expiry_message
    assert f"its audience (aud) is https://kb.example.com/mcp, and {server.mcp} is expected" in audience_message
    assert "neither an API key nor a JWT" in garbage_message


async def test_server_with_another_public_url_is_told_to_change_it(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, public_url="https://kb.example.com")) as server:
        hop, message = await failure(server.mcp)

    assert hop == "resource metadata"
    assert f"set public_url to {server.url}" in message


async def test_unknown_host_name_names_the_settings(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server, asyncio.timeout(WAIT_MAX_S):
        port = server.url.rpartition(":")[2]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: kb.example.com\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        body = (await reader.read()).partition(b"\r\n\r\n")[2]
        writer.close()
    response = HopResponse(403, {"content-type": "application/json"}, body)

    assert response_problem(response, "https://kb.example.com/mcp", "") == (
        "the server does not serve the host name kb.example.com: add it to allowed_hosts, or set public_url"
    )


async def test_browser_client_is_told_which_origin_to_allow(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, public_url="https://kb.example.com")
    async with live(settings) as server:
        hop, message = await failure(server.mcp, "inspector")

    assert hop == "challenge"
    assert "add http://localhost:6274 to allowed_origins" in message


async def test_browser_client_passes_once_its_origin_is_allowed(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, allowed_origins=("http://localhost:6274",))
    async with live(settings) as server:
        checks = await replay(server.mcp, "inspector", await server.token("ada"))

    assert Check("cors", "ok", "pages of http://localhost:6274 may call the server") in checks
    assert checks[-1].outcome == "ok"


@each_case("client", ["claude-ai", "chatgpt", "openai-responses"])
@each_case(
    "url",
    [
        "http://kb.example.com/mcp",
        "https://kb.example.com:8443/mcp",
        "https://127.0.0.1/mcp",
        "https://10.1.2.3/mcp",
        "https://localhost/mcp",
        "https://kb.local/mcp",
    ],
)
async def test_hosted_clients_need_a_public_address(client: str, url: str) -> None:
    hop, message = await failure(url, client)

    assert hop == "address"
    assert "connects from the internet" in message


async def test_plain_http_to_another_machine_is_refused() -> None:
    assert await failure("http://kb.example.com/mcp") == (
        "address",
        "kb.example.com is not this machine, and without TLS others can read tokens; use https://",
    )


async def test_wrong_path_is_reported(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        hop, message = await failure(f"{server.url}/sse")

    assert (hop, "usually ends with /mcp" in message) == ("challenge", True)


async def test_address_without_a_path_is_told_to_add_one(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        for url in (server.url, f"{server.url}/"):
            assert await failure(url) == ("challenge", f"no MCP endpoint at this address; add /mcp: {server.mcp}")


async def test_profile_without_the_tools_of_chatgpt_is_reported(tmp_path: Path) -> None:
    flow = FLOWS["chatgpt"]
    async with live(make_settings(tmp_path)) as server:
        token = await server.token("ada")
        local = type(flow)(title=flow.title, required_tools=flow.required_tools)
        checks = await ConnectionReplay(f"{server.mcp}/compact", local, token).run()

    assert checks[-1].name == "tools"
    assert "needs the tools fetch and search" in checks[-1].message


async def test_token_without_scopes_is_told_which_scope_it_needs(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        hop, message = await failure(server.mcp, token=await server.token("ada", ("admin",)))

    assert (hop, "knowledge:read" in message) == ("tools", True)


async def test_nothing_listens() -> None:
    hop, message = await failure(f"http://127.0.0.1:{free_port()}/mcp")

    assert (hop, "nothing listens at 127.0.0.1" in message) == ("challenge", True)


async def test_server_without_tls_at_an_https_address(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        hop, message = await failure(server.mcp.replace("http://", "https://"))

    assert (hop, "does not speak TLS" in message) == ("challenge", True)


@each_case(
    ("head", "body", "expected"),
    [
        ("301 Moved\r\nLocation: https://kb.example.com/mcp", "", "redirects to https://kb.example.com/mcp"),
        ("502 Bad Gateway\r\nContent-Type: text/html", "<h1>Bad Gateway</h1>", "does not reach the server"),
        ("200 OK\r\nContent-Type: text/html", "<h1>Welcome to nginx!</h1>", "a web page answers"),
        ("405 Method Not Allowed", "", "does not accept POST"),
        ("401 Unauthorized", "", "no resource_metadata in WWW-Authenticate"),
        ("418 Teapot\r\nContent-Type: text/plain", "short and stout", "answers status 418: short and stout"),
    ],
)
async def test_what_a_proxy_answers_instead(head: str, body: str, expected: str) -> None:
    async with answering(head, body) as url:
        _, message = await failure(url)

    assert expected in message
