"""Links: the first administrator, invitations and new passwords."""

import io
import time
from pathlib import Path

import pytest

from auth.accounts.service import AccountLinks
from auth.authenticator import local_principal
from auth.context import SCOPES, build_context
from auth.tokens import mint_token
from sources.drafts import NoteDraft
from tests.cases import each_case
from tests.server.console.console_fixture import OTHER_PASSWORD, PASSWORD, Console, console, read_form, text_of
from tests.server.test_source_permissions import PAGES


async def test_setup_link_creates_the_first_administrator_once(tmp_path: Path) -> None:
    async with console(tmp_path) as site:
        link = await site.links.create_setup()
        assert link is not None
        async with site.browser() as browser, site.browser() as other:
            response = await browser.open_link(link.path, "ada")
            assert response.headers["Location"] == "/"
            assert "Role: admin" in text_of((await browser.get("/account")).text)

            assert (await other.get(link.path)).status_code == 404
        assert await site.links.create_setup() is None


@pytest.mark.sqlite
async def test_first_administrator_can_take_over_the_library_of_the_single_user(tmp_path: Path) -> None:
    async with console(tmp_path) as site:
        link = await site.links.create_setup()
        assert link is not None
        async with site.browser() as browser:
            # Nothing is offered on a server that never had a single user.
            assert "adopt_local" not in (await browser.get(link.path)).text
            registry = site.server.runtime.registry
            local = await registry.ensure_user("", "local", role="admin", named_by="operator")
            context = build_context(local_principal(local), site.server.runtime.data_root, "test", is_agent=False)
            async with site.server.runtime.libraries.library(context) as library:
                await library.notes.create(NoteDraft(title="Comet", content="tail"))

            assert "which belongs to the user local" in text_of((await browser.get(link.path)).text)
            await browser.open_link(link.path, "ada", adopt_local="1")
        for name, items in (("ada", 1), ("local", 0)):
            user = await registry.user_by_name(name)
            assert user is not None
            context = build_context(local_principal(user), site.server.runtime.data_root, "test", is_agent=False)
            async with site.server.runtime.libraries.library(context) as library:
                assert (await library.usage()).items == items


async def test_new_setup_link_replaces_the_earlier_one(tmp_path: Path) -> None:
    async with console(tmp_path) as site, site.browser() as browser:
        first, second = await site.links.create_setup(), await site.links.create_setup()
        assert first is not None
        assert second is not None

        assert (await browser.get(first.path)).status_code == 404
        assert (await browser.get(second.path)).status_code == 200


async def test_setup_link_ends_when_an_account_exists(tmp_path: Path) -> None:
    async with console(tmp_path) as site, site.browser() as browser:
        link = await site.links.create_setup()
        assert link is not None
        page = await browser.get(link.path)
        await site.add_account("ada")

        assert page.status_code == 200
        assert (await browser.get(link.path)).status_code == 404


async def test_invitation_creates_a_user_with_its_role(site: Console) -> None:
    link = await site.links.create_invitation("reader")
    async with site.browser() as browser:
        await browser.open_link(link.path, "carl")
        page = text_of((await browser.get("/account")).text)

        assert "carl" in page
        assert "Role: reader" in page
        assert (await browser.get(link.path)).status_code == 404


async def test_name_of_an_invitation_cannot_be_changed(site: Console) -> None:
    link = await site.links.create_invitation("writer", "carl")
    async with site.browser() as browser:
        await browser.open_link(link.path, "mallory")

    assert await site.server.runtime.registry.user_by_name("carl") is not None
    assert await site.server.runtime.registry.user_by_name("mallory") is None


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ben", "A user named 'ben' already exists."),
        ("BEN", "already exists"),
        ("../x", "Expected 1 to 128 of the characters"),
        ("", "Expected 1 to 128 of the characters"),
        ("<b>", "Expected 1 to 128 of the characters"),
    ],
)
async def test_invitation_does_not_take_an_existing_or_invalid_name(site: Console, name: str, sentence: str) -> None:
    link = await site.links.create_invitation("writer")
    async with site.browser() as browser:
        response = await browser.open_link(link.path, name, OTHER_PASSWORD)
        assert sentence in text_of(response.text)
        assert (await browser.open_link(link.path, "carl")).status_code == 303
        async with site.browser() as bens:
            assert (await bens.sign_in("ben")).status_code == 303


async def test_different_passwords_do_not_use_up_a_link(site: Console) -> None:
    link = await site.links.create_invitation("writer", "carl")
    async with site.browser() as browser:
        response = await browser.submit(link.path, {"password": PASSWORD, "repeated": OTHER_PASSWORD})

        assert "The two passwords differ." in text_of(response.text)
        assert (await browser.open_link(link.path, "carl")).status_code == 303


async def test_reset_sets_the_password_of_its_user_only(site: Console) -> None:
    ada = await site.server.user("ada")
    first, link = await site.links.create_reset(ada), await site.links.create_reset(ada)
    async with site.browser() as old, site.browser() as new, site.browser() as bens:
        await old.sign_in("ada")
        await bens.sign_in("ben")
        assert (await new.get(first.path)).status_code == 404
        await new.open_link(link.path, "ben", OTHER_PASSWORD)

        assert "ada" in text_of((await new.get("/account")).text)
        assert (await old.get("/account")).status_code == 303
        assert (await old.sign_in("ada", PASSWORD)).status_code == 403
        assert (await bens.get("/account")).status_code == 200
        assert (await bens.get(link.path)).status_code == 404


@each_case("kind", ["setup", "invitation", "reset"])
async def test_expired_link_is_refused(tmp_path: Path, kind: str) -> None:
    async with console(tmp_path) as site, site.browser() as browser:
        database = site.server.runtime.registry.database
        past = AccountLinks(database, lambda: time.time() - 400 * 86400)
        match kind:
            case "setup":
                created = await past.create_setup()
            case "invitation":
                created = await past.create_invitation("admin")
            case _:
                created = await past.create_reset(await site.server.user("ada"))
        assert created is not None

        assert (await browser.get(created.path)).status_code == 404


async def test_secret_of_one_kind_does_not_open_another(site: Console) -> None:
    link = await site.links.create_invitation("reader")
    secret = link.path.rpartition("/")[2]
    async with site.browser() as browser:
        for kind in ("setup", "reset"):
            assert (await browser.get(f"/{kind}/{secret}")).status_code == 404


async def test_invitations_of_someone_who_lost_the_right_end(site: Console) -> None:
    registry = site.server.runtime.registry
    ada = await site.server.user("ada")
    link = await site.links.create_invitation("admin", created_by=ada.id)
    async with site.browser() as browser:
        assert (await browser.get(link.path)).status_code == 200
        await registry.set_role(ada.id, "writer")

        assert (await browser.get(link.path)).status_code == 404


async def test_chosen_name_is_not_the_identity_of_a_token(site: Console) -> None:
    """A person who chooses the `sub` of someone else gets no calls of that person, and that person no access."""
    link = await site.links.create_invitation("writer")
    async with site.browser() as browser:
        await browser.open_link(link.path, "0f3b-99c1")
        token = mint_token(site.settings, "0f3b-99c1", SCOPES, lifetime_s=60, now=time.time(), client_id="test")
        response = await browser.get("/api/v1/usage", headers={"Authorization": f"Bearer {token}"})

    assert response.status_code == 401


async def test_two_people_with_one_invitation_get_one_account(site: Console) -> None:
    link = await site.links.create_invitation("writer")
    async with site.browser() as first, site.browser() as second:
        await second.get(link.path)
        page = await second.get(link.path)
        assert (await first.open_link(link.path, "carl")).status_code == 303
        values, _ = read_form(page.text)
        response = await second.client.post(
            link.path, data=values | {"name": "dora", "password": PASSWORD, "repeated": PASSWORD}
        )

    assert response.status_code == 404
    assert await site.server.runtime.registry.user_by_name("dora") is None


async def test_link_of_another_site_cannot_create_an_account(site: Console) -> None:
    """A form of another site, with a link that its owner made for this server, would sign the visitor in to an account
    of the other site's choice."""
    link = await site.links.create_invitation("writer")
    async with site.browser(Origin="https://evil.example") as browser:
        response = await browser.client.post(
            link.path, data={"name": "mallory", "password": PASSWORD, "repeated": PASSWORD}
        )

    assert response.status_code == 403
    assert await site.server.runtime.registry.user_by_name("mallory") is None


async def test_secret_of_a_link_is_not_stored(site: Console) -> None:
    link = await site.links.create_invitation("writer")

    assert link.path.rpartition("/")[2] not in repr(await site.rows("SELECT * FROM account_links"))


async def test_secret_of_a_link_is_not_logged(tmp_path: Path, log: io.StringIO) -> None:
    async with console(tmp_path, log_requests=True) as site:
        link = await site.links.create_invitation("writer")
        async with site.browser() as browser:
            await browser.open_link(link.path, "carl")

    assert "POST /invitation/… 303" in log.getvalue()
    assert link.path.rpartition("/")[2] not in log.getvalue()


async def test_no_page_with_a_secret_in_its_address_logs_it(tmp_path: Path, log: io.StringIO) -> None:
    async with console(tmp_path, log_requests=True) as site, site.browser() as browser:
        paths = [path for path in PAGES if "{secret}" in path]
        for path in paths:
            await browser.client.get(path.format(secret="CANARY"))

    assert "/join/{secret}" in paths
    assert log.getvalue().count("/… ") == len(paths)
    assert "CANARY" not in log.getvalue()
