"""Writes that are repeated under a key, prompts that are saved by name, and what comes out of an export of ours."""

import pytest

from config.errors import Conflict, InvalidParams, NotFound
from sources.drafts import Bookkeeping, CharacterDraft, ConversationDraft, NoteDraft, PromptDraft, ThreadDraft
from sources.storage.contract import Library

EXPORTED = Bookkeeping(version=7, last_modified="2020-05-06T07:08:09.000Z", client_id="elsewhere")


async def test_an_update_under_a_key_is_made_once(ada: Library, ben: Library) -> None:
    for library in (ada, ben):
        await library.notes.create(NoteDraft(title="Tea", uuid="tea"))
    notes = [await ada.notes.update("tea", NoteDraft(content="green"), 1, idempotency_key="k") for _ in range(3)]
    assert [(note.content, note.version) for note in notes] == [("green", 2)] * 3
    with pytest.raises(Conflict, match="was already used for a different request"):
        await ada.notes.update("tea", NoteDraft(content="black"), idempotency_key="k")
    assert (await ben.notes.update("tea", NoteDraft(content="black"), idempotency_key="k")).version == 2


async def test_an_update_that_was_refused_may_be_repeated_under_its_key(ada: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="Tea"))
    with pytest.raises(Conflict, match="expected version 2, found version 1"):
        await ada.notes.update(note.id, NoteDraft(content="green"), 2, idempotency_key="k")
    assert (await ada.notes.update(note.id, NoteDraft(content="green"), 1, idempotency_key="k")).version == 2


async def test_a_text_is_appended_once_under_a_key_with_what_separates_it(ada: Library) -> None:
    note = await ada.notes.create(NoteDraft(content="bread"))
    for _ in range(2):
        await ada.notes.append(note.id, "tea", separator="\n", idempotency_key="k")
    assert (await ada.notes.append(note.id, "milk", separator="\n")).content == "bread\ntea\nmilk"


async def test_a_deletion_under_a_key_may_be_repeated(ada: Library, ben: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="Tea"))
    for _ in range(2):
        await ada.notes.delete(note.id, 1, idempotency_key="k")
    with pytest.raises(NotFound):
        await ada.notes.delete(note.id)
    with pytest.raises(NotFound):
        await ben.notes.delete(note.id, idempotency_key="k")


async def test_a_prompt_is_saved_under_its_name(ada: Library, ben: Library) -> None:
    made = await ada.prompts.save(PromptDraft(name=" Review ", details="code"))
    saved = await ada.prompts.save(PromptDraft(name="review", user_prompt="Go"), made.version)
    assert (saved.id, saved.name, saved.details, saved.user_prompt) == (made.id, "review", "code", "Go")
    with pytest.raises(Conflict):
        await ada.prompts.save(PromptDraft(name="Review"), 1)
    with pytest.raises(NotFound):
        await ben.prompts.save(PromptDraft(name="Review"), 1)
    with pytest.raises(InvalidParams, match="name: expected"):
        await ada.prompts.save(PromptDraft(name="  "))
    assert (await ada.prompts.list(10, 0)).total == 1


async def test_everything_is_listed_in_the_order_of_the_uuids(ada: Library, ben: Library) -> None:
    for name in ("c", "a", "d", "b"):
        await ada.notes.create(NoteDraft(uuid=name))
    await ada.notes.delete("c")
    assert [note.uuid for note in await ada.notes.list_after("", 2)] == ["a", "b"]
    assert [note.uuid for note in await ada.notes.list_after("b", 2)] == ["d"]
    assert await ada.notes.list_after("d", 2) == await ben.notes.list_after("", 2) == []


async def test_what_an_item_was_elsewhere_is_kept_when_it_is_made_and_only_then(ada: Library) -> None:
    draft = NoteDraft(uuid="tea", title="Tea", bookkeeping=EXPORTED)
    await ada.notes.upsert_many([draft])
    made = await ada.notes.get("tea")
    assert (made.version, made.last_modified, made.client_id) == (7, EXPORTED.last_modified, "elsewhere")
    await ada.notes.upsert_many([NoteDraft(uuid="tea", title="Coffee", bookkeeping=EXPORTED)])
    changed = await ada.notes.get("tea")
    assert (changed.version, changed.client_id) == (8, "test-client")
    assert changed.last_modified > EXPORTED.last_modified


async def test_a_conversation_names_its_character_by_the_uuid(ada: Library, ben: Library) -> None:
    character = await ada.characters.create(CharacterDraft(name="Ana", uuid="ana"))
    for library in (ada, ben):
        await library.chats.upsert_many([ThreadDraft(ConversationDraft(uuid="talk", character="ana"))])
    assert (await ada.chats.get("talk")).character_id == character.id
    assert (await ben.chats.get("talk")).character_id is None
