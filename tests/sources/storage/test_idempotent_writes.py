"""Writes repeated with an idempotency key, prompts saved by name, and drafts from an export."""

import pytest

from config.errors import Conflict, InvalidParams, NotFound
from sources.drafts import Bookkeeping, CharacterDraft, ConversationDraft, NoteDraft, PromptDraft, ThreadDraft
from sources.storage.contract import Library

pytestmark = pytest.mark.postgres(is_contract=True)

EXPORTED = Bookkeeping(version=7, last_modified="2020-05-06T07:08:09.000Z", client_id="elsewhere")


async def test_update_repeated_with_its_key_is_applied_once(ada: Library, ben: Library) -> None:
    for library in (ada, ben):
        await library.notes.create(NoteDraft(title="Tea", uuid="tea"))
    notes = [await ada.notes.update("tea", NoteDraft(content="green"), 1, idempotency_key="k") for _ in range(3)]
    assert [(note.content, note.version) for note in notes] == [("green", 2)] * 3
    with pytest.raises(Conflict, match="was already used for a different request"):
        await ada.notes.update("tea", NoteDraft(content="black"), idempotency_key="k")
    assert (await ben.notes.update("tea", NoteDraft(content="black"), idempotency_key="k")).version == 2


async def test_rejected_update_can_be_repeated_with_its_key(ada: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="Tea"))
    with pytest.raises(Conflict, match="expected version 2, found version 1"):
        await ada.notes.update(note.id, NoteDraft(content="green"), 2, idempotency_key="k")
    assert (await ada.notes.update(note.id, NoteDraft(content="green"), 1, idempotency_key="k")).version == 2


async def test_append_with_separator_repeated_with_its_key_is_applied_once(ada: Library) -> None:
    note = await ada.notes.create(NoteDraft(content="bread"))
    for _ in range(2):
        await ada.notes.append(note.id, "tea", separator="\n", idempotency_key="k")
    assert (await ada.notes.append(note.id, "milk", separator="\n")).content == "bread\ntea\nmilk"


async def test_delete_can_be_repeated_with_its_key(ada: Library, ben: Library) -> None:
    note = await ada.notes.create(NoteDraft(title="Tea"))
    for _ in range(2):
        await ada.notes.delete(note.id, 1, idempotency_key="k")
    with pytest.raises(NotFound):
        await ada.notes.delete(note.id)
    with pytest.raises(NotFound):
        await ben.notes.delete(note.id, idempotency_key="k")


async def test_prompt_is_saved_by_name(ada: Library, ben: Library) -> None:
    created = await ada.prompts.save(PromptDraft(name=" Review ", details="code"))
    saved = await ada.prompts.save(PromptDraft(name="review", user_prompt="Go"), created.version)
    assert (saved.id, saved.name, saved.details, saved.user_prompt) == (created.id, "review", "code", "Go")
    with pytest.raises(Conflict):
        await ada.prompts.save(PromptDraft(name="Review"), 1)
    with pytest.raises(NotFound):
        await ben.prompts.save(PromptDraft(name="Review"), 1)
    with pytest.raises(InvalidParams, match="name: expected"):
        await ada.prompts.save(PromptDraft(name="  "))
    assert (await ada.prompts.list(10, 0)).total == 1


async def test_list_after_returns_items_in_uuid_order(ada: Library, ben: Library) -> None:
    for name in ("c", "a", "d", "b"):
        await ada.notes.create(NoteDraft(uuid=name))
    await ada.notes.delete("c")
    assert [note.uuid for note in await ada.notes.list_after("", 2)] == ["a", "b"]
    assert [note.uuid for note in await ada.notes.list_after("b", 2)] == ["d"]
    assert await ada.notes.list_after("d", 2) == await ben.notes.list_after("", 2) == []


async def test_exported_bookkeeping_is_used_only_on_creation(ada: Library) -> None:
    draft = NoteDraft(uuid="tea", title="Tea", bookkeeping=EXPORTED)
    await ada.notes.upsert_many([draft])
    created = await ada.notes.get("tea")
    assert (created.version, created.last_modified, created.client_id) == (7, EXPORTED.last_modified, "elsewhere")
    await ada.notes.upsert_many([NoteDraft(uuid="tea", title="Coffee", bookkeeping=EXPORTED)])
    changed = await ada.notes.get("tea")
    assert (changed.version, changed.client_id) == (8, "test-client")
    assert changed.last_modified > EXPORTED.last_modified


async def test_conversation_can_name_its_character_by_uuid(ada: Library, ben: Library) -> None:
    character = await ada.characters.create(CharacterDraft(name="Ana", uuid="ana"))
    for library in (ada, ben):
        await library.chats.upsert_many([ThreadDraft(ConversationDraft(uuid="talk", character="ana"))])
    assert (await ada.chats.get("talk")).character_id == character.id
    assert (await ben.chats.get("talk")).character_id is None
