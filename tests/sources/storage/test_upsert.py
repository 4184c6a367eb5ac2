"""Upserts of repeated imports: new, changed, unchanged, deleted and rejected items."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sources.drafts import (
    Bookkeeping,
    CharacterDraft,
    ConversationDraft,
    MediaDraft,
    MessageDraft,
    NoteDraft,
    ObservationDraft,
    PromptDraft,
    ThreadDraft,
    ThreadUpsertResult,
    UpsertResult,
)
from sources.records import Segment
from sources.storage.contract import Library, ObservationFilter
from tests.sources.storage.library_fixture import ids, make_search

pytestmark = pytest.mark.postgres(is_contract=True)

TEA = NoteDraft(uuid="note-1", title="Tea", content="Steep for three minutes.", created_at="2024-01-02T03:04:05Z")
TALK = ConversationDraft(uuid="talk-1", title="Kettles", created_at="2024-01-02T00:00:00Z")
FIRST = MessageDraft(uuid="m1", role="user", content="Which kettle?", created_at="2024-01-02T00:00:01Z")
SECOND = MessageDraft(uuid="m2", role="assistant", content="The copper one.", created_at="2024-01-02T00:00:02Z")


def outcomes(results: Sequence[UpsertResult]) -> list[str]:
    return [result.outcome for result in results]


def thread_outcomes(results: Sequence[ThreadUpsertResult]) -> list[tuple[str, list[str]]]:
    return [(result.conversation.outcome, outcomes(result.messages)) for result in results]


async def test_imported_note_keeps_the_time_of_its_last_change(ada: Library) -> None:
    later = replace(TEA, last_modified="2024-02-02T00:00:00Z")
    earlier = replace(TEA, uuid="note-2", last_modified="2023-02-02T00:00:00Z")
    assert outcomes(await ada.notes.upsert_many([later, earlier])) == ["new", "new"]
    assert (await ada.notes.get("note-1")).last_modified == "2024-02-02T00:00:00.000Z"
    assert (await ada.notes.get("note-2")).last_modified == "2024-01-02T03:04:05.000Z"
    touched = replace(later, last_modified="2024-03-03T00:00:00Z")
    assert outcomes(await ada.notes.upsert_many([touched])) == ["unchanged"]
    invalid = replace(TEA, uuid="note-3", last_modified="yesterday")
    assert outcomes(await ada.notes.upsert_many([invalid])) == ["refused"]


async def test_draft_is_new_then_unchanged_then_updated(ada: Library, ben: Library) -> None:
    changed = replace(TEA, content="Steep for five minutes.")
    assert outcomes(await ada.notes.upsert_many([TEA])) == ["new"]
    first = await ada.notes.get("note-1")
    assert outcomes(await ada.notes.upsert_many([TEA])) == ["unchanged"]
    assert await ada.notes.get("note-1") == first
    assert outcomes(await ada.notes.upsert_many([changed])) == ["updated"]

    updated = await ada.notes.get("note-1")
    assert (updated.content, updated.version) == ("Steep for five minutes.", 2)
    assert (updated.created_at, first.last_modified) == ("2024-01-02T03:04:05.000Z", "2024-01-02T03:04:05.000Z")
    assert ids(await ada.notes.search(make_search("five"))) == ["note-1"]
    assert ids(await ada.notes.search(make_search("three"))) == []
    assert outcomes(await ben.notes.upsert_many([TEA])) == ["new"]


async def test_local_edit_is_kept_until_the_item_changes_at_its_origin(ada: Library) -> None:
    await ada.notes.upsert_many([TEA])
    await ada.notes.update("note-1", NoteDraft(content="My own words."))
    assert outcomes(await ada.notes.upsert_many([TEA])) == ["unchanged"]
    assert (await ada.notes.get("note-1")).content == "My own words."
    assert outcomes(await ada.notes.upsert_many([replace(TEA, title="Tea, again")])) == ["updated"]
    assert (await ada.notes.get("note-1")).content == "Steep for three minutes."


async def test_creation_time_is_only_used_on_first_import(ada: Library, ben: Library) -> None:
    touched = "2030-01-01T00:00:00Z"
    film = MediaDraft(uuid="f", title="Film", content="A long talk.", created_at="2024-01-02T00:00:00Z")
    brew = PromptDraft(uuid="p", name="Brew", created_at="2024-01-02T00:00:00Z")
    await ada.notes.upsert_many([TEA])
    await ada.media.upsert_many([film])
    await ada.prompts.upsert_many([brew])
    await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST])])
    await ada.notes.update("note-1", NoteDraft(content="My own words."))

    assert outcomes(await ada.notes.upsert_many([replace(TEA, created_at=touched)])) == ["unchanged"]
    assert outcomes(await ada.media.upsert_many([replace(film, created_at=touched)])) == ["unchanged"]
    assert outcomes(await ada.prompts.upsert_many([replace(brew, created_at=touched)])) == ["unchanged"]
    again = ThreadDraft(replace(TALK, created_at=touched), [replace(FIRST, created_at=touched)])
    assert thread_outcomes(await ada.chats.upsert_many([again])) == [("unchanged", ["unchanged"])]
    assert (await ada.notes.get("note-1")).content == "My own words."
    assert outcomes(await ada.notes.upsert_many([replace(TEA, title="Tea, again", created_at=touched)])) == ["updated"]
    assert (await ada.notes.get("note-1")).created_at == "2024-01-02T03:04:05.000Z"
    assert outcomes(await ben.notes.upsert_many([replace(TEA, created_at=touched)])) == ["new"]


# -- drafts from an export of this server ------------------------------------------------------------------------------


def exported(version: int, day: int, arrived: str | None = None) -> Bookkeeping:
    return Bookkeeping(
        version=version, last_modified=f"2025-01-{day:02}T00:00:00.000Z", client_id="else", arrived=arrived
    )


async def test_higher_version_of_an_exported_item_wins(ada: Library, ben: Library) -> None:
    third = replace(TEA, content="Third.", bookkeeping=exported(3, 3))
    assert outcomes(await ada.notes.upsert_many([third, third])) == ["new", "unchanged"]
    assert outcomes(await ada.notes.upsert_many([replace(third, content="Second.", bookkeeping=exported(2, 9))])) == [
        "unchanged"
    ]
    assert (await ada.notes.get("note-1")).content == "Third."

    fifth = replace(third, content="Fifth.", bookkeeping=exported(5, 5))
    assert outcomes(await ada.notes.upsert_many([fifth, fifth, third])) == ["updated", "unchanged", "unchanged"]
    note = await ada.notes.get("note-1")
    assert (note.content, note.version, note.last_modified, note.client_id) == (
        *("Fifth.", 5, "2025-01-05T00:00:00.000Z", "else"),
    )
    assert (await ben.notes.list(10, 0)).total == 0


async def test_newer_state_of_the_same_version_wins(ada: Library) -> None:
    await ada.notes.upsert_many([replace(TEA, content="Here.", bookkeeping=exported(2, 4))])
    older, newer = (replace(TEA, content=f"There, on day {day}.", bookkeeping=exported(2, day)) for day in (3, 5))
    assert outcomes(await ada.notes.upsert_many([older, newer, newer])) == ["unchanged", "updated", "unchanged"]
    note = await ada.notes.get("note-1")
    # A client that has read the local version 2 must not mistake this state for it.
    assert (note.content, note.version) == ("There, on day 5.", 3)


async def test_metadata_with_another_key_order_is_unchanged(ada: Library) -> None:
    note = replace(TEA, metadata={"z": 1, "a": {"y": 2, "b": 3}})
    await ada.notes.create(note)
    stored = await ada.notes.get("note-1")
    bookkeeping = Bookkeeping(version=1, last_modified=stored.last_modified, client_id=stored.client_id)
    sorted_keys = replace(note, metadata={"a": {"b": 3, "y": 2}, "z": 1}, bookkeeping=bookkeeping)
    assert outcomes(await ada.notes.upsert_many([sorted_keys])) == ["unchanged"]
    assert await ada.notes.get("note-1") == stored


async def test_item_restored_from_an_export_is_recognized_by_the_original_import(ada: Library, ben: Library) -> None:
    await ada.notes.upsert_many([TEA])
    note = await ada.notes.get("note-1")
    await ben.notes.upsert_many([replace(TEA, bookkeeping=exported(1, 1, note.arrived))])
    await ben.notes.update("note-1", NoteDraft(content="Ben's own words."))
    assert outcomes(await ben.notes.upsert_many([TEA])) == ["unchanged"]
    assert (await ben.notes.get("note-1")).content == "Ben's own words."
    assert outcomes(await ben.notes.upsert_many([replace(TEA, title="Tea, again")])) == ["updated"]


async def test_conversation_from_a_newer_export_gets_its_exported_time(ada: Library) -> None:
    first, second = replace(FIRST, bookkeeping=exported(1, 1)), replace(SECOND, bookkeeping=exported(1, 2))
    await ada.chats.upsert_many([ThreadDraft(replace(TALK, bookkeeping=exported(1, 2)), [first, second])])
    edited = replace(second, content="The steel one.", bookkeeping=exported(2, 7))
    results = await ada.chats.upsert_many([ThreadDraft(replace(TALK, bookkeeping=exported(1, 7)), [first, edited])])
    assert thread_outcomes(results) == [("updated", ["unchanged", "updated"])]
    assert (await ada.chats.get("talk-1")).last_modified == "2025-01-07T00:00:00.000Z"
    character = await ada.characters.create(CharacterDraft(name="Ana", uuid="ana"))
    named = ThreadDraft(replace(TALK, character="ana", bookkeeping=exported(2, 8)), [first])
    assert thread_outcomes(await ada.chats.upsert_many([named, named])) == [
        ("updated", ["unchanged"]),
        ("unchanged", ["unchanged"]),
    ]
    assert (await ada.chats.get("talk-1")).character_id == character.id


# -- local changes -----------------------------------------------------------------------------------------------------


async def test_locally_deleted_item_stays_deleted(ada: Library) -> None:
    await ada.notes.upsert_many([TEA])
    await ada.notes.delete("note-1")
    assert outcomes(await ada.notes.upsert_many([TEA, replace(TEA, title="Other")])) == ["deleted", "deleted"]
    assert (await ada.notes.list(10, 0)).total == 0


async def test_rejected_draft_does_not_affect_others(ada: Library) -> None:
    results = await ada.notes.upsert_many(
        [NoteDraft(uuid="a", title="One"), NoteDraft(uuid="b", content="\0"), NoteDraft(title="no id"), TEA]
    )
    assert outcomes(results) == ["new", "refused", "refused", "new"]
    assert results[1].problem.startswith("content: expected text without NUL")
    assert results[2].problem.startswith("uuid: expected")
    assert (await ada.notes.list(10, 0)).total == 2


async def test_repeated_id_in_a_batch_is_one_item(ada: Library) -> None:
    results = await ada.notes.upsert_many([TEA, TEA, replace(TEA, title="Later")])
    assert outcomes(results) == ["new", "unchanged", "updated"]
    assert (await ada.notes.get("note-1")).title == "Later"


async def test_locally_created_item_equal_to_the_imported_one_is_unchanged(ada: Library) -> None:
    created = await ada.notes.create(TEA)
    await ada.media.create(MediaDraft(uuid="film", title="Film", content="A long talk."))
    await ada.chats.create(TALK, [FIRST])
    assert outcomes(await ada.notes.upsert_many([TEA])) == ["unchanged"]
    assert replace(await ada.notes.get("note-1"), arrived=None) == created
    film = MediaDraft(uuid="film", title="Film", content="A long talk.")
    assert outcomes(await ada.media.upsert_many([film])) == ["unchanged"]
    assert outcomes(await ada.media.upsert_many([replace(film, content="A longer talk.")])) == ["updated"]
    assert thread_outcomes(await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST])])) == [("unchanged", ["unchanged"])]


async def test_every_kind_is_upserted_and_found(ada: Library, ben: Library) -> None:
    film = MediaDraft(uuid="f", title="Film", segments=[Segment(start_ms=0, end_ms=900, text="the brass kettle")])
    cook = CharacterDraft(uuid="c", name="Cook", description="polishes the brass kettle")
    brew = PromptDraft(uuid="p", name="Brew", user_prompt="fill the brass kettle")
    for expected in (["new"], ["unchanged"]):
        assert outcomes(await ada.media.upsert_many([film])) == expected
        assert outcomes(await ada.characters.upsert_many([cook])) == expected
        assert outcomes(await ada.prompts.upsert_many([brew])) == expected
    for collection in (ada.media, ada.characters, ada.prompts):
        assert len((await collection.search(make_search("kettle"))).hits) == 1
    for collection in (ben.media, ben.characters, ben.prompts):
        assert len((await collection.search(make_search("kettle"))).hits) == 0


async def test_updated_observation_is_found_only_by_its_new_values(ada: Library) -> None:
    draft = ObservationDraft(uuid="o", title="Leak", concepts=["water"])
    await ada.observations.upsert_many([draft])
    assert outcomes(await ada.observations.upsert_many([replace(draft, concepts=["steam"])])) == ["updated"]
    assert (await ada.observations.list(9, 0, ObservationFilter(concepts=("water",)))).total == 0
    assert (await ada.observations.list(9, 0, ObservationFilter(concepts=("steam",)))).total == 1


async def test_known_messages_are_recognized_and_new_ones_appended(ada: Library, ben: Library) -> None:
    third = MessageDraft(uuid="m3", role="user", content="Thanks.", created_at="2024-01-03T00:00:00Z")
    assert thread_outcomes(await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST, SECOND])])) == [
        ("new", ["new", "new"])
    ]
    assert thread_outcomes(await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST, SECOND])])) == [
        ("unchanged", ["unchanged", "unchanged"])
    ]
    edited = replace(SECOND, content="The steel one.", is_canonical=False)
    assert thread_outcomes(await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST, third, edited])])) == [
        ("updated", ["unchanged", "new", "updated"])
    ]

    messages = (await ada.chats.messages("talk-1", 10, 0)).rows
    assert [(message.uuid, message.position, message.is_canonical) for message in messages] == [
        ("m1", 0, True),
        ("m2", 1, False),
        ("m3", 2, True),
    ]
    assert [message.sender for message in messages] == ["user", "assistant", "user"]
    assert [hit.message_id for hit in (await ada.chats.search(make_search("steel"))).hits][:1] == ["m2"]
    assert (await ben.chats.list(10, 0)).total == 0


async def test_conversation_is_as_new_as_its_newest_message(ada: Library) -> None:
    older = replace(TALK, last_modified="2024-01-01T00:00:00Z")
    await ada.chats.upsert_many([ThreadDraft(older, [FIRST, SECOND])])
    assert (await ada.chats.get("talk-1")).last_modified == "2024-01-02T00:00:02.000Z"


async def test_older_conversation_state_only_adds_messages_as_an_alternate_branch(ada: Library, ben: Library) -> None:
    newer = ThreadDraft(replace(TALK, title="New", last_modified="2024-02-02T00:00:00.000Z"), [FIRST, SECOND])
    other_branch = replace(SECOND, uuid="m3", content="The iron one.", parent_id="m1", is_canonical=True)
    older = ThreadDraft(
        replace(TALK, title="Old", last_modified="2024-02-01T00:00:00.000Z"),
        [replace(FIRST, content="Which pot?"), other_branch, replace(SECOND, is_canonical=False)],
    )
    await ada.chats.upsert_many([newer])
    assert thread_outcomes(await ada.chats.upsert_many([older])) == [("updated", ["unchanged", "new", "unchanged"])]
    # Both states again, in any order.
    for threads in ([newer, older], [older, newer]):
        assert {result.conversation.outcome for result in await ada.chats.upsert_many(threads)} == {"unchanged"}

    assert (await ada.chats.get("talk-1")).title == "New"
    messages = (await ada.chats.messages("talk-1", 9, 0)).rows
    assert [(message.uuid, message.content, message.is_canonical) for message in messages] == [
        ("m1", "Which kettle?", True),
        ("m2", "The copper one.", True),
        ("m3", "The iron one.", False),
    ]
    newest = ThreadDraft(replace(TALK, title="New", last_modified="2024-02-03T00:00:00.000Z"), [FIRST, other_branch])
    assert thread_outcomes(await ada.chats.upsert_many([newest, older])) == [
        ("updated", ["unchanged", "updated"]),
        ("unchanged", ["unchanged"] * 3),
    ]
    assert (await ada.chats.get_message("m3")).is_canonical
    assert thread_outcomes(await ben.chats.upsert_many([older])) == [("new", ["new"] * 3)]


async def test_local_messages_do_not_make_an_import_outdated(ada: Library) -> None:
    await ada.chats.upsert_many([ThreadDraft(replace(TALK, last_modified="2024-02-01T00:00:00.000Z"), [FIRST])])
    await ada.chats.append("talk-1", [MessageDraft(content="Said here.", created_at="2024-06-01T00:00:00Z")])
    newer = replace(TALK, title="New", last_modified="2024-02-02T00:00:00.000Z")
    assert thread_outcomes(await ada.chats.upsert_many([ThreadDraft(newer, [FIRST])])) == [("updated", ["unchanged"])]
    assert (await ada.chats.get("talk-1")).title == "New"


async def test_conversation_split_within_a_batch_is_one_conversation(ada: Library) -> None:
    results = await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST]), ThreadDraft(TALK, [SECOND])])
    assert thread_outcomes(results) == [("new", ["new"]), ("updated", ["new"])]
    assert [message.position for message in (await ada.chats.messages("talk-1", 9, 0)).rows] == [0, 1]


async def test_deleted_conversations_and_messages_stay_deleted(ada: Library) -> None:
    other = replace(TALK, uuid="talk-2")
    await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST, SECOND]), ThreadDraft(other)])
    await ada.chats.delete_message("m1")
    await ada.chats.delete("talk-2")
    results = await ada.chats.upsert_many(
        [ThreadDraft(TALK, [FIRST, SECOND]), ThreadDraft(other, [replace(FIRST, uuid="m9")])]
    )
    assert thread_outcomes(results) == [("unchanged", ["deleted", "unchanged"]), ("deleted", ["deleted"])]
    assert [message.uuid for message in (await ada.chats.messages("talk-1", 9, 0)).rows] == ["m2"]


async def test_message_of_another_conversation_is_rejected_and_others_are_imported(ada: Library) -> None:
    await ada.chats.upsert_many([ThreadDraft(TALK, [FIRST])])
    [result] = await ada.chats.upsert_many([ThreadDraft(replace(TALK, uuid="talk-2"), [FIRST, SECOND])])
    assert outcomes(result.messages) == ["refused", "new"]
    assert "another conversation" in result.messages[0].problem
    assert [message.uuid for message in (await ada.chats.messages("talk-1", 9, 0)).rows] == ["m1"]


async def test_messages_of_a_rejected_conversation_are_not_imported(ada: Library) -> None:
    await ada.chats.create(ConversationDraft(session_id="s"))
    [result] = await ada.chats.upsert_many([ThreadDraft(replace(TALK, session_id="s"), [FIRST])])
    assert (result.conversation.outcome, result.messages) == ("refused", ())
    assert (await ada.chats.search(make_search("kettle"))).hits == ()


async def test_bookmarks_are_separate_for_each_user(ada: Library, ben: Library) -> None:
    assert await ada.bookmarks.get("file") is None
    await ada.bookmarks.set("file", "100")
    await ada.bookmarks.set("file", "200")
    assert await ada.bookmarks.get("file") == "200"
    assert await ben.bookmarks.get("file") is None
