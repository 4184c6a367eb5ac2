"""Users under load: each creates notes, appends to them and searches, and repeats a write until it is acknowledged."""

import asyncio
import io
import zipfile
from collections import Counter
from collections.abc import Mapping
from time import monotonic
from typing import Any

import msgspec

from tests.server.clients import ModernClient
from tests.server.http_client import HttpResponse, fetch
from tests.server.workers.deployment import WAIT_MAX_S, WorkersDeployment

_RETRY_PAUSE_S = 0.05
# Between two notes: users load the server, but do not compete for all of it.
_THINKING_S = 0.05
_LINE = "A second line."
# What every user must be able to do again after a fault.
_ABILITIES = frozenset(("write", "search"))


class Fault(msgspec.Struct):
    """When something was killed, and when each user could write and search again, in a call that began afterwards."""

    at: float
    served: dict[tuple[str, str], float] = {}


class BusyUser:
    """One user. Every note and every search result of the user names them, so that a foreign one is recognized."""

    def __init__(self, deployment: WorkersDeployment, name: str, credential: Mapping[str, str]) -> None:
        self.name = name
        self._client = ModernClient(deployment, credential)
        self._url = deployment.url
        self._credential = credential
        self.acknowledged: list[str] = []
        self.problems: list[str] = []
        self.errors: Counter[str] = Counter()
        self.fault = Fault(at=0.0)

    async def run(self, stopping: asyncio.Event) -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            title = f"{self.name} {number}"
            created = await self._write("notes_create", title, title=title, content=f"The galleon {self._word(number)}")
            await self._write("notes_append", f"{title}+", note_id=created["id"], text=_LINE)
            self.acknowledged.append(title)
            await self._search(title, self._word(number))
            await asyncio.sleep(_THINKING_S)

    def _word(self, number: int) -> str:
        return f"{self.name}x{number}"

    async def _write(self, tool: str, key: str, **arguments: Any) -> dict[str, Any]:
        return await self._repeat("write", tool, {**arguments, "idempotency_key": key})

    async def _search(self, title: str, word: str) -> None:
        """The note that was written last is the best match, and all others that match are the user's own."""
        found = await self._repeat("search", "knowledge_search", {"query": f"galleon {word}"})
        titles = [item["title"] for item in found["results"]]
        if titles[:1] != [title] or not all(map(self.is_own, titles)):
            self.problems.append(f"searched {word}, found {titles}")

    def is_own(self, title: str) -> bool:
        return title.startswith(f"{self.name} ")

    async def _repeat(self, ability: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_MAX_S):
            while True:
                started_at = monotonic()
                content = await self._try(tool, arguments)
                if content is not None:
                    self._note_success(ability, started_at, content)
                    return content
                await asyncio.sleep(_RETRY_PAUSE_S)

    async def _try(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns None for every error after which a client repeats a call."""
        try:
            response = await self._client.call(tool, arguments)
        except (OSError, EOFError, TimeoutError) as error:
            self.errors[type(error).__name__] += 1
            return None
        if response.status != 200 or response.json()["result"].get("isError"):
            self._note_error(response)
            return None
        content: dict[str, Any] = response.json()["result"]["structuredContent"]
        failed = {report["error"] for report in content.get("sources", {}).values() if report["status"] != "ok"}
        self.errors.update(failed)
        return None if failed else content

    def _note_error(self, response: HttpResponse) -> None:
        text = _message(response)
        self.errors[f"{response.status} {text}"] += 1
        if response.status not in (200, 503):
            self.problems.append(f"{response.status} {text}")

    def _note_success(self, ability: str, started_at: float, content: Mapping[str, Any]) -> None:
        if started_at > self.fault.at and "session_error" not in content:
            self.fault.served.setdefault((self.name, ability), monotonic())

    async def stored(self) -> Counter[tuple[str, str]]:
        """Returns how often each title is stored with each text."""
        notes = await stored_notes(self._url, self._credential)
        return Counter((note["title"], note["content"]) for note in notes)

    def expected(self) -> Counter[tuple[str, str]]:
        return Counter((title, f"The galleon {title.replace(' ', 'x')}\n{_LINE}") for title in self.acknowledged)


async def stored_notes(url: str, credential: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns all notes of a user as an export has them."""
    exported = await fetch(url, "GET", "/api/v1/export", credential)
    archive = zipfile.ZipFile(io.BytesIO(exported.body))
    [name] = [name for name in archive.namelist() if name.endswith("notes.jsonl")]
    return [msgspec.json.decode(line) for line in archive.read(name).splitlines()]


def _message(response: HttpResponse) -> str:
    body = response.json()
    if "result" in body:
        return str(body["result"]["content"][0]["text"])
    return str(body.get("error", {}).get("message", body))


async def wait_until_served(users: list[BusyUser], fault: Fault) -> float:
    """Returns how many seconds it took until every user could write and search again."""
    async with asyncio.timeout(WAIT_MAX_S):
        while len(fault.served) < len(users) * len(_ABILITIES):
            await asyncio.sleep(0.005)
    return max(fault.served.values()) - fault.at
