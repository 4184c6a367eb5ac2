"""A browser for the tests of the web pages: it keeps cookies, reads the forms of pages and sends them."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from lxml import html
from msgspec import Struct

from auth.accounts.service import AccountLinks, Accounts
from auth.context import Role
from auth.registry import UserRecord
from config.settings import Settings
from tests.live import HTTP_OPTIONS, LiveServer, live, make_settings

PASSWORD = "correct lantern 42"
OTHER_PASSWORD = "another lantern 43"
# The smallest parameters, because tests hash many passwords.
FAST_HASHES = {"password_hash_memory_kib": 64, "password_hash_passes": 1}


class TestBrowser(Struct, frozen=True):
    """One browser. `client` gives access to cookies and headers."""

    __test__ = False

    client: httpx2.AsyncClient

    async def get(self, path: str, **arguments: Any) -> httpx2.Response:
        return await self.client.get(path, **arguments)

    async def submit(
        self, page: str, values: dict[str, str], action: str | None = None, **arguments: Any
    ) -> httpx2.Response:
        """Opens a page, fills its form (the first one that leads to `action`) and sends it."""
        response = await self.client.get(page)
        fields, target = read_form(response.text, action)
        return await self.client.post(target or page, data=fields | values, **arguments)

    async def sign_in(self, name: str, password: str = PASSWORD, **values: str) -> httpx2.Response:
        return await self.submit("/sign-in", {"name": name, "password": password, **values}, "/sign-in")

    async def open_link(self, path: str, name: str, password: str = PASSWORD, **more: str) -> httpx2.Response:
        return await self.submit(path, {"name": name, "password": password, "repeated": password, **more})


class Console(Struct, frozen=True):
    """A running server with accounts."""

    server: LiveServer

    @property
    def settings(self) -> Settings:
        return self.server.runtime.settings

    @property
    def links(self) -> AccountLinks:
        return AccountLinks(self.server.runtime.registry.database)

    @property
    def origin(self) -> str:
        parts = urlsplit(self.server.url)
        return f"{parts.scheme}://{parts.netloc}"

    @asynccontextmanager
    async def browser(self, **headers: str) -> AsyncIterator[TestBrowser]:
        names = {"Origin": self.origin, "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", **headers}
        async with httpx2.AsyncClient(**HTTP_OPTIONS, base_url=self.server.url, headers=names) as client:
            yield TestBrowser(client)

    async def add_account(self, name: str, role: Role = "writer", password: str = PASSWORD) -> UserRecord:
        """Creates a user with a password."""
        link = await self.links.create_invitation(role, name)
        accounts = Accounts(self.settings, self.server.runtime.registry.database)
        return await accounts.redeem_link("invitation", link.path.rpartition("/")[2], name, password)

    async def rows(self, query: str) -> list[Any]:
        return await self.server.runtime.registry.database.read(lambda db: db.execute(query).fetchall())


@asynccontextmanager
async def console(data_dir: Path, **changes: Any) -> AsyncIterator[Console]:
    async with live(make_settings(data_dir, **{**FAST_HASHES, **changes})) as server:
        yield Console(server)


def read_form(page: str, action: str | None = None) -> tuple[dict[str, str], str]:
    """Returns the values and the target of the first form that changes something, or of the first that leads to
    `action`."""
    forms: list[Any] = html.document_fromstring(page).forms  # type: ignore[attr-defined]  # missing in the stubs
    form = next(f for f in forms if (f.method == "POST" if action is None else f.action == action))
    return {name: value or "" for name, value in form.form_values()}, form.action or ""


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())
