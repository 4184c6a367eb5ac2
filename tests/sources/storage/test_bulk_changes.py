"""Changes of many items at once, undoing them, and pins: on every kind and both engines."""

import pytest

from config.errors import Conflict, NotFound
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft, PromptDraft
from sources.exporters import lines
from sources.kinds import PINNED_KEY, is_pinned
from sources.records import NOTE, PROMPT
from sources.storage.contract import ChangeResult, ItemChange, ItemFilter, ItemsChange, Library
from sources.storage.tables.bulk import UNDO_KEPT_S
from tests.cases import each_case
from tests.sources.storage.item_kinds import ITEM_KINDS, ItemKind
from tests.sources.storage.library_fixture import LibraryFixture, make_search

pytestmark = pytest.mark.postgres(is_contract=True)

DELETE = ItemsChange(deletes=True)


def changes_of(change: ItemsChange, *items: tuple[str | int, int | None]) -> list[ItemChange]:
    return [ItemChange(id=key, version=version, change=change) for key, version in items]


@each_case("kind", ITEM_KINDS)
async def test_tags_are_replaced_in_any_case_found_by_search_and_undone(
    kind: ItemKind, ada: Library, ben: Library
) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea", "green leaves", tags=["Home", "old"]))
    other = await collection.create(kind.draft("Coffee", "beans", tags=["new"]))
    foreign = await kind.collection(ben).create(kind.draft("Tea", "green leaves", tags=["old"]))
    found = await collection.matching_ids(ItemFilter(tags=("OLD",)), 0, 10)
    assert [key for _, key in found] == [item.id]

    change = ItemsChange(replaced_tags={"OLD": "kettle", "home": ""}, added_tags=("Kettle", "cup"))
    result: ChangeResult = await collection.change_many(changes_of(change, (item.id, None), (foreign.id, 7)))

    assert (result.changed, result.skipped) == ((item.id,), (foreign.id,))
    assert (await collection.get(item.id)).tags == ("kettle", "cup")
    counts = {count.tag: count.items for count in await collection.tags(10)}
    assert counts == {"kettle": 1, "cup": 1, "new": 1}
    hits = (await collection.search(make_search("tea", tags=("Kettle",)))).hits
    assert [hit.id for hit in hits] == [item.id]
    assert (await collection.browse(ItemFilter(tags=("old",)), 10, 0)).total == 0

    assert await kind.collection(ben).undo(result.undo) is None
    undone = await collection.undo(result.undo)
    assert undone is not None
    assert (undone.changed, undone.skipped) == ((item.id,), ())
    assert (await collection.get(item.id)).tags == ("Home", "old")
    assert (await collection.get(other.id)).version == 1
    assert await collection.undo(result.undo) is None


@each_case("kind", ITEM_KINDS)
async def test_deletions_are_undone_except_of_items_that_changed_since(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    first, second, edited = [await collection.create(kind.draft(name, "green leaves")) for name in ("A", "B", "C")]
    await collection.update(edited.id, kind.draft("C again"))

    result = await collection.change_many(
        changes_of(DELETE, (first.id, first.version), (second.id, second.version), (edited.id, edited.version))
    )

    assert (set(result.changed), result.skipped) == ({first.id, second.id}, (edited.id,))
    assert "has changed since" in result.problem
    assert (await collection.list(10, 0)).total == 1
    await collection.restore(second.id)
    changed, skipped = set(), set()
    while (undone := await collection.undo(result.undo)) is not None:
        changed |= set(undone.changed)
        skipped |= set(undone.skipped)
    assert (changed, skipped) == ({first.id}, {second.id})
    assert (await collection.list(10, 0)).total == 3
    assert (await collection.get(first.id)).last_modified == first.last_modified


async def test_batches_of_one_token_are_undone_together_and_expire(libraries: LibraryFixture) -> None:
    async with libraries.library("ada") as ada:
        notes = [await ada.notes.create(NoteDraft(title=f"Note {number}")) for number in range(3)]
        added = ItemsChange(added_tags=("x",))
        undo = ""
        for note in notes:
            undo = (await ada.notes.change_many(changes_of(added, (note.id, None)), undo)).undo
        batches = [await ada.notes.undo(undo) for _ in range(4)]
        assert [batch and batch.changed for batch in batches] == [*((note.id,) for note in reversed(notes)), None]

        late = await ada.notes.change_many(changes_of(added, (notes[0].id, None)))
        libraries.clock.now_s += UNDO_KEPT_S + 10
        assert await ada.notes.undo(late.undo) is None
        assert (await ada.notes.get(notes[0].id)).tags == ("x",)
    for token in ("", "x", "\0", "' OR 1=1", f"{late.undo}:notes"):
        async with libraries.library("ada") as ada:
            assert await ada.notes.undo(token) is None


async def test_atomic_change_changes_nothing_if_one_item_cannot_be_changed(ada: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="Tea", content="green"))
    changes = changes_of(ItemsChange(values={"content": "black"}), (note.id, 1), ("missing", None))

    with pytest.raises(Conflict):
        await ada.notes.change_many(changes, is_atomic=True)

    assert (await ada.notes.get(note.id)).content == "green"
    result = await ada.notes.change_many(changes[:1], is_atomic=True)
    assert (await ada.notes.get(note.id)).content == "black"
    await ada.notes.undo(result.undo)
    assert (await ada.notes.get(note.id)).content == "green"


async def test_conversations_with_messages_are_moved_deleted_and_found_again_after_undo(ada: Library) -> None:
    chats = [
        await ada.chats.create(ConversationDraft(title=f"Chat {number}"), [MessageDraft(content=f"galleon {number}")])
        for number in range(2)
    ]
    keys = [(chat.id, None) for chat in chats]
    moved = await ada.chats.change_many(changes_of(ItemsChange(values={"namespace": "work"}), *keys))
    assert {chat.namespace for chat in (await ada.chats.list(10, 0)).rows} == {"work"}
    deleted = await ada.chats.change_many(changes_of(DELETE, *keys))
    assert (await ada.chats.search(make_search("galleon"))).hits == ()

    for token in (deleted.undo, moved.undo):
        while await ada.chats.undo(token) is not None:
            pass

    assert len((await ada.chats.search(make_search("galleon"))).hits) == 2
    assert {chat.namespace for chat in (await ada.chats.list(10, 0)).rows} == {"default"}


async def test_undoing_tags_keeps_an_edit_of_the_text_but_not_that_of_other_tags(ada: Library) -> None:
    edited, retagged = [await ada.notes.create(NoteDraft(title=name, tags=["old"])) for name in ("A", "B")]
    change = ItemsChange(replaced_tags={"old": "new"})
    result = await ada.notes.change_many(changes_of(change, (edited.id, None), (retagged.id, None)))
    await ada.notes.update(edited.id, NoteDraft(content="an edit"))
    await ada.notes.update(retagged.id, NoteDraft(tags=["mine"]))

    undone = await ada.notes.undo(result.undo)

    assert undone is not None
    assert (undone.changed, undone.skipped) == ((edited.id,), (retagged.id,))
    note = await ada.notes.get(edited.id)
    assert (note.content, note.tags, (await ada.notes.get(retagged.id)).tags) == ("an edit", ("old",), ("mine",))


@each_case("kind", ITEM_KINDS)
async def test_pinned_items_are_listed_and_stay_pinned_through_changes(
    kind: ItemKind, ada: Library, ben: Library
) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea", "green leaves", tags=["home"]))
    await collection.create(kind.draft("Coffee", "beans"))

    async def pinned() -> list[str | int]:
        return [row.id for row in (await collection.browse(ItemFilter(is_pinned=True), 10, 0)).rows]

    result = await collection.change_many(changes_of(ItemsChange(is_pinned=True), (item.id, None)))

    stored = await collection.get(item.id)
    assert (is_pinned(stored), stored.last_modified, await pinned()) == (True, item.last_modified, [item.id])
    assert (await kind.collection(ben).browse(ItemFilter(is_pinned=True), 10, 0)).total == 0
    assert {count.tag for count in await collection.tags(10)} == {"home"}
    await collection.update(item.id, kind.draft("Tea", "black leaves", tags=["away"], metadata={"origin": "file"}))
    assert await pinned() == [item.id]
    assert (await collection.get(item.id)).metadata["origin"] == "file"
    await collection.delete(item.id)
    assert await pinned() == []
    await collection.restore(item.id)
    assert await pinned() == [item.id]

    await collection.change_many(changes_of(ItemsChange(is_pinned=False), (item.id, None)))
    assert await pinned() == []
    assert await collection.undo(result.undo) is not None
    with pytest.raises(NotFound):
        await kind.collection(ben).get(item.id)


async def test_import_that_changes_a_pinned_note_keeps_the_pin_and_is_no_conflict(ada: Library) -> None:
    draft = NoteDraft(uuid="n-1", title="Tea", content="green", metadata={"path": "tea.md"})
    await ada.notes.upsert_many([draft], keeps_edits=True)
    await ada.notes.change_many(changes_of(ItemsChange(is_pinned=True), ("n-1", None)))

    [same] = await ada.notes.upsert_many([draft], keeps_edits=True)
    changed = NoteDraft(uuid="n-1", title="Tea", content="black", metadata={"path": "tea.md"})
    [result] = await ada.notes.upsert_many([changed], keeps_edits=True)

    note = await ada.notes.get("n-1")
    assert (same.outcome, result.outcome, note.content, is_pinned(note)) == ("unchanged", "updated", "black", True)


async def test_message_whose_metadata_says_that_it_is_pinned_is_stored_as_it_is(ada: Library) -> None:
    chat = await ada.chats.create(ConversationDraft(title="Tea"), [MessageDraft(content="a", metadata={PINNED_KEY: 1})])
    [message] = (await ada.chats.messages(chat.id, 10, 0)).rows
    changed = await ada.chats.update_message(message.id, MessageDraft(metadata={PINNED_KEY: True}))
    assert changed.metadata == {PINNED_KEY: True}


async def test_exported_pin_is_imported_again(ada: Library, ben: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="Tea"))
    prompt = await ada.prompts.create(PromptDraft(name="Brew", user_prompt="How?"))
    media = await ada.media.create(MediaDraft(title="Film", content="Leaves."))
    for collection, key in ((ada.notes, note.id), (ada.prompts, prompt.id), (ada.media, media.id)):
        await collection.change_many(changes_of(ItemsChange(is_pinned=True), (key, None)))

    chunks = await ada.media.chunks(media.id, 0, 10)
    line = lines.media_line(await ada.media.get(media.id), "Leaves.", (), chunks)
    drafts = {
        "notes": lines.item_draft(lines.item_line(NOTE, await ada.notes.get(note.id)))[1],
        "prompts": lines.item_draft(lines.item_line(PROMPT, await ada.prompts.get(prompt.id)))[1],
        "media": lines.media_draft(line),
    }
    for source, draft in drafts.items():
        await ben.collection(source).upsert_many([draft])

    for source in drafts:
        assert (await ben.collection(source).browse(ItemFilter(is_pinned=True), 10, 0)).total == 1, source
