"""Mode `text` of the memory search: exactly the text that was asked for, in observations and in conversations."""

from pathlib import Path
from typing import Any

import pytest

from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.compat.conversation_memory.memory_user import MemoryUser, open_memory_users


async def test_error_code_finds_only_what_contains_it(ada: MemoryUser, ben: MemoryUser) -> None:
    for user in (ada, ben):
        await user.add_observation("Login", facts=["The server answered ERR_AUTH_MISSING"])
        await user.add_observation("Auth is missing", narrative="An err in auth; the header was missing.")
        await user.add_observation("Expired", facts=["The server answered ERR_AUTH_EXPIRED"])
        await user.add_observation("Words", narrative="err auth missing")
    await ben.add_observation("Ben's own", narrative="err_auth_missing again")

    assert await ada.titles("ERR_AUTH_MISSING", mode="text") == {"Login"}
    assert await ben.titles("ERR_AUTH_MISSING", mode="text") == {"Login", "Ben's own"}
    assert (await ada.json(query="ERR_AUTH_MISSING", mode="text"))["total"] == 1
    assert len(await ada.titles("ERR_AUTH_MISSING")) == 4


@pytest.mark.parametrize(
    ("query", "text", "is_found"),
    [
        ("refresh token rotation", "We chose Refresh Token rotation.", True),
        ('"refresh token rotation"', "We chose refresh token rotation.", True),
        ("refresh token rotation", "We chose refresh\n  token rotation.", True),
        ("refresh token rotation", "The rotation of a refresh token.", False),
        ("refresh token rotation", "A refresh token; rotation later.", False),
        ("token", "Many tokens.", False),
        ("-v --all", "Run it with -v --all today.", True),
        ("-v --all", "Run it with v all today.", False),
        ("tag:work OR sleep", "Filter by tag:work OR sleep.", True),
        ("tag:work OR sleep", "I sleep at work.", False),
        ("C:\\logs\\app.txt", "See C:\\logs\\app.txt there.", True),
        ('say "hello" twice', 'They say "hello" twice.', True),
        ("naïve café", "A NAÏVE CAFÉ.", True),
        ("naïve café", "A naive cafe.", False),
        ("getUserName", "It calls getUserName() first.", True),
        ("getUserName", "It calls get user name first.", False),
        ("v1.2.3", "Since v1.2.3 it works.", True),
        ("京都の寺", "昨日は京都の寺に行った。", True),
        ("京都の寺", "京都で寺を見た。", False),
        ("🚀 launch", "The 🚀 launch was good.", True),
    ],
)
async def test_text_is_matched_as_written_except_for_case_and_white_space(
    ada: MemoryUser, query: str, text: str, is_found: bool
) -> None:
    await ada.add_observation("Observation", narrative=text)
    await ada.add_conversation("Hello.", text, title="Conversation")

    observations = await ada.json(query=query, mode="text")
    conversations = await ada.json(query=[query, "hello"], mode="text")

    assert (observations["kind"], observations["total"]) == (("observations", 1) if is_found else ("exchanges", 0))
    assert conversations["total"] == int(is_found)


async def test_text_does_not_match_across_two_fields(ada: MemoryUser) -> None:
    await ada.add_observation("Ship", subtitle="The galleon", narrative="sailed", facts=["at dawn", "from Lisbon"])

    await ada.add_observation("Path", facts=['In "C:\\logs" there is no log.'])

    for query in ("galleon sailed", "sailed at dawn", "dawn from Lisbon", "Ship The galleon"):
        assert await ada.rows(query, mode="text") == []
    assert await ada.titles("from Lisbon", mode="text") == {"Ship"}
    assert await ada.titles('in "c:\\logs" there', mode="text") == {"Path"}


async def test_exchanges_and_conversations_are_matched_by_their_own_messages(ada: MemoryUser) -> None:
    chat = await ada.add_conversation("It says E_NO_SHIP.", "Then buy one.", "Done.", "Good.", "It says e no ship.")

    [row] = await ada.rows("e_no_ship", mode="text")
    several = await ada.rows(["e_no_ship", "buy one"], mode="text")

    assert (row["path"], row["line_start"], row["line_end"]) == (f"chats://{chat.id}", 1, 1)
    assert [row["path"] for row in several] == [f"chats://{chat.id}"]
    assert await ada.rows(["e_no_ship", "one buy"], mode="text") == []


async def test_query_without_words_finds_nothing(ada: MemoryUser) -> None:
    secret = MessageDraft(content="->", metadata={"human_only": True}, created_at="2026-01-01T00:00:00Z")
    await ada.add_conversation(secret)

    for mode in ("text", "both"):
        response = await ada.json(query="->", mode=mode, after="2025-01-01")
        assert (response["results"], response["total"]) == ([], 0)
        assert "the query contains no words" in response["note"]


async def test_long_text_is_compared_to_its_end(ada: MemoryUser) -> None:
    words = " ".join(f"word{number}" for number in range(60))
    await ada.add_observation("Right", narrative=words)
    await ada.add_observation("Wrong", narrative=words.replace("word59", "other"))

    assert await ada.titles(words, mode="text") == {"Right"}
    assert await ada.error("memory_search", query="word " * 300, mode="text") == (
        "Error: query: expected at most 1000 characters in mode text, got 1499"
    )


@each_case("name", ["projects", "types", "concepts", "files"])
@each_case("values", [[""], ["web", " "]])
async def test_blank_filter_value_is_rejected(ada: MemoryUser, name: str, values: list[str]) -> None:
    arguments: dict[str, Any] = {name: values}

    error = await ada.error("memory_search", query="galleon", **arguments)

    assert error == f"Error: {name}: expected non-empty strings, got {values[-1]!r}"


# Projects


async def test_matches_of_other_projects_do_not_hide_those_of_a_project(tmp_path: Path) -> None:
    async with open_memory_users(tmp_path, memory_scan_max=10) as (ada, ben):
        for number in range(30):
            await ada.add_conversation(f"bread bread {number}, with butter butter.", metadata={"project": "kitchen"})
        text = "Among many other things that are mentioned here at length, there is some bread and some butter."
        ship = await ada.add_conversation(text, metadata={"project": "The  Ship"})
        named = await ada.add_conversation(text, namespace="the ship")
        await ada.add_conversation(text, namespace="the ship", metadata={"project": "kitchen"})
        await ben.add_conversation(text, metadata={"project": "the ship"})

        for query in ("bread", ["bread", "butter"]):
            response = await ada.json(query=query, projects=["THE SHIP"])

            assert {row["path"] for row in response["results"]} == {f"chats://{ship.id}", f"chats://{named.id}"}
            assert response["total"] == 2
            assert "Not all matches were examined" not in response.get("note", "")
            assert (await ben.json(query=query, projects=["the ship", "other"]))["total"] == 1
            assert (await ada.json(query=query, projects=["other"]))["total"] == 0


async def test_note_on_unexamined_matches_suggests_only_filters_that_are_not_set(tmp_path: Path) -> None:
    async with open_memory_users(tmp_path, memory_scan_max=10) as (ada, _):
        for number in range(30):
            await ada.add_conversation(f"Bread number {number}.", metadata={"project": "kitchen"})

        async def note(**filters: Any) -> str:
            return str((await ada.json(query="bread", limit=50, **filters))["note"])

        filters = {"projects": ["kitchen"], "after": "2020-01-01", "before": "2120-01-01"}
        assert "narrow the search by projects or after or before." in await note()
        assert "narrow the search by after or before." in await note(projects=["kitchen"])
        assert "use a more specific query." in await note(**filters)
