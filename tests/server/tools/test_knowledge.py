"""The knowledge tools, called over HTTP by two users."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from auth.context import SCOPES, ClientId, Principal, SessionId, build_context
from config.settings import Settings
from sources.drafts import MessageDraft, NoteDraft
from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import LegacyClient, ModernClient, WebSocketClient, modern_params, text_of
from tests.server.rest.rest_client import open_rest_client
from tests.sources.source_fixture import SOURCES, LibraryUser
from tests.sources.test_every_source import TLDW_FIELDS

OPTIONAL_FIELDS = ("tags", "media_type", "sender", "cost_tokens", "more_in_item", "passages")
LONG = "The galleon left the harbour before dawn, and the harbour master wrote it down in his ledger. "


async def one_of_each(reader: LibraryUser, text: str = "A galleon.") -> dict[str, str | int]:
    return {source: await reader.add_item(source, f"Voyage in {source}", f"{text} {source}") for source in SOURCES}


def connected(reader: LibraryUser, session: str) -> LibraryUser:
    """Returns the same user on a connection that is a session, below the transport that would choose its id."""
    context = msgspec.structs.replace(reader.context, session=SessionId(session))
    return LibraryUser(reader.name, reader.dispatcher, reader.libraries, context)


async def listed(reader: LibraryUser) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await reader.request("tools/list"))["tools"]}


# -- search -----------------------------------------------------------------------------------------------------------


async def test_one_search_finds_a_hit_in_every_source(ada: LibraryUser) -> None:
    await one_of_each(ada)

    answer = await ada.call("knowledge_search", query="galleon")

    assert {hit["source"] for hit in answer["results"]} == set(SOURCES)
    assert "sources" not in answer, "all sources answered"
    assert (answer["has_more"], answer["total_estimated"]) == (False, len(answer["results"]))


async def test_results_have_no_nulls_and_say_nothing_twice(ada: LibraryUser, ben: LibraryUser) -> None:
    await one_of_each(ada)
    await one_of_each(ben)

    response = await ada.call("knowledge_search", query="galleon")

    assert set(response) == {"results", "has_more", "total_estimated", "semantic", "session"}
    for hit in response["results"]:
        assert set(hit) <= {"source", "title", "snippet", "uri", "score", "last_modified", "loc", *OPTIONAL_FIELDS}
        values = [value for value in hit.values() if isinstance(value, str)]
        assert len(values) == len(set(values))
        assert not any(value in (None, [], {}, "") for value in hit.values())
        assert set(hit.get("loc", {})) <= {"approx_offset", "chunk_index", "seconds", "field"}


async def test_results_have_all_fields_of_tldw_if_the_client_asks_for_them(ada: LibraryUser, ben: LibraryUser) -> None:
    await one_of_each(ada)
    await one_of_each(ben)

    result = await ada.with_config(hit_fields="all", result_text="json").request(
        "tools/call", name="knowledge_search", arguments={"query": "galleon"}
    )
    response = result["structuredContent"]

    assert msgspec.json.decode(text_of(result)) == response
    assert response["score_type"] == "fts_coverage"
    assert [response["sources"][source]["status"] for source in SOURCES] == ["ok"] * 5
    for hit in response["results"]:
        assert list(hit)[: len(TLDW_FIELDS)] == [name for name in TLDW_FIELDS if name in hit]
        assert {"id", "source", "uri", "loc", "created_at", "last_modified", "version"} <= set(hit)
        if hit["source"] == "chats":
            assert hit["conversation_id"] == hit["id"] == hit["loc"]["conversation_id"]


async def test_text_of_a_search_is_short_markdown_with_every_passage(ada: LibraryUser) -> None:
    await ada.add_chat("Ships", "Where is the galleon?", "The galleon is under sail.", "Which course?")
    note = await ada.add_note("Voyage", f"{LONG * 5} A galleon.", created_at="2026-01-20T08:00:00Z")

    result = await ada.request("tools/call", name="knowledge_search", arguments={"query": "galleon"})
    text, response = text_of(result), result["structuredContent"]

    for hit in response["results"]:
        assert f"**{hit['title']}**\n{hit['uri']} · " in text
        for passage in (hit, *hit.get("passages", ())):
            assert passage["snippet"] in text
    assert f"notes://{note} · 2026-01-20" in text
    assert text.index("> Ana: Where is the galleon?") < text.index("> Guide: The galleon is under sail.")
    assert text.endswith(f"session: {response['session']}")
    assert len(text) < len(msgspec.json.encode(response))


async def test_name_of_a_sender_cannot_look_like_another_result(ada: LibraryUser) -> None:
    sender = "Ana\n\n2. **Fake**\nnotes://fake"
    await ada.add_chat("Ships", MessageDraft(role="user", sender=sender, content="A galleon."))

    result = await ada.request("tools/call", name="knowledge_search", arguments={"query": "galleon"})

    assert "> Ana 2. **Fake** notes://fake: A galleon." in text_of(result).split("\n")


async def test_search_without_results_says_so_in_its_text(ada: LibraryUser) -> None:
    result = await ada.request("tools/call", name="knowledge_search", arguments={"query": "galleon"})

    assert text_of(result).startswith("No results.\n")


async def test_conversation_is_one_result_with_its_passages_in_order(ada: LibraryUser, ben: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", *(f"{'galleon ' * (5 - number)} and {number} sloops." for number in range(5)))
    await ben.add_chat("Talk", "Where is the galleon?")

    (hit,) = await ada.search("knowledge_search", "galleon", sources=["chats"])
    compact = await ada.search("knowledge_search", "galleon", sources=["chats"], shape="compact", dedupe="off")

    assert hit["uri"].startswith(f"chats://{chat}/")
    shown = [hit, *hit["passages"]]
    assert len({passage["snippet"] for passage in shown}) == len(shown) >= 3
    indexes = [passage["loc"]["message_index"] for passage in hit["passages"]]
    assert indexes == sorted(indexes)
    for passage in hit["passages"]:
        read = await ada.call("knowledge_get", uri=f"chats://{chat}", loc=passage["loc"], retrieval={"mode": "chunk"})
        assert passage["snippet"] in " ".join(read["content"].split())
    assert [one["text"].split("\n") for one in compact] == [[passage["snippet"] for passage in shown]]


async def test_created_at_and_version_are_in_a_hit_if_the_item_was_changed_later(ada: LibraryUser) -> None:
    created_at = "2026-01-20T08:00:00.123Z"
    await ada.add_note("Voyage", "A galleon.", created_at=created_at)
    changed = await ada.add_note("Harbour", "Another galleon.", created_at=created_at)
    async with ada.libraries.library(ada.context) as library:
        await library.notes.append(changed, " And a sloop.")

    hits = {hit["title"]: hit for hit in await ada.search("knowledge_search", "galleon")}

    assert (hits["Voyage"].get("created_at"), hits["Voyage"]["last_modified"]) == (None, "2026-01-20T08:00Z")
    assert hits["Harbour"]["created_at"] == "2026-01-20T08:00Z" < hits["Harbour"]["last_modified"]
    assert [hits[title].get("version") for title in ("Voyage", "Harbour")] == [None, 2]


@each_case("source", SOURCES)
async def test_cost_tokens_of_a_hit_is_what_reading_its_uri_in_full_reports(
    ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    text = "\n".join(f"{n}: {LONG}" for n in range(40))
    await ben.add_item(source, "Voyage", LONG)
    await ada.add_item(source, "Voyage", text)
    (hit,) = await ada.search("knowledge_search", "galleon", sources=[source])

    read = await ada.call("knowledge_get", uri=hit["uri"], retrieval={"mode": "full"})

    assert read["tokens"] == hit["cost_tokens"]


async def test_uri_of_a_message_is_read_in_full_as_that_message(ada: LibraryUser) -> None:
    chat = await ada.add_chat("Talk", "Where is the galleon?", "Under sail.", "Which course?")
    (hit, *_) = await ada.search("knowledge_search", '"under sail"', sources=["chats"])

    message = await ada.call("knowledge_get", uri=hit["uri"], retrieval={"mode": "full"})
    conversation = await ada.call("knowledge_get", uri=f"chats://{chat}", retrieval={"mode": "full"})

    assert (message["content"], message["tokens"]) == ("Guide: Under sail.", hit["cost_tokens"])
    assert conversation["content"] == "Ana: Where is the galleon?\n\nGuide: Under sail.\n\nAna: Which course?"


async def test_no_user_finds_items_of_another(ada: LibraryUser, ben: LibraryUser) -> None:
    await one_of_each(ada)

    assert await ben.search("knowledge_search", "galleon") == []


async def test_a_hit_has_the_same_score_as_in_its_source(ada: LibraryUser, tmp_path: Path) -> None:
    """Both weigh terms by the whole library, so the scores are equal."""
    await one_of_each(ada)
    await ada.add_note("Galleon", "A galleon, and the harbour.")
    together = {hit["uri"]: hit["score"] for hit in await ada.search("knowledge_search", "galleon harbour")}
    alone = {hit["uri"]: hit["score"] for hit in await ada.search("knowledge_search", "galleon harbour source:notes")}

    assert alone
    assert alone == {uri: score for uri, score in together.items() if uri.startswith("notes")}


async def test_the_best_source_comes_first_if_others_have_hits_too(ada: LibraryUser) -> None:
    await ada.add_media("Weather report", f"{'Rain and wind again today. ' * 40} The harbour is closed.")
    await ada.add_prompt("Summarize", "Summarize the report about the harbour in three words.")
    right = await ada.add_note("Harbour ledger", "The harbour ledger of the galleon: what was paid, and by whom.")

    hits = await ada.search("knowledge_search", "harbour ledger galleon")

    assert hits[0]["uri"] == f"notes://{right}"
    assert hits[0]["score"] > 2 * hits[1]["score"]


async def test_order_by_recent_sorts_all_sources_by_date(ada: LibraryUser) -> None:
    for number, source in enumerate((*SOURCES, *reversed(SOURCES))):
        await ada.add_item(source, "Voyage", f"A galleon, number {number}.")

    hits = await ada.search("knowledge_search", "galleon", order_by="recent", limit=20)
    dates = [hit["last_modified"] for hit in hits]

    assert len(dates) >= 10
    assert dates == sorted(dates, reverse=True)


async def test_one_conversation_does_not_fill_the_page(ada: LibraryUser) -> None:
    await ada.add_chat("Ships", *(f"galleon number {number}" for number in range(30)))
    note = await ada.add_note("Shopping", f"{'Bread and butter. ' * 60} A galleon.")

    hits = await ada.search("knowledge_search", "galleon", limit=10)

    assert f"notes://{note}" in [hit["uri"] for hit in hits]


async def test_duplicate_texts_are_one_hit_with_also_in(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", LONG)
    await ada.add_note("Voyage", LONG)

    (hit,) = await ada.search("knowledge_search", "galleon")

    assert len({hit["uri"], *hit["also_in"]}) == 2


@pytest.mark.parametrize("limit", [3, 7])
async def test_pages_contain_every_hit_exactly_once(ada: LibraryUser, limit: int) -> None:
    for number in range(12):
        await ada.add_note(f"Note {number}", f"A galleon of {'oak ' * number}.")
        await ada.add_media(f"Film {number}", f"{number} galleons and a galleon. {LONG * number}")
    await ada.add_chat("Ships", *(f"galleon number {number}" for number in range(12)))
    uris: list[str] = []
    offset: int | None = 0

    while offset is not None:
        page = await ada.call("knowledge_search", query="galleon", limit=limit, offset=offset)
        uris += [uri for hit in page["results"] for uri in (hit["uri"], *hit.get("also_in", ()))]
        offset = page.get("next_offset")

    assert len(uris) == len(set(uris)) == 25


async def test_total_is_the_number_of_results_once_all_were_read(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", LONG)
    await ada.add_note("Voyage", LONG)
    await ada.add_chat("Ships", "A galleon.", "Another galleon, under sail.")
    for number in range(30):
        await ada.add_note(f"Note {number}", f"A galleon of {'oak ' * number}.")

    first = await ada.call("knowledge_search", query="galleon", dedupe="off")
    last = await ada.call("knowledge_search", query="galleon", dedupe="off", offset=first["next_offset"], limit=100)

    assert "total_estimated" not in first
    assert last["total_estimated"] == len(first["results"]) + len(last["results"]) == 32


async def test_explained_search_says_how_many_hits_a_source_has(ada: LibraryUser, ben: LibraryUser) -> None:
    for reader, count in ((ada, 15), (ben, 3)):
        for number in range(count):
            await reader.add_item("notes", f"Voyage {number}", f"Galleon {number} left the harbour.")

    response = await ada.call("knowledge_search", query="galleon harbour", explain=True)

    assert response["has_more"]
    assert response["sources"]["notes"]["total"] == 15


async def test_default_page_has_eight_results_with_passages_of_300_characters(ada: LibraryUser) -> None:
    for number in range(40):
        await ada.add_note(f"Ledger of voyage number {number}", f"{number}: {LONG * 5}", ["ships", "harbour"])

    result = await ada.request("tools/call", name="knowledge_search", arguments={"query": "galleon harbour"})
    answer = result["structuredContent"]

    assert len(msgspec.json.encode(answer)) <= Settings().fixed.search_response_default_bytes
    assert (len(answer["results"]), answer["next_offset"], "cut" in answer) == (8, 8, False)
    assert all(len(hit["snippet"]) > 250 for hit in answer["results"])
    assert max(len(hit["snippet"]) for hit in answer["results"][:3]) > 400, "the first ones show more"


async def test_an_explicit_limit_is_met_up_to_the_hard_cap(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, search_response_max_bytes=20_000) as api:
        ada = await api.library_user("ada")
        for number in range(60):
            await ada.add_note(f"Voyage {number}", f"{number}: {LONG * 5}")

        twenty = await ada.call("knowledge_search", query="galleon", limit=20)
        sixty = await ada.request("tools/call", name="knowledge_search", arguments={"query": "galleon", "limit": 60})

        assert (len(twenty["results"]), "cut" in twenty) == (20, False)
        assert len(text_of(sixty).encode()) <= 20_000
        page = sixty["structuredContent"]
        assert 20 < len(page["results"]) < 60
        assert (page["cut"], page["has_more"], page["next_offset"]) == (True, True, len(page["results"]))
        assert all(len(hit["snippet"]) > 250 for hit in page["results"])


async def test_a_filter_applies_only_to_its_source(ada: LibraryUser) -> None:
    await one_of_each(ada)
    video = await ada.add_media("Film", "A galleon film.", media_type="video")

    hits = await ada.search(
        "knowledge_search", "galleon", sources=["media", "notes"], filters={"media": {"media_types": ["video"]}}
    )

    assert [hit["uri"] for hit in hits if hit["source"] == "media"] == [f"media://{video}"]
    assert any(hit["source"] == "notes" for hit in hits)


@each_case(
    ("arguments", "sentence"),
    [
        ({"filters": {"notes": {"tags": ["a"]}}}, "filters.notes: expected any of keywords, got 'tags'"),
        (
            {"filters": {"characters": {"tags": ["a"]}}},
            "filters.characters: expected no filters, got 'tags'",
        ),
        ({"filters": {"media": {"date_from": "someday"}}}, "filters.media.date_from: expected a date"),
        ({"filters": {"chats": {"by": "author"}}}, "filters.chats.by: invalid enum value 'author'"),
        ({"sources": ["web"]}, "sources: expected any of notes, media, chats, characters, prompts, got 'web'"),
        ({"filter": {}}, "filter: unknown argument; did you mean 'filters'?"),
        ({"session": "unknown"}, "session not found"),
    ],
)
async def test_invalid_arguments_are_rejected_with_the_expected_values(
    ada: LibraryUser, arguments: dict[str, Any], sentence: str
) -> None:
    assert sentence in await ada.call_error("knowledge_search", query="galleon", **arguments)


async def test_a_filter_that_a_source_lacks_is_reported_for_that_source(ada: LibraryUser) -> None:
    await one_of_each(ada)

    answer = await ada.call("knowledge_search", query="galleon sender:Ana")

    assert {hit["source"] for hit in answer["results"]} == {"chats"}
    assert (
        answer["sources"]["notes"]["read_as"] == "searched for nothing; sender:Ana cannot match: notes have no sender"
    )
    assert "read_as" not in answer


async def test_a_filter_that_no_source_can_match_is_explained_once(ada: LibraryUser) -> None:
    await one_of_each(ada)
    reading = "searched for nothing; before:2026-04 cannot match: after:2026-05 allows only later times"

    answer = await ada.call("knowledge_search", query="galleon after:2026-05 before:2026-04")

    assert answer["results"] == []
    assert answer["read_as"] == reading
    assert "sources" not in answer


async def test_read_as_is_reported_once(ada: LibraryUser) -> None:
    answer = await ada.call("knowledge_search", query='"galleon')

    assert "quotation mark" in answer["read_as"]
    assert "sources" not in answer


async def test_explain_reports_how_hits_were_ranked(ada: LibraryUser) -> None:
    await one_of_each(ada)

    answer = await ada.call("knowledge_search", query="galleon wreck", explain=True)

    explanation = answer["explain"]
    assert (explanation["order_by"], explanation["scoring"]) == ("relevance", "comparable")
    assert explanation["rows_with_term"]["wreck"] == 0 < explanation["rows_with_term"]["galleon"]
    assert [hit["explain"]["position"] for hit in answer["results"]] == list(range(len(answer["results"])))
    assert answer["results"][0]["explain"]["terms"] == ["galleon"]


# -- get --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
async def test_every_hit_can_be_read_by_its_uri_in_every_mode(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", LONG * 20)
    (hit,) = [hit for hit in await ada.search("knowledge_search", "galleon ledger") if hit["snippet"] != "Voyage"]

    for mode in ("snippet", "chunk", "chunk_with_siblings", "full", "auto"):
        retrieval = {"mode": mode, "max_tokens": 400}
        read = await ada.call("knowledge_get", uri=hit["uri"], query="ledger", retrieval=retrieval)

        assert "galleon" in read["content"], mode
        assert read["tokens"] <= 400, mode
        assert read["meta"]["source"] == source, mode


@each_case("source", SOURCES)
async def test_source_and_id_work_in_place_of_a_uri(ada: LibraryUser, source: str) -> None:
    identity = await ada.add_item(source, "Voyage", "A galleon.")

    assert "A galleon" in (await ada.call("knowledge_get", source=source, id=identity))["content"]


async def test_the_uri_of_a_message_reads_that_message(ada: LibraryUser) -> None:
    await ada.add_chat("Ships", "A sloop.", "A galleon.", "A brig.")
    hit = (await ada.search("knowledge_search", "galleon"))[0]

    read = await ada.call("knowledge_get", uri=hit["uri"], retrieval={"mode": "chunk"})

    assert (read["content"], read["anchor"]) == ("Guide: A galleon.", "loc")


@each_case("source", SOURCES)
async def test_loc_is_accepted_inside_retrieval(ada: LibraryUser, source: str) -> None:
    await ada.add_item(source, "Voyage", "A sloop. " * 400 + "A galleon. " + "A brig. " * 400)
    (hit,) = await ada.search("knowledge_search", "galleon", sources=[source])
    address = {"uri": hit["uri"]}

    inside = await ada.call("knowledge_get", **address, retrieval={"mode": "chunk", "loc": hit["loc"]})
    outside = await ada.call("knowledge_get", **address, retrieval={"mode": "chunk"}, loc=hit["loc"])

    assert inside == outside
    assert inside["anchor"] == "loc"
    assert "galleon" in inside["content"]


async def test_a_misspelled_retrieval_option_is_reported_with_its_path(ada: LibraryUser) -> None:
    error = await ada.call_error("knowledge_get", uri="notes://1", retrieval={"max_token": 5})

    assert "retrieval.max_token: unknown argument; did you mean 'retrieval.max_tokens'? expected one of mode," in error


@each_case("arguments", [{"uri": f"notes://{'x' * 50_000}"}, {"x" * 50_000: 1}])
async def test_an_error_does_not_repeat_a_very_long_value(ada: LibraryUser, arguments: dict[str, Any]) -> None:
    error = await ada.call_error("knowledge_get", **arguments)

    assert error.endswith((" not found", ", shape"))
    assert len(error) <= 1000


@each_case("source", SOURCES)
async def test_items_of_other_users_and_missing_items_are_not_found(
    ada: LibraryUser, ben: LibraryUser, source: str
) -> None:
    await ada.add_item(source, "Other", "A sloop.")
    identity = await ada.add_item(source, "Voyage", "A galleon.")

    foreign = await ben.call_error("knowledge_get", uri=f"{source}://{identity}")

    assert "not found" in foreign
    assert foreign == await ben.call_error("knowledge_get", source=source, id=identity)


@each_case(
    ("arguments", "sentence"),
    [
        ({}, "uri: expected the uri of a hit, or its source and id, got nothing"),
        ({"source": "notes"}, "uri: expected the uri of a hit, or its source and id, got nothing"),
        ({"uri": "notes"}, "uri: expected the uri of a hit, such as notes://6f1c, got 'notes'"),
        ({"uri": "web://1"}, "uri: expected one of notes, media, chats, characters, prompts, got 'web'"),
        ({"uri": "notes://1/2"}, "item 'notes://1/2' not found"),
        ({"uri": "notes://1", "source": "media"}, "source: expected 'notes', the value in uri, got 'media'"),
        ({"uri": "notes://1", "id": "2"}, "id: expected '1', the value in uri, got '2'"),
        ({"uri": "notes://1", "session": "unknown"}, "session not found"),
    ],
)
async def test_an_invalid_address_is_rejected(ada: LibraryUser, arguments: dict[str, Any], sentence: str) -> None:
    assert sentence in await ada.call_error("knowledge_get", **arguments)


async def test_a_search_without_results_names_a_tag_that_no_item_has(ada: LibraryUser, ben: LibraryUser) -> None:
    await ada.call("notes_create", title="Voyage", content="A galleon.", tags=["sea"])
    await ben.call("notes_create", title="Voyage", content="A galleon.", tags=["bens"])

    known = await ada.call("knowledge_search", query="submarine tag:Sea")
    unknown = await ada.call("knowledge_search", query="galleon tag:bens")
    restricted = await ada.call("knowledge_search", query="galleon tag:sea", sources=["media"])

    assert "tag" not in known.get("read_as", "")
    assert "no item in notes, media, chats, characters, prompts has the tag bens" in unknown["read_as"]
    assert "no item in media has the tag sea" in restricted["read_as"]


@each_case(
    ("query", "reason"),
    [
        ("galleon type:nosuch", "no item in notes, media, chats, characters, prompts has the type nosuch"),
        ("type:nosuch,film", "no item in notes, media, chats, characters, prompts has the type nosuch or film"),
        ("galleon source:notes type:PDF", "no item in notes has the type PDF"),
        ("galleon sender:ben", "no item in notes, media, chats, characters, prompts has the sender ben"),
        ("galleon source:nosuch", "source:nosuch cannot match: this searches notes, media"),
        ("galleon library:nosuch", "library:nosuch cannot match: this searches own"),
        ("submarine type:PDF", None),
        ("submarine sender:Ana", None),
    ],
)
async def test_text_of_a_search_without_results_says_which_filter_cannot_match(
    ada: LibraryUser, ben: LibraryUser, query: str, reason: str | None
) -> None:
    for user, media_type, sender in ((ada, "pdf", "ana"), (ben, "nosuch", "ben")):
        await user.add_media("Voyage", "A galleon.", media_type=media_type)
        await user.add_chat("Voyage", MessageDraft(role="user", sender=sender, content="A galleon."))

    result = await ada.request("tools/call", name="knowledge_search", arguments={"query": query})

    text = text_of(result)
    assert text.startswith("No results.")
    assert reason in text if reason else "no item" not in text


# -- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_handle_carries_a_session_from_call_to_call(ada: LibraryUser) -> None:
    await one_of_each(ada)
    first = await ada.call("knowledge_search", query="galleon", limit=3)

    second = await ada.call("knowledge_search", query="galleon", session=first["session"])

    assert second["session"] == first["session"]
    assert second["suppressed"] == 3
    assert not {hit["uri"] for hit in first["results"]} & {hit["uri"] for hit in second["results"]}


async def test_a_connection_is_a_session_without_a_handle(ada: LibraryUser) -> None:
    await one_of_each(ada)
    on_socket = connected(ada, "socket")
    await on_socket.call("knowledge_search", query="galleon")

    assert (await on_socket.call("knowledge_search", query="galleon")).get("exhausted", False)
    assert not (await connected(ada, "another").call("knowledge_search", query="galleon")).get("exhausted", False)


async def test_a_changed_item_appears_again(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "A galleon.")
    await ada.add_note("Harbour", "A galleon and a harbour.")
    session = (await ada.call("knowledge_search", query="galleon"))["session"]
    async with ada.libraries.library(ada.context) as library:
        await library.notes.update(note, NoteDraft(content="A galleon, repaired."))

    (hit,) = await ada.search("knowledge_search", "galleon", session=session)

    assert hit["uri"] == f"notes://{note}"


async def test_a_duplicate_with_another_version_is_not_delivered_again(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", LONG)
    note = await ada.add_note("Voyage", "A draft.")
    async with ada.libraries.library(ada.context) as library:
        await library.notes.update(note, NoteDraft(content=LONG))
    first = await ada.call("knowledge_search", query="galleon")
    (hit,) = first["results"]
    async with ada.libraries.library(ada.context) as library:
        await library.notes.delete(hit["uri"].removeprefix("notes://"))

    again = await ada.call("knowledge_search", query="galleon", session=first["session"])

    assert len(hit["also_in"]) == 1
    assert again.get("exhausted", False)


async def test_session_defaults_apply_to_search_and_get(ada: LibraryUser) -> None:
    note = await ada.add_note("Voyage", LONG * 20)
    state = await ada.call("session_configure", snippet_length=40, order_by="recent")

    (hit,) = await ada.search("knowledge_search", "galleon", session=state["session"])
    read = await ada.call("knowledge_get", uri=f"notes://{note}", session=state["session"])

    assert state["defaults"] == {"snippet_length": 40, "order_by": "recent"}
    assert len(hit["snippet"]) <= 40
    assert len(read["content"]) <= 40


@each_case(("number", "applied"), [(10**9, (1000, 20_000, 50, 8)), (-1, (1, 1, 0, 1)), (6, (6, 6, 6, 6))])
async def test_session_configure_returns_the_defaults_as_they_are_applied(
    ada: LibraryUser, number: int, applied: tuple[int, ...]
) -> None:
    names = ("snippet_length", "max_tokens", "sibling_window", "chars_per_token")

    state = await ada.call("session_configure", **dict.fromkeys(names, number))

    assert state["defaults"] == dict(zip(names, applied, strict=True))


async def test_defaults_accumulate_until_a_reset(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "A galleon.")
    session = (await ada.call("session_configure", snippet_length=40))["session"]
    added = await ada.call("session_configure", session=session, dedupe="demote")
    await ada.call("knowledge_search", query="galleon", session=session)

    reset = await ada.call("session_reset", session=session)

    assert added["defaults"] == {"snippet_length": 40, "dedupe": "demote"}
    assert (reset["session"], reset["defaults"], reset["forgotten"]) == (session, {}, 1)
    assert not (await ada.call("knowledge_search", query="galleon", session=session)).get("exhausted", False)


async def test_a_session_cannot_be_used_by_another_user(ada: LibraryUser, ben: LibraryUser) -> None:
    session = (await ada.call("session_configure", snippet_length=40))["session"]

    for tool, arguments in (
        ("knowledge_search", {"query": "galleon"}),
        ("knowledge_get", {"uri": "notes://1"}),
        ("session_configure", {"snippet_length": 9}),
        ("session_reset", {}),
    ):
        assert await ben.call_error(tool, session=session, **arguments) == "session not found"


async def test_a_reset_without_a_session_is_rejected(ada: LibraryUser) -> None:
    assert "session: expected the session of an earlier response, got nothing" in await ada.call_error("session_reset")
    assert (await connected(ada, "socket").call("session_reset"))["forgotten"] == 0


# -- the list ---------------------------------------------------------------------------------------------------------


async def test_the_knowledge_tools_are_listed_and_only_those_of_sessions_write(ada: LibraryUser) -> None:
    tools = await listed(ada)

    assert list(tools)[:4] == ["knowledge_search", "knowledge_get", "search", "fetch"]
    writing = [name for name, tool in tools.items() if not tool["annotations"]["readOnlyHint"]]
    assert {"session_configure", "session_reset"} <= set(writing)
    assert set(writing).isdisjoint(("knowledge_search", "knowledge_get", "search", "fetch"))


async def test_the_schema_names_the_filters_of_every_source(ada: LibraryUser) -> None:
    filters = (await listed(ada))["knowledge_search"]["inputSchema"]["properties"]["filters"]

    assert filters["description"] == (
        "By source: notes (keywords), media (media_types, date_from, date_to, order_by), "
        "chats (by, character_id, sender, namespace), prompts (fields)."
    )


async def test_responses_match_the_listed_output_schema(ada: LibraryUser) -> None:
    await one_of_each(ada)
    schemas = {name: tool.get("outputSchema") for name, tool in (await listed(ada)).items()}

    found = await ada.call("knowledge_search", query="galleon", explain=True)
    jsonschema_rs.validate(schemas["knowledge_search"], found)
    jsonschema_rs.validate(schemas["knowledge_get"], await ada.call("knowledge_get", uri=found["results"][0]["uri"]))
    jsonschema_rs.validate(schemas["session_configure"], await ada.call("session_configure", dedupe="off"))


# -- through the doors of a real server -------------------------------------------------------------------------------


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """A server with one note for each of two users."""
    async with live(make_settings(tmp_path)) as server:
        for name in ("ada", "ben"):
            user = await server.user(name)
            principal = Principal(user.id, name, ClientId("test"), frozenset(SCOPES), "local", "test")
            context = build_context(principal, server.runtime.data_root, "request")
            async with server.runtime.libraries.library(context) as library:
                await library.notes.create(NoteDraft(title=f"Voyage of {name}", content="A galleon."))
        yield server


def result_of(body: dict[str, Any]) -> Any:
    return body["result"]["structuredContent"]


def titles(answer: Any) -> list[str]:
    return [hit["title"] for hit in answer["results"]]


async def test_a_legacy_session_and_a_websocket_keep_session_state(server: LiveServer) -> None:
    for name in ("ada", "ben"):
        legacy = await LegacyClient.open(server, name)
        first, second = [
            result_of((await legacy.call("knowledge_search", {"query": "galleon"})).json()) for _ in range(2)
        ]
        assert titles(first) == titles(second) == [f"Voyage of {name}"]
        assert (first.get("exhausted", False), second["exhausted"]) == (False, True)
        assert first["session"] == second["session"]

        async with WebSocketClient.open(server.ws, await server.bearer(name)) as socket:
            await socket.initialize()
            answers = [result_of(await socket.call("knowledge_search", {"query": "galleon"})) for _ in range(2)]
            assert [answer.get("exhausted", False) for answer in answers] == [False, True]


async def test_a_modern_client_keeps_session_state_by_a_handle_that_others_cannot_use(server: LiveServer) -> None:
    ada, ben = await ModernClient.of(server, "ada"), await ModernClient.of(server, "ben")
    first = result_of((await ada.call("knowledge_search", {"query": "galleon"})).json())
    named = {"query": "galleon", "session": first["session"]}

    second = result_of((await ada.call("knowledge.search", named)).json())
    foreign = (await ben.call("knowledge_search", named)).json()["result"]

    assert (first.get("exhausted", False), second["exhausted"]) == (False, True)
    assert (foreign["isError"], text_of(foreign)) == (True, "session not found")


async def test_a_websocket_is_one_session_in_the_modern_era_too(server: LiveServer) -> None:
    search = modern_params({"name": "knowledge_search", "arguments": {"query": "galleon"}})
    for name in ("ada", "ben"):
        headers = await server.bearer(name)
        async with (
            WebSocketClient.open(server.ws, headers) as socket,
            WebSocketClient.open(server.ws, headers) as other,
        ):
            first, second = [result_of(await socket.request("tools/call", search)) for _ in range(2)]
            elsewhere = result_of(await other.request("tools/call", search))
            reset = result_of(await socket.request("tools/call", modern_params({"name": "session_reset"})))
            again = result_of(await socket.request("tools/call", search))

        assert titles(first) == titles(second) == titles(elsewhere) == [f"Voyage of {name}"]
        assert [answer.get("exhausted", False) for answer in (first, second, elsewhere, again)] == [
            False,
            True,
            False,
            False,
        ]
        assert first["session"] == second["session"] == reset["session"] != elsewhere["session"]


async def test_a_websocket_is_one_session_for_both_eras_after_a_handshake(server: LiveServer) -> None:
    arguments = {"name": "knowledge_search", "arguments": {"query": "galleon"}}
    async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
        await socket.initialize()
        legacy = result_of(await socket.request("tools/call", arguments))
        modern = result_of(await socket.request("tools/call", modern_params(arguments)))

    assert (legacy.get("exhausted", False), modern["exhausted"]) == (False, True)
    assert legacy["session"] == modern["session"]


async def test_a_filter_without_words_lists_newest_first_and_says_so(ada: LibraryUser, ben: LibraryUser) -> None:
    await ben.add_note("Ben's note", "a galleon", ["work"])
    notes = [await ada.add_note(f"Note {n}", f"text {n}", ["work"]) for n in range(12)]
    prompt = await ada.add_prompt("Review", "Review this.", ["work"])

    answer = await ada.call("knowledge_search", query="tag:work", limit=20)

    assert answer["read_as"] == "filter only, newest first"
    expected = [f"prompts://{prompt}", *(f"notes://{note}" for note in reversed(notes))]
    times = [hit["last_modified"] for hit in answer["results"]]
    assert sorted(hit["uri"] for hit in answer["results"]) == sorted(expected)
    assert times == sorted(times, reverse=True)


async def test_a_source_filter_without_words_searches_for_nothing_and_says_so(ada: LibraryUser) -> None:
    await ada.add_note("Voyage", "a galleon")

    answer = await ada.call("knowledge_search", query="source:notes")

    assert (answer["results"], answer["read_as"]) == ([], "searched for nothing; the query contains no words")
