"""Changes of the ways in to an account need a person who has just signed in."""

import time
from collections.abc import Mapping

import pytest

from auth.browser_sessions import csrf_token, session_cookie_name
from auth.control_database import ControlConnection
from auth.principal import READ, SCOPES, WRITE
from tests.server.rest.rest_client import RestClient
from tests.server.rest.test_account import key_of, message_of, send

CHANGES = (
    "/api/v1/passkeys/00",
    "/api/v1/browser-sessions/00",
    "/api/v1/connections/g_x",
    "/api/v1/browser-sessions",
)
NOT_FOUND = [404, 404, 404, 200]


async def statuses(api: RestClient, headers: Mapping[str, str]) -> list[int]:
    return [(await send(api, dict(headers), "DELETE", path)).status for path in CHANGES]


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
    secret = await runtime.browser_sessions.create(user)
    headers = {
        "Cookie": f"{session_cookie_name(runtime.settings)}={secret}",
        "X-CSRF-Token": csrf_token(secret),
        "Sec-Fetch-Site": "same-origin",
    }
    recent = await statuses(api, headers)

    secret = await runtime.browser_sessions.create(user)
    headers |= {
        "Cookie": f"{session_cookie_name(runtime.settings)}={secret}",
        "X-CSRF-Token": csrf_token(secret),
    }

    def make_older(db: ControlConnection) -> None:
        db.execute("UPDATE browser_sessions SET created_at = created_at - 1000").close()

    await runtime.registry.database.write(make_older)
    old = await statuses(api, headers)

    assert (recent, old) == (NOT_FOUND, [403] * 4)
    assert len(await runtime.browser_sessions.list(user.id)) == 1
