"""Third-party sources that misbehave: one that shows whose context it gets, and others that fail, hang, block, exit,
return false rows or far too many.

Two users call the tools of all sources at the same time. Nobody may get the context or the items of the other, and the
own items must be found in every response. A source is code of the server's process, so what it does on purpose, such as
reading other files, is not tried here: nothing would stop it.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.attack.app_client import AttackRequest, InProcessClient
from tests.attack.leak_detector import LeakDetector, new_canary
from tests.live import NO_RATE_LIMITS, LiveServer, live, make_settings
from tests.server.clients import message, modern_headers, modern_params
from tests.server.rest.rest_client import rest_client_of
from tests.sources.weather_source import WEATHER, distribution_directory, install

_HEAD = "import asyncio, threading\nfrom msgspec.structs import replace\nRELEASE = threading.Event()\n"
_SEARCH = "    async def search(self, context, library, args):\n"
_LIST = "    async def list_items(self, context, library, limit, offset):\n"
_WORD = "rain"
# The body of `search` and `list_items`. `{note}` is a note of another user.
BODIES: Mapping[str, str] = {
    "raises": "raise ZeroDivisionError(context.principal.user_name)",
    "hangs": "await asyncio.sleep(3600)",
    "blocks": "RELEASE.wait()",
    "exits": "raise SystemExit(3)",
    "cancels": "raise asyncio.CancelledError",
    "nothing": "return None",
    "false": "return hits_from_response(SearchResponse(results=({row},) * 50, has_more=False, next_offset=None, "
    "total_estimated=50))",
}
_FALSE_ROW = (
    'ResultItem(id="{note}", source="notes", title="rain", snippet="rain", uri="notes://{note}", score=1.0, '
    "created_at=None, last_modified=None, version=1, tags=None)"
)
_USERS = ("ada", "ben")


class PluginResult(Struct):
    calls: int
    sources: int
    leaks: list[str]
    failures: list[str]


async def attack_plugins(directory: Path, rounds: int, bodies: Mapping[str, str] = BODIES) -> PluginResult:
    """Each round is a search over all sources, a list, and a read of a false row, by each user at the same time."""
    parent = directory / "plugins"
    parent.mkdir()
    result = PluginResult(0, len(bodies) + 1, [], [])
    notes = {name: f"00000000-0000-4000-8000-0000000000a{number}" for number, name in enumerate(_USERS)}
    with distribution_directory(parent) as site:
        _install_all(site, notes["ada"], bodies)
        settings = make_settings(parent / "data", fanout_deadline_ms=400, breaker_failures=1000, **NO_RATE_LIMITS)
        try:
            async with live(settings) as server:
                await PluginAttack(server, notes, result).run(rounds)
        finally:
            for name in bodies:
                if (module := sys.modules.get(f"{name}_module")) is not None:
                    module.RELEASE.set()
    return result


def _install_all(site: Path, note: str, bodies: Mapping[str, str]) -> None:
    mirror = _code("mirror", "")
    install(site, "mirror_module", mirror, "mirror_module:Mirror")
    for name, body in bodies.items():
        code = body.replace("{row}", _FALSE_ROW).replace("{note}", note)
        install(site, f"{name}_module", _code(name, code), f"{name}_module:{name.title()}")


def _code(name: str, body: str) -> str:
    code = WEATHER.replace("weather", name).replace("Weather", name.title())
    if body:
        return _HEAD + code.replace(_SEARCH, f"{_SEARCH}        {body}\n").replace(_LIST, f"{_LIST}        {body}\n")
    # The mirror waits, so that calls of both users overlap, and then returns whom it was called for.
    search = (
        f"{_SEARCH}        await asyncio.sleep(0.01)\n"
        "        item = replace(self.item('monday'), snippet=f'rain for {context.user_id}')\n"
        "        return hits_from_response(SearchResponse(results=(item,), has_more=False, next_offset=None, "
        "total_estimated=1))\n"
    )
    return _HEAD + code.replace(_SEARCH, search)


class PluginAttack:
    def __init__(self, server: LiveServer, notes: Mapping[str, str], result: PluginResult) -> None:
        self._server = server
        self._notes = notes
        self._result = result
        self._client = InProcessClient(rest_client_of(server).app)
        self._canaries = {name: new_canary(name) for name in _USERS}

    async def run(self, rounds: int) -> None:
        for name, note in self._notes.items():
            user = await rest_client_of(self._server).library_user(name)
            await user.add_note(f"{_WORD} {self._canaries[name]}", f"{_WORD} {self._canaries[name]}", uuid=note)
        ids = {name: (await self._server.user(name)).id for name in _USERS}
        self._detector = LeakDetector(self._canaries)
        self._contexts = LeakDetector(ids)
        for _ in range(rounds):
            await asyncio.gather(*(self._round(name) for name in _USERS))

    async def _round(self, name: str) -> None:
        other = next(user for user in _USERS if user != name)
        found = await self._call(name, "tools/call", {"name": "knowledge_search", "arguments": {"query": _WORD}})
        if self._canaries[name].encode() not in found:
            self._result.failures.append(f"{name} did not find the own note: {found[:300]!r}")
        if (await self._server.user(name)).id.encode() not in found:
            self._result.failures.append(f"the mirror did not show the context of {name}: {found[:300]!r}")
        listed = await self._call(name, "resources/list", {})
        if self._notes[name].encode() not in listed:
            self._result.failures.append(f"the own note of {name} is not listed: {listed[:300]!r}")
        await self._call(
            name, "tools/call", {"name": "knowledge_get", "arguments": {"uri": f"notes://{self._notes[other]}"}}
        )
        await self._call(name, "resources/read", {"uri": "mirror://stations"})

    async def _call(self, name: str, method: str, params: dict[str, Any]) -> bytes:
        body = await self._post(name, method, params)
        self._result.calls += 1
        for owner in self._detector.owners_in(body, name) | self._contexts.owners_in(body, name):
            self._result.leaks.append(f"{name} got something of {owner} from {method} {params}")
        return body

    async def _post(self, name: str, method: str, params: dict[str, Any]) -> bytes:
        body = msgspec.json.encode(message(method, modern_params(params), 1))
        request = AttackRequest(method, "POST", "/mcp/full", modern_headers(method, params), body)
        response = await self._client.send(request, await self._server.bearer(name))
        if response.status >= 500:
            self._result.failures.append(f"{method} of {name}: {response.status} {response.body[:200]!r}")
        return response.body
