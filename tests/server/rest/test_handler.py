"""Checks that apply to every REST operation: access, and the form of a request."""

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import PlainTextResponse, Response

from auth.context import READ, SCOPES, WRITE, RequestContext
from config.errors import ControlDatabaseLocked, DatabaseUnavailable, FlorilegiumError, SourceTimeout, Unavailable
from server.error_responses import ErrorFormat
from server.http_services import build_http_services
from server.operations.operation import Operation, Upload, UploadRequest
from server.rest.errors import Unprocessable
from server.rest.handler import RestHandler
from server.rest.routes import openapi_document, reference_body
from tests.cases import each_case
from tests.server.http_client import HttpResponse
from tests.server.in_process import call_app
from tests.server.rest.rest_client import JSON, RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

ENDPOINTS: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
    ("POST", "/api/v1/search", JSON, b'{"query": "x"}'),
    ("GET", "/api/v1/items/notes/1", {}, b""),
    ("GET", "/api/v1/items?uri=notes://1", {}, b""),
    ("GET", "/items/notes/1", {"Accept": "application/json"}, b""),
    ("GET", "/items/notes/1", {}, b""),
)
all_endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: f"{e[0]} {e[1]} {e[2].get('Accept', '')}")


def error_message(response: HttpResponse) -> str:
    return str(response.json()["error"]["message"])


async def request_endpoint(api: RestClient, endpoint: Any, **headers: str) -> HttpResponse:
    method, path, default_headers, body = endpoint
    dashed = {name.replace("_", "-"): value for name, value in headers.items()}
    return await call_app(api.app, method, path, {**default_headers, **dashed}, body)


# -- access ------------------------------------------------------------------------------------------------


@all_endpoints
async def test_a_request_without_credential_is_rejected_with_401_and_a_challenge(
    api: RestClient, endpoint: Any
) -> None:
    response = await request_endpoint(api, endpoint)

    assert response.status == 401
    assert (response.header("www-authenticate") or "").startswith("Bearer resource_metadata=")


@all_endpoints
async def test_an_invalid_credential_is_rejected_with_invalid_token(api: RestClient, endpoint: Any) -> None:
    response = await request_endpoint(api, endpoint, authorization="Bearer flo_no")

    assert response.status == 401
    assert 'error="invalid_token"' in (response.header("www-authenticate") or "")


@all_endpoints
async def test_a_credential_without_the_scope_is_rejected_with_403(api: RestClient, endpoint: Any) -> None:
    response = await request_endpoint(api, endpoint, **await api.server.bearer("ada", (WRITE,)))

    assert response.status == 403
    assert f'error="insufficient_scope", scope="{READ}"' in (response.header("www-authenticate") or "")


@all_endpoints
@each_case("header", [{"origin": "https://evil.example"}, {"host": "evil.example"}])
async def test_unknown_origins_and_hosts_are_rejected_before_the_credential(
    api: RestClient, endpoint: Any, header: Mapping[str, str]
) -> None:
    assert (await request_endpoint(api, endpoint, **header)).status == 403


async def test_a_repeated_authorization_header_is_rejected(api: RestClient) -> None:
    credential = await api.server.bearer("ada")

    response = await request_endpoint(api, ENDPOINTS[1], **credential, authorization="Bearer other")

    assert response.status == 400


async def test_single_user_mode_needs_no_credential(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, jwt_secret="") as api:
        user = await api.library_user(api.server.runtime.settings.single_user_name)
        note = await user.add_note("Voyage", "a galleon under sail")

        (hit,) = (await api.search({"query": "galleon"}, None)).json()["results"]
        assert hit["uri"] == f"notes://{note}"
        assert (await api.get(f"/api/v1/items/notes/{note}", None)).status == 200
        assert (await api.get(f"/items/notes/{note}", None)).status == 200


async def test_the_rate_limit_applies_per_user(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, rate_user_per_minute=1, rate_user_burst=2) as api:
        statuses = [(await api.search({"query": "x"})).status for _ in range(2)]
        limited = await api.search({"query": "x"})
        other = await api.search({"query": "x"}, "ben")

    assert (statuses, limited.status, other.status) == ([200, 200], 429, 200)
    assert 1 <= int(limited.header("retry-after") or 0) <= 61


async def test_a_tool_and_its_operation_share_a_rate_limit(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, rate_tool_per_minute=1, rate_tool_burst=1) as api:
        await (await api.library_user("ada")).call("knowledge_search", query="x")

        assert (await api.search({"query": "x"})).status == 429
        assert (await api.get("/api/v1/items/notes/none")).status == 404


@each_case(
    ("profile", "may_search", "may_read"),
    [("compact", True, True), ("research", False, True), ("memory", False, False), ("full", True, True)],
)
async def test_a_key_restricted_to_a_profile_can_use_the_operations_of_its_tools(
    api: RestClient, ada: LibraryUser, profile: str, may_search: bool, may_read: bool
) -> None:
    note = await ada.add_note("Voyage", "a galleon under sail")
    user = await api.server.user("ada")
    _, key = await api.server.runtime.registry.create_key(user.id, "k", SCOPES, profile=profile)
    credential = {"Authorization": f"Bearer {key}"}

    search = await api.search({"query": "galleon"}, None, **credential)
    reads = [await api.get(f"{path}/notes/{note}", None, **credential) for path in ("/api/v1/items", "/items")]

    assert search.status == (200 if may_search else 403)
    assert [response.status for response in reads] == [200 if may_read else 403] * 2


# -- input ---------------------------------------------------------------------------------------------------------


@each_case(
    ("body", "expected"),
    [
        ({}, "query: required argument is missing"),
        ({"query": 7}, "query: expected `str`, got `int`"),
        ({"query": "x", "limit": "many"}, "limit: expected `int | null`, got `str`"),
        ({"query": "x", "order_by": "size"}, "order_by: expected one of recent, relevance, got 'size'"),
        ({"query": "x", "limits": 3}, "limits: unknown argument; did you mean 'limit'?"),
        (
            {"query": "x", "sources": ["films"]},
            "sources: expected any of notes, media, chats, characters, prompts, got 'films'",
        ),
        ([], "body: expected a JSON object, got an array"),
        (b'{"query": ', "not valid JSON"),
        (b'{"query": "\xff"}', "not valid JSON"),
        (b"[" * 5000, "not valid JSON"),
    ],
)
async def test_an_invalid_body_is_rejected_with_a_reason(api: RestClient, body: Any, expected: str) -> None:
    response = await api.search(body)

    assert response.status == 400
    assert expected in error_message(response)


@each_case(
    ("query", "expected"),
    [
        ("mode=all", "mode: expected one of auto, chunk, chunk_with_siblings, full, snippet, got 'all'"),
        ("max_tokens=few", "max_tokens: expected `int | null`, got `str`"),
        ("max_token=3", "max_token: unknown argument; did you mean 'max_tokens'?"),
        ("mode=full&mode=chunk", "mode: expected one value, got several"),
        ("id=2", "id: expected one value, got several"),
        ("cursor=nonsense", "cursor"),
    ],
)
async def test_an_invalid_query_string_is_rejected_with_a_reason(
    api: RestClient, ada: LibraryUser, query: str, expected: str
) -> None:
    response = await api.get(f"/api/v1/items/notes/{await ada.add_note('Voyage', 'a galleon')}?{query}")

    assert response.status == 400
    assert expected in error_message(response)


async def test_a_body_value_is_not_accepted_in_the_query_string(api: RestClient) -> None:
    response = await api.request("POST", "/api/v1/search?query=galleon", "ada", JSON, b"{}")

    assert (response.status, error_message(response)) == (
        400,
        "query: expected it in the body, got it in the query string",
    )


async def test_an_error_does_not_repeat_a_very_long_value(api: RestClient) -> None:
    response = await api.request("POST", "/api/v1/search", "ada", JSON, msgspec.json.encode({"x" * 50_000: 1}))

    assert response.status == 400
    assert len(error_message(response)) <= 1000


async def test_a_too_large_body_is_rejected_with_and_without_content_length(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, body_max_bytes=1024) as api:
        body = msgspec.json.encode({"query": "x" * 1024})
        undeclared = await api.search(body)
        declared = await api.search(body, content_length=str(len(body)))

    assert [response.status for response in (undeclared, declared)] == [413, 413]
    assert undeclared.json()["error"]["data"] == {"limit_bytes": 1024}


@each_case("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_without_json_content_type_is_rejected(api: RestClient, content_type: str) -> None:
    response = await api.request("POST", "/api/v1/search", "ada", {"Content-Type": content_type}, b'{"query": "x"}')

    assert response.status == 415
    assert "expected application/json" in error_message(response)


@each_case(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/v1/search", "POST"),
        ("PUT", "/api/v1/items/notes/1", "DELETE, GET, HEAD, PATCH"),
        ("POST", "/api/v1/items", "DELETE, GET, HEAD, PATCH"),
        ("PUT", "/items/notes/1", "GET, HEAD"),
    ],
)
async def test_an_unsupported_method_is_rejected_with_the_allowed_ones(
    api: RestClient, method: str, path: str, allowed: str
) -> None:
    response = await api.request(method, path, "ada")

    assert (response.status, response.header("allow")) == (405, allowed)


@each_case("path", ["/api/", "/api/v2/search", "/api/v1/search/"])
async def test_an_unknown_path_gets_a_json_error(api: RestClient, path: str) -> None:
    response = await api.get(path)

    assert (response.status, response.json()["error"]["code"]) == (404, 404)


async def test_responses_are_not_cacheable_and_have_the_request_id(api: RestClient) -> None:
    for response in (
        await api.search({"query": "x"}, x_request_id="mine"),
        await api.get("/api/v1/items/notes/none", x_request_id="mine"),
        await api.get("/api/v1/items/notes/none", None, x_request_id="mine"),
    ):
        assert response.header("cache-control") == "private, no-store"
        assert response.header("x-content-type-options") == "nosniff"
        assert response.header("x-request-id") == "mine"


async def test_the_config_of_a_request_is_applied_and_an_invalid_one_rejected(
    api: RestClient, ada: LibraryUser
) -> None:
    note = await ada.add_note("Voyage", "a galleon under sail " * 30)
    config = base64.b64encode(b'{"snippet_length": 20}').decode()

    in_header = await api.get(f"/api/v1/items/notes/{note}", mcp_config=config)
    in_query = await api.get(f"/api/v1/items/notes/{note}?config={config.rstrip('=')}")
    bad = await api.get(f"/api/v1/items/notes/{note}", mcp_config=base64.b64encode(b'{"user_id": "ben"}').decode())

    assert len(in_header.json()["content"]) <= 20
    assert in_query.json() == in_header.json()
    assert bad.status == 400


# -- other kinds of operations -----------------------------------------------------------------------------------------


class RenameRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    title: str
    loud: bool = False


class RenameResponse(Struct, frozen=True):
    user: str
    args: RenameRequest


async def _rename(context: RequestContext, _services: object, args: RenameRequest) -> RenameResponse:
    return RenameResponse(context.principal.user_name, args)


RENAME = Operation(
    id="rename",
    method="PATCH",
    path="/things/{id}",
    summary="Rename",
    description="Rename a thing.",
    input=RenameRequest,
    response=RenameResponse,
    handler=_rename,
    tools=("knowledge_get",),
    scope=WRITE,
    status=202,
    query=frozenset(("loud",)),
)


def test_each_value_has_a_location() -> None:
    assert RENAME.locations() == {"id": "path", "title": "body", "loud": "query"}


async def test_values_from_path_query_and_body_are_passed_to_the_handler(api: RestClient) -> None:
    response = await _request_operation(api, RENAME, b'{"title": "New"}', b"loud=true")

    assert (response.status, response.json()) == (
        202,
        {"user": "ada", "args": {"id": "7", "title": "New", "loud": True}},
    )


@each_case("extra", [{"id": "8"}, {"id": "7", "loud": False}, {"id": None}])
async def test_a_body_cannot_contradict_the_path_or_the_query(api: RestClient, extra: Mapping[str, Any]) -> None:
    response = await _request_operation(api, RENAME, msgspec.json.encode({"title": "New", **extra}), b"loud=True")

    assert response.status == 400
    assert "only, got another value in the body" in error_message(response)


async def test_a_body_may_repeat_values_of_path_and_query(api: RestClient) -> None:
    response = await _request_operation(api, RENAME, b'{"id": "7", "title": "New", "loud": true}', b"loud=True")

    assert response.json()["args"] == {"id": "7", "title": "New", "loud": True}


async def test_a_value_can_be_a_header_and_is_documented_as_one(api: RestClient) -> None:
    with_header = replace(RENAME, headers={"title": "X-Title"}, query=frozenset(("loud",)))

    response = await _request_operation(api, with_header, b"", x_title="From a header")

    assert response.json()["args"]["title"] == "From a header"
    assert (with_header.locations()["title"], with_header.has_body) == ("header", False)
    document = openapi_document(api.server.runtime.settings, [with_header])
    described = document["paths"]["/things/{id}"]["patch"]
    assert ("X-Title", "header") in [(p["name"], p["in"]) for p in described["parameters"]]
    assert "requestBody" not in described


async def test_an_operation_can_reject_invalid_input_with_422(api: RestClient) -> None:
    operation = replace(RENAME, input_error=Unprocessable)

    missing = await _request_operation(api, operation, b"{}")
    wrong = await _request_operation(api, operation, b'{"title": 7}', b"loud=perhaps")

    assert (missing.status, missing.json()["error"]["data"]) == (422, {"loc": ["body", "title"]})
    assert wrong.json()["error"]["data"]["loc"] in (["body", "title"], ["query", "loud"])
    document = openapi_document(api.server.runtime.settings, [operation])
    assert "422" in document["paths"]["/things/{id}"]["patch"]["responses"]


async def test_an_upload_is_passed_to_the_handler_as_a_file_and_documented(api: RestClient) -> None:
    async def measure(context: RequestContext, _services: object, request: UploadRequest) -> RenameResponse:
        return RenameResponse(f"{len(request.file.read())} bytes", request.args)

    upload = replace(RENAME, handler=measure, upload=Upload("image/png", 3_000_000), query=frozenset(("loud", "title")))

    small = await _request_operation(api, upload, b"x" * 10, b"title=New", content_type="image/png")
    large = await _request_operation(api, upload, b"x" * 2_500_000, b"title=New", content_type="image/png; q=1")
    huge = await _request_operation(api, upload, b"x" * 3_000_001, b"title=New", content_type="image/png")

    assert [response.json()["user"] for response in (small, large)] == ["10 bytes", "2500000 bytes"]
    assert huge.status == 413
    document = openapi_document(api.server.runtime.settings, [upload])
    body = document["paths"]["/things/{id}"]["patch"]["requestBody"]
    assert body == {"required": True, "content": {"image/png": {}}}
    assert "image/png" in reference_body(document)


async def test_an_operation_can_have_its_own_deadline(tmp_path: Path) -> None:
    async def outlast_default(context: RequestContext, _services: object, args: RenameRequest) -> RenameResponse:
        await asyncio.sleep(0.2)
        return RenameResponse("done", args)

    async with open_rest_client(tmp_path, call_deadline_ms=100) as api:
        response = await _request_operation(
            api, replace(RENAME, handler=outlast_default, deadline_ms=60_000), b'{"title": "New"}'
        )

    assert response.json()["user"] == "done"


async def test_an_operation_can_return_a_file_which_is_not_cacheable(api: RestClient) -> None:
    async def export(context: RequestContext, _services: object, args: RenameRequest) -> Response:
        return PlainTextResponse("whole", headers={"Content-Disposition": "attachment"})

    response = await _request_operation(
        api, replace(RENAME, handler=export, response="text/plain"), b'{"title": "New"}'
    )

    assert (response.status, response.body) == (200, b"whole")
    assert response.header("content-disposition") == "attachment"
    assert response.header("cache-control") == "private, no-store"


async def test_an_operation_can_have_its_own_error_format(api: RestClient) -> None:
    class Detail(Struct):
        detail: str

    error_format = ErrorFormat(Detail, lambda error, path: {"detail": f"{path}: {error.message}"})
    operation = replace(RENAME, error_format=error_format)

    assert (await _request_operation(api, operation, b"{}")).json() == {
        "detail": "/things/7: title: required argument is missing"
    }


def test_files_and_error_formats_are_documented(api: RestClient) -> None:
    class Detail(Struct):
        detail: str

    operation = replace(
        RENAME, response="text/plain", error_format=ErrorFormat(Detail, lambda error, _path: {"detail": error.message})
    )
    document = openapi_document(api.server.runtime.settings, [operation])

    described = document["paths"]["/things/{id}"]["patch"]
    assert described["responses"]["202"] == {"description": "Accepted", "content": {"text/plain": {}}}
    assert list(document["components"]["schemas"]) == ["Detail"]
    assert [(p["name"], p["in"]) for p in described["parameters"]] == [("id", "path"), ("loud", "query")]
    assert list(described["requestBody"]["content"]["application/json"]["schema"]["properties"]) == ["title"]
    assert "text/plain" in reference_body(document)


async def test_an_operation_over_its_deadline_is_cancelled_and_can_be_retried(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def wait_forever(context: RequestContext, _services: object, args: RenameRequest) -> RenameResponse:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("not cancelled")

    async with open_rest_client(tmp_path, call_deadline_ms=100) as api:
        response = await _request_operation(api, replace(RENAME, handler=wait_forever), b'{"title": "New"}')

    assert (response.status, response.header("retry-after")) == (503, "1")
    assert error_message(response) == "rename took longer than 100 ms"
    assert cancelled.is_set()


async def _request_operation(
    api: RestClient, operation: Operation, body: bytes, query: bytes = b"", **headers: str
) -> HttpResponse:
    """Sends a request for `/things/7` to a handler of this operation only."""
    handler = RestHandler(
        api.server.runtime,
        build_http_services(api.server.runtime).browser,
        [operation],
    )

    async def routed(scope: Any, receive: Any, send: Any) -> None:
        await handler({**scope, "path_params": {"id": "7"}, "query_string": query}, receive, send)

    dashed = {name.replace("_", "-").title(): value for name, value in headers.items()}
    all_headers = {**JSON, **await api.server.bearer("ada"), **dashed}
    return await call_app(routed, operation.method, "/things/7", all_headers, body)


@each_case("error", [DatabaseUnavailable(), ControlDatabaseLocked(), SourceTimeout("notes", 1), Unavailable("busy")])
async def test_every_503_says_when_to_try_again(tmp_path: Path, error: FlorilegiumError) -> None:
    async def fail(context: RequestContext, _services: object, args: RenameRequest) -> RenameResponse:
        raise error

    async with open_rest_client(tmp_path / type(error).__name__) as api:
        response = await _request_operation(api, replace(RENAME, handler=fail), b'{"title": "New"}')
    assert (response.status, response.header("retry-after")) == (503, "1")
