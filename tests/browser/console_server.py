"""A server for the tests of pages in a browser, and people who are signed in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from auth.browser_sessions import session_cookie_name
from tests.browser.driver import BrowserDriver
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings

PHONE = {"viewport": {"width": 390, "height": 844}, "isMobile": True, "hasTouch": True}


class ConsoleServer(Struct, frozen=True):
    server: LiveServer

    async def run(self, browser: BrowserDriver, file: str, step: str, who: str | None = "ada", **options: Any) -> Any:
        """Runs a step as a person who is signed in, or without a session for a server that needs none."""
        cookie = None
        if who is not None:
            secret = await self.server.runtime.browser_sessions.create(await self.server.user(who))
            cookie = {"name": session_cookie_name(self.server.runtime.settings), "value": secret}
        return await asyncio.to_thread(browser.run, file, step, url=self.server.url, cookie=cookie, **options)


@asynccontextmanager
async def open_console(data_dir: Path, **changes: Any) -> AsyncIterator[ConsoleServer]:
    async with live(make_settings(data_dir, **{**NO_RATE_LIMITS, **changes})) as server:
        yield ConsoleServer(server)
