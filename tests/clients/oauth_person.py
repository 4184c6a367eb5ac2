"""A person with a browser, for programs that connect by OAuth: signs in, allows access, and returns to the program."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from msgspec import Struct

from auth.accounts.service import Accounts
from tests.clients.node_tools import environment, node
from tests.clients.programs import ProgramResult
from tests.live import HTTP_OPTIONS, LiveServer
from tests.server.oauth.browser import Page, open_browser

PASSWORD = "a long enough passphrase"


class Person(Struct, frozen=True):
    """Someone with an account. Every visit starts in a browser without a session."""

    server: LiveServer
    name: str

    async def allow(self, url: str, **changes: str | None) -> Page:
        """Opens an authorization request, signs in and allows it. The page leads back to the program. `changes` are
        those that the person makes in the form."""
        async with open_browser(self.server) as browser:
            sign_in = await browser.open(url)
            consent = await browser.submit(sign_in, {"name": self.name, "password": PASSWORD})
            return await browser.submit(consent, {"decision": "allow", **changes})

    async def allow_and_return(self, url: str) -> None:
        """Does the same, and opens the address to which the page leads: a program that listens on this machine."""
        page = await self.allow(url)
        assert page.location, page.words
        async with httpx2.AsyncClient(**HTTP_OPTIONS) as http:
            response = await http.get(page.location)
            assert response.status_code < 400, response.text


async def add_person(server: LiveServer, name: str) -> Person:
    accounts = Accounts(server.runtime.settings, server.runtime.registry.database)
    link = await accounts.links.create_invitation("writer", name)
    await accounts.redeem_link("invitation", link.path.rpartition("/")[2], name, PASSWORD)
    return Person(server, name)


async def run_node_with(
    person: Person,
    *arguments: str,
    directory: Path,
    extra_environment: Mapping[str, str],
    timeout_s: float,
    stdin: bytes = b"",
    last_output: str = "",
) -> ProgramResult:
    """Runs a Node program. The person opens the first authorization request that it prints. Its standard input ends
    after `last_output`."""
    process = await asyncio.create_subprocess_exec(
        node(),
        *arguments,
        cwd=directory,
        env={**environment(extra_environment), "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(stdin)
    visit = _Visit(person, process.stdin, last_output)
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await asyncio.gather(visit.read(process.stdout), visit.read(process.stderr))
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return ProgramResult(code, stdout, stderr)


class _Visit:
    def __init__(self, person: Person, stdin: asyncio.StreamWriter, last_output: str) -> None:
        self._person = person
        self._stdin = stdin
        self._last_output = last_output
        self._pattern = re.compile(re.escape(person.server.url) + r"/authorize\?[^\s\"'\x1b]+")
        self._is_done = False

    async def read(self, stream: asyncio.StreamReader) -> str:
        text = ""
        while part := await stream.read(65_536):
            text += part.decode()
            if self._last_output in text:
                self._stdin.close()
            # The URL is complete once the line is.
            if not self._is_done and (match := self._pattern.search(text)) and match.end() < len(text):
                self._is_done = True
                await self._person.allow_and_return(match[0])
        return text


@asynccontextmanager
async def people(server: LiveServer) -> AsyncIterator[tuple[Person, Person]]:
    """Yields two people with accounts."""
    yield await add_person(server, "ada"), await add_person(server, "bob")
