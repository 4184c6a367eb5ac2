"""Valid and nearly valid requests generated from the OpenAPI document. Every response matches the document."""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from sources.records import Segment
from tests.live import NO_RATE_LIMITS
from tests.server.http_client import HttpResponse
from tests.server.mutated_messages import JSON
from tests.server.rest.rest_client import JSON as JSON_BODY
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import SOURCES
from tests.tiers import examples

_QUERIES = ("galleon", '"under sail"', "gall*", "NOT (", "tag:sea after:2026-01-01", "source:notes -x", "")


class FuzzTarget(Struct, frozen=True):
    """A client of a server with a library, the OpenAPI document, and valid ids of the library."""

    api: RestClient
    document: Mapping[str, Any]
    known: Mapping[str, Any]


@pytest.fixture(scope="module")
async def target(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FuzzTarget]:
    async with open_rest_client(tmp_path_factory.mktemp("fuzz"), **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        ids = {
            source: await ada.add_item(source, f"A {source}", f"a galleon under sail in {source}") for source in SOURCES
        }
        timed = [Segment(start_ms=n * 1000, end_ms=n * 1000 + 900, text=f"galleon {n}") for n in range(50)]
        ids["media"] = await ada.add_media("Timed", segments=timed)
        document = (await api.get("/openapi.json", None)).json()
        session = (await api.search({"query": "galleon"})).json()["session"]
        yield FuzzTarget(api, document, {"ids": ids, "session": session})


def values_of(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Generates values that a schema allows."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of(*(values_of(option) for option in schema["anyOf"]))
    match schema.get("type"):
        case "integer":
            return st.integers() | st.integers(0, 60)
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False) | st.floats(0, 60)
        case "boolean":
            return st.booleans()
        case "string":
            return st.text(max_size=40) | st.sampled_from(_QUERIES)
        case "array":
            return st.lists(values_of(schema.get("items", {})), max_size=3)
        case "object":
            optional = {name: values_of(inner) for name, inner in schema.get("properties", {}).items()}
            return st.fixed_dictionaries({}, optional=optional)
    return JSON


def objects_of(schema: Mapping[str, Any], data: st.DataObject, *, mistakes: bool) -> dict[str, Any]:
    """Generates an object with the required and some optional properties; with mistakes, one value may be invalid."""
    properties = schema["properties"]
    names = data.draw(st.sets(st.sampled_from(sorted(properties)), max_size=5)) | set(schema["required"])
    values = {name: data.draw(values_of(properties[name]), label=name) for name in sorted(names)}
    if mistakes and data.draw(st.booleans()):
        values[data.draw(st.sampled_from(sorted(properties)) | st.text(max_size=8))] = data.draw(JSON)
    return values


def query_text(values: Mapping[str, Any]) -> str:
    return urlencode({name: v if isinstance(v, str) else msgspec.json.encode(v).decode() for name, v in values.items()})


def check(target: FuzzTarget, path: str, method: str, response: HttpResponse, *, may_be_late: bool = False) -> None:
    """Asserts that the document describes the response. `may_be_late` is set if the request has a deadline so short
    that no source may answer in time."""
    documented = target.document["paths"][path][method]["responses"]
    assert response.status < 500 or (may_be_late and response.status == 503), response.body
    assert str(response.status) in documented, response.body
    schema = documented[str(response.status)]["content"]["application/json"]["schema"]
    resolved = {**schema, "components": target.document["components"]}
    assert [str(problem) for problem in jsonschema_rs.iter_errors(resolved, response.json())] == []


@settings(max_examples=examples(60))
@given(data=st.data())
@pytest.mark.parametrize("mistakes", [False, True])
async def test_search_responses_match_the_document(target: FuzzTarget, mistakes: bool, data: st.DataObject) -> None:
    content = target.document["paths"]["/api/v1/search"]["post"]["requestBody"]["content"]["application/json"]
    body = objects_of(content["schema"], data, mistakes=mistakes)
    if "session" in body and data.draw(st.booleans()):
        body["session"] = target.known["session"]

    response = await target.api.search(body)

    check(target, "/api/v1/search", "post", response, may_be_late="deadline_ms" in body)
    if not mistakes:
        assert response.status == 200 or {"session", "filters", "libraries", "deadline_ms"} & body.keys(), response.body


@settings(max_examples=examples(75))
@given(data=st.data())
@pytest.mark.parametrize("path", ["/api/v1/items/{source}/{id}", "/api/v1/items"])
async def test_read_responses_match_the_document(target: FuzzTarget, path: str, data: st.DataObject) -> None:
    parameters = target.document["paths"][path]["get"]["parameters"]
    declared = {p["name"]: p["schema"] for p in parameters if p["in"] == "query" and p["name"] != "uri"}
    values = objects_of({"properties": declared, "required": []}, data, mistakes=data.draw(st.booleans()))
    source = data.draw(st.sampled_from(SOURCES) | st.text(max_size=8))
    identity = data.draw(st.just(target.known["ids"].get(source, "")) | st.text(max_size=12) | st.integers())
    if path.endswith("items"):
        address = f"{path}?{query_text({'uri': f'{source}://{identity}', **values})}"
    else:
        address = f"/api/v1/items/{quote(source, safe='')}/{quote(str(identity), safe='')}?{query_text(values)}"

    response = await target.api.get(address)

    if response.status != 404 or source in SOURCES:
        check(target, path, "get", response)


@settings(max_examples=examples(30))
@given(body=st.binary(max_size=60), content_type=st.sampled_from([JSON_BODY["Content-Type"], "text/plain", ""]))
async def test_arbitrary_bodies_get_a_documented_error(target: FuzzTarget, body: bytes, content_type: str) -> None:
    response = await target.api.request("POST", "/api/v1/search", "ada", {"Content-Type": content_type}, body)

    assert response.status in (400, 415)
    check(target, "/api/v1/search", "post", response)


async def test_the_check_detects_undocumented_responses(target: FuzzTarget) -> None:
    response = await target.api.search({"query": "galleon"})
    hits = response.json()
    del hits["results"][0]["uri"]

    check(target, "/api/v1/search", "post", response)
    with pytest.raises(AssertionError):
        check(target, "/api/v1/search", "post", msgspec.structs.replace(response, body=msgspec.json.encode(hits)))
    with pytest.raises(AssertionError):
        check(target, "/api/v1/search", "post", msgspec.structs.replace(response, status=418))
