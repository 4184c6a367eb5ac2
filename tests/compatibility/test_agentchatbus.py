"""Promises of AgentChatBus's search guide, over HTTP: the tool `msg_search` and `GET /api/search`."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.live import NO_RATE_LIMITS
from tests.server.rest.rest_client import JSON, RestClient, open_rest_client
from tests.sources.source_fixture import LibraryUser


async def search_both(api: RestClient, user: LibraryUser, query: str, **more: Any) -> tuple[Any, Any]:
    """Returns the responses of the tool and of REST."""
    parameters = "".join(f"&{name}={value}" for name, value in more.items())
    over_rest = await api.get(f"/api/search?q={quote(query)}{parameters}", user.name)
    assert over_rest.status == 200
    return await user.call("msg_search", query=query, **more), over_rest.json()


def authors(response: Any) -> set[str]:
    return {row["author"] for row in response["results"]}


async def test_msg_search_takes_the_documented_parameters(ada: LibraryUser) -> None:
    listed = {tool["name"]: tool for tool in (await ada.request("tools/list"))["tools"]}
    schema = listed["msg_search"]["inputSchema"]

    assert {name: declared["type"] for name, declared in schema["properties"].items()} == {
        "query": "string",
        "thread_id": "string",
        "limit": "integer",
    }
    assert schema["required"] == ["query"]
    assert schema["properties"]["limit"]["default"] == 50


@each_case(
    ("parameters", "found"),
    [
        ("q=angular+signals", {"a"}),
        ("q=consensus&thread_id={thread}", {"b"}),
        ("q=performance&limit=1", {"c"}),
        ("q=%22angular+signals%22", {"a"}),
    ],
)
async def test_documented_url_returns_its_messages(
    api: RestClient, ada: LibraryUser, parameters: str, found: set[str]
) -> None:
    texts = {"a": "use angular signals", "b": "we have consensus", "c": "good performance", "d": "signals, angular no"}
    thread = await ada.add_chat("One", *(MessageDraft(sender=name, content=text) for name, text in texts.items()))
    await ada.add_chat("Two", MessageDraft(sender="other", content="no consensus here"))

    response = (await api.get(f"/api/search?{parameters.format(thread=thread)}")).json()

    assert found <= authors(response) <= found | {"d"}


@each_case(
    ("query", "found"),
    [
        ("perform", set()),
        ("cafe", {"a"}),
        ("CAFÉ", {"a"}),
        ("good AND performance", {"b"}),
        ("café OR performing", {"a", "c"}),
        ("slowly good", {"d"}),
        ('"good performance"', {"b"}),
        ("perform*", {"b", "c"}),
        ("perform* NOT good", {"c"}),
        ("(café OR performing) AND slowly", {"c"}),
        ("content:performing", {"c"}),
        ('"performance good"', {"b"}),
    ],
)
async def test_query_is_a_full_text_expression(api: RestClient, ada: LibraryUser, query: str, found: set[str]) -> None:
    texts = {"a": "a Café", "b": "good performance; performance: good", "c": "performing slowly", "d": "slowly is good"}
    await ada.add_chat("Talk", *(MessageDraft(sender=name, content=text) for name, text in texts.items()))

    assert [authors(response) for response in await search_both(api, ada, query)] == [found, found]


@each_case("query", ["cursor", "zanzibar", "{thread}"])
async def test_only_the_content_is_searched(api: RestClient, ada: LibraryUser, query: str) -> None:
    thread = await ada.add_chat("Zanzibar", MessageDraft(sender="cursor", content="a fox"))

    for response in await search_both(api, ada, query.format(thread=thread)):
        assert (response["results"], response["total"]) == ([], 0)


async def test_posted_message_is_found_at_once(api: RestClient, ada: LibraryUser) -> None:
    agent = await _post(api, "/api/agents/register", {"ide": "vscode", "model": "m"})
    headers = {"X_Agent_Token": agent["token"]}
    thread = await _post(api, "/api/threads", {"topic": "Talk", "creator_agent_id": agent["agent_id"]}, **headers)
    for text in ("angular signals", "more angular"):
        await _post(api, f"/api/threads/{thread['id']}/messages", {"author": "human", "content": text})

        for response in await search_both(api, ada, f'"{text}"'):
            (row,) = response["results"]
            assert (row["thread_id"], row["thread_topic"], row["author"]) == (thread["id"], "Talk", "human")


async def _post(api: RestClient, path: str, body: Any, **headers: str) -> Any:
    response = await api.request("POST", path, "ada", {**JSON, **headers}, msgspec.json.encode(body))
    assert response.status in (200, 201), response.body
    return response.json()


@each_case(("limit", "count"), [(None, 50), (0, 1), (-5, 1), (7, 7), (1000, 200)])
async def test_limit_is_50_by_default_and_clamped_to_1_to_200(
    api: RestClient, ada: LibraryUser, limit: int | None, count: int
) -> None:
    await ada.add_chat("Talk", *(f"fox {number}" for number in range(210)))

    for response in await search_both(api, ada, "fox", **({} if limit is None else {"limit": limit})):
        assert (len(response["results"]), response["total"]) == (count, count)


async def test_snippet_has_twenty_tokens_around_the_match(api: RestClient, ada: LibraryUser) -> None:
    await ada.add_chat("Talk", " ".join([f"word{number}" for number in range(40)] + ["fox"] + ["end"] * 40))

    for response in await search_both(api, ada, "fox"):
        snippet = response["results"][0]["snippet"]
        assert "<mark>fox</mark>" in snippet
        assert (snippet[0], snippet[-1]) == ("…", "…")
        assert len(snippet.split()) == 20


async def test_newest_of_very_many_matches_are_returned_with_a_note(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, search_ranked_rows_max=100, **NO_RATE_LIMITS) as api:
        ada = await api.library_user("ada")
        await ada.add_chat("Talk", "tea tea tea", *(f"tea and {number}" for number in range(1_001)))

        for response in await search_both(api, ada, "tea", limit=2):
            assert [row["snippet"] for row in response["results"]] == [
                "<mark>tea</mark> and 1000",
                "<mark>tea</mark> and 999",
            ]
            assert response["note"]
