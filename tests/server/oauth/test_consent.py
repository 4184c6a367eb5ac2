"""The consent page: what it says, what people can leave out, and when it is shown again. Two users."""

import re
from pathlib import Path

from auth.context import ADMIN, READ, WRITE, ShareRule
from auth.sharing import Sharing
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.oauth.browser import open_browser
from tests.server.oauth.oauth_client import OAuthTestClient, call, connect, user_of

APPLICATIONS = "/connect/applications"


async def set_role(server: LiveServer, user: str, role: str) -> None:
    record = await server.user(user)
    await server.runtime.registry.database.write(
        lambda db: db.execute("UPDATE users SET role = ? WHERE id = ?", (role, record.id))
    )


async def test_page_says_who_asks_for_what(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server, client_name="Reader\u202e <b>App</b>")
        local = await OAuthTestClient.register(server, "http://127.0.0.1:1234/callback")
        async with open_browser(server, "ada") as ada:
            page = await ada.open(client.authorization_url())
            local_page = await ada.open(local.authorization_url())

    assert "Allow “Reader <b>App</b>” to use your library?" in page.words
    assert re.search(r"You are signed in to 127\.0\.0\.1:\d+ as ada\.", page.words)
    assert "it has not been verified" in page.words
    assert "Your answer goes to app.example.com." in page.words
    assert "search and read your library" in page.words
    assert "add, change and delete items in your library" in page.words
    assert "a program on your own computer" in local_page.words
    assert page.headers["content-security-policy"].endswith(
        "form-action 'self' https://app.example.com; frame-ancestors 'none'"
    )
    assert page.headers["x-frame-options"] == "DENY"


async def test_people_can_drop_writing_and_sources(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            asked = await ada.open(client.authorization_url())
            changes = {f"scope_{WRITE}": None, "source_chats": None, "source_media": None, "decision": "allow"}
            page = await ada.submit(asked, changes)
            connections = await ada.open(f"{server.url}/connect")
        tokens = (await client.redeem(page.answer["code"])).json()
        principal = await server.runtime.authenticator.authenticate(f"Bearer {tokens['access_token']}")

    assert tokens["scope"] == READ
    assert (principal.kind, principal.scopes) == ("oauth", frozenset((READ,)))
    assert principal.sources == frozenset(("notes", "characters", "prompts"))
    assert "Can search and read · characters, notes, prompts" in connections.words


async def test_people_choose_the_libraries_of_others(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        sharing = Sharing(server.runtime.registry.database)
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            before = await ada.open(client.authorization_url())
            user, ben = await server.user("ada"), await server.user("ben")
            team, _ = await sharing.create_group(user.id, "team"), await sharing.create_group(user.id, "crew")
            foreign = await sharing.create_group(ben.id, "foreign")
            asked = await ada.open(client.authorization_url())
            own = await ada.submit(asked, {"decision": "allow"})
            await sharing.create_share(ben.id, ShareRule("tag", "recipes"), "ada")
            again = await ada.open(client.authorization_url(prompt="consent"))
            # A handle that the page did not offer is ignored.
            chosen = {f"library_{team.handle}": "on", f"library_{foreign.handle}": "on", "decision": "allow"}
            page = await ada.submit(again, chosen)
            remembered = await ada.open(client.authorization_url())
        libraries = []
        for answer in (own, page, remembered):
            tokens = (await client.redeem(answer.answer["code"])).json()
            refreshed = (await client.refresh(tokens["refresh_token"])).json()
            for access in (tokens["access_token"], refreshed["access_token"]):
                principal = await server.runtime.authenticator.authenticate(f"Bearer {access}")
                libraries.append([one.name for one in principal.libraries])

    assert "Besides your own library" not in before.words
    assert "Besides your own library crew team" in asked.words
    assert "ben/recipes" in again.words
    assert libraries == [[], [], ["team"], ["team"], ["team"], ["team"]]


async def test_nothing_chosen_is_asked_again(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            asked = await ada.open(client.authorization_url())
            none = {name: None for name in asked.form.values if name.startswith("source_")}
            page = await ada.submit(asked, {**none, "decision": "allow"})

    assert page.status == 400
    assert "Choose at least one permission and one source" in page.words
    assert not page.location


async def test_administration_has_to_be_chosen(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        await set_role(server, "ada", "admin")
        client = await OAuthTestClient.register(server)
        scope = f"{READ} {WRITE} {ADMIN}"
        async with open_browser(server, "ada") as ada:
            plain = await client.connect(ada, scope=scope)
            asked = await ada.open(client.authorization_url(scope=scope))
            page = await ada.submit(asked, {f"scope_{ADMIN}": "on", "decision": "allow"})
        chosen = (await client.redeem(page.answer["code"])).json()

    assert plain["scope"] == f"{READ} {WRITE}"
    assert chosen["scope"] == scope


async def test_denial_leads_back_with_access_denied(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            page = await ada.submit(await ada.open(client.authorization_url()), {"decision": "deny"})
            connections = await ada.open(f"{server.url}/connect")

    assert page.answer["error"] == "access_denied"
    assert (page.answer["state"], page.answer["iss"]) == (client.state, server.url)
    assert "No application has access." in connections.words


async def test_same_request_is_not_asked_twice(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
            first = await ada.submit(
                await ada.open(client.authorization_url()), {"source_chats": None, "decision": "allow"}
            )
            again = await ada.open(client.authorization_url())
            less = await ada.open(client.authorization_url(scope=READ))
            after_sign_in = await ada.open(client.authorization_url(), **{"Sec-Fetch-Site": "same-origin"})
            other_user = await bob.open(client.authorization_url())
            forced = await ada.open(client.authorization_url(prompt="consent"))
        token = (await client.redeem(again.answer["code"])).json()["access_token"]
        principal = await server.runtime.authenticator.authenticate(f"Bearer {token}")

    assert first.answer["code"] != again.answer["code"]
    assert "code" in less.answer
    assert principal.sources == frozenset(("notes", "media", "characters", "prompts")), (
        "the decision is remembered as it was"
    )
    assert (after_sign_in.status, "code=floc_" in after_sign_in.text) == (200, True)
    assert "Allow" in other_user.words
    assert "Allow" in forced.words


async def test_connection_that_was_never_used_is_replaced(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        database = server.runtime.registry.database
        async with open_browser(server, "ada") as ada:
            for _ in range(3):
                await client.code(ada)
                await database.write(lambda db: db.execute("UPDATE oauth_codes SET expires_at = 1"))
            await client.connect(ada)
            await client.connect(ada)
        count = await database.read(lambda db: db.execute("SELECT count(*) FROM oauth_grants").fetchone()[0])

    assert count == 2


async def test_least_recently_used_connection_ends_at_the_limit(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, oauth_connections_max_per_user=2)) as server:
        tokens = [(await connect(server, "ada"))[1]["access_token"]]
        of_bob = (await connect(server, "bob"))[1]["access_token"]
        tokens += [(await connect(server, "ada"))[1]["access_token"] for _ in range(2)]
        users = [await user_of(server, token) for token in (*tokens, of_bob)]

    assert users == ["401", "ada", "ada", "bob"]


@each_case("change", ["scope", "resource", "redirect", "client"])
async def test_any_difference_is_asked_again(change: str, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        uris = ["https://app.example.com/callback", "https://app.example.com/other"]
        client = await OAuthTestClient.register(server, redirect_uris=uris)
        other = await OAuthTestClient.register(server, redirect_uris=uris)
        urls = {
            "scope": client.authorization_url(scope=f"{READ} {WRITE}"),
            "resource": client.authorization_url(scope=READ, resource=f"{server.mcp}/research"),
            "redirect": client.authorization_url(scope=READ, redirect_uri=uris[1]),
            "client": other.authorization_url(scope=READ),
        }
        async with open_browser(server, "ada") as ada:
            await client.connect(ada, scope=READ)
            page = await ada.open(urls[change])

    assert (page.status, page.location) == (200, "")
    assert "Allow" in page.words


async def test_client_that_asks_for_more_later_gets_more_after_consent(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await OAuthTestClient.register(server)
        async with open_browser(server, "ada") as ada:
            tokens = await client.connect(ada, scope=READ)
            refused = await call(server, tokens["access_token"], "notes_create")
            more = await client.connect(ada, scope=f"{READ} {WRITE}")
        allowed = await call(server, more["access_token"], "notes_create")

    assert refused.status == 403
    assert f'scope="{WRITE}"' in (refused.header("www-authenticate") or "")
    assert allowed.status == 200


async def test_connections_show_last_use_and_end_at_the_next_call(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client, tokens = await connect(server, "ada", client_name="Desk App")
        _, others = await connect(server, "bob", client_name="Other App")
        before = await user_of(server, tokens["access_token"])
        async with open_browser(server, "ada") as ada, open_browser(server, "bob") as bob:
            used = await ada.open(f"{server.url}/connect")
            stolen = await bob.submit(
                await bob.open(f"{server.url}/connect"),
                {"connection": used.form_to(APPLICATIONS).values["connection"]},
                APPLICATIONS,
            )
            still = await user_of(server, tokens["access_token"])
            ended = await ada.submit(used, action=APPLICATIONS)
            asked = await ada.open(client.authorization_url())
        after = await user_of(server, tokens["access_token"])
        refreshed = await client.refresh(tokens["refresh_token"])
        other = await user_of(server, others["access_token"])

    assert "last used just now" in used.words
    assert "Other App" not in used.words
    assert (stolen.status, before, still, after, other) == (404, "ada", "ada", "401", "bob")
    assert "No application has access." in ended.words
    assert refreshed.json()["error"] == "invalid_grant"
    assert "Allow" in asked.words, "a decision that was withdrawn is not remembered"
