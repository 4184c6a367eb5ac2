"""Credentials as clients of tldw send them: in X-API-KEY, and as a WebSocket subprotocol."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from auth.context import READ
from auth.signing_keys import sign
from server.transports.headers import Headers
from server.transports.http import RepeatedRefusals
from tests.cases import each_case
from tests.live import JWT_SECRET, LiveServer, live, make_settings
from tests.server.clients import JSON_AND_EVENTS, handshake, message, modern_headers, modern_params
from tests.server.http_client import HttpResponse, fetch
from tests.server.in_process import call_app

CALL = ("tools/call", {"name": "server_info", "arguments": {}})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    async with live(make_settings(tmp_path)) as server:
        yield server


async def key_of(server: LiveServer, name: str) -> str:
    user = await server.user(name)
    return (await server.runtime.registry.create_key(user.id, "test", [READ]))[1]


async def call(server: LiveServer, headers: dict[str, str]) -> HttpResponse:
    method, params = CALL
    body = msgspec.json.encode(message(method, modern_params(params), 1))
    return await fetch(
        server.url, "POST", "/mcp", {**modern_headers(method, params), **JSON_AND_EVENTS, **headers}, body
    )


async def test_api_key_header_identifies_the_user_over_mcp_and_rest(server: LiveServer) -> None:
    for name in ("ada", "ben"):
        headers = {"X-API-KEY": await key_of(server, name)}
        assert (await call(server, headers)).json()["result"]["structuredContent"]["user"] == name
        assert (await fetch(server.url, "GET", "/api/v1/usage", headers)).status == 200
        token = {"X-API-KEY": await server.token(name)}
        assert (await call(server, token)).json()["result"]["structuredContent"]["user"] == name


async def test_invalid_api_key_header_is_rejected(server: LiveServer) -> None:
    for value in ("flo_" + "a" * 43, "", "Bearer x", "x y"):
        assert (await call(server, {"X-API-KEY": value})).status == 401


async def test_two_credentials_that_differ_are_rejected(server: LiveServer) -> None:
    ada, ben = await key_of(server, "ada"), await key_of(server, "ben")
    both = await call(server, {"Authorization": f"Bearer {ada}", "X-API-KEY": ben})
    assert both.status == 400
    assert "expected one credential, got two that differ" in both.body.decode()
    same = await call(server, {"Authorization": f"Bearer {ada}", "X-API-KEY": ada})
    assert same.json()["result"]["structuredContent"]["user"] == "ada"


@each_case("extra", [[], ["mcp"]])
async def test_token_as_subprotocol_identifies_the_user(server: LiveServer, extra: list[str]) -> None:
    for name in ("ada", "ben"):
        for credential in (await key_of(server, name), await server.token(name)):
            offered = [*extra, "bearer", credential]
            async with connect(server.ws, subprotocols=offered) as socket:  # type: ignore[arg-type]  # plain names
                assert socket.subprotocol == (extra or ["bearer"])[0]
                await socket.send(msgspec.json.encode(handshake()).decode())
                assert "result" in msgspec.json.decode(await asyncio.wait_for(socket.recv(), 10))
                await socket.send(msgspec.json.encode(message(*CALL, 1)).decode())
                answer = msgspec.json.decode(await asyncio.wait_for(socket.recv(), 10))
                assert answer["result"]["structuredContent"]["user"] == name


async def test_invalid_or_ambiguous_subprotocols_are_rejected(server: LiveServer) -> None:
    ada, ben = await key_of(server, "ada"), await key_of(server, "ben")
    cases: list[tuple[list[str], dict[str, str], int]] = [
        (["bearer", "flo_" + "a" * 43], {}, 401),
        (["bearer"], {}, 401),
        ([ada, "bearer"], {}, 401),
        (["bearer", ada], {"Authorization": f"Bearer {ben}"}, 400),
        (["bearer", ada], {"X-API-KEY": ben}, 400),
    ]
    for offered, headers, status in cases:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(server.ws, subprotocols=offered, additional_headers=headers):  # type: ignore[arg-type]  # plain names
                pass
        assert refused.value.response.status_code == status, offered


async def test_tokens_of_tldw_are_accepted_with_their_roles(tmp_path: Path) -> None:
    """They have neither issuer nor audience, and a refresh token is signed with the same secret."""
    settings = make_settings(
        tmp_path,
        jwt_required_claims=("type=access",),
        jwt_scope_map=("user=knowledge:read", "media.create=knowledge:write"),
        jwt_insecure_no_issuer=True,
        jwt_insecure_no_audience=True,
        jwt_create_users=True,
        jwt_name_claim="username",
    )
    times = {"exp": time.time() + 60, "iat": time.time()}
    async with live(settings) as server:
        for number, name in enumerate(("ada", "ben")):
            claims = {"sub": str(number), "username": name, "type": "access", "role": "user", **times}
            claims |= {"permissions": ["media.create"]} if name == "ben" else {}
            answer = await call(server, {"Authorization": f"Bearer {_signed(claims)}"})
            info = answer.json()["result"]["structuredContent"]
            expected = ["knowledge:read", "knowledge:write"] if name == "ben" else ["knowledge:read"]
            assert (info["user"], info["scopes"]) == (name, expected)
            refresh = {**claims, "type": "refresh"}
            assert (await call(server, {"Authorization": f"Bearer {_signed(refresh)}"})).status == 401


def _signed(claims: dict[str, Any]) -> str:
    return sign(msgspec.json.encode(claims), JWT_SECRET, "JWT")


@each_case("header", ["Authorization", "X-API-KEY", "Cookie"])
async def test_refusal_is_repeated_only_to_the_same_caller(header: str) -> None:
    refusals = RepeatedRefusals(None)
    result = {"content": [], "isError": True, "_meta": {"florilegium/retryAfterS": 5.0}}
    refusals.remember(Headers([(header.lower().encode(), b"ada")]), "search", result, 5.0)

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        if await refusals.answer(scope, receive, send) is not None:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    body = msgspec.json.encode(message("tools/call", {"name": "search"}, 1))
    assert (await call_app(app, "POST", "/mcp", {header: "ben"}, body)).status == 204
    assert (await call_app(app, "POST", "/mcp", {}, body)).status == 204
