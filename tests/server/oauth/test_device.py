"""Device codes: a program without a browser, and a person who enters its code elsewhere."""

from pathlib import Path
from typing import Any

from auth.context import READ
from auth.oauth.clients import DEVICE
from tests.live import LiveServer, live, make_settings
from tests.server.http_client import HttpResponse
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import OAuthTestClient, post_form, register, user_of


async def start(server: LiveServer, scope: str = READ) -> tuple[OAuthTestClient, dict[str, Any]]:
    response = await register(server, client_name="TV", redirect_uris=None, grant_types=[DEVICE, "refresh_token"])
    client = OAuthTestClient(server, response.json()["client_id"])
    values = {"client_id": client.client_id, "scope": scope, "resource": server.mcp}
    return client, (await post_form(server, "/device_authorization", values)).json()


async def poll(client: OAuthTestClient, device_code: str) -> HttpResponse:
    return await client.token_request(grant_type=DEVICE, device_code=device_code)


async def test_device_gets_tokens_of_the_person_who_entered_its_code(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, oauth_device_interval_s=0)) as server:
        client, codes = await start(server)
        other, of_bob = await start(server)
        pending = await poll(client, codes["device_code"])
        async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
            page = await ada.open(codes["verification_uri"])
            asked = await ada.submit(page, {"user_code": codes["user_code"].lower().replace("-", " ")})
            done = await ada.submit(asked, {"decision": "allow"})
            profile = f"{server.mcp}/research"
            other_resource = await client.token_request(
                grant_type=DEVICE, device_code=codes["device_code"], resource=profile
            )
            complete = await bob.open(of_bob["verification_uri_complete"])
            denied = await bob.submit(await bob.submit(complete), {"decision": "deny"})
        tokens = (await poll(client, codes["device_code"])).json()
        refused = await poll(other, of_bob["device_code"])
        again = await poll(client, codes["device_code"])
        user = await user_of(server, tokens["access_token"])

    assert codes["verification_uri"] == f"{server.url}/device"
    assert pending.json()["error"] == "authorization_pending"
    assert other_resource.json()["error"] == "invalid_target"
    assert "Allow “TV” to use your library?" in asked.words
    assert codes["user_code"] in asked.words
    assert "TV now has access" in done.words
    assert "TV gets no access" in denied.words
    assert (user, tokens["scope"], "refresh_token" in tokens) == ("ada", READ, True)
    assert complete.form.values["user_code"] == of_bob["user_code"]
    assert again.json()["error"] == "invalid_grant"
    assert refused.json()["error"] == "access_denied"


async def test_impatient_device_is_slowed_down_and_codes_expire(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client, codes = await start(server)
        first = await poll(client, codes["device_code"])
        second = await poll(client, codes["device_code"])
        other = await OAuthTestClient.register(server, grant_types=["authorization_code", DEVICE])
        stolen = await other.token_request(grant_type=DEVICE, device_code=codes["device_code"])
        await server.runtime.registry.database.write(
            lambda db: db.execute("UPDATE oauth_device_codes SET expires_at = 1")
        )
        expired = await poll(client, codes["device_code"])
        async with open_browser(server, "ada") as ada:
            late = await ada.submit(await ada.open(codes["verification_uri"]), {"user_code": codes["user_code"]})

    errors = [response.json()["error"] for response in (first, second, stolen, expired)]
    assert errors == ["authorization_pending", "slow_down", "invalid_grant", "expired_token"]
    assert (late.status, "This code is not valid" in late.words) == (400, True)


async def test_codes_cannot_be_guessed_quickly(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, rate_failures_burst=3, rate_failures_per_minute=1)
    async with live(settings) as server, open_browser(server, "ada") as ada:
        page = await ada.open(f"{server.url}/device")
        statuses = [(await ada.submit(page, {"user_code": f"BCDF-BCD{c}"})).status for c in "BCDFG"]

    assert statuses == [400, 400, 400, 429, 429]


async def test_client_without_the_grant_type_gets_no_code(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        response = await post_form(server, "/device_authorization", {"client_id": client.client_id})

    assert (response.status, response.json()["error"]) == (400, "unauthorized_client")
