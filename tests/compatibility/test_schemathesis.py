"""REST as its own OpenAPI document describes it: a good request to each operation, and whatever schemathesis makes of
the document, right and wrong. No answer is a failure of the server, and each is one that the document foresees."""

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import msgspec
import pytest
import pytest_asyncio
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from requests.adapters import BaseAdapter, HTTPAdapter
from schemathesis import Case, GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from urllib3 import HTTPResponse

from tests.compatibility.surface import ROUTES, send, settle
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient, open_rest_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
AnyCase = Case[Any]
BASE = "http://127.0.0.1"
# Which of what is Ada's a value of an address may name.
NAMED = {
    "conversation_id": "chat",
    "thread_id": "thread",
    "old_name": "space",
    "namespace_name": "space",
    "id": "job",
    "agent_token": "agent_token",
}
# Values of deeply nested schemas are made slowly, and some of a small one are made twice.
SLOW_TO_MAKE = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
# What deletes comes last, so that the others find something.
OPERATIONS = sorted(ROUTES, key=lambda name: name.startswith("delete"))


@schemathesis.serializer("application/zip")
def as_it_is(_context: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


class InProcess(BaseAdapter):
    """Sends a request to the application in the loop of the test, without sockets."""

    def __init__(self, api: RestClient) -> None:
        super().__init__()
        self._api = api
        self._loop = asyncio.get_running_loop()

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        asking = asyncio.run_coroutine_threadsafe(self._ask(request), self._loop)
        return _as_response(asking.result(), request)

    def close(self) -> None:
        """Nothing is open."""

    async def _ask(self, request: requests.PreparedRequest) -> HttpResponse:
        parts = urlsplit(request.url or "")
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        body = request.body or b""
        assert isinstance(body, str | bytes)
        sent = body.encode() if isinstance(body, str) else body
        headers = {name: _text(value) for name, value in request.headers.items() if name.lower() != "host"}
        return await self._api.request(request.method or "", target, None, headers, sent)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _as_response(answer: HttpResponse, request: requests.PreparedRequest) -> requests.Response:
    raw = HTTPResponse(io.BytesIO(answer.body), dict(answer.headers), answer.status, preload_content=False)
    return HTTPAdapter().build_response(request, raw)


class Fuzzed(Struct, frozen=True):
    session: requests.Session
    operations: Mapping[str, Any]
    strategies: Mapping[tuple[str, GenerationMode], st.SearchStrategy[AnyCase]]
    known: Mapping[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fuzzed]:
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "rate_failures_per_minute": 0}
    async with open_rest_client(tmp_path_factory.mktemp("fuzz"), **unlimited) as api:
        known = await settle(api, await api.reader("ada"))
        archives = st.just(known["archive"]) | st.binary(max_size=200)
        schemathesis.openapi.media_type("application/zip", archives)
        schema = schemathesis.openapi.from_dict((await api.get("/openapi.json", None)).json())
        found = {
            operation.definition.raw["operationId"]: operation for operation in map(_made, schema.get_all_operations())
        }
        strategies = {
            (name, mode): operation.as_strategy(generation_mode=mode)
            for name, operation in found.items()
            for mode in GenerationMode
        }
        session = requests.Session()
        session.headers.update(await api.server.bearer("ada"))
        session.mount(BASE, InProcess(api))
        yield Fuzzed(session, found, strategies, known)


def _made(result: Any) -> Any:
    return result.ok()


def aim(case: AnyCase, known: Mapping[str, Any], data: st.DataObject) -> None:
    """Lets half of the requests name something that is there."""
    for values in (case.path_parameters, case.query):
        for name in NAMED.keys() & (values or {}).keys():
            if data.draw(st.booleans(), label=f"{name} is known"):
                values[name] = known[NAMED[name]]


@settings(max_examples=15, deadline=None, suppress_health_check=SLOW_TO_MAKE)
@given(data=st.data())
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: str(mode.value))
@pytest.mark.parametrize("name", OPERATIONS)
async def test_whatever_a_client_sends_is_answered_as_documented(
    fuzzed: Fuzzed, name: str, mode: GenerationMode, data: st.DataObject
) -> None:
    case = data.draw(fuzzed.strategies[name, mode])
    aim(case, fuzzed.known, data)

    response = await asyncio.to_thread(case.call, base_url=BASE, session=fuzzed.session)

    case.validate_response(response, checks=CHECKS)


async def test_every_operation_of_the_document_is_fuzzed(fuzzed: Fuzzed) -> None:
    assert set(fuzzed.operations) == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_good_request_is_answered_as_documented(tmp_path: Path, name: str) -> None:
    async with open_rest_client(tmp_path) as api:
        known = await settle(api, await api.reader("ada"))
        document = (await api.get("/openapi.json", None)).json()
        answer = await send(api, ROUTES[name][0], known, "ada")

    assert answer.status < 300, answer.body
    content = responses_of(document, name)[str(answer.status)]["content"]
    media_type = (answer.header("content-type") or "").partition(";")[0]
    assert media_type in content
    if media_type == "application/json":
        whole = {**content[media_type]["schema"], "components": document["components"]}
        assert [str(problem) for problem in jsonschema_rs.iter_errors(whole, answer.json())] == []


def responses_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Those that the document foresees for an operation."""
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    [found] = [operation["responses"] for operation in operations if operation["operationId"] == name]
    return dict(found)


@pytest.mark.parametrize("path", ["/api/v1/items/notes/a%0Ab", "/api/v1/nothing%0A", "/nothing", "/%0A"])
async def test_a_path_that_no_route_takes_is_refused_in_good_form(tmp_path: Path, path: str) -> None:
    async with open_rest_client(tmp_path) as api:
        answer = await api.get(path)

    assert (answer.status, answer.header("content-type")) == (404, "application/json")
    assert answer.json()["error"]["code"] == 404


async def test_an_answer_that_is_not_as_documented_would_be_noticed(fuzzed: Fuzzed) -> None:
    case = fuzzed.operations["list_namespaces"].Case()
    good = await asyncio.to_thread(case.call, base_url=BASE, session=fuzzed.session)

    case.validate_response(good, checks=CHECKS)
    for status, body in ((500, b"{}"), (418, good.content), (200, b'{"namespaces": "none"}')):
        answer = HttpResponse(status, (("content-type", "application/json"),), body)
        with pytest.raises(BaseExceptionGroup):
            case.validate_response(_as_response(answer, requests.Request("GET", BASE).prepare()), checks=CHECKS)
