"""Conformance of REST with its own OpenAPI document: sample requests, and valid and invalid requests that schemathesis
generates. No response is a server error, and every response is documented."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import msgspec
import pytest
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

from tests.cases import each_case
from tests.compatibility.sample_requests import ROUTES, fill_library_of_ada, send
from tests.live import NO_RATE_LIMITS
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
AnyCase = Case[Any]
BASE = "http://127.0.0.1"
# URL parameters that can name something in Ada's library, and the placeholder of its value.
PLACEHOLDERS = {
    "conversation_id": "chat",
    "thread_id": "thread",
    "old_name": "space",
    "namespace_name": "space",
    "id": "job",
    "agent_token": "agent_token",
}
# Generating values for deeply nested schemas is slow, and small ones produce duplicates.
SUPPRESSED_CHECKS = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
# Deletions last, so that the other operations find something.
OPERATIONS = sorted(ROUTES, key=lambda name: name.startswith("delete"))


@schemathesis.serializer("application/zip")
def serialize_zip(_context: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


class InProcessAdapter(BaseAdapter):
    """Sends requests to the application in the test's event loop, without sockets."""

    def __init__(self, api: RestClient) -> None:
        super().__init__()
        self._api = api
        self._loop = asyncio.get_running_loop()

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        future = asyncio.run_coroutine_threadsafe(self._request(request), self._loop)
        return _to_requests_response(future.result(), request)

    def close(self) -> None:
        """There is nothing to close."""

    async def _request(self, request: requests.PreparedRequest) -> HttpResponse:
        parts = urlsplit(request.url or "")
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        body = request.body or b""
        assert isinstance(body, str | bytes)
        content = body.encode() if isinstance(body, str) else body
        headers = {name: _text(value) for name, value in request.headers.items() if name.lower() != "host"}
        return await self._api.request(request.method or "", target, None, headers, content)


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _to_requests_response(response: HttpResponse, request: requests.PreparedRequest) -> requests.Response:
    raw = HTTPResponse(io.BytesIO(response.body), dict(response.headers), response.status, preload_content=False)
    return HTTPAdapter().build_response(request, raw)


class FuzzedApi(Struct, frozen=True):
    session: requests.Session
    operations: Mapping[str, Any]
    # Making those of all operations takes seconds.
    strategy: Callable[[str, GenerationMode], st.SearchStrategy[AnyCase]]
    values: Mapping[str, Any]


@pytest.fixture(scope="module")
async def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FuzzedApi]:
    async with open_rest_client(tmp_path_factory.mktemp("fuzz"), **NO_RATE_LIMITS) as api:
        values = await fill_library_of_ada(api, await api.library_user("ada"))
        archives = st.just(values["archive"]) | st.binary(max_size=200)
        schemathesis.openapi.media_type("application/zip", archives)
        schema = schemathesis.openapi.from_dict((await api.get("/openapi.json", None)).json())
        operations = {
            operation.definition.raw["operationId"]: operation
            for operation in map(_unwrap, schema.get_all_operations())
        }
        session = requests.Session()
        session.headers.update(await api.server.bearer("ada"))
        session.mount(BASE, InProcessAdapter(api))
        strategy = cache(lambda name, mode: operations[name].as_strategy(generation_mode=mode))
        yield FuzzedApi(session, operations, strategy, values)


def _unwrap(result: Any) -> Any:
    return result.ok()


def use_existing_values(case: AnyCase, values: Mapping[str, Any], data: st.DataObject) -> None:
    """Makes half of the requests name something that exists."""
    for parameters in (case.path_parameters, case.query):
        for name in PLACEHOLDERS.keys() & (parameters or {}).keys():
            if data.draw(st.booleans(), label=f"{name} exists"):
                parameters[name] = values[PLACEHOLDERS[name]]


def is_temporary_refusal(response: Any) -> bool:
    """Whether the server says when to try again: after another import, or if a deadline is too short for a search."""
    return bool(response.status_code == 503 and response.headers.get("retry-after"))


@pytest.mark.slow("is a long property run")
@settings(max_examples=15, deadline=None, suppress_health_check=SUPPRESSED_CHECKS)
@given(data=st.data())
@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: str(mode.value))
@pytest.mark.parametrize("name", OPERATIONS)
async def test_any_generated_request_gets_a_documented_response(
    fuzzed: FuzzedApi, name: str, mode: GenerationMode, data: st.DataObject
) -> None:
    case = data.draw(fuzzed.strategy(name, mode))
    use_existing_values(case, fuzzed.values, data)

    response = await asyncio.to_thread(case.call, base_url=BASE, session=fuzzed.session)

    case.validate_response(response, checks=CHECKS if is_temporary_refusal(response) else [not_a_server_error, *CHECKS])


@pytest.mark.slow("starts the server of the property runs")
async def test_every_documented_operation_is_fuzzed(fuzzed: FuzzedApi) -> None:
    assert set(fuzzed.operations) == set(OPERATIONS)


@pytest.fixture(scope="module")
async def document(shared_api: RestClient) -> dict[str, Any]:
    return dict((await shared_api.get("/openapi.json", None)).json())


@pytest.mark.slow("sends a request of every kind, each as a new user")
@pytest.mark.parametrize("name", OPERATIONS)
async def test_sample_request_gets_a_documented_response(
    api: RestClient, ada: LibraryUser, document: dict[str, Any], name: str
) -> None:
    request = ROUTES[name][0]
    values = await fill_library_of_ada(api, ada, request)
    response = await send(api, request, values, "ada")

    assert str(response.status).startswith(request.status), response.body
    content = responses_of(document, name)[str(response.status)]["content"]
    media_type = (response.header("content-type") or "").partition(";")[0]
    assert media_type in content
    if media_type == "application/json":
        whole = {**content[media_type]["schema"], "components": document["components"]}
        assert [str(error) for error in jsonschema_rs.iter_errors(whole, response.json())] == []


def responses_of(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns the documented responses of an operation."""
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    [responses] = [operation["responses"] for operation in operations if operation["operationId"] == name]
    return dict(responses)


@each_case("path", ["/api/v1/items/notes/a%0Ab", "/api/v1/nothing%0A", "/nothing", "/%0A"])
async def test_unknown_path_returns_a_json_404(api: RestClient, path: str) -> None:
    response = await api.get(path)

    assert (response.status, response.header("content-type")) == (404, "application/json")
    assert response.json()["error"]["code"] == 404


@pytest.mark.slow("starts the server of the property runs")
async def test_undocumented_response_would_be_detected(fuzzed: FuzzedApi) -> None:
    case = fuzzed.operations["list_namespaces"].Case()
    good = await asyncio.to_thread(case.call, base_url=BASE, session=fuzzed.session)

    case.validate_response(good, checks=CHECKS)
    for status, body in ((500, b"{}"), (418, good.content), (200, b'{"namespaces": "none"}')):
        response = HttpResponse(status, (("content-type", "application/json"),), body)
        with pytest.raises(BaseExceptionGroup):
            case.validate_response(
                _to_requests_response(response, requests.Request("GET", BASE).prepare()), checks=CHECKS
            )
