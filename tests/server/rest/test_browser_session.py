"""The cookie of a browser session as a credential of REST, and the attacks that it invites."""

from typing import Any

import msgspec

from auth.browser_sessions import csrf_token, session_cookie_name
from tests.cases import each_case
from tests.server.clients import JSON_AND_EVENTS, message, modern_headers, modern_params
from tests.server.http_client import HttpResponse
from tests.server.in_process import call_app
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

OWN_PAGE = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
NOTE = msgspec.json.encode({"title": "From a page"})


async def sign_in(api: RestClient, name: str) -> tuple[dict[str, str], str]:
    """Returns the cookie of a new session, and its token."""
    runtime = api.server.runtime
    secret = await runtime.browser_sessions.create(await api.server.user(name))
    return {"Cookie": f"{session_cookie_name(runtime.settings)}={secret}"}, csrf_token(secret)


async def create(api: RestClient, headers: dict[str, str]) -> HttpResponse:
    return await call_app(api.app, "POST", "/api/v1/items/notes", {**OWN_PAGE, **headers}, NOTE)


async def test_people_who_signed_in_use_their_own_library(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    note = await ada.add_note("Tides", "high")
    cookie, token = await sign_in(api, "ada")
    other, _ = await sign_in(api, "ben")
    assert (await call_app(api.app, "GET", f"/api/v1/items/notes/{note}", cookie)).status == 200
    assert (await call_app(api.app, "GET", f"/api/v1/items/notes/{note}", other)).status == 404
    assert (await create(api, {**cookie, "X-CSRF-Token": token})).status == 201
    account = (await call_app(api.app, "GET", "/api/v1/account", cookie)).json()
    assert (account["name"], account["kind"]) == ("ada", "browser")
    stream = await call_app(api.app, "GET", "/conversations/export", cookie)
    assert stream.status == 200


@each_case("attack", ["no token", "token of another", "wrong token", "cross-site", "other origin", "null"])
async def test_forged_requests_are_rejected(api: RestClient, attack: str) -> None:
    cookie, token = await sign_in(api, "ada")
    _, foreign = await sign_in(api, "ben")
    headers: dict[str, dict[str, Any]] = {
        "no token": {},
        "token of another": {"X-CSRF-Token": foreign},
        "wrong token": {"X-CSRF-Token": token[:-1] + "x"},
        "cross-site": {"X-CSRF-Token": token, "Sec-Fetch-Site": "cross-site"},
        "other origin": {"X-CSRF-Token": token, "Origin": "https://evil.example.com"},
        "null": {"X-CSRF-Token": token, "Origin": "null"},
    }
    assert (await create(api, {**cookie, **headers[attack]})).status == 403


async def test_the_cookie_is_no_credential_for_mcp(api: RestClient) -> None:
    cookie, token = await sign_in(api, "ada")
    params = {"name": "server_info", "arguments": {}}
    body = msgspec.json.encode(message("tools/call", modern_params(params), 1))
    headers = {**modern_headers("tools/call", params), **JSON_AND_EVENTS, **cookie, "X-CSRF-Token": token}
    assert (await call_app(api.app, "POST", "/mcp", headers, body)).status == 401
    assert (await call_app(api.app, "POST", "/mcp/ticket", headers)).status == 401


async def test_a_session_that_ended_is_rejected(api: RestClient) -> None:
    cookie, token = await sign_in(api, "ada")
    await api.server.runtime.browser_sessions.revoke_all((await api.server.user("ada")).id)
    assert (await call_app(api.app, "GET", "/api/v1/account", cookie)).status == 401
    assert (await create(api, {**cookie, "X-CSRF-Token": token})).status == 401
    unknown = {"Cookie": f"{session_cookie_name(api.server.runtime.settings)}=unknown"}
    assert (await call_app(api.app, "GET", "/api/v1/account", unknown)).status == 401


async def test_a_credential_that_is_sent_takes_precedence(api: RestClient) -> None:
    cookie, _ = await sign_in(api, "ada")
    ben = await api.server.bearer("ben")
    assert (await call_app(api.app, "GET", "/api/v1/account", {**cookie, **ben})).json()["name"] == "ben"
    assert (await create(api, {**cookie, **ben})).status == 201
    invalid = {**cookie, "Authorization": "Bearer flo_invalid"}
    assert (await call_app(api.app, "GET", "/api/v1/account", invalid)).status == 401


async def test_the_role_limits_a_session(api: RestClient) -> None:
    cookie, token = await sign_in(api, "ada")
    await api.server.runtime.registry.set_role((await api.server.user("ada")).id, "reader")
    assert (await create(api, {**cookie, "X-CSRF-Token": token})).status == 403
    assert (await call_app(api.app, "GET", "/api/v1/users", cookie)).status == 403
