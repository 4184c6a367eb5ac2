"""Layered memory as its clients call it: short rows, observations in full, conversations by their lines; for two users
who never hear of each other."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench.tokens_counting import count_tokens
from sources.drafts import MessageDraft
from tests.server.compat.conversation_memory.memories import Rememberer, two_memories

JWT = {
    "type": "decision",
    "subtitle": "Chose JWT over session-based auth for API scalability",
    "narrative": "After evaluating both options, decided on JWT because it is stateless.",
    "facts": ["Implemented refresh token rotation", "Used HS256 for simplicity"],
    "concepts": ["JWT", "middleware"],
    "files_read": ["src/auth.ts"],
    "files_modified": ["src/middleware/jwt.ts"],
    "project": "my-api",
    "created_at": "2025-12-01T14:30:00Z",
}


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Rememberer, Rememberer]]:
    async with two_memories(tmp_path) as opened:
        yield opened


@pytest.fixture
def ada(both: tuple[Rememberer, Rememberer]) -> Rememberer:
    return both[0]


@pytest.fixture
def ben(both: tuple[Rememberer, Rememberer]) -> Rememberer:
    return both[1]


# -- layer 1: observations --------------------------------------------------------------------------------------------


async def test_a_row_has_project_date_id_type_score_and_title(ada: Rememberer) -> None:
    learned = await ada.learn("Implement JWT authentication middleware", **JWT)

    [row] = await ada.rows("JWT authentication")
    text = await ada.text("memory_search", query="JWT authentication", mode="text")

    assert text == (
        "## Search Results (1 observation)\n\n"
        "### 1. [my-api] - 2025-12-01\n"
        f"{learned} decision {row['score']:.2f}: Implement JWT authentication middleware"
    )


async def test_json_has_results_total_and_count(ada: Rememberer) -> None:
    learned = await ada.learn("Implement JWT authentication middleware", **JWT)

    answer = await ada.json(query="JWT", limit=1)

    score = answer["results"][0].pop("score")
    assert 0 < score <= 1
    assert answer == {
        "kind": "observations",
        "results": [
            {
                "id": learned,
                "type": "decision",
                "title": "Implement JWT authentication middleware",
                "project": "my-api",
                "date": "2025-12-01",
            }
        ],
        "total": 1,
        "count": 1,
        "mode": "both",
        "served_by": "text",
    }


async def test_total_counts_what_the_limit_leaves_out(ada: Rememberer) -> None:
    for number in range(3):
        await ada.learn(f"Galleon {number}")

    answer = await ada.json(query="galleon", limit=2)

    assert (answer["count"], len(answer["results"]), answer["total"]) == (2, 2, 3)


async def test_ten_rows_come_unless_more_are_asked_for(ada: Rememberer) -> None:
    for number in range(51):
        await ada.learn(f"Galleon {number}")

    assert len(await ada.rows("galleon")) == 10
    assert len(await ada.rows("galleon", limit=50)) == 50


async def test_the_row_that_holds_more_of_the_query_comes_first(ada: Rememberer) -> None:
    await ada.learn("Tests for the parser")
    best = await ada.learn("OAuth flow", narrative="The refresh token of the parser rotates.")

    rows = await ada.rows("refresh token parser")

    assert rows[0]["id"] == best
    assert rows[0]["score"] >= rows[1]["score"]


async def test_a_row_costs_about_as_many_tokens_as_promised(ada: Rememberer) -> None:
    """The document says "about 30". The measured figure stands in docs/memory.md; ids, dates and titles are most of
    it, so the bound leaves room for other titles."""
    titles = (
        "Implement JWT authentication middleware",
        "OAuth2 integration pattern for services",
        "Fix race when two writers open one file",
        "Rate limits are kept per user and tool",
        "Move search index to triggers",
    )
    entries = [{**JWT, "title": title, "concepts": ["galleon"], "time": JWT["created_at"]} for title in titles]
    for entry in entries:
        del entry["created_at"]
    await ada.reader.call("observations_record", observations=entries)

    text = await ada.text("memory_search", query="JWT", mode="text")
    per_row = count_tokens(text.partition("\n\n")[2]) / len(titles)

    assert text.count("obs-") == len(titles)
    assert per_row <= 40, f"{per_row:.1f} tokens a row"


async def test_a_long_title_does_not_make_a_long_row(ada: Rememberer) -> None:
    await ada.learn("galleon " * 200, type="x" * 500, project="y " * 500)

    text = await ada.text("memory_search", query="galleon", mode="text")

    assert len(text) < 500
    assert text.count("\n") == 3


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"types": ["decision"]}, {"Token decision"}),
        ({"types": ["decision", "BUG-FIX"]}, {"Token decision", "Token bug"}),
        ({"concepts": ["jwt", "absent"]}, {"Token decision"}),
        ({"files": ["auth.ts"]}, {"Token decision"}),
        ({"files": ["src/middleware/jwt.ts", "lib/other.py"]}, {"Token decision", "Token bug"}),
        ({"projects": ["web"]}, {"Token bug"}),
        ({"projects": ["web", "my-api"], "types": ["decision"]}, {"Token decision"}),
        ({"projects": ["web"], "types": ["decision"]}, set()),
        ({"after": "2025-12-01"}, {"Token decision", "Token bug"}),
        ({"after": "2025-12-02"}, {"Token bug"}),
        ({"before": "2025-12-02"}, {"Token decision"}),
        ({"before": "2025-12-01"}, set()),
        ({"after": "2025-12-01", "before": "2025-12-02"}, {"Token decision"}),
    ],
)
async def test_filters_are_all_obeyed_each_by_any_of_its_values(
    ada: Rememberer, filters: dict[str, Any], found: set[str]
) -> None:
    await ada.learn("Token decision", **JWT)
    await ada.learn(
        "Token bug", type="bug-fix", files_modified=["lib/other.py"], project="web", created_at="2026-01-05T00:00:00Z"
    )

    assert await ada.titles("token", **filters) == found


@pytest.mark.parametrize(
    ("mode", "is_told"),
    [({}, True), ({"mode": "both"}, True), ({"mode": "vector"}, True), ({"mode": "text"}, False)],
)
async def test_every_mode_is_served_by_text_and_says_so(ada: Rememberer, mode: dict[str, str], is_told: bool) -> None:
    await ada.learn("Galleon")

    text = await ada.text("memory_search", query="galleon", **mode)
    answer = await ada.json(query="galleon", **mode)

    assert ("Searched by text: no embedding model is installed." in text) is is_told
    assert (answer["served_by"], answer["mode"], answer["count"]) == ("text", mode.get("mode", "both"), 1)


async def test_error_codes_are_found_as_they_are_written_in_any_case(ada: Rememberer) -> None:
    await ada.learn("Login", facts=["The server answered ERR_AUTH_FAILED"])

    assert await ada.titles("err_auth_failed", mode="text") == {"Login"}


async def test_a_query_that_was_not_read_literally_is_told(ada: Rememberer) -> None:
    await ada.learn("Galleon")

    assert "Query interpretation: searched for " in await ada.text("memory_search", query='"galleon')


# -- layer 1: exchanges and conversations -----------------------------------------------------------------------------


async def test_without_an_observation_labelled_exchanges_come(ada: Rememberer) -> None:
    chat = await ada.talk("Hello.", "Good day.", "Where is the galleon?", "In the harbour.", title="Ships")

    text = await ada.text("memory_search", query="galleon", mode="text")
    answer = await ada.json(query="galleon")

    assert text.startswith("No observations found. These are exchanges of conversations, as they were said.")
    assert "## Search Results (1 exchange)" in text
    assert f"**Path:** `chats://{chat.id}`\n**Lines:** 3-3\n" in text
    assert "Summary: Ships\n\n> Where is the galleon?" in text
    assert (answer["kind"], answer["total"], answer["count"]) == ("exchanges", 1, 1)
    assert "These are exchanges" in answer["note"]


async def test_an_observation_keeps_exchanges_away(ada: Rememberer) -> None:
    await ada.learn("Galleon")
    await ada.talk("Where is the galleon?")

    assert (await ada.json(query="galleon"))["kind"] == "observations"


async def test_an_exchange_comes_once_from_what_the_user_said_to_the_match(ada: Rememberer) -> None:
    await ada.talk("Hello.", "Good day.", "What about ships?", "A galleon is one.")

    [row] = await ada.rows("galleon")

    assert (row["line_start"], row["line_end"]) == (3, 4)
    assert row["summary"] == "What about ships?"
    assert row["snippet"] == "A galleon is one."


async def test_filters_of_observations_find_no_exchanges(ada: Rememberer) -> None:
    await ada.talk("Where is the galleon?")

    answer = await ada.json(query="galleon", types=["decision"])

    assert (answer["kind"], answer["results"], answer["total"]) == ("observations", [], 0)
    assert "Conversations were not searched" in answer["note"]


async def test_projects_and_dates_narrow_exchanges_too(ada: Rememberer) -> None:
    for project, day in (("my-api", "2025-12-01"), ("web", "2026-01-05")):
        message = MessageDraft(role="user", content="A galleon.", created_at=f"{day}T12:00:00Z")
        await ada.talk(message, title=project, metadata={"project": project})

    assert [row["project"] for row in await ada.rows("galleon", projects=["WEB"])] == ["web"]
    assert [row["project"] for row in await ada.rows("galleon", before="2026-01-01")] == ["my-api"]
    assert await ada.rows("galleon", projects=["web"], before="2026-01-01") == []


async def test_an_array_finds_conversations_that_hold_every_concept(ada: Rememberer) -> None:
    whole = await ada.talk("Set up the React Router.", "Done.", "And JWT authentication?", "Done too.", title="Whole")
    await ada.talk("Set up the React Router.", "Done.", title="Only one")
    await ada.talk("A router, and JWT authentication.", "Done.", title="Half of one")
    apart = await ada.talk("My router is broken, and so I react. As to JWT: no.", title="Words apart")

    answer = await ada.json(query=["React Router", "JWT"])
    text = await ada.text("memory_search", query=["React Router", "JWT"], mode="text")

    assert answer["concepts"] == ["React Router", "JWT"]
    assert {row["path"] for row in answer["results"]} == {f"chats://{whole.id}", f"chats://{apart.id}"}
    assert (answer["kind"], answer["total"]) == ("conversations", 2)
    assert text.startswith("## Search Results (2 conversations)\n\n### 1. [default] - ")


async def test_a_conversations_score_is_the_average_of_its_concepts(ada: Rememberer) -> None:
    at_length = "And bread, among many other things that are told here at length. " + "Wind and rain. " * 50
    await ada.talk("A galleon.", "Yes.", "So.", at_length, title="Both")

    [galleon], [bread] = await ada.rows("galleon"), await ada.rows("bread")
    [found] = await ada.rows(["galleon", "bread"])

    assert galleon["score"] > bread["score"] + 0.1
    assert found["score"] == pytest.approx((galleon["score"] + bread["score"]) / 2, abs=0.011)


async def test_projects_and_dates_narrow_conversations_too(ada: Rememberer) -> None:
    for project, day in (("my-api", "2025-12-01"), ("web", "2026-01-05")):
        message = MessageDraft(role="user", content="A galleon and bread.", created_at=f"{day}T12:00:00Z")
        await ada.talk(message, metadata={"project": project})

    concepts = ["galleon", "bread"]
    assert {row["project"] for row in await ada.rows(concepts)} == {"my-api", "web"}
    assert [row["project"] for row in await ada.rows(concepts, projects=["web"])] == ["web"]
    assert [row["project"] for row in await ada.rows(concepts, before="2026-01-01")] == ["my-api"]


async def test_a_common_concept_does_not_hide_a_conversation_that_holds_a_rare_one(tmp_path: Path) -> None:
    async with two_memories(tmp_path, memory_scan_max=10) as (ada, _):
        for number in range(30):
            await ada.talk(f"Bread, bread and more bread number {number}.")
        both = await ada.talk("A galleon with a little bread among many other things that are told here at length.")

        answer = await ada.json(query=["bread", "galleon"])

        assert [row["path"] for row in answer["results"]] == [f"chats://{both.id}"]
        assert (answer["total"], "note" in answer) == (1, False)


async def test_there_is_a_limit_to_how_often_common_concepts_are_looked_up(tmp_path: Path) -> None:
    async with two_memories(tmp_path, memory_scan_max=10) as (ada, _):
        foods = ("bread", "butter", "cheese")
        for food in foods:
            for _number in range(15):
                await ada.talk(f"{food} {food} {food}, and {' and '.join(foods)}.")

        answer = await ada.json(query=list(foods))

        # Two lookups for each conversation that is full of the first.
        assert (answer["count"], answer["total"]) == (5, None)


async def test_matches_that_were_not_looked_through_are_told(tmp_path: Path) -> None:
    async with two_memories(tmp_path, memory_scan_max=10) as (ada, _):
        for number in range(30):
            await ada.talk(f"Bread and butter number {number}.")

        several = await ada.json(query=["bread", "butter"], limit=50)
        single = await ada.json(query="bread", limit=50)

        assert (several["total"], single["total"]) == (None, None)
        assert (several["count"], single["count"]) == (10, 10)
        assert "more matches than were looked through" in several["note"]
        assert "more matches than were looked through" in single["note"]


async def test_what_is_for_people_only_is_not_shown(ada: Rememberer) -> None:
    secret = MessageDraft(role="user", content="The galleon code is 7781.", metadata={"visibility": "human_only"})
    chat = await ada.talk(secret, "Understood.")

    found = await ada.text("memory_search", query="galleon")
    read = await ada.text("memory_read", path=f"chats://{chat.id}")

    assert "7781" not in found + read
    assert "[human-only content hidden]" in found
    assert "[human-only content hidden]" in read


# -- nothing found, and what is refused -------------------------------------------------------------------------------


async def test_nothing_found_is_said_in_the_words_clients_know(ada: Rememberer) -> None:
    single = await ada.text("memory_search", query="galleon", mode="text")
    filtered = await ada.text("memory_search", query="galleon", mode="text", types=["decision"])
    several = await ada.text("memory_search", query=["galleon", "bread"], mode="text")

    assert single == "No observations found matching your query. No conversations found either."
    assert filtered.startswith("No observations found matching your query.")
    assert several == "No conversations found matching all concepts: galleon, bread"
    assert await ada.rows("galleon") == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"query": 7}, "Error: Query must be string or array"),
        ({"query": {"a": 1}}, "Error: Query must be string or array"),
        ({"query": ["galleon", 7]}, "Error: Query must be string or array"),
        ({"query": "g"}, "Error: Query must be at least 2 characters"),
        ({"query": "  g "}, "Error: Query must be at least 2 characters"),
        ({"query": ["galleon", "g"]}, "Error: Query must be at least 2 characters"),
        (
            {"query": ["galleon"]},
            "Error: Query array must have 2-5 items: Must provide at least 2 concepts for multi-concept search",
        ),
        (
            {"query": ["ab"] * 6},
            "Error: Query array must have 2-5 items: Cannot search more than 5 concepts at once",
        ),
        (
            {"query": "galleon", "after": "01.09.2025"},
            "Error: Invalid date format: Date must be in YYYY-MM-DD format; after: got '01.09.2025'",
        ),
        (
            {"query": "galleon", "before": "2025-13-01"},
            "Error: Invalid date format: Date must be in YYYY-MM-DD format; before: got '2025-13-01'",
        ),
        (
            {"query": "galleon", "after": "2025-02-30"},
            "Error: Invalid date format: Date must be in YYYY-MM-DD format; after: got '2025-02-30'",
        ),
        (
            {"query": "galleon", "after": 20250901},
            "Error: Invalid date format: Date must be in YYYY-MM-DD format; after: got '20250901'",
        ),
        ({"query": "galleon", "limit": 0}, "Error: limit: got 0, expected 1 to 50"),
        ({"query": "galleon", "limit": 51}, "Error: limit: got 51, expected 1 to 50"),
        (
            {"query": ["galleon", "bread"], "types": ["decision"]},
            "Error: types, concepts and files: got one of them with several concepts, expected a single concept",
        ),
        ({"query": "galleon", "mode": "fuzzy"}, "mode: expected one of both, text, vector, got 'fuzzy'"),
        ({}, "query: required argument is missing"),
    ],
)
async def test_a_search_is_refused_in_the_words_clients_know(
    ada: Rememberer, arguments: dict[str, Any], sentence: str
) -> None:
    assert await ada.refusal("memory_search", **arguments) == sentence


# -- layer 2 ----------------------------------------------------------------------------------------------------------


async def test_observations_are_told_in_full(ada: Rememberer) -> None:
    chat = await ada.talk("Hello.")
    learned = await ada.learn(
        "Implement JWT authentication middleware",
        **JWT,
        origin="derived",
        conversation_id=chat.id,
        line_start=3,
        line_end=9,
    )

    assert await ada.text("memory_get_observations", ids=[learned]) == (
        "Retrieved 1 observation:\n\n"
        "## [my-api, 2025-12-01 14:30] - decision: Implement JWT authentication middleware\n\n"
        "**Chose JWT over session-based auth for API scalability**\n\n"
        "After evaluating both options, decided on JWT because it is stateless.\n\n"
        "**Facts:**\n- Implemented refresh token rotation\n- Used HS256 for simplicity\n\n"
        "**Concepts:** `JWT`, `middleware`\n\n"
        "**Files:** `src/middleware/jwt.ts`, `src/auth.ts`\n\n"
        f"**Source:** derived from `chats://{chat.id}`, lines 3-9"
    )


async def test_observations_come_in_the_order_of_their_ids(ada: Rememberer) -> None:
    ids = [await ada.learn(f"Galleon {number}") for number in range(3)]

    text = await ada.text("memory_get_observations", ids=[ids[2], ids[0], ids[1], ids[2]])

    assert text.startswith("Retrieved 3 observations:\n\n## [")
    assert [line[-1] for line in text.splitlines() if line.startswith("## ")] == ["2", "0", "1"]
    assert text.count("\n\n---\n\n") == 2


async def test_twenty_long_observations_fit_into_one_answer_and_the_cut_is_told(ada: Rememberer) -> None:
    ids = [await ada.learn(f"Galleon {number}", narrative="wind and rain " * 3_000) for number in range(20)]

    text = await ada.text("memory_get_observations", ids=ids)

    assert count_tokens(text) <= 20_000
    assert text.count("more characters do not fit: ask for fewer observations") == 20


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        (["obs-absent"], "Error: Invalid observation ID: obs-absent"),
        (["obs-absent", "obs-gone"], "Error: Invalid observation ID: obs-absent, obs-gone"),
        ([7], "Error: Invalid observation ID: 7"),
        ([""], "Error: Invalid observation ID: ''"),
        ([], "Error: Must provide at least 1 observation ID"),
        ("obs-1", "Error: Must provide at least 1 observation ID: ids: expected an array of strings"),
        ([f"obs-{number}" for number in range(21)], "Error: Cannot get more than 20 observations at once"),
    ],
)
async def test_ids_are_refused_in_the_words_clients_know(ada: Rememberer, ids: Any, sentence: str) -> None:
    assert await ada.refusal("memory_get_observations", ids=ids) == sentence


async def test_one_unknown_id_is_named_among_known_ones(ada: Rememberer) -> None:
    known = await ada.learn("Galleon")

    refusal = await ada.refusal("memory_get_observations", ids=[known, "obs-absent"])

    assert refusal == "Error: Invalid observation ID: obs-absent"


# -- layer 3 ----------------------------------------------------------------------------------------------------------


async def test_a_conversation_is_read_in_exchanges(ada: Rememberer) -> None:
    chat = await ada.talk(
        "How should I implement authentication?",
        MessageDraft(role="assistant", content="Let me search."),
        MessageDraft(role="tool", content="3 files found"),
        MessageDraft(role="assistant", content="Use JWT."),
        MessageDraft(role="assistant", content="With rotation."),
        MessageDraft(role="user", content="What about sessions?"),
        title="Auth",
        namespace="my-project",
        created_at="2025-12-01T08:00:00Z",
    )

    assert await ada.text("memory_read", path=f"chats://{chat.id}") == (
        "# Conversation: Auth\n# Project: my-project\n# Date: 2025-12-01\n\n"
        "## Exchange 1\n\n"
        "**User:**\nHow should I implement authentication?\n\n"
        "**Assistant:**\nLet me search.\n\n"
        "**Tool:**\n3 files found\n\n"
        "**Assistant:**\nUse JWT.\n\nWith rotation.\n\n"
        "---\n\n"
        "## Exchange 2\n\n"
        "**User:**\nWhat about sessions?"
    )


async def test_an_answer_that_was_thrown_away_is_not_read_as_said(ada: Rememberer) -> None:
    chat = await ada.talk(
        "How should I implement authentication?",
        "Use JWT.",
        MessageDraft(role="assistant", content="Use a xylophone.", is_canonical=False),
    )

    text = await ada.text("memory_read", path=f"chats://{chat.id}")

    assert text.endswith("**Assistant:**\nUse JWT.\n\n**Assistant (alternate branch):**\nUse a xylophone.")


async def test_a_range_of_lines_is_read_alone(ada: Rememberer) -> None:
    chat = await ada.talk(*(f"Turn {number}." for number in range(1, 11)))

    text = await ada.text("memory_read", path=f"chats://{chat.id}", startLine=4, endLine=6)

    assert [word for word in text.split() if word.endswith(".")] == ["4.", "5.", "6."]
    assert "# Lines: 4-6" in text


async def test_the_lines_of_a_session_are_those_of_its_file(ada: Rememberer) -> None:
    turns = [("user", "One.", 2, 2), ("assistant", "Two.", 3, 7), ("tool", "Three.", 7, 7), ("user", "Four.", 9, 9)]
    await ada.session("s-1", turns, "my-api")

    async def read(start: int, end: int) -> list[str]:
        text = await ada.text("memory_read", path="my-api/s-1.jsonl", startLine=start, endLine=end)
        return [word for word in text.split() if word.endswith(".")]

    assert await read(1, 2) == ["One."]
    assert await read(5, 6) == ["Two."]
    assert await read(7, 8) == ["Two.", "Three."]
    assert await read(8, 100) == ["Four."]


async def test_what_was_appended_to_a_session_follows_its_last_line(ada: Rememberer) -> None:
    chat = await ada.session("s-1", [("user", "One.", 40, 41)], "my-api")
    async with ada.reader.libraries.library(ada.reader.context) as library:
        await library.chats.append(chat.id, [MessageDraft(role="assistant", content="Two.")])

    text = await ada.text("memory_read", path="my-api/s-1.jsonl", startLine=42)

    assert "Two." in text
    assert "One." not in text


async def test_a_session_goes_by_the_name_in_its_archive(ada: Rememberer) -> None:
    chat = await ada.session("session-abc123", [("user", "A galleon.", 12, 12)], "my-api")

    [row] = await ada.rows("galleon")
    by_name = await ada.text("memory_read", path=row["path"])
    by_uri = await ada.text("memory_read", path=f"chats://{chat.id}")

    assert (row["path"], row["line_start"]) == ("my-api/session-abc123.jsonl", 12)
    assert by_name == by_uri
    assert by_name.startswith("# Conversation: session-abc123\n# Project: my-api\n")


async def test_a_long_conversation_is_cut_and_says_where_it_goes_on(tmp_path: Path) -> None:
    async with two_memories(tmp_path, retrieval_max_tokens=500) as (ada, _):
        said = [f"Turn {number} " + "of wind and rain " * 20 for number in range(40)]
        chat = await ada.talk(*said)
        start, seen = 1, []

        while start:
            text = await ada.text("memory_read", path=f"chats://{chat.id}", startLine=start)
            assert count_tokens(text) <= 500
            seen += [line for line in text.splitlines() if line.startswith("Turn ")]
            start = int(text.rpartition("startLine ")[2].rstrip(".*")) if "startLine " in text else 0

        assert [line.split()[1] for line in seen] == [str(number) for number in range(40)]


@pytest.mark.parametrize("max_tokens", [300, 600, 2_000])
async def test_an_answer_is_never_longer_than_the_caller_allows(ada: Rememberer, max_tokens: int) -> None:
    chat = await ada.talk(*(f"Turn {number} " + "of wind and rain " * number for number in range(40)))
    learned = await ada.learn("Galleon", narrative="wind and rain " * 500)
    thrifty = Rememberer(ada.reader.with_config(max_tokens=max_tokens, chars_per_token=1))

    read = await thrifty.text("memory_read", path=f"chats://{chat.id}", startLine=20)
    told = await thrifty.text("memory_get_observations", ids=[learned])

    assert max_tokens / 3 < len(read) <= max_tokens
    assert max_tokens / 3 < len(told) <= max_tokens


async def test_a_message_too_long_for_any_answer_is_cut_and_told(tmp_path: Path) -> None:
    async with two_memories(tmp_path, retrieval_max_tokens=500) as (ada, _):
        chat = await ada.talk("wind " * 5_000, "And then?")

        first = await ada.text("memory_read", path=f"chats://{chat.id}")
        rest = await ada.text("memory_read", path=f"chats://{chat.id}", startLine=2)

        assert "more characters at line 1 do not fit" in first
        assert "Read on with startLine 2." in first
        assert "And then?" in rest


async def test_many_messages_on_one_line_do_not_stop_a_reader(tmp_path: Path) -> None:
    async with two_memories(tmp_path, retrieval_max_tokens=300) as (ada, _):
        turns = [("tool", "wind and rain " * 40, 1, 1)] * 5 + [("user", "And then?", 2, 2)]
        await ada.session("s-1", turns, "my-api")

        first = await ada.text("memory_read", path="my-api/s-1.jsonl")

        assert "Read on with startLine 2." in first
        assert "And then?" in await ada.text("memory_read", path="my-api/s-1.jsonl", startLine=2)


async def test_a_conversation_without_messages_says_so(ada: Rememberer) -> None:
    chat = await ada.talk(title="Empty")

    assert "This conversation has no messages." in await ada.text("memory_read", path=f"chats://{chat.id}")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ({"startLine": 0}, "Error: Invalid line range: startLine must be 1 or more, got 0"),
        ({"startLine": -5}, "Error: Invalid line range: startLine must be 1 or more, got -5"),
        (
            {"startLine": 5, "endLine": 4},
            "Error: Invalid line range: endLine must be startLine or more, got 4 with startLine 5",
        ),
        ({"startLine": 3}, "Error: Invalid line range: startLine is 3, and the conversation ends at line 2"),
    ],
)
async def test_a_line_range_is_refused_in_the_words_clients_know(
    ada: Rememberer, lines: dict[str, int], sentence: str
) -> None:
    chat = await ada.talk("One.", "Two.")

    assert await ada.refusal("memory_read", path=f"chats://{chat.id}", **lines) == sentence


async def test_an_end_behind_the_last_line_is_the_last_line(ada: Rememberer) -> None:
    chat = await ada.talk("One.", "Two.")

    text = await ada.text("memory_read", path=f"chats://{chat.id}", startLine=2, endLine=500)

    assert "# Lines: 2-2" in text
    assert "Two." in text


@pytest.mark.parametrize(
    "path",
    [
        "chats://absent",
        "chats://",
        "chats://%00",
        "chats://../../etc/passwd",
        "/etc/passwd",
        "/home/ada/.claude/projects/my-api/s-1.jsonl",
        "../my-api/s-1.jsonl",
        "my-api/../my-api/s-1.jsonl",
        "my-api//s-1.jsonl",
        "./my-api/s-1.jsonl",
        "other/s-1.jsonl",
        "s-1.jsonl",
        "my-api/s-1",
        "~/my-api/s-1.jsonl",
        "C:\\my-api\\s-1.jsonl",
        "file:///etc/passwd",
        "my-api/s-1.jsonl\n",
        ".jsonl",
    ],
)
async def test_a_path_that_is_no_key_of_the_archive_is_not_found(ada: Rememberer, path: str) -> None:
    await ada.session("s-1", [("user", "One.", 1, 1)], "my-api")

    assert await ada.refusal("memory_read", path=path) == f"Error: File not found: {path}"


@pytest.mark.parametrize("path", ["", "  ", 7])
async def test_a_path_is_required(ada: Rememberer, path: Any) -> None:
    assert await ada.refusal("memory_read", path=path) == "Error: Path is required"


# -- recording --------------------------------------------------------------------------------------------------------


async def test_what_is_recorded_is_found_and_read(ada: Rememberer) -> None:
    chat = await ada.talk("Shall we sail?", "By galleon.")
    entry = {
        "type": "decision",
        "title": "We sail by galleon",
        "subtitle": "not by sloop",
        "narrative": "It carries more.",
        "facts": ["Two decks"],
        "concepts": ["ships"],
        "files_read": ["log.txt"],
        "files_modified": ["plan.md"],
        "project": "voyage",
        "session_id": "s-9",
        "time": "2026-02-01T10:20:00Z",
        "conversation_id": chat.id,
        "line_start": 1,
        "line_end": 2,
    }

    made = await ada.reader.call("observations_record", observations=[entry])
    [row] = await ada.rows("galleon", concepts=["ships"], projects=["voyage"], files=["plan.md"])
    text = await ada.text("memory_get_observations", ids=[row["id"]])

    assert made["count"] == 1
    assert made["observations"] == [
        {"id": row["id"], "title": "We sail by galleon", "created_at": "2026-02-01T10:20:00.000Z"}
    ]
    assert "## [voyage, 2026-02-01 10:20] - decision: We sail by galleon\n\n**not by sloop**" in text
    assert f"**Source:** client from `chats://{chat.id}`, lines 1-2" in text


async def test_the_path_of_a_row_says_where_an_observation_was_read(ada: Rememberer) -> None:
    chat = await ada.session("s-1", [("user", "A galleon.", 12, 12)], "my-api")
    [row] = await ada.rows("galleon")

    entry = {"title": "Galleon", "conversation_id": row["path"], "line_start": row["line_start"]}
    [made] = (await ada.reader.call("observations_record", observations=[entry]))["observations"]

    assert f"from `chats://{chat.id}`, lines 12-12" in await ada.text("memory_get_observations", ids=[made["id"]])


async def test_the_same_key_records_once(ada: Rememberer, ben: Rememberer) -> None:
    batch = {"observations": [{"title": "One"}, {"title": "Two"}], "idempotency_key": "k-1"}

    first = await ada.reader.call("observations_record", **batch)
    second = await ada.reader.call("observations_record", **batch)
    other = await ben.reader.call("observations_record", **batch)

    assert second == first
    assert other["count"] == 2
    assert (await ada.json(query="one"))["total"] == 1


async def test_without_a_key_each_call_records_anew(ada: Rememberer) -> None:
    for _ in range(2):
        await ada.reader.call("observations_record", observations=[{"title": "Galleon"}])

    assert (await ada.json(query="galleon"))["total"] == 2


async def test_a_key_used_for_something_else_is_refused(ada: Rememberer) -> None:
    await ada.reader.call("observations_record", observations=[{"title": "One"}], idempotency_key="k-1")

    assert "k-1" in await ada.refusal("observations_record", observations=[{"title": "Another"}], idempotency_key="k-1")


@pytest.mark.parametrize(
    ("observations", "sentence"),
    [
        ([], "observations: got 0, expected 1 to 50"),
        ([{"title": "x"}] * 51, "observations: got 51, expected 1 to 50"),
        ([{"title": " "}], "title: got an empty text, expected a text"),
        ([{"title": "x", "time": "yesterday"}], "created_at: got 'yesterday', expected a time such as"),
        ([{"title": "x", "line_start": 9, "line_end": 3}], "line_end: got 3, expected 9, which is line_start, or more"),
        (
            [{"title": "x"}, {"title": "y", "conversation_id": "absent"}],
            "observations[1].conversation_id: got 'absent', expected the id or path of a conversation of yours",
        ),
    ],
)
async def test_a_record_that_cannot_be_kept_is_refused_whole(
    ada: Rememberer, observations: list[Any], sentence: str
) -> None:
    assert (await ada.refusal("observations_record", observations=observations)).startswith(sentence)
    assert await ada.rows("x OR y") == []


# -- two users --------------------------------------------------------------------------------------------------------


async def test_nobody_finds_or_counts_what_is_anothers(ada: Rememberer, ben: Rememberer) -> None:
    questions: list[dict[str, Any]] = [
        {"query": query, "response_format": form}
        for query in ("galleon", ["galleon", "bread"])
        for form in ("markdown", "json")
    ]
    before = [await ben.result("memory_search", **question) for question in questions]

    await ada.learn("Galleon", **JWT)
    await ada.talk("A galleon and bread.")

    assert [await ben.result("memory_search", **question) for question in questions] == before
    assert len(await ada.rows("galleon")) == 1


async def test_a_foreign_id_or_path_answers_as_an_absent_one(ada: Rememberer, ben: Rememberer) -> None:
    learned = await ada.learn("Galleon")
    chat = await ada.talk("A galleon.")
    await ada.session("s-1", [("user", "One.", 1, 1)], "my-api")
    entry = {"title": "x", "conversation_id": chat.id}

    for tool, foreign, known in (
        ("memory_get_observations", {"ids": [learned]}, learned),
        ("memory_read", {"path": f"chats://{chat.id}"}, chat.id),
        ("memory_read", {"path": "my-api/s-1.jsonl"}, "s-1"),
        ("observations_record", {"observations": [entry]}, chat.id),
    ):
        told = str(await ben.result(tool, **foreign))
        absent = str(await ben.result(tool, **_renamed(foreign, known)))
        assert told.replace(known, "absent") == absent
        assert "'isError': True" in told


def _renamed(value: Any, known: str) -> Any:
    """The same arguments about something that nobody has."""
    match value:
        case str():
            return value.replace(known, "absent")
        case list():
            return [_renamed(part, known) for part in value]
        case dict():
            return {key: _renamed(part, known) for key, part in value.items()}
        case _:
            return value
