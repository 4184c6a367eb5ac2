"""The authorization code flow over a real server, with two users."""

import base64
from pathlib import Path

import msgspec

from auth.context import ADMIN, READ, WRITE
from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.http_client import fetch
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import REDIRECT_URI, OAuthTestClient, call, connect, post_form, register, user_of


async def test_each_user_connects_the_same_client_to_their_own_library(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
            page = await ada.allow(client.authorization_url())
            tokens = {"ada": (await client.redeem(page.answer["code"])).json(), "bob": await client.connect(bob)}
        users = {name: await user_of(server, token["access_token"]) for name, token in tokens.items()}

    assert page.location.startswith(f"{REDIRECT_URI}?code=floc_")
    assert (page.status, page.answer["state"], page.answer["iss"]) == (303, client.state, server.url)
    assert users == {"ada": "ada", "bob": "bob"}
    assert tokens["ada"]["token_type"] == "Bearer"
    assert tokens["ada"]["scope"] == f"{READ} {WRITE}"
    assert tokens["ada"]["access_token"].startswith("floa_")
    assert tokens["ada"]["refresh_token"].startswith("flor_")


async def test_metadata_is_at_every_path_that_clients_try(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        base = "/.well-known/oauth-authorization-server"
        documents = [(await fetch(server.url, "GET", base + suffix)) for suffix in ("", "/mcp", "/mcp/research")]
        openid = await fetch(server.url, "GET", "/.well-known/openid-configuration")
        resources = {
            suffix: (await fetch(server.url, "GET", f"/.well-known/oauth-protected-resource{suffix}")).json()
            for suffix in ("", "/mcp", "/mcp/research", "/mcp/sse", "/mcp/research/sse")
        }
        unknown = await fetch(server.url, "GET", "/.well-known/oauth-protected-resource/mcp/nothing")

    assert {document.status for document in documents} == {200}
    metadata = documents[0].json()
    assert all(document.json() == metadata for document in documents)
    assert metadata["issuer"] == server.url
    assert metadata["code_challenge_methods_supported"] == ["S256"]
    assert metadata["authorization_response_iss_parameter_supported"]
    assert metadata["client_id_metadata_document_supported"]
    for name, path in (("authorization", "/authorize"), ("token", "/token"), ("registration", "/register")):
        assert metadata[f"{name}_endpoint"] == server.url + path
    assert openid.status == 404
    assert {suffix: document["resource"].removeprefix(server.url) for suffix, document in resources.items()} == {
        "": "/mcp",
        "/mcp": "/mcp",
        "/mcp/sse": "/mcp",
        "/mcp/research": "/mcp/research",
        "/mcp/research/sse": "/mcp/research",
    }
    assert all(document["authorization_servers"] == [server.url] for document in resources.values())
    assert unknown.status == 404


@each_case(
    ("changes", "is_on"),
    [
        ({}, True),
        ({"jwt_secret": "", "require_auth": True}, True),
        ({"oauth_server": "off"}, False),
        ({"jwt_secret": ""}, False),
        ({"authorization_servers": ("https://id.example.com",)}, False),
        ({"authorization_servers": ("https://id.example.com",), "oauth_server": "on"}, True),
    ],
)
async def test_oauth_server_is_on_where_tokens_are_not_issued_elsewhere(
    changes: dict[str, object], is_on: bool, tmp_path: Path
) -> None:
    async with live(make_settings(tmp_path, **changes)) as server:
        metadata = await fetch(server.url, "GET", "/.well-known/oauth-authorization-server")
        registration = await register(server)
        resource = (await fetch(server.url, "GET", "/.well-known/oauth-protected-resource")).json()

    assert (metadata.status, registration.status) == ((200, 201) if is_on else (404, 404))
    assert (resource.get("authorization_servers") == [server.url]) == is_on


@each_case("suffix", ["", "/", "/sse"])
async def test_resource_is_accepted_in_the_spellings_of_clients(suffix: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            tokens = await client.connect(ada, resource=server.mcp + suffix)
            without = await client.connect(ada, resource=None)
        users = [await user_of(server, token["access_token"]) for token in (tokens, without)]

    assert users == ["ada", "ada"]


@each_case(
    "resource",
    [
        "https://other.example.com/mcp",
        "{url}",
        "{url}/mcp/nothing",
        "{url}/mcp?x=1",
        "{url}/mcpx",
        "{url}/mcp#x",
        "mcp",
    ],
)
async def test_token_for_another_resource_is_refused(resource: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            page = await ada.open(client.authorization_url(resource=resource.format(url=server.url)))
            code = await client.code(ada)
        token = await client.redeem(code, resource=resource.format(url=server.url))

    assert page.refusal["error"] == "invalid_target"
    assert (token.status, token.json()["error"]) == (400, "invalid_target")


async def test_token_for_a_profile_can_use_its_tools_only(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            asked = await ada.open(client.authorization_url(resource=f"{server.mcp}/research"))
            tokens = await client.connect(ada, resource=f"{server.mcp}/research")
            code = await client.code(ada, resource=f"{server.mcp}/research")
        other = await client.redeem(code, resource=server.mcp)
        allowed = await call(server, tokens["access_token"], "search")
        refused = await call(server, tokens["access_token"], "server_info")
        challenge = await fetch(server.url, "POST", "/mcp/research", {"Content-Type": "application/json"}, b"{}")

    assert "only the tools of the profile research" in asked.words
    assert other.json()["error"] == "invalid_target"
    assert (allowed.status, refused.status) == (200, 400)
    assert f'resource_metadata="{server.url}/.well-known/oauth-protected-resource/mcp/research"' in (
        challenge.header("www-authenticate") or ""
    )


async def test_reader_cannot_grant_more_than_reading(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        user = await server.user("ada")
        await server.runtime.registry.database.write(
            lambda db: db.execute("UPDATE users SET role = 'reader' WHERE id = ?", (user.id,))
        )
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            tokens = await client.connect(ada, scope=f"{READ} {WRITE} {ADMIN}")
            refused = await ada.open(client.authorization_url(scope=ADMIN))

    assert tokens["scope"] == READ
    assert refused.refusal["error"] == "invalid_scope"


async def test_access_token_is_a_credential_of_rest_for_an_application(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        _, tokens = await connect(server, "ada")
        bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
        usage = await fetch(server.url, "GET", "/api/v1/usage", bearer)

    assert usage.status == 200


async def test_confidential_client_needs_its_secret(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        registered = (await register(server, token_endpoint_auth_method="client_secret_post")).json()
        client = OAuthTestClient(server, registered["client_id"])
        async with open_browser(server, "ada") as ada:
            without = await client.redeem(await client.code(ada))
            wrong = await client.redeem(await client.code(ada), client_secret="flos_" + "A" * 43)
            right = await client.redeem(await client.code(ada), client_secret=registered["client_secret"])

    assert registered["client_secret"].startswith("flos_")
    assert registered["client_secret_expires_at"] == 0
    assert [(r.status, r.json().get("error")) for r in (without, wrong)] == [(401, "invalid_client")] * 2
    assert right.status == 200


async def test_basic_authentication_of_a_client(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        registered = (await register(server, token_endpoint_auth_method=None)).json()
        client = OAuthTestClient(server, registered["client_id"])
        async with open_browser(server, "ada") as ada:
            codes = [await client.code(ada) for _ in range(2)]

        def basic(secret: str) -> str:
            return "Basic " + base64.b64encode(f"{client.client_id}:{secret}".encode()).decode()

        values = {"grant_type": "authorization_code", "code_verifier": client.verifier}
        wrong = await post_form(server, "/token", {**values, "code": codes[0]}, Authorization=basic("wrong"))
        right = await post_form(
            server, "/token", {**values, "code": codes[1]}, Authorization=basic(registered["client_secret"])
        )

    assert registered["token_endpoint_auth_method"] == "client_secret_basic"
    assert (wrong.status, wrong.header("www-authenticate")) == (401, 'Basic realm="florilegium"')
    assert right.status == 200


async def test_responses_are_not_stored_and_open_to_browser_clients(tmp_path: Path) -> None:
    settings = make_settings(tmp_path, allowed_origins=("https://other.example.com",))
    origin = {"Origin": "https://inspector.example.com"}
    async with live(settings) as server:
        client = await OAuthTestClient.register(server)
        preflight = await fetch(
            server.url,
            "OPTIONS",
            "/token",
            {
                **origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "mcp-protocol-version",
            },
        )
        responses = [
            await fetch(server.url, "GET", "/.well-known/oauth-authorization-server/mcp", origin),
            await fetch(server.url, "GET", "/.well-known/oauth-protected-resource/mcp", origin),
            await post_form(server, "/token", {"client_id": client.client_id}, **origin),
            await post_form(server, "/revoke", {"client_id": client.client_id, "token": "x"}, **origin),
            await fetch(server.url, "POST", "/register", origin, msgspec.json.encode({})),
            await post_form(server, "/device_authorization", {"client_id": client.client_id}, **origin),
        ]

    assert (preflight.status, preflight.header("access-control-allow-origin")) == (204, "*")
    assert all(response.header("access-control-allow-origin") == "*" for response in responses)
    assert all("no-store" in (response.header("cache-control") or "") for response in responses)
