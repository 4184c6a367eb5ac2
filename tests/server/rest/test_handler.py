"""What stands before every operation: who may come in, and what a request must look like."""

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

from auth.context import RequestContext
from auth.principal import READ, SCOPES, WRITE
from server.rest.errors import ErrorFormat, Unprocessable
from server.rest.handler import RestHandler
from server.rest.openapi import openapi_document
from server.rest.operation import Operation, Upload, UploadRequest
from server.rest.reference_page import reference_page
from tests.server.http_client import HttpResponse
from tests.server.in_process import ask
from tests.server.rest.rest_client import JSON, RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser

ENTRANCES: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
    ("POST", "/api/v1/search", JSON, b'{"query": "x"}'),
    ("GET", "/api/v1/items/notes/1", {}, b""),
    ("GET", "/api/v1/items?uri=notes://1", {}, b""),
    ("GET", "/items/notes/1", {"Accept": "application/json"}, b""),
    ("GET", "/items/notes/1", {}, b""),
)
entrances = pytest.mark.parametrize("entrance", ENTRANCES, ids=lambda e: f"{e[0]} {e[1]} {e[2].get('Accept', '')}")


def sentence(answer: HttpResponse) -> str:
    return str(answer.json()["error"]["message"])


async def enter(api: RestClient, entrance: Any, **headers: str) -> HttpResponse:
    method, path, usual, body = entrance
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(api.app, method, path, {**usual, **named}, body)


# -- who may come in ------------------------------------------------------------------------------------------------


@entrances
async def test_without_a_credential_every_entrance_answers_401_with_a_challenge(api: RestClient, entrance: Any) -> None:
    answer = await enter(api, entrance)

    assert answer.status == 401
    assert (answer.header("www-authenticate") or "").startswith("Bearer resource_metadata=")


@entrances
async def test_a_bad_credential_is_told_apart_from_none(api: RestClient, entrance: Any) -> None:
    answer = await enter(api, entrance, authorization="Bearer flo_no")

    assert answer.status == 401
    assert 'error="invalid_token"' in (answer.header("www-authenticate") or "")


@entrances
async def test_a_credential_without_the_scope_is_refused_by_its_name(api: RestClient, entrance: Any) -> None:
    answer = await enter(api, entrance, **await api.server.bearer("ada", (WRITE,)))

    assert answer.status == 403
    assert f'error="insufficient_scope", scope="{READ}"' in (answer.header("www-authenticate") or "")


@entrances
@pytest.mark.parametrize("header", [{"origin": "https://evil.example"}, {"host": "evil.example"}])
async def test_pages_and_host_names_we_do_not_know_are_refused_before_the_credential(
    api: RestClient, entrance: Any, header: Mapping[str, str]
) -> None:
    assert (await enter(api, entrance, **header)).status == 403


async def test_a_credential_that_is_sent_twice_is_refused(api: RestClient) -> None:
    credential = await api.server.bearer("ada")

    answer = await enter(api, ENTRANCES[1], **credential, authorization="Bearer other")

    assert answer.status == 400


async def test_alone_at_a_loopback_address_nobody_needs_a_credential(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, jwt_secret="") as api:
        reader = await api.reader(api.server.runtime.settings.single_user_name)
        note = await reader.add_note("Voyage", "a galleon under sail")

        assert [hit["id"] for hit in (await api.search({"query": "galleon"}, None)).json()["results"]] == [note]
        assert (await api.get(f"/api/v1/items/notes/{note}", None)).status == 200
        assert (await api.get(f"/items/notes/{note}", None)).status == 200


async def test_calls_count_against_the_rate_of_the_user_and_of_nobody_else(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, rate_user_per_minute=1, rate_user_burst=2) as api:
        statuses = [(await api.search({"query": "x"})).status for _ in range(2)]
        refused = await api.search({"query": "x"})
        other = await api.search({"query": "x"}, "ben")

    assert (statuses, refused.status, other.status) == ([200, 200], 429, 200)
    assert 1 <= int(refused.header("retry-after") or 0) <= 61


async def test_a_tool_and_its_operation_draw_on_one_rate(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, rate_tool_per_minute=1, rate_tool_burst=1) as api:
        await (await api.reader("ada")).call("knowledge_search", query="x")

        assert (await api.search({"query": "x"})).status == 429
        assert (await api.get("/api/v1/items/notes/none")).status == 404


@pytest.mark.parametrize(
    ("profile", "may_search", "may_read"),
    [("compact", True, True), ("research", False, True), ("memory", False, False), ("full", True, True)],
)
async def test_a_key_bound_to_a_profile_opens_what_the_tools_of_the_profile_tell(
    api: RestClient, ada: LibraryUser, profile: str, may_search: bool, may_read: bool
) -> None:
    note = await ada.add_note("Voyage", "a galleon under sail")
    user = await api.server.user("ada")
    _, key = await api.server.runtime.registry.create_key(user.id, "k", SCOPES, profile=profile)
    credential = {"Authorization": f"Bearer {key}"}

    searched = await api.search({"query": "galleon"}, None, **credential)
    read = [await api.get(f"{path}/notes/{note}", None, **credential) for path in ("/api/v1/items", "/items")]

    assert searched.status == (200 if may_search else 403)
    assert [answer.status for answer in read] == [200 if may_read else 403] * 2


# -- what a request must look like ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
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
        ([], "expected an object"),
        (b'{"query": ', "not valid JSON"),
        (b'{"query": "\xff"}', "not valid JSON"),
        (b"[" * 5000, "not valid JSON"),
    ],
)
async def test_a_body_that_cannot_be_read_is_told_field_got_and_expected(api: RestClient, body: Any, told: str) -> None:
    answer = await api.search(body)

    assert answer.status == 400
    assert told in sentence(answer)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("mode=all", "mode: expected one of auto, chunk, chunk_with_siblings, full, snippet, got 'all'"),
        ("max_tokens=few", "max_tokens: expected `int | null`, got `str`"),
        ("max_token=3", "max_token: unknown argument; did you mean 'max_tokens'?"),
        ("mode=full&mode=chunk", "mode: got it twice"),
        ("id=2", "id: got it twice"),
        ("cursor=nonsense", "cursor"),
    ],
)
async def test_a_query_that_cannot_be_read_is_told_field_got_and_expected(
    api: RestClient, ada: LibraryUser, query: str, told: str
) -> None:
    answer = await api.get(f"/api/v1/items/notes/{await ada.add_note('Voyage', 'a galleon')}?{query}")

    assert answer.status == 400
    assert told in sentence(answer)


async def test_what_belongs_in_the_body_is_not_taken_from_the_query(api: RestClient) -> None:
    answer = await api.request("POST", "/api/v1/search?query=galleon", "ada", JSON, b"{}")

    assert (answer.status, sentence(answer)) == (400, "query: got it in the query, expected it in the body")


async def test_a_body_that_is_too_large_is_refused_declared_or_not(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, body_max_bytes=1024) as api:
        body = msgspec.json.encode({"query": "x" * 1024})
        silent = await api.search(body)
        declared = await api.search(body, content_length=str(len(body)))

    assert [answer.status for answer in (silent, declared)] == [413, 413]
    assert silent.json()["error"]["data"] == {"limit_bytes": 1024}


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_body_that_is_not_declared_as_json_is_refused(api: RestClient, content_type: str) -> None:
    answer = await api.request("POST", "/api/v1/search", "ada", {"Content-Type": content_type}, b'{"query": "x"}')

    assert answer.status == 415
    assert "expected application/json" in sentence(answer)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/v1/search", "POST"),
        ("DELETE", "/api/v1/items/notes/1", "GET, HEAD"),
        ("POST", "/api/v1/items", "GET, HEAD"),
        ("PUT", "/items/notes/1", "GET, HEAD"),
    ],
)
async def test_a_method_that_is_not_served_is_answered_with_those_that_are(
    api: RestClient, method: str, path: str, allowed: str
) -> None:
    answer = await api.request(method, path, "ada")

    assert (answer.status, answer.header("allow")) == (405, allowed)


@pytest.mark.parametrize("path", ["/api/", "/api/v2/search", "/api/v1/search/"])
async def test_an_unknown_path_is_answered_in_the_envelope(api: RestClient, path: str) -> None:
    answer = await api.get(path)

    assert (answer.status, answer.json()["error"]["code"]) == (404, 404)


async def test_answers_and_refusals_are_kept_by_no_cache_and_carry_the_id_of_their_request(api: RestClient) -> None:
    for answer in (
        await api.search({"query": "x"}, x_request_id="mine"),
        await api.get("/api/v1/items/notes/none", x_request_id="mine"),
        await api.get("/api/v1/items/notes/none", None, x_request_id="mine"),
    ):
        assert answer.header("cache-control") == "private, no-store"
        assert answer.header("x-content-type-options") == "nosniff"
        assert answer.header("x-request-id") == "mine"


async def test_the_config_of_a_request_is_obeyed_and_a_bad_one_refused(api: RestClient, ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "a galleon under sail " * 30)
    config = base64.b64encode(b'{"snippet_length": 20}').decode()

    in_header = await api.get(f"/api/v1/items/notes/{note}", mcp_config=config)
    in_query = await api.get(f"/api/v1/items/notes/{note}?config={config.rstrip('=')}")
    bad = await api.get(f"/api/v1/items/notes/{note}", mcp_config=base64.b64encode(b'{"user_id": "ben"}').decode())

    assert len(in_header.json()["content"]) <= 20
    assert in_query.json() == in_header.json()
    assert bad.status == 400


# -- operations of other kinds than those there are -------------------------------------------------------------------


class Rename(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    title: str
    loud: bool = False


class Renamed(Struct, frozen=True):
    user: str
    given: Rename


async def _rename(context: RequestContext, given: Rename) -> Renamed:
    return Renamed(context.principal.user_name, given)


RENAME = Operation(
    id="rename",
    method="PATCH",
    path="/things/{id}",
    summary="Rename",
    description="Rename a thing.",
    input=Rename,
    response=Renamed,
    handler=_rename,
    tools=("knowledge_get",),
    scope=WRITE,
    status=202,
    query=frozenset(("loud",)),
)


def test_each_value_has_its_place() -> None:
    assert RENAME.places() == {"id": "path", "title": "body", "loud": "query"}


async def test_values_of_path_query_and_body_reach_the_handler_as_one_input(api: RestClient) -> None:
    answer = await _knock(api, RENAME, b'{"title": "New"}', b"loud=true")

    assert (answer.status, answer.json()) == (
        202,
        {"user": "ada", "given": {"id": "7", "title": "New", "loud": True}},
    )


@pytest.mark.parametrize("extra", [{"id": "8"}, {"id": "7", "loud": False}, {"id": None}])
async def test_a_body_cannot_contradict_the_path_or_the_query(api: RestClient, extra: Mapping[str, Any]) -> None:
    answer = await _knock(api, RENAME, msgspec.json.encode({"title": "New", **extra}), b"loud=True")

    assert answer.status == 400
    assert "got another one in the body, expected it in the" in sentence(answer)


async def test_a_body_may_repeat_what_path_and_query_say_as_tool_clients_do(api: RestClient) -> None:
    answer = await _knock(api, RENAME, b'{"id": "7", "title": "New", "loud": true}', b"loud=True")

    assert answer.json()["given"] == {"id": "7", "title": "New", "loud": True}


async def test_a_value_may_come_in_a_header_and_is_documented_there(api: RestClient) -> None:
    named = replace(RENAME, headers={"title": "X-Title"}, query=frozenset(("loud",)))

    answer = await _knock(api, named, b"", x_title="From a header")

    assert answer.json()["given"]["title"] == "From a header"
    assert (named.places()["title"], named.has_body) == ("header", False)
    document = openapi_document(api.server.runtime.settings, [named])
    described = document["paths"]["/things/{id}"]["patch"]
    assert ("X-Title", "header") in [(p["name"], p["in"]) for p in described["parameters"]]
    assert "requestBody" not in described


async def test_an_input_that_cannot_be_read_may_be_refused_with_422(api: RestClient) -> None:
    picky = replace(RENAME, input_error=Unprocessable)

    missing = await _knock(api, picky, b"{}")
    wrong = await _knock(api, picky, b'{"title": 7}', b"loud=perhaps")

    assert (missing.status, missing.json()["error"]["data"]) == (422, {"loc": ["body", "title"]})
    assert wrong.json()["error"]["data"]["loc"] in (["body", "title"], ["query", "loud"])
    document = openapi_document(api.server.runtime.settings, [picky])
    assert "422" in document["paths"]["/things/{id}"]["patch"]["responses"]


async def test_an_upload_reaches_the_handler_as_a_file_and_is_documented_as_one(api: RestClient) -> None:
    async def measure(context: RequestContext, uploaded: UploadRequest) -> Renamed:
        return Renamed(f"{len(uploaded.file.read())} bytes", uploaded.args)

    taking = replace(RENAME, handler=measure, upload=Upload("image/png", 3_000_000), query=frozenset(("loud", "title")))

    small = await _knock(api, taking, b"x" * 10, b"title=New", content_type="image/png")
    large = await _knock(api, taking, b"x" * 2_500_000, b"title=New", content_type="image/png; q=1")
    huge = await _knock(api, taking, b"x" * 3_000_001, b"title=New", content_type="image/png")

    assert [answer.json()["user"] for answer in (small, large)] == ["10 bytes", "2500000 bytes"]
    assert huge.status == 413
    document = openapi_document(api.server.runtime.settings, [taking])
    body = document["paths"]["/things/{id}"]["patch"]["requestBody"]
    assert body == {"required": True, "content": {"image/png": {}}}
    assert b"image/png" in reference_page(document).body


async def test_an_operation_may_have_a_deadline_of_its_own(tmp_path: Path) -> None:
    async def wait(context: RequestContext, given: Rename) -> Renamed:
        await asyncio.sleep(0.3)
        return Renamed("done", given)

    async with open_rest_client(tmp_path, call_deadline_ms=100) as api:
        answer = await _knock(api, replace(RENAME, handler=wait, deadline_ms=60_000), b'{"title": "New"}')

    assert answer.json()["user"] == "done"


async def test_an_operation_may_answer_with_a_file_which_no_cache_keeps_either(api: RestClient) -> None:
    async def export(context: RequestContext, given: Rename) -> Response:
        return PlainTextResponse("whole", headers={"Content-Disposition": "attachment"})

    answer = await _knock(api, replace(RENAME, handler=export, response="text/plain"), b'{"title": "New"}')

    assert (answer.status, answer.body) == (200, b"whole")
    assert answer.header("content-disposition") == "attachment"
    assert answer.header("cache-control") == "private, no-store"


async def test_an_operation_may_refuse_in_an_envelope_of_its_own(api: RestClient) -> None:
    class Detail(Struct):
        detail: str

    told = replace(RENAME, error_format=ErrorFormat(Detail, lambda error, path: {"detail": f"{path}: {error.message}"}))

    assert (await _knock(api, told, b"{}")).json() == {"detail": "/things/7: title: required argument is missing"}


def test_files_and_envelopes_are_documented_as_they_are(api: RestClient) -> None:
    class Detail(Struct):
        detail: str

    told = replace(
        RENAME, response="text/plain", error_format=ErrorFormat(Detail, lambda error, _path: {"detail": error.message})
    )
    document = openapi_document(api.server.runtime.settings, [told])

    described = document["paths"]["/things/{id}"]["patch"]
    assert described["responses"]["202"] == {"description": "Accepted", "content": {"text/plain": {}}}
    assert list(document["components"]["schemas"]) == ["Detail"]
    assert [(p["name"], p["in"]) for p in described["parameters"]] == [("id", "path"), ("loud", "query")]
    assert list(described["requestBody"]["content"]["application/json"]["schema"]["properties"]) == ["title"]
    assert b"text/plain" in reference_page(document).body


async def test_an_operation_that_takes_too_long_is_ended_and_may_be_asked_again(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def wait(context: RequestContext, given: Rename) -> Renamed:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("never waited")

    async with open_rest_client(tmp_path, call_deadline_ms=100) as api:
        answer = await _knock(api, replace(RENAME, handler=wait), b'{"title": "New"}')

    assert (answer.status, answer.header("retry-after")) == (503, "1")
    assert sentence(answer) == "rename took longer than 100 ms"
    assert ended.is_set()


async def _knock(
    api: RestClient, operation: Operation, body: bytes, query: bytes = b"", **headers: str
) -> HttpResponse:
    """A request to a door with this operation alone, routed as `/things/7`."""
    door = RestHandler(api.server.runtime, [operation])

    async def routed(scope: Any, receive: Any, send: Any) -> None:
        await door({**scope, "path_params": {"id": "7"}, "query_string": query}, receive, send)

    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    sent = {**JSON, **await api.server.bearer("ada"), **named}
    return await ask(routed, operation.method, "/things/7", sent, body)
