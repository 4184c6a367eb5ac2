"""What holds for all five kinds of item: how they are kept, changed, hidden and removed, and whose they are."""

import re
from typing import Any

import pytest

from config.errors import Conflict, InvalidParams, NotFound
from sources.storage.contract import Library
from tests.sources.storage.item_kinds import ITEM_KINDS, ItemKind
from tests.sources.storage.library_fixture import LibraryFixture, OpenLibraries, ids, make_search

pytestmark = pytest.mark.parametrize("kind", ITEM_KINDS, ids=lambda kind: kind.name)
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


async def test_a_created_item_is_read_back_as_it_was_returned(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = await collection.create(kind.draft("Tea", "leaves", tags=["Home", "two words"], metadata={"a": [1, "ä"]}))
    assert await collection.get(made.id) == made
    assert (kind.title_of(made), made.version, made.client_id) == ("Tea", 1, "test-client")
    assert (made.tags, made.metadata) == (("Home", "two words"), {"a": [1, "ä"]})
    assert MOMENT.fullmatch(made.created_at)
    assert made.last_modified == made.created_at


async def test_an_item_outlives_the_process_that_made_it(kind: ItemKind, open_libraries: OpenLibraries) -> None:
    async with open_libraries() as libraries, libraries.library("ada") as ada:
        made = await kind.collection(ada).create(kind.draft("Tea", tags=["home"]))
    async with open_libraries() as libraries, libraries.library("ada") as ada, libraries.library("ben") as ben:
        assert await kind.collection(ada).get(made.id) == made
        with pytest.raises(NotFound):
            await kind.collection(ben).get(made.id)


async def test_what_is_another_owners_is_as_absent_as_what_does_not_exist(
    kind: ItemKind, ada: Library, ben: Library
) -> None:
    made = await kind.collection(ada).create(kind.draft("Tea", "green leaves"))
    theirs = kind.collection(ben)
    for call in (
        theirs.get(made.id),
        theirs.update(made.id, kind.draft("Mine")),
        theirs.delete(made.id),
        theirs.purge(made.id),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await theirs.search(make_search("tea"))).hits == ()
    assert await kind.collection(ada).get(made.id) == made


async def test_the_newest_items_are_listed_first_with_how_many_there_are(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = [await collection.create(kind.draft(f"Item {n}")) for n in range(5)]
    await collection.update(made[1].id, kind.draft("Changed"))
    await collection.delete(made[2].id)
    page = await collection.list(2, 1)
    assert [row.id for row in page.rows] == [made[4].id, made[3].id]
    assert page.total == 4


async def test_an_update_changes_what_it_names_and_raises_the_version(
    kind: ItemKind, libraries: LibraryFixture, ada: Library
) -> None:
    made = await kind.collection(ada).create(kind.draft("Tea", tags=["home"], metadata={"a": 1}))
    async with libraries.library("ada", client="editor") as library:
        changed = await kind.collection(library).update(made.id, kind.draft("Coffee"), expected_version=1)
    assert kind.title_of(changed) == "Coffee"
    assert (changed.tags, changed.metadata, changed.created_at) == (made.tags, made.metadata, made.created_at)
    assert (changed.version, changed.client_id) == (2, "editor")
    assert changed.last_modified > made.last_modified
    assert changed.content_hash != made.content_hash
    assert await kind.collection(ada).get(made.id) == changed


async def test_a_change_of_something_that_changed_meanwhile_names_both_versions(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = await collection.create(kind.draft("Tea"))
    await collection.update(made.id, kind.draft("Coffee"))
    for change in (collection.update(made.id, kind.draft("Milk"), 1), collection.delete(made.id, 1)):
        with pytest.raises(Conflict, match="expected version 1, found version 2"):
            await change
    assert kind.title_of(await collection.get(made.id)) == "Coffee"


async def test_a_deleted_item_is_hidden_everywhere_until_it_is_purged(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = await collection.create(kind.draft("Tea", "green leaves", tags=["home"]))
    kept = await collection.create(kind.draft("Tea again", tags=["home"]))
    await collection.delete(made.id)
    for gone in (collection.get(made.id), collection.delete(made.id), collection.update(made.id, kind.draft("X"))):
        with pytest.raises(NotFound):
            await gone
    assert ids(await collection.search(make_search("tea"))) == [kept.id]
    assert (await collection.list(10, 0)).total == 1
    await collection.purge(made.id)
    with pytest.raises(NotFound):
        await collection.purge(made.id)


async def test_a_purged_item_needs_no_deletion_first(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = await collection.create(kind.draft("Tea", "green leaves", tags=["home"]))
    await collection.purge(made.id)
    with pytest.raises(NotFound):
        await collection.get(made.id)
    assert (await collection.search(make_search("tea leaves"))).hits == ()


async def test_the_id_of_a_purged_item_is_not_given_again(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = await collection.create(kind.draft("Tea"))
    await collection.purge(made.id)
    assert (await collection.create(kind.draft("Coffee"))).id != made.id


async def test_a_write_repeated_with_its_key_happens_once(kind: ItemKind, ada: Library, ben: Library) -> None:
    collection = kind.collection(ada)
    first = await collection.create(kind.draft("Tea"), idempotency_key="import-1")
    assert await collection.create(kind.draft("Tea"), idempotency_key="import-1") == first
    assert (await collection.list(10, 0)).total == 1
    assert (await kind.collection(ben).create(kind.draft("Tea"), idempotency_key="import-1")).uuid != first.uuid


async def test_a_key_that_was_used_for_another_request_is_refused(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    await collection.create(kind.draft("Tea"), idempotency_key="import-1")
    with pytest.raises(Conflict, match="import-1"):
        await collection.create(kind.draft("Coffee"), idempotency_key="import-1")


async def test_a_key_is_forgotten_after_its_time(kind: ItemKind, open_libraries: OpenLibraries) -> None:
    async with open_libraries(idempotency_ttl_s=60) as libraries, libraries.library("ada") as ada:
        first = await kind.collection(ada).create(kind.draft("Tea"), idempotency_key="k")
        libraries.clock.now_s += 100
        assert (await kind.collection(ada).create(kind.draft("Tea"), idempotency_key="k")).id != first.id


async def test_an_item_may_bring_its_own_id_and_time_but_not_anothers(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    made = await collection.create(kind.draft("Tea", uuid="tea-1", created_at="2020-05-01 10:30:00+02:00"))
    assert (made.uuid, made.created_at) == ("tea-1", "2020-05-01T08:30:00.000Z")
    assert made.last_modified == made.created_at
    with pytest.raises(Conflict, match="tea-1"):
        await collection.create(kind.draft("Coffee", uuid="tea-1"))
    with pytest.raises(InvalidParams, match="uuid"):
        await collection.update(made.id, kind.draft("Tea", uuid="tea-2"))


@pytest.mark.parametrize(
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
async def test_a_value_that_cannot_be_kept_is_refused_by_name(
    kind: ItemKind, ada: Library, draft: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidParams, match=rf"^{field}: expected .+, got .+"):
        await kind.collection(ada).create(kind.draft("Tea", **draft))
    assert (await kind.collection(ada).list(10, 0)).total == 0


@pytest.mark.parametrize("title", ["a\0b", "\udc80", "x" * 2_001])
async def test_a_title_that_cannot_be_kept_is_refused_by_name(kind: ItemKind, ada: Library, title: str) -> None:
    with pytest.raises(InvalidParams, match=rf"^{kind.title_field}: expected .+, got .+"):
        await kind.collection(ada).create(kind.draft(title))


@pytest.mark.parametrize("key", ["", "no such", "\ud800", "\0", "a' OR 1=1 --", 2**70, -1, 0])
async def test_an_id_that_nothing_can_have_is_absent(kind: ItemKind, ada: Library, key: str | int) -> None:
    await kind.collection(ada).create(kind.draft("Tea"))
    for call in (kind.collection(ada).get(key), kind.collection(ada).delete(key), kind.collection(ada).purge(key)):
        with pytest.raises(NotFound):
            await call


async def test_tags_that_differ_in_case_are_one_tag(kind: ItemKind, ada: Library) -> None:
    made = await kind.collection(ada).create(kind.draft("Tea", tags=["Été", " ", "ÉTÉ", "straße", "STRASSE", "b"]))
    assert made.tags == ("Été", "straße", "b")


async def test_items_are_found_by_all_the_tags_asked_for(kind: ItemKind, ada: Library) -> None:
    collection = kind.collection(ada)
    both = await collection.create(kind.draft("Tea one", tags=["Home", "Ärger"]))
    await collection.create(kind.draft("Tea two", tags=["home"]))
    by: dict[str, Any] = {"by": "title"} if kind.name == "chats" else {}
    assert ids(await collection.search(make_search("tea", tags=("HOME", "ärger")))) == [both.id]
    assert ids(await collection.search(make_search("", tags=("home", "ÄRGER"), **by))) == [both.id]
    await collection.update(both.id, type(kind.draft("x"))(tags=["other"]))
    assert (await collection.search(make_search("tea", tags=("home", "ärger")))).hits == ()


async def test_the_same_words_have_the_same_hash(kind: ItemKind, ada: Library, ben: Library) -> None:
    one = await kind.collection(ada).create(kind.draft("Tea", "leaves"))
    same = await kind.collection(ben).create(kind.draft("Tea", "leaves"))
    other = await kind.collection(ada).create(kind.draft("Teal", "eaves"))
    assert one.content_hash == same.content_hash != other.content_hash
    assert re.fullmatch("[0-9a-f]{32}", one.content_hash)
