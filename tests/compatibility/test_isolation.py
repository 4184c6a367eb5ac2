"""Isolation of two users in every operation and tool: Ben gets the same bytes whether or not Ada has a library,
although he names her items, sessions, threads and agents; and nothing he does changes her data."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import msgspec
import pytest
from msgspec import Struct

from server.http_services import build_http_services
from server.rest.routes import rest_operations
from tests.cases import each_case
from tests.compatibility.sample_requests import (
    ROUTES,
    TOOLS,
    TOOLS_WITHOUT_CONTENT,
    WORD,
    SampleRequest,
    fill_library_of_ada,
    fill_library_of_ben,
    fill_placeholders,
    send,
)
from tests.live import NO_RATE_LIMITS
from tests.reference_pages import product_catalog
from tests.server.rest.rest_client import RestClient, open_rest_client

# Times, durations, and random values: ids, handles, tokens, and the length and ETag of a body that contains them.
_RANDOM = re.compile(
    rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?"
    rb'|(?<=ms":)[\d.]+|(?<=ms\\":)[\d.]+|(?<="created":)\d+'
    rb'|(?<="token":")\d{10}'
    rb"|k_[a-z2-7]{16}|g_[a-z2-7]{10}|(?<=\"id\":)\d{16}|[\w-]{20,}|\b[\da-f]{16}\b|obs-\d+|(?<=content-length )\d+"
)
Action = Callable[["Deployment", str], Awaitable[bytes]]
# Not GET requests, but they change nothing.
_READ_ONLY_POSTS = frozenset(("search_knowledge", "export_conversation"))


def sample_requests(*, is_read: bool) -> list[Any]:
    return [
        pytest.param(request, id=f"{name} {number}")
        for name, table in ROUTES.items()
        for number, request in enumerate(table)
        if (request.method == "GET" or name in _READ_ONLY_POSTS) == is_read
    ]


def sample_calls() -> list[Any]:
    return [
        pytest.param(name, arguments, id=f"{name} {number}")
        for name, table in TOOLS.items()
        for number, arguments in enumerate(table)
    ]


# Only in the answers of `get_usage` and `server_info`; also in the text of a tool result, where quotes are escaped.
_OWN_BYTES = re.compile(rb'\\*"bytes\\*": ?\d+(?=, ?\\*"max_bytes)')


def mask_random_values(response: bytes, values: Mapping[str, Any]) -> bytes:
    """Values of Ada's library are not masked, so that a leak is visible. The size of the caller's own files depends on
    when SQLite wrote its log back; `tests/server/test_quotas.py` checks that it is not that of another user."""
    response = _OWN_BYTES.sub(b"*", response)
    of_ada = {value.encode() for value in values.values() if isinstance(value, str)}
    return _RANDOM.sub(lambda match: match[0] if match[0] in of_ada else b"*", response)


class Deployment(Struct, frozen=True):
    """A server, and the placeholder values of Ada's library."""

    api: RestClient
    values: Mapping[str, Any]

    async def data_of_ada(self) -> list[bytes]:
        """Returns all data of Ada that another user could try to change."""
        paths = ("/conversations/export", "/namespaces", "/api/threads")
        return [(await self.api.request("GET", path, "ada")).body for path in paths]


@asynccontextmanager
async def two_servers(root: Path) -> AsyncIterator[tuple[RestClient, RestClient]]:
    # The same port, because some errors contain the server's URL.
    settings = {"port": 8765, **NO_RATE_LIMITS}
    async with (
        open_rest_client(root / "shared", **settings) as shared,
        open_rest_client(root / "alone", **settings) as alone,
    ):
        yield shared, alone


async def fill(
    servers: tuple[RestClient, RestClient], request: SampleRequest | None = None
) -> tuple[Deployment, Deployment]:
    """Gives Ada a library on the first server, and Ben the same data on both. If only `request` will be sent, the
    library need not have what other requests name."""
    values = await fill_library_of_ada(servers[0], await servers[0].library_user("ada"), request)
    for api in servers:
        await fill_library_of_ben(await api.library_user("ben"))
        await api.server.runtime.registry.set_role((await api.server.user("ben")).id, "writer")
    return Deployment(servers[0], values), Deployment(servers[1], values)


@pytest.fixture(scope="module")
async def deployments(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Deployment, Deployment]]:
    """For requests that do not affect each other."""
    async with two_servers(tmp_path_factory.mktemp("shared")) as servers:
        yield await fill(servers)


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RestClient, RestClient]]:
    """For requests that change something, each as new users."""
    async with two_servers(tmp_path_factory.mktemp("changed")) as opened:
        yield opened


@pytest.fixture
async def changed(servers: tuple[RestClient, RestClient]) -> AsyncIterator[tuple[RestClient, RestClient]]:
    yield servers
    for api in servers:
        await api.server.forget_users()


async def check_isolation(deployments: tuple[Deployment, Deployment], act: Action) -> bytes:
    """Asserts that Ben learns and changes nothing of Ada's, and returns Ada's own response."""
    shared, alone = deployments
    before = await shared.data_of_ada()
    response, response_alone = await act(shared, "ben"), await act(alone, "ben")
    assert mask_random_values(response, shared.values) == mask_random_values(response_alone, shared.values)
    assert await shared.data_of_ada() == before
    return await act(shared, "ada")


async def raw_response(deployment: Deployment, request: SampleRequest, who: str) -> bytes:
    status, headers, body = (await send(deployment.api, request, deployment.values, who)).comparable()
    lines = [f"{name} {value}" for name, value in headers]
    if ("content-type", "application/zip") in headers:
        body = _unzip(body)
    return "\n".join([str(status), *lines, ""]).encode() + body


def _unzip(archive: bytes) -> bytes:
    """Returns the files of an archive, which also contains the times at which they were written."""
    with ZipFile(BytesIO(archive)) as files:
        return b"\n".join(name.encode() + b"\n" + files.read(name) for name in sorted(files.namelist()))


@each_case("sample", sample_requests(is_read=True))
async def test_read_request_reveals_nothing_about_another_user(
    deployments: tuple[Deployment, Deployment], sample: SampleRequest
) -> None:
    own = await check_isolation(deployments, lambda deployment, who: raw_response(deployment, sample, who))

    assert own.startswith(b"200")
    assert not sample.has_content or WORD.encode() in own


@pytest.mark.slow("sends a request of every kind, each as new users")
@pytest.mark.parametrize("sample", sample_requests(is_read=False))
async def test_write_request_reveals_and_changes_nothing_of_another_user(
    changed: tuple[RestClient, RestClient], sample: SampleRequest
) -> None:
    opened = await fill(changed, sample)
    own = await check_isolation(opened, lambda deployment, who: raw_response(deployment, sample, who))

    assert own.startswith(sample.status.encode())
    assert not sample.has_content or WORD.encode() in own


@each_case(("name", "arguments"), sample_calls())
async def test_tool_call_reveals_nothing_about_another_user(
    deployments: tuple[Deployment, Deployment], name: str, arguments: Mapping[str, Any]
) -> None:
    async def call_tool(deployment: Deployment, who: str) -> bytes:
        user = await deployment.api.library_user(who)
        filled = fill_placeholders(arguments, deployment.values)
        return msgspec.json.encode(await user.request("tools/call", name=name, arguments=filled))

    own = await check_isolation(deployments, call_tool)

    assert b'"isError":true' not in own
    assert name in TOOLS_WITHOUT_CONTENT or WORD.encode() in own


async def test_every_operation_has_a_sample_request(deployments: tuple[Deployment, Deployment]) -> None:
    runtime = deployments[0].api.server.runtime
    operations = rest_operations(runtime, build_http_services(runtime))

    assert {operation.id for operation in operations} == set(ROUTES)


def test_every_tool_has_sample_arguments() -> None:
    assert set(product_catalog().tools) == set(TOOLS)


async def test_leaked_data_would_be_detected(deployments: tuple[Deployment, Deployment]) -> None:
    [sample] = ROUTES["read_conversation"]

    async def leak(deployment: Deployment, who: str) -> bytes:
        """Acts as if the server ignored the credential."""
        return await raw_response(deployment, sample, "ada" if deployment is deployments[0] else who)

    with pytest.raises(AssertionError):
        await check_isolation(deployments, leak)


@pytest.mark.slow("makes every request again")
async def test_foreign_change_would_be_detected(changed: tuple[RestClient, RestClient]) -> None:
    [sample] = ROUTES["rename_conversation"]

    async def change(deployment: Deployment, who: str) -> bytes:
        await send(deployment.api, sample, deployment.values, "ada")
        return b""

    opened = await fill(changed)
    with pytest.raises(AssertionError):
        await check_isolation(opened, change)
