"""Attacks on the authorization server, over a real server, with two users."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from auth.context import READ
from tests.auth.oauth.test_redirects import TRICKS
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import REDIRECT_URI, OAuthTestClient, challenge_of, connect, post_form, user_of


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    limits = {"rate_oauth_per_minute": 0, **NO_RATE_LIMITS}
    async with live(make_settings(tmp_path, **limits)) as running:
        yield running


async def test_no_trick_with_a_redirect_uri_leads_anywhere(server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        await client.connect(ada)  # even a remembered decision must not help
        outcomes = {uri: await ada.open(client.authorization_url(redirect_uri=uri)) for uri in TRICKS if uri.strip()}

    assert {uri: (page.status, page.location) for uri, page in outcomes.items()} == dict.fromkeys(outcomes, (400, ""))
    assert len(outcomes) >= 60


async def test_repeated_redirect_uri_leads_nowhere(server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    evil = f"&redirect_uri={quote('https://evil.example.com/', safe='')}"
    async with open_browser(server, "ada") as ada:
        pages = [
            await ada.open(client.authorization_url() + evil),
            await ada.open(client.authorization_url(redirect_uri=None) + evil + evil),
            await ada.open(client.authorization_url() + "&client_id=c_other"),
        ]

    assert [(page.status, page.location) for page in pages] == [(400, "")] * 3


@each_case(
    "changes",
    [
        {"code_challenge": None},
        {"code_challenge": None, "code_challenge_method": None},
        {"code_challenge_method": None},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": "s256"},
        {"code_challenge": ""},
        {"code_challenge": "short"},
        {"code_challenge": "A" * 44},
        {"code_challenge": "A" * 42 + "="},
    ],
)
async def test_request_without_pkce_gets_no_code(changes: dict[str, str | None], server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        await client.connect(ada)
        page = await ada.open(client.authorization_url(**changes))

    assert page.refusal["error"] == "invalid_request"
    assert "code" not in page.refusal
    assert (page.refusal["state"], page.refusal["iss"]) == (client.state, server.url)


@each_case("verifier", [None, "", "wrong-but-long-enough-to-be-a-code-verifier-of-a-client", "short"])
async def test_code_without_its_verifier_is_worthless(verifier: str | None, server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        code = await client.code(ada)
    stolen = await client.redeem(code, code_verifier=verifier)
    again = await client.redeem(code)

    assert (stolen.status, stolen.json()["error"]) == (400, "invalid_grant")
    assert again.json()["error"] == "invalid_grant", "a verifier cannot be guessed in several attempts"


async def test_challenge_is_not_its_own_verifier(server: LiveServer) -> None:
    """Downgrade to `plain`: the challenge, which the browser has seen, must not be accepted as the verifier."""
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        code = await client.code(ada)

    assert (await client.redeem(code, code_verifier=challenge_of(client.verifier))).json()["error"] == "invalid_grant"


async def test_code_of_another_client_or_redirect_is_refused(server: LiveServer) -> None:
    """Code injection: a code works only for the client, the redirect and the verifier it was issued for."""
    uris = [REDIRECT_URI, "https://app.example.com/other"]
    client, thief = [await OAuthTestClient.register(server, redirect_uris=uris) for _ in range(2)]
    async with open_browser(server, "ada") as ada:
        codes = [await client.code(ada) for _ in range(3)]
    thief.verifier = client.verifier
    outcomes = [
        await thief.redeem(codes[0]),
        await client.redeem(codes[1], redirect_uri=uris[1]),
        await client.redeem(codes[2] + "x"),
    ]

    assert [outcome.json()["error"] for outcome in outcomes] == ["invalid_grant"] * 3


async def test_code_of_one_user_never_becomes_a_token_of_another(server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
        codes = {"ada": await client.code(ada), "bob": await client.code(bob)}
    tokens = {user: (await client.redeem(code)).json()["access_token"] for user, code in codes.items()}

    assert {user: await user_of(server, token) for user, token in tokens.items()} == {"ada": "ada", "bob": "bob"}


async def test_expired_code_is_refused(server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        code = await client.code(ada)
    await server.runtime.registry.database.write(lambda db: db.execute("UPDATE oauth_codes SET expires_at = 1"))

    assert (await client.redeem(code)).json()["error"] == "invalid_grant"


async def test_every_answer_names_its_issuer(server: LiveServer) -> None:
    """Mix-up: a client of several servers can tell which of them answered, also in errors (RFC 9207)."""
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        denied = await ada.submit(await ada.open(client.authorization_url()), {"decision": "deny"})
        pages = [
            denied,
            await ada.allow(client.authorization_url()),
            await ada.open(client.authorization_url(response_type="token")),
            await ada.open(client.authorization_url(resource="https://other.example.com/mcp")),
            await ada.open(client.authorization_url(request="eyJ")),
        ]

    answers = [page.answer or page.refusal for page in pages]
    assert [answer["iss"] for answer in answers] == [server.url] * 5
    assert [answer.get("error") for answer in answers] == [
        "access_denied",
        None,
        "unsupported_response_type",
        "invalid_target",
        "request_not_supported",
    ]


async def test_consent_cannot_be_given_by_another_site(server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
        page, of_bob = await ada.open(client.authorization_url()), await bob.open(client.authorization_url())
        allow = {"decision": "allow"}
        attempts = [
            await ada.submit(page, {**allow, "csrf_token": None}),
            await ada.submit(page, {**allow, "csrf_token": "x" * 64}),
            await ada.submit(page, {**allow, "csrf_token": of_bob.form.values["csrf_token"]}),
            await ada.submit(page, allow, Origin="https://evil.example.com"),
            await ada.submit(page, allow, **{"Sec-Fetch-Site": "cross-site"}),
            await ada.submit(page, allow, **{"Sec-Fetch-Site": "same-site"}),
            await ada.open(client.authorization_url() + "&decision=allow"),
        ]
        connections = await ada.open(f"{server.url}/connect")

    assert [attempt.location for attempt in attempts] == [""] * 7
    assert [attempt.status for attempt in attempts] == [403] * 6 + [200]
    assert "No application has access." in connections.words


@each_case("path, stranger", [("/authorize", 403), ("/device", 403), ("/connect/applications", 303)])
async def test_forms_need_a_session_and_its_token(path: str, stranger: int, server: LiveServer) -> None:
    """A page of the console leads a stranger to the sign-in page."""
    async with open_browser(server) as nobody, open_browser(server, "ada") as ada:
        responses = [
            await nobody.post(path, {"decision": "allow"}),
            await ada.post(path, {"decision": "allow"}),
            await ada.post(path, {"decision": "allow", "csrf_token": ""}),
        ]

    assert [response.status for response in responses] == [stranger, 403, 403]
    assert stranger == 403 or urlsplit(responses[0].location).path == "/sign-in"


async def test_consent_cannot_be_widened_in_the_form(server: LiveServer) -> None:
    """The form can only take away: scopes that were not asked for, and unknown sources, stay out."""
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        page = await ada.open(client.authorization_url(scope=READ))
        changes = {"scope_admin": "on", "scope_knowledge:write": "on", "source_secret": "on", "decision": "allow"}
        answer = await ada.submit(page, changes)
    tokens = (await client.redeem(answer.answer["code"])).json()
    principal = await server.runtime.authenticator.authenticate(f"Bearer {tokens['access_token']}")

    assert tokens["scope"] == READ
    assert principal.sources is None


@each_case("path", ["/authorize", "/device", "/connect"])
async def test_pages_cannot_be_framed_or_cached(path: str, server: LiveServer) -> None:
    client = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        url = client.authorization_url() if path == "/authorize" else server.url + path
        page = await ada.open(url)

    assert page.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "no-store" in page.headers["cache-control"]
    assert page.headers["referrer-policy"] == "same-origin"


async def test_confidential_client_cannot_be_impersonated(server: LiveServer) -> None:
    client = await OAuthTestClient.register(server, token_endpoint_auth_method="client_secret_basic")
    public = await OAuthTestClient.register(server)
    async with open_browser(server, "ada") as ada:
        codes = [await client.code(ada) for _ in range(2)]
        code_of_public = await public.code(ada)
    outcomes = [
        await client.redeem(codes[0]),
        await client.redeem(codes[1], client_secret=""),
        await public.redeem(code_of_public, client_secret="flos_" + "A" * 43),
        await post_form(server, "/token", {"grant_type": "authorization_code", "code": codes[0]}),
    ]

    assert [outcome.json()["error"] for outcome in outcomes] == ["invalid_client"] * 3 + ["invalid_request"]


async def test_tokens_of_one_kind_are_not_accepted_as_another(server: LiveServer) -> None:
    client, tokens = await connect(server, "ada")
    access, refresh = tokens["access_token"], tokens["refresh_token"]
    async with open_browser(server, "ada") as ada:
        code = await client.code(ada)
    outcomes = [
        await client.refresh(access),
        await client.refresh(code),
        await client.redeem(refresh),
        await client.refresh(refresh.replace("flor_", "floa_")),
    ]

    assert [outcome.json()["error"] for outcome in outcomes] == ["invalid_grant"] * 4
    assert [await user_of(server, text) for text in (refresh, code, client.client_id)] == ["401"] * 3
    assert await user_of(server, access) == "ada"


async def test_unsafe_names_are_shown_as_text(server: LiveServer) -> None:
    name = "<script>alert(1)</script>\r\nSet-Cookie: x=1 \u202egnp.exe"
    client = await OAuthTestClient.register(server, client_name=name)
    async with open_browser(server, "ada") as ada:
        page = await ada.open(client.authorization_url(state="<script>"))

    assert "<script>" not in page.text
    assert "\u202e" not in page.text
    assert "set-cookie" not in page.headers
