"""Promises of tldw's context search and retrieval, over HTTP."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sources.drafts import Bookkeeping
from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.cli.program import Program
from tests.server.clients import JSON_AND_EVENTS, WebSocketClient, handshake, message
from tests.server.http_client import HttpResponse
from tests.server.rest.rest_client import RestClient, open_rest_client
from tests.sources.importers.tldw_files import CHACHA, database
from tests.sources.source_fixture import SOURCES, LibraryUser
from tests.sources.test_every_source import TLDW_FIELDS

PAGE = ["query", "limit", "offset", "snippet_length"]
ARGUMENTS = {
    "notes_search": [*PAGE, "keywords"],
    "notes_get": ["note_id", "retrieval"],
    "media_search": [*PAGE, "media_types", "date_from", "date_to", "order_by"],
    "media_get": ["media_id", "retrieval"],
    "media_transcript": ["media_id", "format", "include_timestamps"],
    "chats_search": [*PAGE, "by", "character_id", "sender"],
    "chats_get": ["conversation_id", "page", "page_size", "retrieval"],
    "characters_search": PAGE,
    "characters_get": ["character_id"],
    "prompts_search": [*PAGE, "fields"],
    "prompts_get": ["prompt_id_or_name"],
    "knowledge_search": [*PAGE, "sources", "order_by", "filters"],
}
SUGGESTED_TYPES = {
    *("video", "audio", "podcast", "pdf", "epub", "docx"),
    *("pptx", "html", "markdown", "txt", "image", "article"),
}
RETRIEVAL_OPTIONS = [
    "mode",
    "snippet_length",
    "max_tokens",
    "chars_per_token",
    "chunk_size_tokens",
    "chunk_overlap_tokens",
    "sibling_window",
    "prefer_prechunked",
]
SENTENCES = " ".join(f"Sentence {number} tells of a galleon at sea." for number in range(400))


async def post(api: RestClient, path: str, body: Any, **headers: str) -> HttpResponse:
    return await api.request("POST", path, "ada", {**JSON_AND_EVENTS, **headers}, msgspec.json.encode(body))


async def test_results_at_the_addresses_of_tldw_have_all_its_fields(api: RestClient) -> None:
    ada, ben = await api.library_user("ada"), await api.library_user("ben")
    for number in range(30):
        await ada.add_note(f"Voyage {number}", f"{number}: {SENTENCES}")
        await ben.add_note(f"Voyage {number}", f"{number}: {SENTENCES}")
    call = message("tools/call", {"name": "knowledge.search", "arguments": {"query": "galleon"}}, 1)

    response = await post(api, "/api/v1/mcp/request", call)
    (content,) = response.json()["result"]["content"]

    page = msgspec.json.decode(content["text"])
    assert page == response.json()["result"]["structuredContent"]
    assert (len(page["results"]), page["next_offset"]) == (20, 20)
    for hit in page["results"]:
        assert [name for name in TLDW_FIELDS if name not in hit] == []
        assert (hit["uri"], hit["score_type"], hit["tags"]) == (f"notes://{hit['id']}", "fts_coverage", [])
        assert 250 < len(hit["snippet"]) <= 300

    last = message("tools/call", {"name": "knowledge.search", "arguments": {"query": "galleon", "offset": 20}}, 2)
    page = (await post(api, "/api/v1/mcp/request", last)).json()["result"]["structuredContent"]
    assert (len(page["results"]), page["next_offset"], page["total_estimated"]) == (10, None, 30)


@each_case("parameter", ["mcp-session-id", "Mcp-Session-Id", "session_id", "session"])
async def test_session_id_is_accepted_only_in_the_header(api: RestClient, parameter: str) -> None:
    session = (await post(api, "/mcp", handshake("2025-11-25"))).header("mcp-session-id") or ""
    listing = message("tools/list", {}, 1)

    in_header = await post(api, "/mcp", listing, Mcp_Session_Id=session)
    in_query = await post(api, f"/mcp?{parameter}={session}", listing)

    assert in_header.status == 200
    assert in_query.status == 400


async def test_attached_message_has_its_position_but_not_its_text(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Harbour", "Where is the galleon?", "Under sail.")

    response = await ada.read("chats", chat, retrieval={"mode": "full", "attachments": True})

    first, second = response["attachments"]
    assert (first["message_index"], first["sender"], second["sender"]) == (0, "Ana", "Guide")
    assert response["content"][second["start"] : second["end"]] == "Guide: Under sail."
    assert "galleon" not in str(response["attachments"])


async def test_added_fields_are_omitted_when_empty(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")

    plain = await ada.call("notes_search", query="galleon")
    reinterpreted = await ada.call("notes_search", query='"galleon')
    item = await ada.read("notes", note, retrieval={"mode": "full"})

    assert reinterpreted["read_as"]
    assert {"read_as", "pages"}.isdisjoint(plain)
    assert "more_in_item" not in plain["results"][0]
    assert {"over_budget", "pages"}.isdisjoint(item)


# -- tools --------------------------------------------------------------------------------------------------------


async def listed(user: LibraryUser) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await user.request("tools/list"))["tools"]}


@each_case("tool", ARGUMENTS)
async def test_tool_takes_the_documented_arguments(ada: LibraryUser, tool: str) -> None:
    schema = (await listed(ada))[tool]["inputSchema"]

    assert [name for name in ARGUMENTS[tool] if name not in schema["properties"]] == []
    assert schema.get("required", []) == (["query"] if tool.endswith("search") else [])


async def test_get_tools_take_the_documented_retrieval_options(ada: LibraryUser) -> None:
    options = (await listed(ada))["knowledge_get"]["inputSchema"]["properties"]["retrieval"]

    assert [name for name in RETRIEVAL_OPTIONS if name not in options["properties"]] == []


async def test_search_and_get_tools_are_marked_read_only(ada: LibraryUser) -> None:
    tools = await listed(ada)

    assert all(tools[name]["annotations"]["readOnlyHint"] for name in [*ARGUMENTS, "knowledge_get"])


async def test_no_argument_names_a_user_or_a_path(ada: LibraryUser) -> None:
    for name, tool in (await listed(ada)).items():
        assert not {"user", "user_id", "owner", "db", "db_path", "db_paths"} & set(tool["inputSchema"]["properties"])
        assert tool["inputSchema"]["additionalProperties"] is False, name


@each_case("argument", [{"user_id": "ben"}, {"_context": {"user_id": "ben"}}, {"db_paths": {}}])
async def test_caller_cannot_override_the_request_context(ada: LibraryUser, argument: dict[str, Any]) -> None:
    (name,) = argument

    assert f"{name}: unknown argument" in await ada.call_error("notes_search", query="galleon", **argument)


@pytest.mark.sqlite  # the databases are files
async def test_each_user_has_a_media_a_chacha_and_a_prompts_database(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    for user in (ada, ben):
        for source in SOURCES:
            await user.add_item(source, "Voyage", "A galleon.")
        assert (await user.call("knowledge_search", query="galleon"))["results"]

    root = api.server.runtime.data_root.root
    files = [{path.name for path in root.rglob("*.db") if user.context.user_id in path.parts} for user in (ada, ben)]
    assert files[0] == files[1] >= {"media.db", "chacha.db", "prompts.db"}


def test_tldw_database_is_imported_and_searched(program: Program, tmp_path: Path) -> None:
    notes = [{"id": "11111111-0000-4000-8000-000000000001", "title": "Zebra", "content": "A zebra crossing"}]
    source = database(tmp_path / "ChaChaNotes.db", CHACHA, {"notes": notes})
    program.expect("import", str(source))

    (hit,) = program.run("search", "zebra", "--json").json["results"]

    assert (hit["uri"], hit["title"]) == (f"notes://{notes[0]['id']}", "Zebra")


async def test_media_types_resource_has_the_types_of_the_caller_and_suggestions(
    ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_media("Talk", "A galleon.", media_type="lecture")
    await ben.add_media("Paper", "A galleon.", media_type="paper")

    (content,) = (await ada.request("resources/read", uri="media://types"))["contents"]

    types = msgspec.json.decode(content["text"])
    assert types["types"] == [{"media_type": "lecture", "count": 1}]
    assert set(types["suggested"]) >= SUGGESTED_TYPES


# -- reading ------------------------------------------------------------------------------------------------------


async def test_get_without_options_returns_300_characters(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", SENTENCES)

    response = await ada.read("notes", note, retrieval={})

    assert response["mode"] == "snippet"
    assert 0 < len(response["content"]) <= 300


async def test_note_is_chunked_between_sentences(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", SENTENCES)

    response = await ada.read("notes", note, loc={"chunk_index": 1}, retrieval={"mode": "chunk"})

    assert response["content"].startswith("Sentence ")
    assert response["content"].rstrip().endswith("at sea.")


@each_case("chars_per_token", [2, 4])
async def test_chars_per_token_replaces_the_estimate(ada: LibraryUser, chars_per_token: int) -> None:
    note = await ada.add_note("Voyage", SENTENCES)
    budget = {"mode": "full", "max_tokens": 1000, "chars_per_token": chars_per_token}

    content = (await ada.read("notes", note, retrieval=budget))["content"]

    assert 500 * chars_per_token <= len(content) <= 1000 * chars_per_token


async def test_budget_is_5000_tokens_by_default(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", SENTENCES * 4)
    options = {"mode": "chunk_with_siblings", "sibling_window": 50}

    response = await ada.read("notes", note, loc={"chunk_index": 20}, retrieval=options)

    assert 4000 <= response["tokens"] <= 5000


async def test_full_mode_has_a_hard_cap(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", SENTENCES * 10)
    options = {"mode": "full", "max_tokens": 1_000_000, "chars_per_token": 4}

    response = await ada.read("notes", note, retrieval=options)

    assert response["tokens"] <= 20_000
    assert response["next_cursor"]


# -- the aggregator -----------------------------------------------------------------------------------------------


async def test_of_equal_scores_the_newer_hit_comes_first(ada: LibraryUser) -> None:
    for year in (2021, 2023, 2022):
        bookkeeping = Bookkeeping(version=1, last_modified=f"{year}-01-01T00:00:00.000Z", client_id="test")
        await ada.add_note(f"Voyage {year}", f"A galleon {year}.", bookkeeping=bookkeeping)

    hits = await ada.search("knowledge_search", "galleon")

    assert len({hit["score"] for hit in hits}) == 1
    assert [hit["title"] for hit in hits] == ["Voyage 2023", "Voyage 2022", "Voyage 2021"]


async def test_one_source_has_at_most_six_of_the_first_ten_hits(ada: LibraryUser) -> None:
    for number in range(20):
        await ada.add_note(f"Galleon {number}", f"galleon galleon {number}")
        await ada.add_media(f"Report {number}", f"{'Rain and wind again today. ' * 20} A galleon {number}.")

    hits = await ada.search("knowledge_search", "galleon", limit=10, snippet_length=20)

    assert sorted(hit["source"] for hit in hits) == ["media"] * 4 + ["notes"] * 6


@each_case("sources", [["notes"], ["media", "prompts"]])
async def test_only_the_chosen_sources_are_searched(ada: LibraryUser, sources: list[str]) -> None:
    for source in SOURCES:
        await ada.add_item(source, "Voyage", f"A galleon in {source}.")

    hits = await ada.search("knowledge_search", "galleon", sources=sources)

    assert {hit["source"] for hit in hits} == set(sources)


async def test_filters_of_characters_are_reserved(ada: LibraryUser) -> None:
    await ada.add_character("Merlin", "A galleon.")

    (hit,) = await ada.search("knowledge_search", "galleon", filters={"characters": {}})

    assert hit["title"] == "Merlin"


async def test_filter_of_a_source_that_is_not_searched_is_rejected(ada: LibraryUser) -> None:
    filters = {"media": {"media_types": ["video"]}}

    refusal = await ada.call_error("knowledge_search", query="galleon", sources=["notes"], filters=filters)

    assert refusal == "filters.media: expected only filters of searched sources; 'media' is not one"


# -- sessions -----------------------------------------------------------------------------------------------------


async def test_repeated_searches_deliver_every_hit_before_any_is_repeated(ada: LibraryUser) -> None:
    for number in range(7):
        await ada.add_note(f"Voyage {number}", f"galleon {number}")
    responses = [await ada.call("knowledge_search", query="galleon", limit=3)]
    for _ in range(3):
        session = responses[0]["session"]
        responses.append(await ada.call("knowledge_search", query="galleon", limit=3, session=session))

    pages = [[hit["uri"] for hit in response["results"]] for response in responses]
    assert len({uri for page in pages[:3] for uri in page}) == sum(len(page) for page in pages[:3]) == 7
    assert ["exhausted" in response for response in responses] == [False, False, False, True]


async def test_earlier_queries_select_the_passage_of_a_snippet(ada: LibraryUser) -> None:
    filler = "Nothing else happened that day. " * 30
    await ada.add_note("Log", f"Silver in the harbour. {filler} Grain in the harbour.")

    for topic in ("silver", "grain"):
        session = (await ada.call("knowledge_search", query=topic, dedupe="off"))["session"]
        (hit,) = await ada.search("knowledge_search", "harbour", session=session, dedupe="off", snippet_length=60)
        assert topic in hit["snippet"].lower()


async def test_session_remembers_a_limited_number_of_items(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, session_seen_max=2) as api:
        ada = await api.library_user("ada")
        for number in range(3):
            await ada.add_note(f"Voyage {number}", f"galleon {number}")
        first = await ada.call("knowledge_search", query="galleon")

        second = await ada.call("knowledge_search", query="galleon", session=first["session"])

    assert (len(first["results"]), len(second["results"]), second["suppressed"]) == (3, 1, 2)


async def test_only_the_last_queries_bias_a_snippet(ada: LibraryUser) -> None:
    await ada.add_note("Log", "Grain in the harbour.")
    session = (await ada.call("knowledge_search", query="silver"))["session"]
    for query in ("one", "two", "three"):
        await ada.call("knowledge_search", query=query, session=session)

    response = await ada.call("knowledge_search", query="harbour", session=session, explain=True)

    assert response["explain"]["topic"] == ["three", "two", "one"]


async def test_config_of_a_websocket_handshake_sets_the_defaults_of_its_session(tmp_path: Path) -> None:
    initialize = handshake()
    initialize["params"]["config"] = {"snippet_length": 40, "order_by": "recent"}
    call = {"name": "session_configure", "arguments": {"max_tokens": 700}}
    async with (
        live(make_settings(tmp_path)) as server,
        WebSocketClient.open(server.ws, await server.bearer("ada")) as socket,
    ):
        await socket.send(initialize)
        await socket.response(initialize["id"])
        state = (await socket.request("tools/call", call))["result"]["structuredContent"]

    assert state["defaults"] == {"snippet_length": 40, "order_by": "recent", "max_tokens": 700}
