"""Everything else that reads or writes items, in libraries of others: source tools, resources, prompts, lists, links,
similar items, writes, copies and subscriptions."""

from typing import Any

import pytest
from msgspec.structs import replace

from auth.context import READ, LibraryAccess, ShareRule
from config.errors import InvalidParams, ResourceNotFound
from server.operations import operations_of
from server.protocol.catalog import Change, ChangeFeed
from sources.drafts import MessageDraft
from sources.storage.shared_part import NotShared
from tests.server.rest.rest_client import RestClient
from tests.sharing import access_to, open_sharing, with_libraries
from tests.sources.source_fixture import ID_ARGUMENT, SOURCES, LibraryUser, SourceFixture

_TAG = ShareRule("tag", "work")


@pytest.fixture
async def fixture(api: RestClient) -> SourceFixture:
    return await open_sharing(api)


async def _add_all(user: LibraryUser, text: str, *tags: str) -> dict[str, str | int]:
    return {
        source: await user.add_item(source, f"{text} in {source}", f"The {text} {source}.", tags=tags)
        for source in SOURCES
    }


async def _run(api: RestClient, user: LibraryUser, operation_id: str, **values: Any) -> Any:
    """Runs an operation as REST does, with the principal of the test."""
    [operation] = [one for one in operations_of() if one.id == operation_id]
    return await operation.handler(user.context, api.server.runtime, operation.input(**values))


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
async def test_tools_of_a_source_search_and_read_in_a_library_of_others(fixture: SourceFixture, source: str) -> None:
    shared = (await _add_all(fixture.ben, "galleon", "work"))[source]
    private = (await _add_all(fixture.ben, "frigate", "home"))[source]
    ada = with_libraries(fixture.ada, access_to(fixture.ben), access_to(fixture.ben, "Part", _TAG))

    whole = await ada.search(f"{source}_search", "galleon OR frigate", library="Team")
    part = await ada.search(f"{source}_search", "galleon OR frigate", library="h-part")

    assert {hit["id"] for hit in whole} == {shared, private}
    assert {hit["id"] for hit in part} == {shared}
    assert {hit["library"] for hit in part} == {"Part"}
    assert all(hit["uri"].endswith("?library=h-part") for hit in part)
    assert await ada.search(f"{source}_search", "galleon OR frigate") == []
    # By URI, and by id and library.
    by_uri = await ada.call(f"{source}_get", uri=f"{source}://{shared}?library=h-part")
    by_id = await ada.call(f"{source}_get", **{ID_ARGUMENT[source]: shared}, library="Part")
    assert by_uri == by_id
    assert by_uri["meta"]["uri"] == f"{source}://{shared}?library=h-part"
    for user, arguments in (
        (ada, {"uri": f"{source}://{private}?library=h-part"}),
        (ada, {ID_ARGUMENT[source]: private, "library": "Part"}),
        (ada, {"uri": f"{source}://{private}?library=unknown"}),
        (fixture.ada, {"uri": f"{source}://{private}?library=h-team"}),
    ):
        absent = await fixture.ada.call_error(f"{source}_get", **{ID_ARGUMENT[source]: private})
        assert await user.call_error(f"{source}_get", **arguments) == absent


async def test_resources_of_other_libraries_are_listed_and_read(fixture: SourceFixture) -> None:
    own = await fixture.ada.add_note("Own", "Mine.")
    shared = await _add_all(fixture.ben, "galleon", "work")
    private = await _add_all(fixture.ben, "frigate", "home")
    ada = with_libraries(fixture.ada, access_to(fixture.ben, rule=_TAG))

    listed = (await ada.request("resources/list"))["resources"]

    items = {entry["uri"] for entry in listed if "types" not in entry["uri"]}
    assert items == {f"notes://{own}", *(f"{source}://{shared[source]}?library=h-team" for source in SOURCES)}
    for source in SOURCES:
        uri = f"{source}://{shared[source]}?library=h-team"
        [content] = (await ada.request("resources/read", uri=uri))["contents"]
        assert content["uri"] == uri
        assert "galleon" in content["text"]
        for user, hidden in (
            (ada, f"{source}://{private[source]}?library=h-team"),
            (fixture.ada, uri),
            (ada, f"{source}://{shared[source]}?library=other"),
        ):
            with pytest.raises(ResourceNotFound, match="resource not found"):
                await user.request("resources/read", uri=hidden)
    # The types of all media, whoever may read them, are not part of what is shared.
    whole = with_libraries(fixture.ada, access_to(fixture.ben))
    assert (await whole.request("resources/read", uri="media://types?library=h-team"))["contents"]
    with pytest.raises(Exception, match="only a part of this library"):
        await ada.request("resources/read", uri="media://types?library=h-team")


async def test_pages_of_resources_contain_those_of_all_libraries_once(fixture: SourceFixture) -> None:
    for user in (fixture.ada, fixture.ben):
        for number in range(70):
            await user.add_note(f"Note {number}", f"{user.name} {number}")
    ada = with_libraries(fixture.ada, access_to(fixture.ben))
    found: list[str] = []
    params: dict[str, Any] = {}
    while True:
        page = await ada.request("resources/list", **params)
        found += [entry["uri"] for entry in page["resources"] if entry["uri"].startswith("notes://")]
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}

    assert len(found) == len(set(found)) == 140


async def test_prompts_and_characters_of_other_libraries_are_mcp_prompts(fixture: SourceFixture) -> None:
    shared = await fixture.ben.add_prompt("Review", "Review the {{diff}}.", tags=("work",))
    private = await fixture.ben.add_prompt("Diary", "Write a diary.", tags=("home",))
    character = await fixture.ben.add_character("Merlin", "A wizard.", tags=("work",))
    own = await fixture.ada.add_prompt("Mine", "Do it.")
    assert own == shared, "the name must say which of them is meant"
    ada = with_libraries(fixture.ada, access_to(fixture.ben, rule=_TAG))

    names = {prompt["name"]: prompt["title"] for prompt in (await ada.request("prompts/list"))["prompts"]}

    assert names == {
        f"prompt_{own}_mine": "Mine",
        f"prompt_{shared}_review?library=h-team": "Review (Team)",
        f"character_{character}_merlin?library=h-team": "Merlin (Team)",
    }
    rendered = await ada.request(
        "prompts/get", name=f"prompt_{shared}_review?library=h-team", arguments={"diff": "patch"}
    )
    assert rendered["messages"][0]["content"]["text"] == "Review the patch."
    for user, name in (
        (ada, f"prompt_{private}_diary?library=h-team"),
        (fixture.ada, f"prompt_{shared}_review?library=h-team"),
    ):
        with pytest.raises(InvalidParams, match="unknown prompt"):
            await user.request("prompts/get", name=name)


async def test_lists_links_and_overviews_respect_the_rule(api: RestClient, fixture: SourceFixture) -> None:
    shared = await fixture.ben.add_note("Plan", "See [[Diary]] and [[Budget]].", tags=("work",))
    budget = await fixture.ben.add_note("Budget", "See [[Plan]].", tags=("work",))
    diary = await fixture.ben.add_note("Diary", "See [[Plan]].", tags=("home",))
    whole = with_libraries(fixture.ada, access_to(fixture.ben))
    part = with_libraries(fixture.ada, access_to(fixture.ben, rule=_TAG))

    listed = await _run(api, part, "list_items", library="Team")
    links = await _run(api, part, "get_item_links", uri=f"notes://{shared}?library=h-team")

    assert {item.uri for item in listed.items} == {f"notes://{one}?library=h-team" for one in (shared, budget)}
    assert {item.library for item in listed.items} == {"Team"}
    assert listed.total == 2
    assert [link.uri for link in links.links] == [f"notes://{budget}?library=h-team"]
    assert [link.uri for link in links.backlinks] == [f"notes://{budget}?library=h-team"]
    assert (await _run(api, whole, "get_library", library="Team")).items == 3
    with pytest.raises(Exception, match="only a part of this library"):
        await _run(api, part, "get_library", library="Team")
    assert (await _run(api, whole, "get_library")).items == 0
    with pytest.raises(Exception, match=f"note '{diary}' not found"):
        await _run(api, part, "get_item_links", uri=f"notes://{diary}?library=h-team")


# -- writing ----------------------------------------------------------------------------------------------------------


async def test_writers_write_to_the_library_of_a_group_and_readers_do_not(fixture: SourceFixture) -> None:
    ada = with_libraries(fixture.ada, access_to(fixture.ben, role="writer"))

    created = await ada.call("items_create", source="notes", title="Plan", content="Sail.", library="Team")
    uri = created["uri"]
    updated = await ada.call("items_update", uri=uri, content="Sail at dawn.", expected_version=created["version"])
    tagged = await ada.call("items_tag", uri=uri, add=["sea"])
    appended = await ada.call("notes_append", uri=uri, text="Twice.")
    chat = await ada.call("chats_append", messages=[{"content": "Hello."}], title="Talk", library="h-team")

    assert uri.endswith("?library=h-team")
    assert {updated["uri"], tagged["uri"], appended["uri"]} == {uri}
    assert tagged["tags"] == ["sea"]
    assert chat["uri"].endswith("?library=h-team")
    assert (await fixture.ben.read("notes", created["id"], retrieval={"mode": "full"}))["content"] == (
        "Sail at dawn.\nTwice."
    )
    assert not (await fixture.ada.search("notes_search", "dawn"))
    reader = with_libraries(fixture.ada, access_to(fixture.ben))
    part = with_libraries(fixture.ada, access_to(fixture.ben, rule=ShareRule("source", "notes"), role="manager"))
    for tool, arguments in (
        ("items_create", {"source": "notes", "title": "x", "library": "Team"}),
        ("items_update", {"uri": uri, "content": "x"}),
        ("items_delete", {"uri": uri}),
        ("items_tag", {"uri": uri, "add": ["x"]}),
        ("notes_create", {"title": "x", "library": "Team"}),
        ("notes_update", {"uri": uri, "content": "x"}),
        ("notes_append", {"uri": uri, "text": "x"}),
        ("notes_delete", {"uri": uri}),
        ("chats_append", {"uri": chat["uri"], "messages": [{"content": "x"}]}),
        ("prompts_save", {"name": "x", "user_prompt": "x", "library": "Team"}),
        ("media_add_text", {"title": "x", "text": "x", "library": "Team"}),
    ):
        assert "but not write to it" in await reader.call_error(tool, **arguments), tool
        refused = await part.call_error(tool, **arguments)
        assert "but not write to it" in refused or (tool == "chats_append" and "not found" in refused)
        assert "not found" in await fixture.ada.call_error(tool, **arguments)
    deleted = await ada.call("items_delete", uri=uri)
    assert deleted["uri"] == uri
    assert "not found" in await ada.call_error("knowledge_get", uri=uri)


def test_every_writing_tool_takes_a_library() -> None:
    writing = [one for one in operations_of() if one.tool is not None and one.scope == "knowledge:write"]
    without = {one.id for one in writing if "library" not in one.input.__struct_fields__}
    # It has an argument of its own for the library; others are not about items.
    assert "copy_item" in without
    assert not [name for name in without if name.startswith(("items_", "notes_", "chats_", "prompts_", "media_"))]


async def test_credential_that_only_reads_writes_nowhere(fixture: SourceFixture) -> None:
    from config.errors import Forbidden  # noqa: PLC0415 - only here

    ada = with_libraries(fixture.ada, access_to(fixture.ben, role="manager"), scopes=frozenset((READ,)))

    with pytest.raises(Forbidden):
        await ada.call("items_create", source="notes", title="x", library="Team")


@pytest.mark.parametrize("source", SOURCES)
async def test_copy_keeps_its_origin(fixture: SourceFixture, source: str) -> None:
    item = (await _add_all(fixture.ada, "galleon", "sea"))[source]
    ada = with_libraries(fixture.ada, access_to(fixture.ben, role="writer"))

    copied = await ada.call("items_copy", uri=f"{source}://{item}", to="Team")

    assert copied["uri"].endswith("?library=h-team")
    assert copied["tags"] == ["sea"]
    assert "galleon" in str(await fixture.ben.read(source, copied["id"], retrieval={"mode": "full"}))
    async with fixture.libraries.library(fixture.ben.context) as library:
        stored = await library.collection(source).get(copied["id"])
    assert stored.metadata["copied_from"] == {"user": "ada", "uri": f"{source}://{item}", "version": 1}


async def test_what_others_share_is_not_copied_on(fixture: SourceFixture) -> None:
    note = await fixture.ben.add_note("Plan", "Sail.")
    secret = MessageDraft(role="user", content="For sale.", metadata={"human_only": True})
    chat = await fixture.ada.add_chat("Talk", "Hello.", secret)
    ada = with_libraries(fixture.ada, access_to(fixture.ben, role="writer"))

    refused = await ada.call_error("items_copy", uri=f"notes://{note}?library=h-team", to="Team")
    assert "uri: expected an item of the user's own library" in refused
    assert "got the user's own" in await ada.call_error("items_copy", uri=f"chats://{chat}", to="own")
    copied = await ada.call("items_copy", uri=f"chats://{chat}", to="Team")
    people = replace(fixture.ben, context=replace(fixture.ben.context, is_agent=False))
    assert "For sale" not in str(await people.read("chats", copied["id"]))


# -- ledger -----------------------------------------------------------------------------------------------------------


async def test_reads_of_shared_items_are_in_the_ledger_of_their_owner(api: RestClient, fixture: SourceFixture) -> None:
    runtime = api.server.runtime
    note = await fixture.ben.add_note("Plan", "Sail.", tags=("work",))
    prompt = await fixture.ben.add_prompt("Review", "Review it.", tags=("work",))
    recorded = replace(fixture.ada.context, read_log=runtime.audit)
    ada = with_libraries(replace(fixture.ada, context=recorded), access_to(fixture.ben, rule=_TAG))

    await ada.call("knowledge_get", uri=f"notes://{note}?library=h-team")
    await ada.call("notes_get", uri=f"notes://{note}?library=h-team")
    await ada.request("resources/read", uri=f"notes://{note}?library=h-team")
    await ada.request("prompts/get", name=f"prompt_{prompt}?library=h-team")

    reads = (await _run(api, fixture.ben, "list_reads", titles=True)).reads
    assert {(read.uri, read.reader, read.client, read.count) for read in reads} == {
        (f"notes://{note}", "ada", "test", 3),
        (f"prompts://{prompt}", "ada", "test", 1),
    }
    assert {read.title for read in reads} == {"Plan", "Review"}
    assert not (await _run(api, fixture.ada, "list_reads")).reads
    with pytest.raises(Exception, match="only a manager"):
        await _run(api, with_libraries(fixture.ada, access_to(fixture.ben)), "list_reads", library="Team")
    manager = with_libraries(fixture.ada, access_to(fixture.ben, role="manager"))
    assert {read.uri for read in (await _run(api, manager, "list_reads", library="Team")).reads} == {
        f"notes://{note}?library=h-team",
        f"prompts://{prompt}?library=h-team",
    }


# -- subscriptions ----------------------------------------------------------------------------------------------------


async def test_changes_of_a_library_are_delivered_while_the_access_lasts(fixture: SourceFixture) -> None:
    team = access_to(fixture.ben)
    uri = "notes://1?library=h-team"
    for libraries, expected in (
        ((team,), uri),
        ((), None),
        ((access_to(fixture.ben, rule=ShareRule("source", "notes")),), uri),
        ((access_to(fixture.ben, rule=ShareRule("source", "media")),), None),
        ((access_to(fixture.ben, rule=_TAG),), None),
    ):
        principal = with_libraries(fixture.ada, team).context.principal
        feed = ChangeFeed()

        async def recheck(_: Any, libraries: tuple[LibraryAccess, ...] = libraries) -> Any:
            return replace(principal, libraries=libraries)  # noqa: B023 - called in the same turn of the loop

        feed.recheck = recheck
        with feed.listen(principal, frozenset(("resources",)), {uri, "notes://1"}) as listener:
            feed.publish(Change("updated", "notes://1", fixture.ben.context.user_id, "notes"))
            change = await listener.next(0.01)
            assert (change.uri if change is not None else None) == expected
            # Those of strangers never arrive.
            feed.publish(Change("updated", "notes://1", with_libraries(fixture.ada).context.user_id, "notes"))
            assert (await listener.next(0.01)) == Change("updated", "notes://1", fixture.ada.context.user_id, "notes")


async def test_subscription_needs_access_to_the_library(fixture: SourceFixture) -> None:
    whole = with_libraries(fixture.ada, access_to(fixture.ben))
    part = with_libraries(fixture.ada, access_to(fixture.ben, rule=_TAG))

    assert await whole.request("resources/subscribe", uri="notes://1?library=h-team") == {}
    assert await part.request("resources/subscribe", uri="notes://1?library=h-team") == {}
    by_namespace = with_libraries(fixture.ada, access_to(fixture.ben, rule=ShareRule("namespace", "north")))
    for user in (by_namespace, fixture.ada):
        with pytest.raises(ResourceNotFound):
            await user.request("resources/subscribe", uri="notes://1?library=h-team")


async def test_what_is_not_written_out_is_refused_in_a_part_of_a_library(fixture: SourceFixture) -> None:
    """Whatever calls the storage: nothing but what is written out can be done in a part of a library."""
    ada = with_libraries(fixture.ada, access := access_to(fixture.ben, rule=_TAG))
    async with fixture.libraries.library(ada.context.within(access)) as library:
        for name in ("usage", "require_room", "bookmarks", "observations", "agents", "followed_files", "corpus"):
            with pytest.raises(NotShared):
                getattr(library, name)
        for collection, name in (
            (library.notes, "create"),
            (library.notes, "list_after"),
            (library.notes, "tags"),
            (library.notes, "words"),
            (library.media, "types"),
            (library.chats, "namespaces"),
            (library.chats, "ids"),
            (library.chats, "find_messages"),
            (library.chats, "match_messages"),
        ):
            with pytest.raises(NotShared):
                getattr(collection, name)
        with pytest.raises(NotShared):
            library.collection("observations")
