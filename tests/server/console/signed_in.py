"""Requests of a person who is signed in with a browser."""

from html import unescape
from re import findall, search

from auth.browser_sessions import session_cookie_name
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient

HTML = "text/html,application/xhtml+xml,*/*;q=0.8"


async def session_cookie(api: RestClient, name: str) -> str:
    """Signs a user in and returns the cookie of the browser."""
    runtime = api.server.runtime
    secret = await runtime.browser_sessions.create(await api.server.user(name))
    return f"{session_cookie_name(runtime.settings)}={secret}"


async def open_page(api: RestClient, path: str, name: str = "ada", cookie: str = "") -> HttpResponse:
    return await api.get(path, None, accept=HTML, cookie=cookie or await session_cookie(api, name))


async def page_text(api: RestClient, path: str, name: str = "ada", cookie: str = "") -> str:
    response = await open_page(api, path, name, cookie)
    assert response.status == 200, response.body.decode()
    return response.body.decode()


def hit_titles(page: str) -> list[str]:
    """Returns the titles of the results on a search page."""
    return [unescape(title) for title in findall(r'<li class="hit"[^>]*>\s*<h[23]><a href="[^"]*">(.*?)</a>', page)]


def csrf_token(page: str) -> str:
    found = search(r'name="csrf_token" value="([^"]+)"', page)
    assert found is not None, "the page has no form"
    return found[1]
