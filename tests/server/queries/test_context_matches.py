"""Messages that match only through the messages before them say so."""

from sources.drafts import MessageDraft
from tests.sources.source_fixture import LibraryUser


async def test_message_found_by_its_context_is_marked_and_shows_what_matches(
    ada: LibraryUser, ben: LibraryUser
) -> None:
    await ada.add_chat("Talk", "Shall we book the flight to Lisbon?", "Gladly. When?", "In May.", "Agreed.")
    await ben.add_chat("Talk", "Lisbon, Lisbon")

    hits = await ada.search("chats_search", "Lisbon")

    assert [(hit["loc"]["message_index"], hit.get("via")) for hit in hits] == [
        (0, None),
        (1, "context"),
        (2, "context"),
    ]
    for hit in hits:
        assert [hit["snippet"][start:end] for start, end in hit["highlights"]] == ["Lisbon"]
    assert hits[2]["snippet"] == "Ana: Shall we book the flight to Lisbon? Guide: Gladly. When? → In May."


async def test_knowledge_search_marks_and_excludes_context_matches(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "Shall we book the flight to Lisbon?", "Gladly. When?")

    marked = await ada.search("knowledge_search", "Lisbon", dedupe="off")
    without = await ada.search("knowledge_search", "Lisbon", filters={"chats": {"by": "no_context"}}, dedupe="off")

    (conversation,) = marked
    assert [passage["snippet"] for passage in conversation["passages"]] == ["Gladly. When?"], "without its context"
    assert ["passages" in hit for hit in without] == [False]
    assert [hit["loc"]["message_index"] for hit in await ada.search("chats_search", "Lisbon", by="no_context")] == [0]


async def test_context_in_a_script_without_spaces_is_shown_as_written(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", "東京都に行きます。", "いつですか。")

    (_, hit) = await ada.search("chats_search", "東京")

    assert (hit["via"], hit["snippet"]) == ("context", "Ana: 東京都に行きます。 → いつですか。")


async def test_long_context_leaves_room_for_the_message(ada: LibraryUser) -> None:
    await ada.add_chat("Talk", f"{'The weather was fine. ' * 8} Lisbon. {'It rained. ' * 8}", "When?")

    (_, hit) = await ada.search("chats_search", "Lisbon", snippet_length=120)

    assert len(hit["snippet"]) <= 120
    assert "Lisbon" in hit["snippet"]
    assert hit["snippet"].endswith(" → When?")


async def test_human_only_message_is_no_context(ada: LibraryUser) -> None:
    hidden = MessageDraft(role="user", sender="Ana", content="A secret trip", metadata={"human_only": True})
    await ada.add_chat("Talk", "A flight to Lisbon", hidden, "When?")

    hits = await ada.search("chats_search", "Lisbon")

    assert len(hits) == 2
    assert all("secret" not in hit["snippet"] for hit in hits)
