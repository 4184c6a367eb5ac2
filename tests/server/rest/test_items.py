"""Creating, updating, deleting and tagging items over REST: the tools' fields, results and errors."""

from typing import Any

import msgspec

from auth.context import READ
from tests.cases import each_case
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import JSON, RestClient
from tests.sources.source_fixture import SOURCES, LibraryUser

TEXT_SOURCES = ("notes", "media", "characters", "prompts")


async def send(api: RestClient, method: str, path: str, body: Any = None, user: str = "ada") -> HttpResponse:
    encoded = b"" if body is None else msgspec.json.encode(body)
    return await api.request(method, path, user, JSON if body is not None else {}, encoded)


async def titles(api: RestClient, query: str, user: str = "ada") -> list[str]:
    return [hit["title"] for hit in (await api.search({"query": query}, user)).json()["results"]]


@each_case("source", SOURCES)
async def test_every_kind_is_created_updated_tagged_and_deleted(
    api: RestClient, ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    text: dict[str, Any] = {"content": "a galleon"}
    if source == "chats":
        text = {"fields": {"messages": [{"content": "a galleon"}]}}

    created = await send(api, "POST", f"/api/v1/items/{source}", {"title": "Voyage", "tags": ["sea"], **text})
    item = created.json()
    path = f"/api/v1/items/{source}/{item['id']}"

    assert (created.status, item["version"], item["tags"]) == (201, 1, ["sea"])
    assert await titles(api, "galleon") == ["Voyage"]
    foreign = (
        await send(api, "PATCH", path, {"title": "x"}, "ben"),
        await send(api, "POST", f"{path}/tags", {"add": ["x"]}, "ben"),
        await send(api, "DELETE", path, user="ben"),
    )
    assert [answer.status for answer in foreign] == [404, 404, 404]

    updated = await send(api, "PATCH", path, {"title": "Journey", "expected_version": 1})
    stale = await send(api, "PATCH", path, {"title": "x", "expected_version": 1})
    tagged = await send(api, "POST", f"{path}/tags", {"add": ["ship"], "remove": ["sea"]})

    assert (updated.status, updated.json()["title"], updated.json()["version"]) == (200, "Journey", 2)
    assert stale.status == 409
    assert (tagged.status, tagged.json()["tags"]) == (200, ["ship"])
    assert (await send(api, "DELETE", f"{path}?expected_version=1")).status == 409
    deleted = await send(api, "DELETE", path)
    assert (deleted.status, deleted.json()) == (200, {"uri": item["uri"], "is_deleted": True})
    assert await titles(api, "galleon") == []
    assert (await api.get(path)).status == 404


@each_case("source", TEXT_SOURCES)
async def test_a_uri_is_accepted_in_place_of_source_and_id(api: RestClient, ada: LibraryUser, source: str) -> None:
    uri = f"{source}://{await ada.add_item(source, 'Voyage', 'a galleon')}"

    updated = await send(api, "PATCH", f"/api/v1/items?uri={uri}", {"content": "a sloop"})
    tagged = await send(api, "POST", "/api/v1/items/tags", {"uri": uri, "add": ["ship"]})
    deleted = await send(api, "DELETE", f"/api/v1/items?uri={uri}")

    assert [answer.status for answer in (updated, tagged, deleted)] == [200, 200, 200]
    assert (updated.json()["uri"], tagged.json()["tags"]) == (uri, ["ship"])
    assert (await api.get(f"/api/v1/items?uri={uri}")).status == 404


async def test_messages_are_appended_edited_and_deleted(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", "a galleon")
    body = {"messages": [{"content": "a sloop", "role": "assistant"}]}

    assert (await send(api, "POST", f"/api/v1/items/chats/{chat}/messages", body, "ben")).status == 404
    appended = await send(api, "POST", f"/api/v1/items/chats/{chat}/messages", body)
    path = f"/api/v1/items/chats/{chat}/{appended.json()['message_ids'][0]}"

    assert (appended.status, appended.json()["message_count"]) == (201, 2)
    assert (await send(api, "PATCH", path, {"content": "mine"}, "ben")).status == 404
    assert (await send(api, "PATCH", path, {"content": "a frigate"})).status == 200
    assert "a frigate" in (await api.get(f"/api/v1/items/chats/{chat}?mode=full")).json()["content"]
    assert (await send(api, "DELETE", path, user="ben")).status == 404
    assert (await send(api, "DELETE", path)).status == 200
    assert "a frigate" not in (await api.get(f"/api/v1/items/chats/{chat}?mode=full")).json()["content"]


async def test_a_write_over_rest_answers_what_the_tool_answers(api: RestClient, ada: LibraryUser) -> None:
    by_rest = (await send(api, "POST", "/api/v1/items/notes", {"title": "Voyage", "content": "x"})).json()
    by_tool = await ada.call("items_create", source="notes", title="Voyage", content="x")

    assert by_rest.keys() == by_tool.keys()
    assert {name: by_rest[name] for name in ("title", "version", "tags")} == {
        name: by_tool[name] for name in ("title", "version", "tags")
    }


@each_case(
    ("method", "path", "body", "sentence"),
    [
        ("POST", "/api/v1/items/web", {"title": "x"}, "source: expected one of"),
        ("POST", "/api/v1/items/notes", {"title": "x", "author": "y"}, "author: unknown argument"),
        ("POST", "/api/v1/items/notes", {"title": "x", "fields": {"url": "y"}}, "fields.url: unknown argument"),
        ("PATCH", "/api/v1/items/notes/6f1c", {}, "title, content, tags, fields: expected at least one of them"),
        ("PATCH", "/api/v1/items?uri=web://1", {"title": "x"}, "uri: expected the URI of an item"),
        ("POST", "/api/v1/items/tags", {"uri": "notes://6f1c"}, "add, remove: expected at least one tag"),
    ],
)
async def test_invalid_writes_are_rejected_with_400(
    api: RestClient, method: str, path: str, body: Any, sentence: str
) -> None:
    answer = await send(api, method, path, body)

    assert answer.status == 400
    assert sentence in str(answer.json())


async def test_writing_needs_the_scope_to_write(api: RestClient) -> None:
    credential = await api.server.bearer("ada", scopes=(READ,))

    answer = await api.request("POST", "/api/v1/items/notes", None, {**JSON, **credential}, b'{"title": "x"}')

    assert answer.status == 403
