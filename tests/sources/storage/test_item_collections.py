"""What applies to all five kinds of items: storing, updating, deleting, purging, and separation of users."""

import re
from typing import Any

import pytest

from config.errors import Conflict, InvalidParams, NotFound
from sources.storage.contract import Library
from tests.cases import each_case
from tests.sources.storage.item_kinds import ITEM_KINDS, ItemKind
from tests.sources.storage.library_fixture import LibraryFixture, OpenLibraries, ids, make_search

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("kind", ITEM_KINDS, ids=lambda kind: kind.name),
]
STORED_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def test_created_item_can_be_read(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea", "leaves", tags=["Home", "two words"], metadata={"a": [1, "ä"]}))
    assert await collection.get(item.id) == item
    assert (kind.title_of(item), item.version, item.client_id) == ("Tea", 1, "test-client")
    assert (item.tags, item.metadata) == (("Home", "two words"), {"a": [1, "ä"]})
    assert STORED_TIME.fullmatch(item.created_at)
    assert item.last_modified == item.created_at


async def test_item_survives_reopening(kind: ItemKind, open_libraries: OpenLibraries) -> None:
    async with open_libraries() as libraries, libraries.library("ada") as ada:
        item = await kind.collection(ada).create(kind.draft("Tea", tags=["home"]))
    async with open_libraries() as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        assert await kind.collection(ada).get(item.id) == item
        with pytest.raises(NotFound):
            await kind.collection(ben).get(item.id)


async def test_item_of_another_user_is_not_found(kind: ItemKind, ada: Library, ben: Library) -> None:
    item = await kind.collection(ada).create(kind.draft("Tea", "green leaves"))
    bens_collection = kind.collection(ben)
    for call in (
        bens_collection.get(item.id),
        bens_collection.update(item.id, kind.draft("Mine")),
        bens_collection.delete(item.id),
        bens_collection.purge(item.id),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await bens_collection.search(make_search("tea"))).hits == ()
    assert await kind.collection(ada).get(item.id) == item


async def test_list_is_newest_first_with_the_total(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = [await collection.create(kind.draft(f"Item {n}")) for n in range(5)]
    await collection.update(item[1].id, kind.draft("Changed"))
    await collection.delete(item[2].id)
    page = await collection.list(2, 1)
    assert [row.id for row in page.rows] == [item[4].id, item[3].id]
    assert page.total == 4


async def test_update_changes_only_set_fields_and_increases_the_version(
    kind: ItemKind, libraries: LibraryFixture, ada: Library
) -> None:
    item = await kind.collection(ada).create(kind.draft("Tea", tags=["home"], metadata={"a": 1}))
    async with libraries.library("ada", client="editor") as library:
        changed = await kind.collection(library).update(item.id, kind.draft("Coffee"), expected_version=1)
    assert kind.title_of(changed) == "Coffee"
    assert (changed.tags, changed.metadata, changed.created_at) == (item.tags, item.metadata, item.created_at)
    assert (changed.version, changed.client_id) == (2, "editor")
    assert changed.last_modified > item.last_modified
    assert changed.content_hash != item.content_hash
    assert await kind.collection(ada).get(item.id) == changed


async def test_version_conflict_names_both_versions(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea"))
    await collection.update(item.id, kind.draft("Coffee"))
    for change in (collection.update(item.id, kind.draft("Milk"), 1), collection.delete(item.id, 1)):
        with pytest.raises(Conflict, match="expected version 1, found version 2"):
            await change
    assert kind.title_of(await collection.get(item.id)) == "Coffee"


async def test_deleted_item_is_hidden_until_it_is_purged(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea", "green leaves", tags=["home"]))
    other = await collection.create(kind.draft("Tea again", tags=["home"]))
    await collection.delete(item.id)
    for call in (collection.get(item.id), collection.delete(item.id), collection.update(item.id, kind.draft("X"))):
        with pytest.raises(NotFound):
            await call
    assert ids(await collection.search(make_search("tea"))) == [other.id]
    assert (await collection.list(10, 0)).total == 1
    await collection.purge(item.id)
    with pytest.raises(NotFound):
        await collection.purge(item.id)


async def test_purge_does_not_require_deletion(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea", "green leaves", tags=["home"]))
    await collection.purge(item.id)
    with pytest.raises(NotFound):
        await collection.get(item.id)
    assert (await collection.search(make_search("tea leaves"))).hits == ()


async def test_id_of_a_purged_item_is_not_reused(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea"))
    await collection.purge(item.id)
    assert (await collection.create(kind.draft("Coffee"))).id != item.id


async def test_write_repeated_with_its_key_is_applied_once(kind: ItemKind, ada: Library, ben: Library) -> None:
    collection = kind.collection(ada)
    first = await collection.create(kind.draft("Tea"), idempotency_key="import-1")
    assert await collection.create(kind.draft("Tea"), idempotency_key="import-1") == first
    assert (await collection.list(10, 0)).total == 1
    assert (await kind.collection(ben).create(kind.draft("Tea"), idempotency_key="import-1")).uuid != first.uuid


async def test_key_used_for_another_request_is_rejected(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    await collection.create(kind.draft("Tea"), idempotency_key="import-1")
    with pytest.raises(Conflict, match="import-1"):
        await collection.create(kind.draft("Coffee"), idempotency_key="import-1")


async def test_key_expires(kind: ItemKind, open_libraries: OpenLibraries) -> None:
    async with open_libraries(idempotency_ttl_s=60) as libraries, libraries.library("ada") as ada:
        first = await kind.collection(ada).create(kind.draft("Tea"), idempotency_key="k")
        libraries.clock.now_s += 100
        assert (await kind.collection(ada).create(kind.draft("Tea"), idempotency_key="k")).id != first.id


async def test_item_can_set_its_uuid_and_time_but_not_take_another_uuid(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea", uuid="tea-1", created_at="2020-05-01 10:30:00+02:00"))
    assert (item.uuid, item.created_at) == ("tea-1", "2020-05-01T08:30:00.000Z")
    assert item.last_modified == item.created_at
    with pytest.raises(Conflict, match="tea-1"):
        await collection.create(kind.draft("Coffee", uuid="tea-1"))
    with pytest.raises(InvalidParams, match="uuid"):
        await collection.update(item.id, kind.draft("Tea", uuid="tea-2"))


@each_case(
    ("draft", "field"),
    [
        ({"metadata": {"a": "\ud800"}}, "metadata"),
        ({"metadata": {"a": "x" * 300_000}}, "metadata"),
        ({"tags": ["x" * 101]}, "tags"),
        ({"tags": [f"t{n}" for n in range(101)]}, "tags"),
        ({"tags": "abc"}, "tags"),
        ({"uuid": "a b"}, "uuid"),
        ({"uuid": "../etc"}, "uuid"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"created_at": "2026-02-30"}, "created_at"),
    ],
)
async def test_invalid_value_is_rejected_with_its_field(
    kind: ItemKind, ada: Library, draft: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidParams, match=rf"^{field}: expected .+, got .+"):
        await kind.collection(ada).create(kind.draft("Tea", **draft))
    assert (await kind.collection(ada).list(10, 0)).total == 0


@each_case("title", ["a\0b", "\udc80", "x" * 2_001])
async def test_invalid_title_is_rejected_with_its_field(kind: ItemKind, ada: Library, title: str) -> None:
    with pytest.raises(InvalidParams, match=rf"^{kind.title_field}: expected .+, got .+"):
        await kind.collection(ada).create(kind.draft(title))


async def test_impossible_id_is_not_found(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea"))
    numbers, texts = (2**70, -1, 0), ("", "no such", "\ud800", "\0", "a' OR 1=1 --")
    for key in numbers if isinstance(item.id, int) else texts:
        for call in (collection.get(key), collection.delete(key), collection.purge(key)):
            with pytest.raises(NotFound):
                await call


async def test_tags_that_differ_only_in_case_are_merged(kind: ItemKind, ada: Library) -> None:
    item = await kind.collection(ada).create(kind.draft("Tea", tags=["Été", " ", "ÉTÉ", "straße", "STRASSE", "b"]))
    assert item.tags == ("Été", "straße", "b")


async def test_search_requires_all_tags(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    item = await collection.create(kind.draft("Tea one", tags=["Home", "Ärger"]))
    await collection.create(kind.draft("Tea two", tags=["home"]))
    by: dict[str, Any] = {"by": "title"} if kind.name == "chats" else {}
    assert ids(await collection.search(make_search("tea", tags=("HOME", "ärger")))) == [item.id]
    assert ids(await collection.search(make_search("", tags=("home", "ÄRGER"), **by))) == [item.id]
    await collection.update(item.id, type(kind.draft("x"))(tags=["other"]))
    assert (await collection.search(make_search("tea", tags=("home", "ärger")))).hits == ()


async def test_same_content_has_the_same_hash(kind: ItemKind, ada: Library, ben: Library) -> None:
    item = await kind.collection(ada).create(kind.draft("Tea", "leaves"))
    same = await kind.collection(ben).create(kind.draft("Tea", "leaves"))
    other = await kind.collection(ada).create(kind.draft("Teal", "eaves"))
    assert item.content_hash == same.content_hash != other.content_hash
    assert re.fullmatch("[0-9a-f]{32}", item.content_hash)
