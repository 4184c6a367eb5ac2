"""Searches and reads in libraries of others: what they find, how it is named, and what a rule keeps back."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from aggregator.contract import KnowledgeSearch
from aggregator.search import LIBRARIES_MAX, Aggregator
from auth.context import RequestContext, ShareRule
from config.errors import NotFound, ResourceNotFound, Unavailable
from config.paths import UserId
from sessions.state import InProcessSessionStates, SessionStateLimits
from sources.drafts import NoteImage
from sources.query import parse_literal
from sources.records import Segment
from sources.registry import load_sources
from sources.storage.contract import ItemFilter, Library, Search
from sources.storage.shared_part import NotShared
from tests.server.rest.rest_client import RestClient
from tests.sharing import access_to, open_sharing, with_libraries
from tests.sources.source_fixture import SOURCES, LibraryUser, SourceFixture

_LIMITS = SessionStateLimits(ttl_s=100, seen_max=1_000, queries_max=5, total_max=1_000, user_max=1_000)
_TAG = ShareRule("tag", "work")


@pytest.fixture
async def fixture(api: RestClient) -> SourceFixture:
    return await open_sharing(api)


async def _one_of_each(user: LibraryUser, text: str, **more: Any) -> dict[str, str | int]:
    """Items with different texts: equal ones would be one result."""
    return {
        source: await user.add_item(source, f"{text} in {source}", f"A {text} of {user.name} in {source}.", **more)
        for source in SOURCES
    }


def _uris(answer: dict[str, Any]) -> set[str]:
    return {hit["uri"] for hit in answer["results"]}


# -- search -----------------------------------------------------------------------------------------------------------


async def test_search_covers_own_and_granted_libraries_and_names_the_others(fixture: SourceFixture) -> None:
    own = await _one_of_each(fixture.ada, "galleon")
    theirs = await _one_of_each(fixture.ben, "galleon")
    ada = with_libraries(fixture.ada, access_to(fixture.ben))

    answer = await ada.call("knowledge_search", query="galleon", limit=20)

    libraries = {hit["uri"].partition("/")[0]: hit.get("library") for hit in answer["results"]}
    assert _uris(answer) == {f"{source}://{own[source]}" for source in SOURCES if source != "chats"} | {
        f"{source}://{theirs[source]}?library=h-team" for source in SOURCES if source != "chats"
    } | {uri for uri in _uris(answer) if uri.startswith("chats://")}
    assert len(answer["results"]) == 10
    assert set(libraries.values()) <= {None, "Team"}
    for hit in answer["results"]:
        assert (hit.get("library") == "Team") == hit["uri"].endswith("?library=h-team")
    scores = [hit["score"] for hit in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert {hit["uri"] for hit in (await fixture.ada.call("knowledge_search", query="galleon"))["results"]} == {
        uri for uri in _uris(answer) if "?" not in uri
    }


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"query": "galleon library:own"}, {None}),
        ({"query": "galleon library:Team"}, {"Team"}),
        ({"query": "galleon library:h-crew"}, {"Crew"}),
        ({"query": "galleon library:own,crew"}, {None, "Crew"}),
        ({"query": "galleon", "libraries": ["own", "team"]}, {None, "Team"}),
        ({"query": "galleon library:crew", "libraries": ["own", "team"]}, set()),
        ({"query": "galleon library:unknown"}, set()),
    ],
)
async def test_libraries_can_be_chosen(fixture: SourceFixture, arguments: dict[str, Any], expected: set[str]) -> None:
    for user in (fixture.ada, fixture.ben):
        await user.add_note("galleon", f"A galleon of {user.name}.", tags=("work",))
    ada = with_libraries(fixture.ada, access_to(fixture.ben), access_to(fixture.ben, "Crew", _TAG))

    answer = await ada.call("knowledge_search", **arguments)

    # The same note in two libraries is one result, which names the other URI.
    found = {hit.get("library") for hit in answer["results"]}
    assert found == expected
    if not expected:
        assert "cannot match" in answer.get("read_as", "") or "library:crew" in arguments["query"]


async def test_unknown_library_argument_is_an_error_that_lists_the_callers_libraries(fixture: SourceFixture) -> None:
    ada = with_libraries(fixture.ada, access_to(fixture.ben))

    assert "expected any of own, Team, got 'x'" in await ada.call_error("knowledge_search", query="a", libraries=["x"])
    assert "expected any of own, got 'Team'" in await fixture.ada.call_error(
        "knowledge_search", query="a", libraries=["Team"]
    )


async def test_session_remembers_across_libraries(fixture: SourceFixture) -> None:
    await _one_of_each(fixture.ada, "galleon")
    await _one_of_each(fixture.ben, "galleon")
    ada = with_libraries(fixture.ada, access_to(fixture.ben))

    search = {"query": "galleon", "sources": ["notes", "media", "characters", "prompts"]}

    first = await ada.call("knowledge_search", **search, limit=3)
    second = await ada.call("knowledge_search", **search, limit=20, session=first["session"])

    assert len(_uris(first)) == 3
    assert len(_uris(second)) == 5
    assert second["suppressed"] == 3
    assert _uris(first).isdisjoint(_uris(second))


@pytest.mark.parametrize("order", ["relevance", "recent"])
async def test_pages_contain_every_item_of_all_libraries_once(fixture: SourceFixture, order: str) -> None:
    for user in (fixture.ada, fixture.ben):
        for number in range(30):
            await user.add_note(f"Voyage {number}", f"The galleon {number} of {user.name} {'sails ' * number}.")
    ada = with_libraries(fixture.ada, access_to(fixture.ben))
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = await ada.call("knowledge_search", query="galleon", limit=7, offset=offset, dedupe="off", order_by=order)
        found += [hit["uri"] for hit in page["results"]]
        offset = page.get("next_offset")

    assert len(found) == len(set(found)) == 60
    assert sum("?library=h-team" in uri for uri in found) == 30


async def test_lists_of_tools_mention_libraries_only_to_callers_who_have_some(fixture: SourceFixture) -> None:
    async def search_arguments(user: LibraryUser) -> set[str]:
        [tool] = [tool for tool in (await user.request("tools/list"))["tools"] if tool["name"] == "knowledge_search"]
        return set(tool["inputSchema"]["properties"])

    ada = with_libraries(fixture.ada, access_to(fixture.ben))

    assert "libraries" not in await search_arguments(fixture.ada)
    assert await search_arguments(ada) == await search_arguments(fixture.ada) | {"libraries"}


async def test_deep_research_finds_and_fetches_items_of_other_libraries(fixture: SourceFixture) -> None:
    note = await fixture.ben.add_note("Voyage", "The galleon of Ben.")
    ada = with_libraries(fixture.ada, access_to(fixture.ben))

    [result] = (await ada.call("search", query="galleon"))["results"]
    fetched = await ada.call("fetch", id=result["id"])

    assert result["id"] == f"notes://{note}?library=h-team"
    assert fetched["text"] == "The galleon of Ben."
    assert (await ada.call("fetch", id=result["url"]))["text"] == "The galleon of Ben."


# -- rules ------------------------------------------------------------------------------------------------------------


async def test_rules_decide_what_is_found_and_read(fixture: SourceFixture) -> None:
    shared = await _one_of_each(fixture.ben, "galleon", tags=("Work", "sea"))
    private = await _one_of_each(fixture.ben, "frigate galleon", tags=("home",))
    talk = await fixture.ben.add_chat("Talk", "A galleon in the harbour.", namespace="sailing")
    expected: dict[ShareRule, set[str]] = {
        ShareRule("tag", "WORK"): {f"{source}://{shared[source]}" for source in SOURCES},
        ShareRule("source", "notes"): {f"notes://{ids['notes']}" for ids in (shared, private)},
        ShareRule("namespace", "sailing"): {f"chats://{talk}"},
        ShareRule("tag", "nothing"): set(),
    }
    everything = {f"{source}://{ids[source]}" for ids in (shared, private) for source in SOURCES} | {f"chats://{talk}"}
    for rule, uris in expected.items():
        ada = with_libraries(fixture.ada, access_to(fixture.ben, rule=rule))

        found = await ada.call("knowledge_search", query="galleon", limit=50, explain=True)

        items = {uri.partition("?")[0] for uri in _uris(found)}
        assert {"/".join(uri.split("/")[:3]) for uri in items} == uris
        assert all(hit["explain"]["bm25"] is None for hit in found["results"])
        for uri in everything:
            source, _, item_id = uri.partition("://")
            address = f"{uri}?library=h-team"
            if uri in uris:
                answer = await ada.call("knowledge_get", uri=address)
                assert answer["meta"]["uri"] == address
                assert answer["meta"]["library"] == "Team"
            else:
                absent = await ada.call_error("knowledge_get", uri=address)
                assert absent == await fixture.ada.call_error("knowledge_get", uri=uri)
                assert absent == await ada.call_error("knowledge_get", source=source, id=item_id, library="Team")
                assert absent == await fixture.ada.call_error("knowledge_get", uri=address)


async def test_rule_about_a_source_gives_no_other_collection(fixture: SourceFixture) -> None:
    for rule, permitted in ((ShareRule("source", "notes"), "notes"), (ShareRule("namespace", "sailing"), "chats")):
        access = access_to(fixture.ben, rule=rule)
        context = with_libraries(fixture.ada, access).context.within(access)
        async with fixture.libraries.library(context) as library:
            assert not (await library.collection(permitted).browse(ItemFilter(), 10, 0)).rows
            for source in set(SOURCES) - {permitted}:
                with pytest.raises(NotShared):
                    library.collection(source)


async def test_every_way_to_an_item_compares_it_with_the_rule(fixture: SourceFixture) -> None:
    """Each call returns something to Ben, and to Ada what an absent item does."""
    note = await fixture.ben.add_note("Diary", "A galleon.")
    chat = await fixture.ben.add_chat("Talk", "A galleon.", namespace="south")
    media = await fixture.ben.add_media("Film", segments=[Segment(start_ms=0, end_ms=1, text="A galleon.")])
    await fixture.ben.add_prompt("Sum", "Up.")
    async with fixture.libraries.library(fixture.ben.context) as library:
        [chunk] = await library.media.chunks(media, 0, 1)
        [message] = (await library.chats.messages(chat, 1, 0)).rows
        uuid = (await library.media.get(media)).uuid
        await library.notes.set_images({note: [NoteImage("ship.png", "image/png", b"ship")]})
    galleon = Search(query=parse_literal("galleon"), limit=5, deadline_ms=60_000)
    ways: list[Callable[[Library], Any]] = [
        lambda one: one.media.get_by_uuid(uuid),
        lambda one: one.media.content(media),
        lambda one: one.media.chunks(media, 0, 1),
        lambda one: one.media.chunk_by_uuid(media, chunk.uuid),
        lambda one: one.media.chunk_at(media, 0),
        lambda one: one.media.segments(media),
        lambda one: one.notes.image_names(note),
        lambda one: one.notes.image(note, "ship.png"),
        lambda one: one.notes.search(replace(galleon, within=note)),
        lambda one: one.prompts.get_by_name("Sum"),
        lambda one: one.chats.get_message(message.id),
        lambda one: one.chats.messages(chat, 1, 0),
        lambda one: one.chats.messages_around(chat, 0, 0, 1),
    ]
    for rule, count in ((_TAG, len(ways)), (ShareRule("namespace", "north"), 3)):
        access = access_to(fixture.ben, rule=rule)
        context = with_libraries(fixture.ada, access).context.within(access)
        for way in ways[-count:]:
            async with fixture.libraries.library(fixture.ben.context) as library:
                await way(library)
            async with fixture.libraries.library(context) as library:
                with pytest.raises(NotFound):
                    await way(library)
    # A namespace that is not shared has nothing, and not what another one has.
    await fixture.ben.add_chat("Other", "A galleon.", namespace="north")
    access = access_to(fixture.ben, rule=ShareRule("namespace", "north"))
    async with fixture.libraries.library(with_libraries(fixture.ada, access).context.within(access)) as library:
        for namespace, found in (("north", 1), ("south", 0)):
            page = await library.chats.search(replace(galleon, namespace=namespace))
            assert len(page.matches) == found
            assert (await library.chats.browse(ItemFilter(namespace=namespace), 5, 0)).total == found
    await fixture.ben.add_note("Plan", "A galleon.", tags=("work",))
    access = access_to(fixture.ben, rule=_TAG)
    async with fixture.libraries.library(with_libraries(fixture.ada, access).context.within(access)) as library:
        assert (await library.notes.browse(ItemFilter(), 5, 0)).total == 1


async def test_nothing_tells_of_items_that_a_rule_keeps_back(fixture: SourceFixture) -> None:
    await fixture.ben.add_note("Plan", "The quarterly budget of the harbour.", tags=("work",))
    await fixture.ben.add_note("Diary", "The chrysanthemum was expensive.", tags=("home",))
    ada = with_libraries(fixture.ada, access_to(fixture.ben, rule=_TAG))

    # A word near to one of the diary is not corrected to it, and one that only the diary has changes no score.
    misspelled = await ada.call("knowledge_search", query="chrysantemum budget")
    other = await ada.call("knowledge_search", query="zzyzxqq budget")
    known = await ada.call("knowledge_search", query="chrysanthemum budget")

    assert "chrysanthemum" not in str(misspelled)
    assert [hit["score"] for hit in known["results"]] == [hit["score"] for hit in other["results"]]
    assert not (await ada.call("knowledge_search", query="chrysanthemum"))["results"]
    # Without words, a search lists what passes its filters, of which the rule is none.
    assert not (await ada.call("knowledge_search", query=""))["results"]
    assert len((await ada.call("knowledge_search", query="tag:work"))["results"]) == 1
    assert not (await ada.call("knowledge_search", query="tag:home"))["results"]


async def test_human_only_messages_stay_with_their_owner(fixture: SourceFixture) -> None:
    from sources.drafts import MessageDraft  # noqa: PLC0415 - only here

    secret = MessageDraft(role="user", content="The galleon is for sale.", metadata={"human_only": True})
    chat = await fixture.ben.add_chat("Talk", "Hello.", secret)
    person = replace(fixture.ada.context, is_agent=False)
    ada = with_libraries(replace(fixture.ada, context=person), access_to(fixture.ben))

    assert not (await ada.call("knowledge_search", query="galleon"))["results"]
    assert "for sale" not in str(await ada.call("knowledge_get", uri=f"chats://{chat}?library=h-team"))


# -- failures, leases and fairness ------------------------------------------------------------------------------------


class _WatchedLibraries:
    """Counts the leases on each library, and refuses those of one user."""

    def __init__(self, fixture: SourceFixture, refused: UserId | None = None) -> None:
        self._libraries = fixture.libraries
        self.refused = refused
        self.held: Counter[UserId] = Counter()
        self.opened: Counter[UserId] = Counter()
        self.on_open: Callable[[UserId], Any] | None = None

    @asynccontextmanager
    async def library(self, context: RequestContext) -> AsyncIterator[Library]:
        if context.user_id == self.refused:
            raise Unavailable("the library cannot be opened")
        async with self._libraries.library(context) as library:
            self.held[context.user_id] += 1
            self.opened[context.user_id] += 1
            try:
                yield library
            finally:
                self.held[context.user_id] -= 1


def _aggregator(fixture: SourceFixture, libraries: Any) -> Aggregator:
    return Aggregator(
        libraries, load_sources(fixture.settings), InProcessSessionStates(_LIMITS, lambda: 0.0), fixture.settings
    )


async def test_library_that_cannot_be_opened_costs_only_its_own_hits(fixture: SourceFixture) -> None:
    for user in (fixture.ada, fixture.ben):
        await user.add_note("Voyage", f"The galleon of {user.name}.")
    ada = with_libraries(fixture.ada, access_to(fixture.ben))
    libraries = _WatchedLibraries(fixture, refused=fixture.ben.context.user_id)

    response = await _aggregator(fixture, libraries).search(ada.context, KnowledgeSearch(query="galleon"))

    assert [item.snippet for item in response.results] == ["The galleon of ada."]
    assert {report.error for report in response.libraries["Team"].values()} == {"the library cannot be opened"}
    assert {report.status for report in response.sources.values()} == {"ok"}


async def test_failures_of_a_library_open_the_circuit_of_the_caller_only(fixture: SourceFixture) -> None:
    await fixture.ben.add_note("Voyage", "The galleon of Ben.")
    ada = with_libraries(fixture.ada, access_to(fixture.ben))
    libraries = _WatchedLibraries(fixture, refused=fixture.ben.context.user_id)
    aggregator = _aggregator(fixture, libraries)
    *_, response = [await aggregator.search(ada.context, KnowledgeSearch(query="galleon")) for _ in range(10)]
    assert {report.status for report in response.libraries["Team"].values()} == {"skipped"}
    libraries.refused = None

    of_ben = await aggregator.search(fixture.ben.context, KnowledgeSearch(query="galleon"))

    assert len(of_ben.results) == 1
    assert {report.status for report in of_ben.sources.values()} == {"ok"}


async def test_lease_on_a_library_ends_before_the_answer(fixture: SourceFixture) -> None:
    for user in (fixture.ada, fixture.ben):
        await user.add_note("Voyage", f"The galleon of {user.name}.")
    ada = with_libraries(
        fixture.ada, *(access_to(fixture.ben, f"Team{number}", handle=f"h{number}") for number in range(5))
    )
    libraries = _WatchedLibraries(fixture)

    response = await _aggregator(fixture, libraries).search(ada.context, KnowledgeSearch(query="galleon"))
    for _ in range(3):  # the task that holds a lease ends in the pass after its last source
        await asyncio.sleep(0)

    assert len(response.results) == 2
    assert response.results[1].also_in or response.results[0].also_in
    assert libraries.opened[fixture.ben.context.user_id] == 5
    assert not +libraries.held


async def test_jobs_in_a_library_of_others_count_for_the_caller(fixture: SourceFixture) -> None:
    await fixture.ben.add_note("Voyage", "The galleon of Ben.")
    ada = with_libraries(fixture.ada, access_to(fixture.ben))
    engine: Any = fixture.libraries
    jobs = engine._threads.jobs if hasattr(engine, "_threads") else engine._options.jobs
    jobs._shares[False].clear()

    await ada.call("knowledge_search", query="galleon", libraries=["team"])
    [hit] = await ada.search("knowledge_search", "galleon")
    await ada.call("knowledge_get", uri=hit["uri"])

    assert set(jobs._shares[False]) == {ada.context.user_id}


async def test_cursor_continues_an_item_of_another_library_while_the_access_lasts(fixture: SourceFixture) -> None:
    text = " ".join(f"Sentence {number} of the log." for number in range(400))
    note = await fixture.ben.add_note("Log", text)
    ada = with_libraries(fixture.ada, access_to(fixture.ben))
    arguments = {"retrieval": {"mode": "full", "max_tokens": 300}}

    first = await ada.call("knowledge_get", uri=f"notes://{note}?library=h-team", **arguments)
    second = await ada.call(
        "knowledge_get", uri=f"notes://{note}?library=h-team", cursor=first["next_cursor"], **arguments
    )

    assert second["content"]
    assert second["content"] not in first["content"]
    # After the access has ended, the cursor leads nowhere.
    absent = await fixture.ada.call_error(
        "knowledge_get", uri=f"notes://{note}?library=h-team", cursor=first["next_cursor"], **arguments
    )
    assert absent == await fixture.ada.call_error("knowledge_get", uri=f"notes://{note}")


async def test_credential_for_some_sources_has_these_in_all_libraries(fixture: SourceFixture) -> None:
    theirs = await _one_of_each(fixture.ben, "galleon", tags=("work",))
    for rule in (None, _TAG, ShareRule("source", "notes"), ShareRule("source", "media")):
        ada = with_libraries(fixture.ada, access_to(fixture.ben, rule=rule), sources=frozenset(("notes",)))

        found = await ada.call("knowledge_search", query="galleon", limit=50)

        is_shared = rule is None or rule.value != "media"
        assert _uris(found) == ({f"notes://{theirs['notes']}?library=h-team"} if is_shared else set())
        with pytest.raises(ResourceNotFound):
            await ada.request("resources/read", uri=f"media://{theirs['media']}?library=h-team")


async def test_search_covers_a_limited_number_of_libraries_and_says_so(fixture: SourceFixture) -> None:
    await fixture.ben.add_note("Voyage", "The galleon of Ben.")
    many = [access_to(fixture.ben, f"Team{number}", handle=f"h{number}") for number in range(LIBRARIES_MAX + 5)]
    ada = with_libraries(fixture.ada, *many)

    all_of_them = await ada.call("knowledge_search", query="galleon")
    last = await ada.call("knowledge_search", query=f"galleon library:{many[-1].handle}")

    assert f"searched {LIBRARIES_MAX} of {LIBRARIES_MAX + 6} libraries" in all_of_them["read_as"]
    assert [hit["library"] for hit in last["results"]] == [many[-1].name]
