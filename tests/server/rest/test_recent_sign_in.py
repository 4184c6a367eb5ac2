"""Changes of the ways in to an account need a person who has just signed in."""

import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from auth.browser_sessions import csrf_token, session_cookie_name
from auth.context import READ, SCOPES, WRITE
from auth.control_database import ControlConnection
from auth.registry import UserRecord
from server.http_services import build_http_services
from server.rest.routes import rest_operations
from tests.server.rest.rest_client import RestClient
from tests.server.rest.test_account import key_of, message_of, send
from tests.sources.source_fixture import LibraryUser

CHANGES = (
    "/api/v1/passkeys/00",
    "/api/v1/browser-sessions/00",
    "/api/v1/connections/g_x",
    "/api/v1/browser-sessions",
)
NOT_FOUND = [404, 404, 404, 200]


async def statuses(api: RestClient, headers: Mapping[str, str]) -> list[int]:
    return [(await send(api, dict(headers), "DELETE", path)).status for path in CHANGES]


async def browser_headers(api: RestClient, user: UserRecord) -> dict[str, str]:
    """Signs the user in with a new browser."""
    runtime = api.server.runtime
    secret = await runtime.browser_sessions.create(user)
    return {
        "Cookie": f"{session_cookie_name(runtime.settings)}={secret}",
        "X-CSRF-Token": csrf_token(secret),
        "Sec-Fetch-Site": "same-origin",
    }


def make_older(db: ControlConnection) -> None:
    db.execute("UPDATE browser_sessions SET created_at = created_at - 1000").close()


@pytest.mark.parametrize("scopes", [(READ,), (READ, WRITE), SCOPES])
async def test_keys_end_no_passkey_session_or_connection(api: RestClient, scopes: tuple[str, ...]) -> None:
    user = await api.server.user("ada")
    await api.server.runtime.browser_sessions.create(user)
    key = await key_of(api, "ada", *scopes)

    assert await statuses(api, key) == [403] * 4
    assert "sign in" in message_of(await send(api, key, "DELETE", CHANGES[0]))
    assert len(await api.server.runtime.browser_sessions.list(user.id)) == 1


async def test_tokens_must_be_recent_and_able_to_write(api: RestClient) -> None:
    server = api.server
    recent = await server.bearer("ada", (READ, WRITE))
    reading = await server.bearer("ada", (READ,))
    old = {"Authorization": f"Bearer {await server.token('ada', now=time.time() - 1000)}"}

    assert await statuses(api, recent) == NOT_FOUND
    assert await statuses(api, reading) == [403] * 4
    assert await statuses(api, old) == [403] * 4


async def test_browser_sessions_must_be_recent(api: RestClient) -> None:
    runtime = api.server.runtime
    user = await api.server.user("ada")
    recent = await statuses(api, await browser_headers(api, user))

    headers = await browser_headers(api, user)
    await runtime.registry.database.write(make_older)
    old = await statuses(api, headers)

    assert (recent, old) == (NOT_FOUND, [403] * 4)
    assert len(await runtime.browser_sessions.list(user.id)) == 1


async def test_old_browser_session_of_an_administrator_lets_nobody_in(api: RestClient) -> None:
    runtime = api.server.runtime
    user = await runtime.registry.set_role((await api.server.user("ada")).id, "admin")
    headers = await browser_headers(api, user)
    await runtime.registry.database.write(make_older)
    mallory = {"name": "mallory", "role": "admin", "issuer": runtime.settings.issuer, "subject": "mallory"}

    responses = [
        await send(api, headers, method, path, body)
        for method, path, body in (
            ("POST", "/api/v1/users", mallory),
            ("POST", "/api/v1/invitations", {"role": "admin"}),
            ("PATCH", "/api/v1/users/ben", {"role": "admin"}),
        )
    ]

    assert [response.status for response in responses] == [403] * 3
    assert await runtime.registry.user_by_name("mallory") is None
    assert (await send(api, await browser_headers(api, user), "POST", "/api/v1/users", mallory)).status == 201


async def test_every_operation_that_needs_a_recent_sign_in_is_documented(api: RestClient) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sign-in.md").read_text()
    section = page.partition("## Recent sign-in")[2].partition("\n## ")[0]
    rows = [row.split("|") for row in section.splitlines() if row.startswith("|")]
    documented = {name: row[2].strip() for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    runtime = api.server.runtime
    declared = {one.id: one.caller for one in rest_operations(runtime, build_http_services(runtime))}

    assert {name for name, needs in documented.items() if needs.startswith("always")} == {
        name for name, caller in declared.items() if caller == "recent_sign_in"
    }
    assert {name for name, needs in documented.items() if needs.startswith("in a browser")} == {
        name for name, caller in declared.items() if caller == "recent_browser"
    }


async def test_data_is_not_deleted_with_a_key_or_an_old_token(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_note("Tea", "Steep.")
    old = {"Authorization": f"Bearer {await api.server.token('ada', now=time.time() - 1000)}"}
    for credential in (await key_of(api, "ada", *SCOPES), old):
        token = (await send(api, credential, "POST", "/api/v1/account/deletion", {})).json()["token"]
        for path in ("/api/v1/account/data", "/api/v1/account"):
            response = await send(api, credential, "DELETE", f"{path}?token={token}")
            assert (response.status, "sign in" in message_of(response)) == (403, True)
    assert (await api.search({"query": "steep"})).json()["results"]
