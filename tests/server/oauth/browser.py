"""A browser for tests: it keeps cookies, follows redirects on the server, and fills in forms as people do."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from lxml import html
from msgspec import Struct

from auth.browser_sessions import session_cookie_name
from tests.live import HTTP_OPTIONS, LiveServer
from tests.transport_requests import TRANSPORT_REQUESTS


class Form(Struct, frozen=True):
    """A form in the main part of a page. Checkboxes that are checked have the value `on`."""

    action: str
    values: Mapping[str, str]


class Page(Struct, frozen=True):
    status: int
    url: str
    location: str
    text: str
    headers: Mapping[str, str]

    @property
    def form(self) -> Form:
        """The first form."""
        return self.form_to("")

    def form_to(self, action: str) -> Form:
        """Returns the first form whose target contains `action`."""
        found = next(form for form in self._root.xpath("//main//form") if action in form.action)
        values = {
            field.get("name"): "on" if field.get("type") == "checkbox" else field.get("value", "")
            for field in found.iter("input")
            if field.get("name") and (field.get("type") != "checkbox" or field.get("checked") is not None)
        }
        return Form(urljoin(self.url, found.action), values)

    def link(self, prefix: str) -> str:
        """Returns the URL of the first link whose path starts with `prefix`."""
        hrefs: list[str] = [href for _, _, href, _ in self._root.iterlinks()]
        return next(urljoin(self.url, href) for href in hrefs if href.startswith(prefix))

    @property
    def words(self) -> str:
        """The text that people see."""
        return " ".join(self._root.text_content().split())

    @property
    def _root(self) -> Any:
        return html.fromstring(self.text)

    @property
    def answer(self) -> dict[str, str]:
        """The parameters with which the page leads back to a client."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.location).query).items()}

    @property
    def refusal(self) -> dict[str, str]:
        """The parameters of the link with which a page that refuses a request leads back to its client."""
        assert not self.location
        href: str = self._root.xpath("//main//a[@rel='noreferrer']/@href")[0]
        return {name: values[0] for name, values in parse_qs(urlsplit(href).query).items()}


class Browser:
    def __init__(self, client: httpx2.AsyncClient, origin: str) -> None:
        self._client = client
        self._origin = origin

    async def open(self, url: str, **headers: str) -> Page:
        """Opens a link, as from another site. Redirects are followed as long as they stay on the server."""
        navigation = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        return await self._follow(await self._send("GET", url, {**navigation, **headers}))

    async def submit(
        self, page: Page, changes: Mapping[str, str | None] | None = None, action: str = "", **headers: str
    ) -> Page:
        """Sends the first form of a page that leads to `action`. `changes` replace its values, or remove them if
        None."""
        form = page.form_to(action)
        values = {name: value for name, value in {**form.values, **(changes or {})}.items() if value is not None}
        own = {"Origin": self._origin, "Sec-Fetch-Site": "same-origin"}
        return await self._follow(await self._send("POST", form.action, {**own, **headers}, values))

    async def post(self, path: str, values: Mapping[str, str], **headers: str) -> Page:
        own = {"Origin": self._origin, "Sec-Fetch-Site": "same-origin"}
        return _page(await self._send("POST", urljoin(self._origin, path), {**own, **headers}, values))

    async def allow(self, url: str, changes: Mapping[str, str | None] | None = None) -> Page:
        """Opens an authorization request and allows it, unless an earlier decision is remembered."""
        page = await self.open(url)
        return page if page.location else await self.submit(page, {"decision": "allow", **(changes or {})})

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], values: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        TRANSPORT_REQUESTS.add()
        return await self._client.request(method, url, headers=dict(headers), data=dict(values) if values else None)

    async def _follow(self, response: httpx2.Response) -> Page:
        while response.is_redirect and urljoin(str(response.url), response.headers["location"]).startswith(
            self._origin
        ):
            url = urljoin(str(response.url), response.headers["location"])
            response = await self._send("GET", url, {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"})
        return _page(response)


@asynccontextmanager
async def open_browser(server: LiveServer, user: str | None = None) -> AsyncIterator[Browser]:
    """Yields a browser in which the user is signed in, if one is named."""
    async with httpx2.AsyncClient(**HTTP_OPTIONS) as client:
        if user is not None:
            secret = await server.runtime.browser_sessions.create(await server.user(user))
            client.cookies.set(session_cookie_name(server.runtime.settings), secret)
        yield Browser(client, server.url)


def _page(response: httpx2.Response) -> Page:
    return Page(
        response.status_code,
        str(response.url),
        response.headers.get("location", ""),
        response.text,
        {name.lower(): value for name, value in response.headers.items()},
    )
