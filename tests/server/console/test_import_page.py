"""The import page and its form, as a browser without JavaScript uses them."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest

from auth.context import Role
from auth.follows import Deployment, Deployments
from config.errors import InvalidParams
from server.console.import_page import read_upload_form
from tests.cases import each_case
from tests.server.console.signed_in import HTML, csrf_token, page_text, session_cookie
from tests.server.following.tldw_deployment import make_user
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

BOUNDARY = "----boundary7"
NOTE = b"# Tea\nSteep for three minutes.\r\n------boundary\r\n"


def multipart(fields: Mapping[str, str], filename: str = "", content: bytes = b"") -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n'.encode() for n, v in fields.items()
    ]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n'
    parts.append(f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + content + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


class ImportBrowser:
    """A browser in which a user is signed in."""

    def __init__(self, api: RestClient, cookie: str) -> None:
        self._api = api
        self._cookie = cookie

    async def page(self, path: str = "/import") -> str:
        return (await self._api.get(path, None, accept=HTML, cookie=self._cookie)).body.decode()

    async def send(self, body: bytes, path: str = "/import", **headers: str) -> HttpResponse:
        own = {
            "accept": HTML,
            "cookie": self._cookie,
            "content-type": f"multipart/form-data; boundary={BOUNDARY}",
            "origin": self._api.server.runtime.settings.base_url,
        }
        return await self._api.request("POST", path, None, {**own, **headers}, body)

    async def upload(self, filename: str, content: bytes, **fields: str) -> HttpResponse:
        return await self.send(multipart({"csrf_token": csrf_token(await self.page()), **fields}, filename, content))

    async def finish(self, response: HttpResponse) -> str:
        """Returns the page that the response leads to, once the import has ended."""
        assert response.status == 303, response.body.decode()
        location = (response.header("location") or "").partition("#")[0]
        job = location.rpartition("=")[2]
        await self._api.get(f"/api/v1/import/{job}/events", None, cookie=self._cookie)
        return await self.page(location)


async def sign_in(api: RestClient, name: str, role: Role = "writer") -> ImportBrowser:
    user = await api.server.user(name)
    await api.server.runtime.registry.set_role(user.id, role)
    return ImportBrowser(api, await session_cookie(api, name))


def states(page: str) -> list[str]:
    return re.findall(r'<li id="import-[0-9a-f]+" data-state="(\w+)">', page)


async def test_form_imports_a_file_for_its_owner_only(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    browser, other = await sign_in(api, "ada"), await sign_in(api, "ben")

    page = await browser.finish(await browser.upload("Grüner Tee.md", NOTE))

    assert states(page) == ["done"]
    assert "<details open>" in page
    assert re.search(r"<strong>Grüner Tee.md</strong>.*1 new", page)
    assert len(await ada.search("knowledge_search", "steep", dedupe="off")) == 1
    assert await ben.search("knowledge_search", "steep", dedupe="off") == []
    assert states(await other.page()) == []
    assert "Grüner Tee" not in await other.page()


async def test_administrators_see_followed_deployments(api: RestClient, tmp_path: Path) -> None:
    make_user(tmp_path, 7)
    deployment = await Deployments(api.server.runtime.registry.database).add(Deployment(location=str(tmp_path)))

    admin, writer = await sign_in(api, "ada", "admin"), await sign_in(api, "ben")

    page = await admin.page()
    assert f"<strong>{tmp_path}</strong>" in page
    assert "Tldw user 7: no user is named" in page.replace("&#39;", "'")
    assert str(tmp_path) not in await writer.page()
    await Deployments(api.server.runtime.registry.database).remove(deployment.id)


async def test_dry_run_writes_nothing_and_says_so(api: RestClient, ada: LibraryUser) -> None:
    browser = await sign_in(api, "ada")

    page = await browser.finish(await browser.upload("tea.md", NOTE, dry_run="true"))

    assert re.search(r'<span class="tag">dry run</span> <span class="result">1 found</span>', page)
    assert "Dry run: nothing was written. It does not look into the library: what is already there counts, too." in page
    assert await ada.search("knowledge_search", "steep", dedupe="off") == []


async def test_file_that_cannot_be_read_is_reported_with_its_problem(api: RestClient, ada: LibraryUser) -> None:
    browser = await sign_in(api, "ada")

    page = await browser.finish(await browser.upload("odd<b>.bin", b"\0unsupported"))
    wrong_format = await browser.finish(await browser.upload("tea.md", NOTE, format="chatgpt"))

    assert states(page) == ["failed"]
    assert '<span class="result">unsupported format' in page
    assert "<td>odd&lt;b&gt;.bin</td><td>unsupported format" in page
    assert states(wrong_format)[0] == "failed"


async def test_form_without_a_file_or_with_an_unknown_format_is_answered_on_the_page(api: RestClient) -> None:
    browser = await sign_in(api, "ada")

    nothing = await browser.upload("", b"")
    format_ = await browser.finish(await browser.upload("tea.md", NOTE, format="<b>"))

    assert (nothing.status, "File: expected a file, got none." in nothing.body.decode()) == (400, True)
    assert "format: expected one of own_export" in format_
    assert "<b>" not in format_


async def test_form_needs_the_token_of_the_session_and_the_right_to_write(api: RestClient, ada: LibraryUser) -> None:
    writer, reader = await sign_in(api, "ada"), await sign_in(api, "ben", "reader")

    wrong = await writer.send(multipart({"csrf_token": "wrong"}, "tea.md", NOTE))
    foreign = await writer.send(multipart({}, "tea.md", NOTE), origin="https://evil.example")
    plain = await writer.send(b"csrf_token=x", **{"content-type": "application/x-www-form-urlencoded"})
    refused = await reader.send(multipart({}, "tea.md", NOTE))

    assert [response.status for response in (wrong, foreign, plain, refused)] == [403, 403, 415, 403]
    assert "Not allowed" in await reader.page()
    assert 'href="/import"' not in await page_text(api, "/library", "ben")
    assert states(await writer.page()) == []


async def test_import_of_another_user_cannot_be_cancelled(api: RestClient, ada: LibraryUser) -> None:
    browser, other = await sign_in(api, "ada"), await sign_in(api, "ben")
    page = await browser.finish(await browser.upload("tea.md", NOTE))
    job = re.findall(r'id="import-([0-9a-f]+)"', page)[0]
    form = {"content-type": "application/x-www-form-urlencoded"}

    own = await browser.send(f"csrf_token={csrf_token(page)}&job={job}".encode(), "/import/cancel", **form)
    token = csrf_token(await other.page())
    foreign = await other.send(f"csrf_token={token}&job={job}".encode(), "/import/cancel", **form)

    assert (own.status, own.header("location")) == (303, f"/import?job={job}#import-{job}")
    assert foreign.status == 404


async def test_followed_source_is_added_paused_and_removed_by_its_owner(
    api: RestClient, ada: LibraryUser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    browser, other = await sign_in(api, "ada", "admin"), await sign_in(api, "ben")
    vault = tmp_path_factory.mktemp("origin") / "vault <b>"
    vault.mkdir()
    (vault / "Tea.md").write_text("Steep for three minutes.")
    form = {"content-type": "application/x-www-form-urlencoded"}

    async def send(who: ImportBrowser, path: str, **values: str) -> HttpResponse:
        token = csrf_token(await who.page())
        return await who.send(urlencode({"csrf_token": token, **values}).encode(), path, **form)

    refused = await send(other, "/import/follows", location=str(vault))
    added = await send(browser, "/import/follows", location=str(vault))
    assert added.status == 303, added.body.decode()
    page = await browser.page()
    (follow,) = set(re.findall(r'name="follow" value="(\w+)"', page))
    foreign = await send(other, "/import/follows/change", follow=follow, action="remove")
    paused = await send(browser, "/import/follows/change", follow=follow, action="pause")
    paused_page = await browser.page()
    removed = await send(browser, "/import/follows/change", follow=follow, action="remove")

    assert (refused.status, added.status, paused.status, removed.status) == (400, 303, 303, 303)
    assert "vault &lt;b&gt;" in page
    assert 'data-state="paused"' in paused_page
    assert foreign.status == 404
    assert "vault &lt;b&gt;" not in await browser.page()
    assert "vault &lt;b&gt;" not in await other.page()


@each_case(
    "body",
    [
        b"",
        b"no boundary",
        multipart({"a": "b"}, "x", b"y")[:-20],
        f"--{BOUNDARY}\r\n\r\n--{BOUNDARY}--".encode(),
        multipart({f"field{n}": "" for n in range(40)}, "x", b"y"),
        multipart({"long": "x" * 9_000}, "x", b"y"),
        multipart({}, "x", b"y").replace(b'name="file"', b"name"),
        multipart({"a": "b"}, "x", b"y").replace(b"\r\nb", b"\r\n\xff"),
    ],
)
async def test_malformed_form_is_rejected(api: RestClient, body: bytes) -> None:
    browser = await sign_in(api, "ada")

    assert (await browser.send(body)).status == 400


def test_file_in_a_form_is_read_as_it_was_sent() -> None:
    content = bytes(range(256)) * 5_000
    with tempfile.TemporaryFile() as body:
        body.write(multipart({"format": "markdown"}, "a.md", content))
        values, name, file = read_upload_form(f"multipart/form-data; boundary={BOUNDARY}", body)
        assert (values, name, file.read()) == ({"format": "markdown"}, "a.md", content)
        with pytest.raises(InvalidParams, match="boundary"):
            read_upload_form("multipart/form-data", body)
