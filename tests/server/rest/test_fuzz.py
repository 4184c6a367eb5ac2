"""Requests made from the OpenAPI document, right and nearly right: no answer is a failure of the server, and each is
what the document says."""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema_rs
import msgspec
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from sources.records import Segment
from tests.server.http_client import HttpResponse
from tests.server.near_valid import JSON
from tests.server.rest.rest_client import JSON as JSON_BODY
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.source_fixture import SOURCES

pytestmark = pytest.mark.asyncio(loop_scope="module")

_QUERIES = ("galleon", '"under sail"', "gall*", "NOT (", "tag:sea after:2026-01-01", "source:notes -x", "")


class Fuzzed(Struct, frozen=True):
    """A server with a library, its document, and what of the library a caller can know."""

    api: RestClient
    document: Mapping[str, Any]
    known: Mapping[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fuzzed]:
    unlimited = {"rate_user_per_minute": 0, "rate_tool_per_minute": 0, "rate_failures_per_minute": 0}
    async with open_rest_client(tmp_path_factory.mktemp("fuzz"), **unlimited) as api:
        ada = await api.reader("ada")
        ids = {
            source: await ada.add_item(source, f"A {source}", f"a galleon under sail in {source}") for source in SOURCES
        }
        timed = [Segment(start_ms=n * 1000, end_ms=n * 1000 + 900, text=f"galleon {n}") for n in range(50)]
        ids["media"] = await ada.add_media("Timed", segments=timed)
        document = (await api.get("/openapi.json", None)).json()
        session = (await api.search({"query": "galleon"})).json()["session"]
        yield Fuzzed(api, document, {"ids": ids, "session": session})


def values_of(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows."""
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
    """An object of some of the properties and all that are needed; with mistakes, one value may be anything."""
    named = schema["properties"]
    chosen = data.draw(st.sets(st.sampled_from(sorted(named)), max_size=5)) | set(schema["required"])
    given_ = {name: data.draw(values_of(named[name]), label=name) for name in sorted(chosen)}
    if mistakes and data.draw(st.booleans()):
        given_[data.draw(st.sampled_from(sorted(named)) | st.text(max_size=8))] = data.draw(JSON)
    return given_


def query_text(values: Mapping[str, Any]) -> str:
    return urlencode({name: v if isinstance(v, str) else msgspec.json.encode(v).decode() for name, v in values.items()})


def check(fuzzed: Fuzzed, path: str, method: str, answer: HttpResponse) -> None:
    """The answer is one that the document foresees, and looks as it says."""
    foreseen = fuzzed.document["paths"][path][method]["responses"]
    assert answer.status < 500, answer.body
    assert str(answer.status) in foreseen, answer.body
    schema = foreseen[str(answer.status)]["content"]["application/json"]["schema"]
    whole = {**schema, "components": fuzzed.document["components"]}
    assert [str(problem) for problem in jsonschema_rs.iter_errors(whole, answer.json())] == []


@settings(max_examples=120, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("mistakes", [False, True])
async def test_whatever_is_searched_for_is_answered_as_documented(
    fuzzed: Fuzzed, mistakes: bool, data: st.DataObject
) -> None:
    described = fuzzed.document["paths"]["/api/v1/search"]["post"]["requestBody"]["content"]["application/json"]
    body = objects_of(described["schema"], data, mistakes=mistakes)
    if "session" in body and data.draw(st.booleans()):
        body["session"] = fuzzed.known["session"]

    answer = await fuzzed.api.search(body)

    check(fuzzed, "/api/v1/search", "post", answer)
    if not mistakes:
        assert answer.status == 200 or "session" in body or "filters" in body, answer.body


@settings(max_examples=150, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("path", ["/api/v1/items/{source}/{id}", "/api/v1/items"])
async def test_whatever_is_read_is_answered_as_documented(fuzzed: Fuzzed, path: str, data: st.DataObject) -> None:
    parameters = fuzzed.document["paths"][path]["get"]["parameters"]
    declared = {p["name"]: p["schema"] for p in parameters if p["in"] == "query" and p["name"] != "uri"}
    values = objects_of({"properties": declared, "required": []}, data, mistakes=data.draw(st.booleans()))
    source = data.draw(st.sampled_from(SOURCES) | st.text(max_size=8))
    identity = data.draw(st.just(fuzzed.known["ids"].get(source, "")) | st.text(max_size=12) | st.integers())
    if path.endswith("items"):
        address = f"{path}?{query_text({'uri': f'{source}://{identity}', **values})}"
    else:
        address = f"/api/v1/items/{quote(source, safe='')}/{quote(str(identity), safe='')}?{query_text(values)}"

    answer = await fuzzed.api.get(address)

    if answer.status != 404 or source in SOURCES:
        check(fuzzed, path, "get", answer)


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=60), content_type=st.sampled_from([JSON_BODY["Content-Type"], "text/plain", ""]))
async def test_whatever_bytes_are_posted_are_refused_in_good_form(
    fuzzed: Fuzzed, body: bytes, content_type: str
) -> None:
    answer = await fuzzed.api.request("POST", "/api/v1/search", "ada", {"Content-Type": content_type}, body)

    assert answer.status in (400, 415)
    check(fuzzed, "/api/v1/search", "post", answer)


async def test_the_check_tells_a_right_answer_from_a_wrong_one(fuzzed: Fuzzed) -> None:
    answer = await fuzzed.api.search({"query": "galleon"})
    hits = answer.json()
    del hits["results"][0]["uri"]

    check(fuzzed, "/api/v1/search", "post", answer)
    with pytest.raises(AssertionError):
        check(fuzzed, "/api/v1/search", "post", msgspec.structs.replace(answer, body=msgspec.json.encode(hits)))
    with pytest.raises(AssertionError):
        check(fuzzed, "/api/v1/search", "post", msgspec.structs.replace(answer, status=418))
