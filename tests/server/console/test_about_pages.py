"""The pages about a deployment, which an operator can replace."""

from pathlib import Path

from server.console.about_pages import ABOUT_PAGES
from tests.cases import each_case
from tests.server.console.console_fixture import Console, console


@each_case("page", ABOUT_PAGES)
async def test_default_page_is_shown_without_a_sign_in(site: Console, page: str) -> None:
    async with site.browser() as browser:
        response = await browser.get(f"/about/{page}")

    assert response.status_code == 200
    assert response.text.count("<h1") == 1
    assert f"<title>{page.title()} · Florilegium</title>" in response.text


async def test_file_of_the_operator_replaces_a_page_and_cannot_add_scripts(tmp_path: Path) -> None:
    async with console(tmp_path) as site, site.browser() as browser:
        folder = tmp_path / "pages"
        folder.mkdir()
        (folder / "privacy.md").write_text(
            "# Our *rules*\n\n<script>x()</script> [us](javascript:x) [ok](https://a.example)\nnext line"
        )
        (folder / "secret.md").write_text("# Not a page")
        changed, other = await browser.get("/about/privacy"), await browser.get("/about/terms")
        unknown = await browser.get("/about/secret")

    assert "<title>Our *rules* · Florilegium</title>" in changed.text
    assert "<script>" not in changed.text
    assert "javascript:x" not in changed.text.replace("(javascript:x)", "")
    assert '<a href="https://a.example"' in changed.text
    assert "<br" not in changed.text
    assert "Apache 2.0" in other.text
    assert unknown.status_code == 404


async def test_page_that_cannot_be_read_is_not_replaced_by_the_default(tmp_path: Path, failures: list[str]) -> None:
    async with console(tmp_path) as site, site.browser() as browser:
        (tmp_path / "pages" / "privacy.md").mkdir(parents=True)
        response = await browser.get("/about/privacy")
        failures.clear()

    assert response.status_code == 500


async def test_sign_in_page_console_and_metadata_link_to_the_pages(site: Console) -> None:
    async with site.browser() as browser:
        sign_in = (await browser.get("/sign-in")).text
        await browser.sign_in("ada")
        library = (await browser.get("/library")).text
        issuer = (await browser.get("/.well-known/oauth-authorization-server")).json()
        resource = (await browser.get("/.well-known/oauth-protected-resource")).json()

    for page in ABOUT_PAGES:
        assert f'href="/about/{page}"' in sign_in
        assert f'href="/about/{page}"' in library
    about = f"{site.settings.base_url}/about"
    assert (issuer["op_policy_uri"], issuer["op_tos_uri"]) == (f"{about}/privacy", f"{about}/terms")
    assert issuer["service_documentation"] == resource["resource_documentation"] == f"{about}/documentation"
    assert (resource["resource_policy_uri"], resource["resource_tos_uri"]) == (f"{about}/privacy", f"{about}/terms")
