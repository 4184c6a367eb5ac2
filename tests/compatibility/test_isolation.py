"""Two users on every route and every tool: what Ben is told is the same bytes whether or not Ada has a library, though
he names her items, her sessions, her threads and her agents; and nothing he does changes what is hers."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from msgspec import Struct

from server.reference import product_catalog
from server.rest.routes import rest_operations
from tests.compatibility.surface import (
    ROUTES,
    SILENT_TOOLS,
    TOOLS,
    WORD,
    Asked,
    filled,
    send,
    settle,
    settle_beside,
)
from tests.server.rest.rest_client import RestClient, open_rest_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Times, durations, and what is drawn at random: ids, handles, tokens, and the length and tag of a body that holds them.
_CHANCE = re.compile(
    rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?"
    rb'|(?<=ms":)[\d.]+|(?<=ms\\":)[\d.]+|(?<="created":)\d+'
    rb"|[\w-]{20,}|\b[\da-f]{16}\b|obs-\d+|(?<=content-length )\d+"
)
Act = Callable[["World", str], Awaitable[bytes]]
# They write nothing that can be asked for, though they are no GET.
_READING = frozenset(("search_knowledge", "export_conversation"))


def requests(*, reads: bool) -> list[Any]:
    return [
        pytest.param(asked, id=f"{name} {number}")
        for name, table in ROUTES.items()
        for number, asked in enumerate(table)
        if (asked.method == "GET" or name in _READING) == reads
    ]


def calls() -> list[Any]:
    return [
        pytest.param(name, given, id=f"{name} {number}")
        for name, table in TOOLS.items()
        for number, given in enumerate(table)
    ]


def without_chance(told: bytes, known: Mapping[str, Any]) -> bytes:
    """What a caller is told; what is Ada's stays in it, or it could not be missed."""
    hers = {value.encode() for value in known.values() if isinstance(value, str)}
    return _CHANCE.sub(lambda found: found[0] if found[0] in hers else b"*", told)


class World(Struct, frozen=True):
    """A server, and what is known of Ada's library."""

    api: RestClient
    known: Mapping[str, Any]

    async def hers(self) -> list[bytes]:
        """Everything of Ada's that a stranger could want to change."""
        paths = ("/conversations/export", "/namespaces", "/api/threads")
        return [(await self.api.request("GET", path, "ada")).body for path in paths]


@asynccontextmanager
async def two_worlds(root: Path) -> AsyncIterator[tuple[World, World]]:
    """One in which Ada has a library, and one in which there is no Ada. Ben has the same in both."""
    # Some refusals name the address of the server.
    same = {"port": 8765, "rate_user_per_minute": 0, "rate_tool_per_minute": 0, "rate_failures_per_minute": 0}
    async with open_rest_client(root / "beside", **same) as beside, open_rest_client(root / "alone", **same) as alone:
        known = await settle(beside, await beside.reader("ada"))
        for api in (beside, alone):
            await settle_beside(await api.reader("ben"))
        yield World(beside, known), World(alone, known)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[World, World]]:
    """For what changes nothing that others ask for."""
    async with two_worlds(tmp_path_factory.mktemp("shared")) as worlds:
        yield worlds


async def own_answer(worlds: tuple[World, World], act: Act) -> bytes:
    """What Ada is told, after Ben was told nothing of hers and has changed nothing."""
    beside, alone = worlds
    before = await beside.hers()
    told, told_alone = await act(beside, "ben"), await act(alone, "ben")
    assert without_chance(told, beside.known) == without_chance(told_alone, beside.known)
    assert await beside.hers() == before
    return await act(beside, "ada")


async def whole_answer(world: World, asked: Asked, who: str) -> bytes:
    status, headers, body = (await send(world.api, asked, world.known, who)).told()
    lines = [f"{name} {value}" for name, value in headers]
    return "\n".join([str(status), *lines, ""]).encode() + body


@pytest.mark.parametrize("asked", requests(reads=True))
async def test_a_read_answers_as_if_nobody_else_had_anything(shared: tuple[World, World], asked: Asked) -> None:
    own = await own_answer(shared, lambda world, who: whole_answer(world, asked, who))

    assert own.startswith(b"200")
    assert not asked.tells or WORD.encode() in own


@pytest.mark.parametrize("asked", requests(reads=False))
async def test_a_write_answers_as_if_nobody_else_had_anything(tmp_path: Path, asked: Asked) -> None:
    async with two_worlds(tmp_path) as worlds:
        own = await own_answer(worlds, lambda world, who: whole_answer(world, asked, who))

    assert own.startswith((b"200", b"201", b"202"))
    assert not asked.tells or WORD.encode() in own


@pytest.mark.parametrize(("name", "given"), calls())
async def test_a_tool_answers_as_if_nobody_else_had_anything(
    shared: tuple[World, World], name: str, given: Mapping[str, Any]
) -> None:
    async def act(world: World, who: str) -> bytes:
        reader = await world.api.reader(who)
        return msgspec.json.encode(await reader.request("tools/call", name=name, arguments=filled(given, world.known)))

    own = await own_answer(shared, act)

    assert b'"isError":true' not in own
    assert name in SILENT_TOOLS or WORD.encode() in own


async def test_every_route_is_in_the_table(shared: tuple[World, World]) -> None:
    operations = rest_operations(shared[0].api.server.runtime)

    assert {operation.id for operation in operations} == set(ROUTES)


async def test_every_tool_is_in_the_table() -> None:
    assert set(product_catalog().tools) == set(TOOLS)


async def test_what_is_told_of_another_would_be_noticed(shared: tuple[World, World]) -> None:
    [asked] = ROUTES["read_conversation"]

    async def careless(world: World, who: str) -> bytes:
        """As if the server did not look who asks."""
        return await whole_answer(world, asked, "ada" if world is shared[0] else who)

    with pytest.raises(AssertionError):
        await own_answer(shared, careless)


async def test_what_is_done_to_another_would_be_noticed(tmp_path: Path) -> None:
    [asked] = ROUTES["rename_conversation"]

    async def careless(world: World, who: str) -> bytes:
        await send(world.api, asked, world.known, "ada")
        return b""

    async with two_worlds(tmp_path) as worlds:
        with pytest.raises(AssertionError):
            await own_answer(worlds, careless)
