"""How many items were created in each month and on each day."""

import pytest

from sources.drafts import ConversationDraft, NoteDraft
from sources.storage.contract import ItemFilter, Library

pytestmark = pytest.mark.postgres(is_contract=True)


async def test_items_are_counted_by_month_and_by_day(ada: Library, ben: Library) -> None:
    times = ("2024-12-31T23:59:59.999Z", "2025-01-01T00:00:00Z", "2025-01-01T12:00:00Z", "2025-01-31T12:00:00Z")
    notes = [await ada.notes.create(NoteDraft(title=time, created_at=time)) for time in times]
    await ben.notes.create(NoteDraft(title="of Ben", created_at=times[1]))
    deleted = await ada.notes.create(NoteDraft(title="gone", created_at=times[1]))
    await ada.notes.delete(deleted.id)
    await ada.chats.create(ConversationDraft(title="Talk", created_at=times[0]))

    assert list((await ada.notes.created_counts("month")).items()) == [("2025-01", 3), ("2024-12", 1)]
    assert await ada.notes.created_counts("day", "2025-") == {"2025-01-31": 1, "2025-01-01": 2}
    assert await ada.notes.created_counts("day", "2024-") == {"2024-12-31": 1}
    assert await ada.chats.created_counts("month") == {"2024-12": 1}
    assert await ada.media.created_counts("month") == {}
    for created, expected in (("2025-01-01", notes[1:3]), ("2024", notes[:1]), ("", notes)):
        page = await ada.notes.browse(ItemFilter(created=created), 10, 0)
        assert {note.id for note in page.rows} == {note.id for note in expected}
