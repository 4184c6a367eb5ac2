"""The memory tools as their clients call them: search, observations, transcripts, recording, and two isolated users."""

from pathlib import Path
from typing import Any

import pytest

from bench.tokenizer import count_tokens
from sources.drafts import MessageDraft
from tests.cases import each_case
from tests.server.compat.conversation_memory.memory_user import MemoryUser, open_memory_users

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


# Layer 1: observations


async def test_row_has_project_date_id_type_score_and_title(ada: MemoryUser) -> None:
    observation_id = await ada.add_observation("Implement JWT authentication middleware", **JWT)

    [row] = await ada.rows("JWT authentication", mode="text")
    text = await ada.text("memory_search", query="JWT authentication", mode="text")

    assert text == (
        "## Search Results (1 observation)\n\n"
        "### 1. [my-api] - 2025-12-01\n"
        f"{observation_id} decision {row['score']:.2f}: Implement JWT authentication middleware"
    )


async def test_json_has_results_total_and_count(ada: MemoryUser) -> None:
    await ada.add_session("session-abc123", [("user", "Which one?", 3, 3)], "my-api")
    recorded = await ada.user.call(
        "observations_record",
        observations=[
            {
                **{name: value for name, value in JWT.items() if name != "created_at"},
                "title": "Implement JWT authentication middleware",
                "time": JWT["created_at"],
                "conversation_id": "my-api/session-abc123.jsonl",
            }
        ],
    )

    response = await ada.json(query="stateless", limit=1)

    score = response["results"][0].pop("score")
    assert 0 < score <= 1
    assert response == {
        "kind": "observations",
        "results": [
            {
                "id": recorded["observations"][0]["id"],
                "type": "decision",
                "title": "Implement JWT authentication middleware",
                "path": "my-api/session-abc123.jsonl",
                "project": "my-api",
                "date": "2025-12-01",
                "summary": "Chose JWT over session-based auth for API scalability",
                "snippet": (
                    "Chose JWT over session-based auth for API scalability After evaluating both options, decided on "
                    "JWT because it is stateless. Implemented refresh token rotation Used HS256 for simplicity"
                ),
            }
        ],
        "total": 1,
        "count": 1,
        "mode": "both",
        "served_by": "text",
        "semantic": {"status": "off"},
    }


async def test_row_of_an_observation_without_conversation_or_text_has_its_title_as_summary(ada: MemoryUser) -> None:
    gone = await ada.add_conversation("Hello.")
    await ada.add_observation("A galleon", conversation_id=gone.id)
    async with ada.user.libraries.library(ada.user.context) as library:
        await library.chats.delete(gone.id)

    [row] = await ada.rows("galleon")

    assert (row["path"], row["summary"], row["snippet"]) == ("", "A galleon", "A galleon")


async def test_total_includes_rows_beyond_the_limit(ada: MemoryUser) -> None:
    for number in range(3):
        await ada.add_observation(f"Galleon {number}")

    response = await ada.json(query="galleon", limit=2)

    assert (response["count"], len(response["results"]), response["total"]) == (2, 2, 3)


async def test_default_limit_is_ten_rows(ada: MemoryUser) -> None:
    for number in range(51):
        await ada.add_observation(f"Galleon {number}")

    assert len(await ada.rows("galleon")) == 10
    assert len(await ada.rows("galleon", limit=50)) == 50


async def test_row_that_matches_more_of_the_query_comes_first(ada: MemoryUser) -> None:
    await ada.add_observation("Tests for the parser")
    best = await ada.add_observation("OAuth flow", narrative="The refresh token of the parser rotates.")

    rows = await ada.rows("refresh token parser")

    assert rows[0]["id"] == best
    assert rows[0]["score"] >= rows[1]["score"]


async def test_row_costs_about_as_many_tokens_as_documented(ada: MemoryUser) -> None:
    """conversation-memory documents "about 30". docs/memory.md has the measured number. Ids, dates and titles are most
    of it, so the limit leaves room for other titles."""
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
    await ada.user.call("observations_record", observations=entries)

    text = await ada.text("memory_search", query="JWT", mode="text")
    tokens_per_row = count_tokens(text.partition("\n\n")[2]) / len(titles)

    assert text.count("obs-") == len(titles)
    assert tokens_per_row <= 40, f"{tokens_per_row:.1f} tokens a row"


async def test_long_title_is_shortened_in_its_row(ada: MemoryUser) -> None:
    await ada.add_observation("galleon " * 200, type="x" * 500, project="y " * 500)

    text = await ada.text("memory_search", query="galleon", mode="text")

    assert len(text) < 500
    assert text.count("\n") == 3


@each_case(
    ("filters", "titles"),
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
async def test_all_filters_must_match_each_by_any_of_its_values(
    ada: MemoryUser, filters: dict[str, Any], titles: set[str]
) -> None:
    await ada.add_observation("Token decision", **JWT)
    await ada.add_observation(
        "Token bug", type="bug-fix", files_modified=["lib/other.py"], project="web", created_at="2026-01-05T00:00:00Z"
    )

    assert await ada.titles("token", **filters) == titles


@pytest.mark.parametrize(
    ("mode", "is_reported"),
    [({}, True), ({"mode": "both"}, True), ({"mode": "vector"}, True), ({"mode": "text"}, False)],
)
async def test_without_a_model_every_mode_uses_text_search_and_says_so(
    ada: MemoryUser, mode: dict[str, str], is_reported: bool
) -> None:
    await ada.add_observation("Galleon")

    text = await ada.text("memory_search", query="galleon", **mode)
    response = await ada.json(query="galleon", **mode)

    assert ("Searched by text: no embedding model is configured." in text) is is_reported
    assert (response["served_by"], response["mode"], response["count"]) == ("text", mode.get("mode", "both"), 1)


async def test_error_codes_match_case_insensitively(ada: MemoryUser) -> None:
    await ada.add_observation("Login", facts=["The server answered ERR_AUTH_FAILED"])

    assert await ada.titles("err_auth_failed", mode="text") == {"Login"}


async def test_reinterpreted_query_is_reported(ada: MemoryUser) -> None:
    await ada.add_observation("Galleon")

    assert "Query interpretation: searched for " in await ada.text("memory_search", query='"galleon')


# Layer 1: exchanges and conversations


async def test_exchanges_are_returned_and_labelled_without_a_matching_observation(ada: MemoryUser) -> None:
    chat = await ada.add_conversation("Hello.", "Good day.", "Where is the galleon?", "In the harbour.", title="Ships")

    text = await ada.text("memory_search", query="galleon", mode="text")
    response = await ada.json(query="galleon")

    assert text.startswith("No observations found. These results are exchanges from conversations.")
    assert "## Search Results (1 exchange)" in text
    assert f"**Path:** `chats://{chat.id}`\n**Lines:** 3-3\n" in text
    assert "Summary: Ships\n\n> Where is the galleon?" in text
    assert (response["kind"], response["total"], response["count"]) == ("exchanges", 1, 1)
    assert "These results are exchanges" in response["note"]


async def test_exchanges_are_not_returned_with_a_matching_observation(ada: MemoryUser) -> None:
    await ada.add_observation("Galleon")
    await ada.add_conversation("Where is the galleon?")

    assert (await ada.json(query="galleon"))["kind"] == "observations"


async def test_exchange_is_returned_once_from_the_user_message_to_the_match(ada: MemoryUser) -> None:
    await ada.add_conversation("Hello.", "Good day.", "What about ships?", "A galleon is one.")

    [row] = await ada.rows("galleon")

    assert (row["line_start"], row["line_end"]) == (3, 4)
    assert row["summary"] == "What about ships?"
    assert row["snippet"] == "A galleon is one."


async def test_observation_filters_exclude_exchanges(ada: MemoryUser) -> None:
    await ada.add_conversation("Where is the galleon?")

    response = await ada.json(query="galleon", types=["decision"])

    assert (response["kind"], response["results"], response["total"]) == ("observations", [], 0)
    assert "Conversations were not searched" in response["note"]


async def test_projects_and_dates_filter_exchanges(ada: MemoryUser) -> None:
    for project, day in (("my-api", "2025-12-01"), ("web", "2026-01-05")):
        message = MessageDraft(role="user", content="A galleon.", created_at=f"{day}T12:00:00Z")
        await ada.add_conversation(message, title=project, metadata={"project": project})

    assert [row["project"] for row in await ada.rows("galleon", projects=["WEB"])] == ["web"]
    assert [row["project"] for row in await ada.rows("galleon", before="2026-01-01")] == ["my-api"]
    assert await ada.rows("galleon", projects=["web"], before="2026-01-01") == []


async def test_array_query_returns_conversations_that_match_every_concept(ada: MemoryUser) -> None:
    whole = await ada.add_conversation(
        "Set up the React Router.", "Done.", "And JWT authentication?", "Done too.", title="Whole"
    )
    await ada.add_conversation("Set up the React Router.", "Done.", title="Only one")
    await ada.add_conversation("A router, and JWT authentication.", "Done.", title="Half of one")
    apart = await ada.add_conversation("My router is broken, and so I react. As to JWT: no.", title="Words apart")

    response = await ada.json(query=["React Router", "JWT"])
    text = await ada.text("memory_search", query=["React Router", "JWT"])

    assert response["concepts"] == ["React Router", "JWT"]
    assert {row["path"] for row in response["results"]} == {f"chats://{whole.id}", f"chats://{apart.id}"}
    assert (response["kind"], response["total"]) == ("conversations", 2)
    assert text.startswith("## Search Results (2 conversations)\n\n### 1. [default] - ")


async def test_conversation_score_is_the_average_of_its_concepts(ada: MemoryUser) -> None:
    long_text = "And bread, among many other things that are mentioned here at length. " + "Wind and rain. " * 50
    await ada.add_conversation("A galleon.", "Yes.", "So.", long_text, title="Both")

    [galleon], [bread] = await ada.rows("galleon"), await ada.rows("bread")
    [row] = await ada.rows(["galleon", "bread"])

    assert galleon["score"] > bread["score"] + 0.1
    assert row["score"] == pytest.approx((galleon["score"] + bread["score"]) / 2, abs=0.011)


async def test_projects_and_dates_filter_conversations(ada: MemoryUser) -> None:
    for project, day in (("my-api", "2025-12-01"), ("web", "2026-01-05")):
        message = MessageDraft(role="user", content="A galleon and bread.", created_at=f"{day}T12:00:00Z")
        await ada.add_conversation(message, metadata={"project": project})

    concepts = ["galleon", "bread"]
    assert {row["project"] for row in await ada.rows(concepts)} == {"my-api", "web"}
    assert [row["project"] for row in await ada.rows(concepts, projects=["web"])] == ["web"]
    assert [row["project"] for row in await ada.rows(concepts, before="2026-01-01")] == ["my-api"]


async def test_common_concept_does_not_hide_a_conversation_with_a_rare_one(tmp_path: Path) -> None:
    async with open_memory_users(tmp_path, memory_scan_max=10) as (ada, _):
        for number in range(30):
            await ada.add_conversation(f"Bread, bread and more bread number {number}.")
        both = await ada.add_conversation(
            "A galleon with a little bread among many other things that are mentioned here at length."
        )

        response = await ada.json(query=["bread", "galleon"])

        assert [row["path"] for row in response["results"]] == [f"chats://{both.id}"]
        assert (response["total"], "note" in response) == (1, False)


async def test_number_of_lookups_of_common_concepts_is_limited(tmp_path: Path) -> None:
    async with open_memory_users(tmp_path, memory_scan_max=10) as (ada, _):
        foods = ("bread", "butter", "cheese")
        for food in foods:
            for _number in range(15):
                await ada.add_conversation(f"{food} {food} {food}, and {' and '.join(foods)}.")

        response = await ada.json(query=list(foods))

        # Two lookups for each conversation that is full of the first.
        assert (response["count"], response["total"]) == (5, None)


async def test_unexamined_matches_are_reported(tmp_path: Path) -> None:
    async with open_memory_users(tmp_path, memory_scan_max=10) as (ada, _):
        for number in range(30):
            await ada.add_conversation(f"Bread and butter number {number}.")

        several = await ada.json(query=["bread", "butter"], limit=50)
        single = await ada.json(query="bread", limit=50)

        assert (several["total"], single["total"]) == (None, None)
        assert (several["count"], single["count"]) == (10, 10)
        assert "Not all matches were examined" in several["note"]
        assert "Not all matches were examined" in single["note"]


async def test_human_only_messages_are_not_found_and_redacted_where_read(ada: MemoryUser) -> None:
    secret = MessageDraft(role="user", content="The galleon code is 7781.", metadata={"visibility": "human_only"})
    chat = await ada.add_conversation(secret, "Understood.")

    search_text = await ada.text("memory_search", query="galleon")
    transcript = await ada.text("memory_read", path=f"chats://{chat.id}")

    assert "7781" not in search_text + transcript
    assert search_text.startswith("No observations found matching your query. No conversations found either.")
    assert "[human-only content hidden]" in transcript


# No results and errors


async def test_no_results_return_the_documented_sentences(ada: MemoryUser) -> None:
    single = await ada.text("memory_search", query="galleon", mode="text")
    filtered = await ada.text("memory_search", query="galleon", mode="text", types=["decision"])
    several = await ada.text("memory_search", query=["galleon", "bread"], mode="text")

    assert single == "No observations found matching your query. No conversations found either."
    assert filtered.startswith("No observations found matching your query.")
    assert several == "No conversations found matching all concepts: galleon, bread"
    assert await ada.rows("galleon") == []


@each_case(
    ("arguments", "message"),
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
        ({"query": "galleon", "limit": 0}, "Error: limit: expected 1 to 50, got 0"),
        ({"query": "galleon", "limit": 51}, "Error: limit: expected 1 to 50, got 51"),
        (
            {"query": ["galleon", "bread"], "types": ["decision"]},
            "Error: types, concepts and files: expected a query with a single concept, got several concepts",
        ),
        ({"query": "galleon", "mode": "fuzzy"}, "mode: expected one of both, text, vector, got 'fuzzy'"),
        ({}, "query: required argument is missing"),
    ],
)
async def test_invalid_search_is_rejected_with_the_documented_sentence(
    ada: MemoryUser, arguments: dict[str, Any], message: str
) -> None:
    assert await ada.error("memory_search", **arguments) == message


# Layer 2


async def test_observations_are_returned_in_full(ada: MemoryUser) -> None:
    chat = await ada.add_conversation("Hello.")
    observation_id = await ada.add_observation(
        "Implement JWT authentication middleware",
        **JWT,
        origin="derived",
        conversation_id=chat.id,
        line_start=3,
        line_end=9,
    )

    assert await ada.text("memory_get_observations", ids=[observation_id]) == (
        "Retrieved 1 observation:\n\n"
        "## [my-api, 2025-12-01 14:30] - decision: Implement JWT authentication middleware\n\n"
        "**Chose JWT over session-based auth for API scalability**\n\n"
        "After evaluating both options, decided on JWT because it is stateless.\n\n"
        "**Facts:**\n- Implemented refresh token rotation\n- Used HS256 for simplicity\n\n"
        "**Concepts:** `JWT`, `middleware`\n\n"
        "**Files:** `src/middleware/jwt.ts`, `src/auth.ts`\n\n"
        f"**Source:** derived from `chats://{chat.id}`, lines 3-9"
    )


async def test_observations_are_returned_in_the_order_of_the_ids(ada: MemoryUser) -> None:
    ids = [await ada.add_observation(f"Galleon {number}") for number in range(3)]

    text = await ada.text("memory_get_observations", ids=[ids[2], ids[0], ids[1], ids[2]])

    assert text.startswith("Retrieved 3 observations:\n\n## [")
    assert [line[-1] for line in text.splitlines() if line.startswith("## ")] == ["2", "0", "1"]
    assert text.count("\n\n---\n\n") == 2


async def test_twenty_long_observations_fit_one_response_and_truncation_is_reported(ada: MemoryUser) -> None:
    ids = [await ada.add_observation(f"Galleon {number}", narrative="wind and rain " * 3_000) for number in range(20)]

    text = await ada.text("memory_get_observations", ids=ids)

    assert count_tokens(text) <= 20_000
    assert text.count("more characters omitted: request fewer observations") == 20


@each_case(
    ("ids", "message"),
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
async def test_invalid_ids_are_rejected_with_the_documented_sentence(ada: MemoryUser, ids: Any, message: str) -> None:
    assert await ada.error("memory_get_observations", ids=ids) == message


async def test_unknown_id_among_known_ones_is_named(ada: MemoryUser) -> None:
    known = await ada.add_observation("Galleon")

    error = await ada.error("memory_get_observations", ids=[known, "obs-absent"])

    assert error == "Error: Invalid observation ID: obs-absent"


# Layer 3


async def test_conversation_is_rendered_as_exchanges(ada: MemoryUser) -> None:
    chat = await ada.add_conversation(
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


async def test_alternate_branch_is_labelled_in_a_transcript(ada: MemoryUser) -> None:
    chat = await ada.add_conversation(
        "How should I implement authentication?",
        "Use JWT.",
        MessageDraft(role="assistant", content="Use a xylophone.", is_canonical=False),
    )

    text = await ada.text("memory_read", path=f"chats://{chat.id}")

    assert text.endswith("**Assistant:**\nUse JWT.\n\n**Assistant (alternate branch):**\nUse a xylophone.")


async def test_line_range_returns_only_those_lines(ada: MemoryUser) -> None:
    chat = await ada.add_conversation(*(f"Turn {number}." for number in range(1, 11)))

    text = await ada.text("memory_read", path=f"chats://{chat.id}", startLine=4, endLine=6)

    assert [word for word in text.split() if word.endswith(".")] == ["4.", "5.", "6."]
    assert "# Lines: 4-6" in text


async def test_session_lines_are_those_of_its_file(ada: MemoryUser) -> None:
    turns = [("user", "One.", 2, 2), ("assistant", "Two.", 3, 7), ("tool", "Three.", 7, 7), ("user", "Four.", 9, 9)]
    await ada.add_session("s-1", turns, "my-api")

    async def read(start: int, end: int) -> list[str]:
        text = await ada.text("memory_read", path="my-api/s-1.jsonl", startLine=start, endLine=end)
        return [word for word in text.split() if word.endswith(".")]

    assert await read(1, 2) == ["One."]
    assert await read(5, 6) == ["Two."]
    assert await read(7, 8) == ["Two.", "Three."]
    assert await read(8, 100) == ["Four."]


async def test_messages_appended_to_a_session_follow_its_last_line(ada: MemoryUser) -> None:
    chat = await ada.add_session("s-1", [("user", "One.", 40, 41)], "my-api")
    async with ada.user.libraries.library(ada.user.context) as library:
        await library.chats.append(chat.id, [MessageDraft(role="assistant", content="Two.")])

    text = await ada.text("memory_read", path="my-api/s-1.jsonl", startLine=42)

    assert "Two." in text
    assert "One." not in text


async def test_session_is_found_by_its_path_in_the_archive(ada: MemoryUser) -> None:
    chat = await ada.add_session("session-abc123", [("user", "A galleon.", 12, 12)], "my-api")

    [row] = await ada.rows("galleon")
    by_name = await ada.text("memory_read", path=row["path"])
    by_uri = await ada.text("memory_read", path=f"chats://{chat.id}")

    assert (row["path"], row["line_start"]) == ("my-api/session-abc123.jsonl", 12)
    assert by_name == by_uri
    assert by_name.startswith("# Conversation: session-abc123\n# Project: my-api\n")


async def test_long_conversation_is_truncated_with_the_line_to_continue_from(tmp_path: Path) -> None:
    async with open_memory_users(tmp_path, retrieval_max_tokens=500) as (ada, _):
        contents = [f"Turn {number} " + "of wind and rain " * 20 for number in range(40)]
        chat = await ada.add_conversation(*contents)
        start, lines = 1, []

        while start:
            text = await ada.text("memory_read", path=f"chats://{chat.id}", startLine=start)
            assert count_tokens(text) <= 500
            lines += [line for line in text.splitlines() if line.startswith("Turn ")]
            start = int(text.rpartition("startLine ")[2].rstrip(".*")) if "startLine " in text else 0

        assert [line.split()[1] for line in lines] == [str(number) for number in range(40)]


@each_case("max_tokens", [300, 600, 2_000])
async def test_response_is_never_longer_than_the_callers_budget(ada: MemoryUser, max_tokens: int) -> None:
    chat = await ada.add_conversation(*(f"Turn {number} " + "of wind and rain " * number for number in range(40)))
    observation_id = await ada.add_observation("Galleon", narrative="wind and rain " * 500)
    limited = MemoryUser(ada.user.with_config(max_tokens=max_tokens, chars_per_token=1))

    transcript = await limited.text("memory_read", path=f"chats://{chat.id}", startLine=20)
    observations = await limited.text("memory_get_observations", ids=[observation_id])

    assert max_tokens / 3 < len(transcript) <= max_tokens
    assert max_tokens / 3 < len(observations) <= max_tokens


async def test_message_longer_than_the_budget_is_truncated_and_reported(tmp_path: Path) -> None:
    async with open_memory_users(tmp_path, retrieval_max_tokens=500) as (ada, _):
        chat = await ada.add_conversation("wind " * 5_000, "And then?")

        first = await ada.text("memory_read", path=f"chats://{chat.id}")
        rest = await ada.text("memory_read", path=f"chats://{chat.id}", startLine=2)

        assert "more characters at line 1 omitted" in first
        assert "Read on with startLine 2." in first
        assert "And then?" in rest


async def test_many_messages_on_one_line_do_not_block_reading_on(tmp_path: Path) -> None:
    async with open_memory_users(tmp_path, retrieval_max_tokens=300) as (ada, _):
        turns = [("tool", "wind and rain " * 40, 1, 1)] * 5 + [("user", "And then?", 2, 2)]
        await ada.add_session("s-1", turns, "my-api")

        first = await ada.text("memory_read", path="my-api/s-1.jsonl")

        assert "Read on with startLine 2." in first
        assert "And then?" in await ada.text("memory_read", path="my-api/s-1.jsonl", startLine=2)


async def test_conversation_without_messages_says_so(ada: MemoryUser) -> None:
    chat = await ada.add_conversation(title="Empty")

    assert "This conversation has no messages." in await ada.text("memory_read", path=f"chats://{chat.id}")


@each_case(
    ("lines", "message"),
    [
        ({"startLine": 0}, "Error: Invalid line range: startLine must be 1 or more, got 0"),
        ({"startLine": -5}, "Error: Invalid line range: startLine must be 1 or more, got -5"),
        (
            {"startLine": 10**12},
            "Error: Invalid line range: startLine must be at most 1000000000, got 1000000000000",
        ),
        (
            {"startLine": 5, "endLine": 4},
            "Error: Invalid line range: endLine must be startLine or more, got 4 with startLine 5",
        ),
        ({"startLine": 3}, "Error: Invalid line range: startLine is 3, but the conversation ends at line 2"),
    ],
)
async def test_invalid_line_range_is_rejected_with_the_documented_sentence(
    ada: MemoryUser, lines: dict[str, int], message: str
) -> None:
    chat = await ada.add_conversation("One.", "Two.")

    assert await ada.error("memory_read", path=f"chats://{chat.id}", **lines) == message


async def test_end_line_beyond_the_end_reads_to_the_last_line(ada: MemoryUser) -> None:
    chat = await ada.add_conversation("One.", "Two.")

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
async def test_unknown_or_file_system_path_is_not_found(ada: MemoryUser, path: str) -> None:
    await ada.add_session("s-1", [("user", "One.", 1, 1)], "my-api")

    assert await ada.error("memory_read", path=path) == f"Error: File not found: {path}"


@each_case("path", ["", "  ", 7])
async def test_path_is_required(ada: MemoryUser, path: Any) -> None:
    assert await ada.error("memory_read", path=path) == "Error: Path is required"


# Recording


async def test_recorded_observation_is_found_and_read(ada: MemoryUser) -> None:
    chat = await ada.add_conversation("Shall we sail?", "By galleon.")
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

    recorded = await ada.user.call("observations_record", observations=[entry])
    [row] = await ada.rows("galleon", concepts=["ships"], projects=["voyage"], files=["plan.md"])
    text = await ada.text("memory_get_observations", ids=[row["id"]])

    assert recorded["count"] == 1
    assert recorded["observations"] == [
        {"id": row["id"], "title": "We sail by galleon", "created_at": "2026-02-01T10:20:00.000Z"}
    ]
    assert "## [voyage, 2026-02-01 10:20] - decision: We sail by galleon\n\n**not by sloop**" in text
    assert f"**Source:** client from `chats://{chat.id}`, lines 1-2" in text


async def test_observation_can_name_its_conversation_by_path(ada: MemoryUser) -> None:
    chat = await ada.add_session("s-1", [("user", "A galleon.", 12, 12)], "my-api")
    [row] = await ada.rows("galleon")

    entry = {"title": "Galleon", "conversation_id": row["path"], "line_start": row["line_start"]}
    [recorded] = (await ada.user.call("observations_record", observations=[entry]))["observations"]

    assert f"from `chats://{chat.id}`, lines 12-12" in await ada.text("memory_get_observations", ids=[recorded["id"]])


async def test_same_idempotency_key_records_once(ada: MemoryUser, ben: MemoryUser) -> None:
    batch = {"observations": [{"title": "One"}, {"title": "Two"}], "idempotency_key": "k-1"}

    first = await ada.user.call("observations_record", **batch)
    second = await ada.user.call("observations_record", **batch)
    other = await ben.user.call("observations_record", **batch)

    assert second == first
    assert other["count"] == 2
    assert (await ada.json(query="one"))["total"] == 1


async def test_each_call_without_a_key_records_again(ada: MemoryUser) -> None:
    for _ in range(2):
        await ada.user.call("observations_record", observations=[{"title": "Galleon"}])

    assert (await ada.json(query="galleon"))["total"] == 2


async def test_reused_key_with_other_content_is_rejected(ada: MemoryUser) -> None:
    await ada.user.call("observations_record", observations=[{"title": "One"}], idempotency_key="k-1")

    assert "k-1" in await ada.error("observations_record", observations=[{"title": "Another"}], idempotency_key="k-1")


@each_case(
    ("observations", "message"),
    [
        ([], "observations: expected 1 to 50, got 0"),
        ([{"title": "x"}] * 51, "observations: expected 1 to 50, got 51"),
        ([{"title": " "}], "title: expected a non-empty string, got ' '"),
        ([{"title": "x", "time": "yesterday"}], "created_at: expected a time such as"),
        ([{"title": "x", "line_start": 9, "line_end": 3}], "line_end: expected 9 (line_start) or more, got 3"),
        (
            [{"title": "x"}, {"title": "y", "conversation_id": "absent"}],
            "observations[1].conversation_id: expected the id or path of one of your conversations, got 'absent'",
        ),
    ],
)
async def test_invalid_batch_is_rejected_as_a_whole(ada: MemoryUser, observations: list[Any], message: str) -> None:
    assert (await ada.error("observations_record", observations=observations)).startswith(message)
    assert await ada.rows("x OR y") == []


# Isolation


async def test_search_results_do_not_depend_on_other_users(ada: MemoryUser, ben: MemoryUser) -> None:
    searches: list[dict[str, Any]] = [
        {"query": query, "response_format": response_format}
        for query in ("galleon", ["galleon", "bread"])
        for response_format in ("markdown", "json")
    ]
    before = [await ben.result("memory_search", **search) for search in searches]

    await ada.add_observation("Galleon", **JWT)
    await ada.add_conversation("A galleon and bread.")

    assert [await ben.result("memory_search", **search) for search in searches] == before
    assert len(await ada.rows("galleon")) == 1


async def test_foreign_id_or_path_looks_nonexistent(ada: MemoryUser, ben: MemoryUser) -> None:
    observation_id = await ada.add_observation("Galleon")
    chat = await ada.add_conversation("A galleon.")
    await ada.add_session("s-1", [("user", "One.", 1, 1)], "my-api")
    entry = {"title": "x", "conversation_id": chat.id}

    for tool, foreign, known in (
        ("memory_get_observations", {"ids": [observation_id]}, observation_id),
        ("memory_read", {"path": f"chats://{chat.id}"}, chat.id),
        ("memory_read", {"path": "my-api/s-1.jsonl"}, "s-1"),
        ("observations_record", {"observations": [entry]}, chat.id),
    ):
        response = str(await ben.result(tool, **foreign))
        absent = str(await ben.result(tool, **_renamed(foreign, known)))
        assert response.replace(known, "absent") == absent
        assert "'isError': True" in response


def _renamed(value: Any, known: str) -> Any:
    """Returns the arguments with an id that does not exist."""
    match value:
        case str():
            return value.replace(known, "absent")
        case list():
            return [_renamed(part, known) for part in value]
        case dict():
            return {key: _renamed(part, known) for key, part in value.items()}
        case _:
            return value
