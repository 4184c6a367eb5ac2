"""Promises of conversation-memory, over stdio and HTTP."""

from pathlib import Path
from typing import Any

from tests.cases import each_case
from tests.server.cli.program import Program
from tests.server.cli.requests import lines, modern
from tests.server.clients import text_of
from tests.sources.importers.session_files import write_session
from tests.sources.source_fixture import LibraryUser

ENTRY = {
    "type": "decision",
    "title": "Implement JWT authentication middleware",
    "subtitle": "Chose JWT over session-based auth",
    "narrative": "After evaluating both options, decided on JWT.",
    "facts": ["Implemented refresh token rotation", "Added rate limiting"],
    "concepts": ["JWT", "middleware"],
    "files_modified": ["auth.ts"],
    "project": "my-api",
    "time": "2025-12-01T14:30:00Z",
}


async def record(user: LibraryUser, *entries: dict[str, Any]) -> list[str]:
    """Records observations and returns their ids."""
    stored = await user.call("observations_record", observations=[{**ENTRY, **entry} for entry in entries])
    return [entry["id"] for entry in stored["observations"]]


async def text(user: LibraryUser, tool: str, **arguments: Any) -> str:
    result = await user.request("tools/call", name=tool, arguments=arguments)
    assert "isError" not in result
    return text_of(result)


def session_line(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    common = {"sessionId": "session-abc123", "cwd": "/home/ada/my-project", "timestamp": "2025-12-01T10:00:00Z"}
    return {"type": kind, "message": {"role": kind, "content": content}, **common, **more}


SESSION = (
    session_line("user", "How should I implement authentication?", uuid="1"),
    session_line(
        "assistant",
        [
            {"type": "text", "text": "I edit the middleware."},
            {"type": "tool_use", "id": "t", "name": "Edit", "input": {"file_path": "src/auth.ts"}},
        ],
        uuid="2",
        parentUuid="1",
    ),
    session_line("user", [{"type": "tool_result", "tool_use_id": "t", "content": "done"}], uuid="3", parentUuid="2"),
    session_line("user", "What about JWT tokens?", uuid="4", parentUuid="3"),
    session_line("assistant", "Based on previous discussions, yes.", uuid="5", parentUuid="4"),
)


def test_session_of_an_agent_is_imported_searched_and_read_over_stdio(program: Program, tmp_path: Path) -> None:
    session = write_session(tmp_path / "projects" / "-home-ada-my-project" / "session-abc123.jsonl", *SESSION)
    program.expect("import", str(session))
    search = {"query": "implement authentication", "response_format": "json"}
    calls = [modern(0, "tools/list"), modern(1, "tools/call", name="search", arguments=search)]
    answers = [one["result"] for one in program.run("stdio", "--profile", "memory", stdin=lines(*calls)).messages]
    tools, found = sorted(answers, key=lambda answer: "tools" not in answer)
    (row,) = found["structuredContent"]["results"]
    details = modern(2, "tools/call", name="get_observations", arguments={"ids": [row["id"]]})

    (observation,) = program.run("stdio", "--profile", "memory", stdin=lines(details)).messages

    assert [tool["name"] for tool in tools["tools"]] == ["search", "get_observations", "read"]
    assert (row["title"], row["project"]) == ("How should I implement authentication?", "my-project")
    assert "`src/auth.ts`" in text_of(observation["result"])
    assert "derived from `chats://" in text_of(observation["result"])


async def test_listed_arguments_are_those_of_the_documentation(ada: LibraryUser) -> None:
    listed = {tool["name"]: tool["inputSchema"] for tool in (await ada.request("tools/list"))["tools"]}
    search, details, read = (listed[f"memory_{name}"] for name in ("search", "get_observations", "read"))

    assert set(search["properties"]) == {
        *("query", "mode", "limit", "after", "before", "projects", "types", "concepts", "files", "response_format")
    }
    assert set(search["properties"]["mode"]["enum"]) == {"vector", "text", "both"}
    defaults = {name: search["properties"][name].get("default") for name in ("mode", "limit", "response_format")}
    assert defaults == {"mode": "both", "limit": 10, "response_format": "markdown"}
    assert (search["required"], details["required"], read["required"]) == (["query"], ["ids"], ["path"])
    assert (set(details["properties"]), set(read["properties"])) == ({"ids"}, {"path", "startLine", "endLine"})


async def test_observations_are_printed_in_the_documented_layout(ada: LibraryUser) -> None:
    ids = await record(ada, {}, {"title": "OAuth2 integration pattern", "type": "pattern"})

    printed = await text(ada, "memory_get_observations", ids=ids)

    assert printed.startswith(
        "Retrieved 2 observations:\n\n"
        "## [my-api, 2025-12-01 14:30] - decision: Implement JWT authentication middleware\n\n"
        "**Chose JWT over session-based auth**\n\n"
        "After evaluating both options, decided on JWT.\n\n"
        "**Facts:**\n- Implemented refresh token rotation\n- Added rate limiting\n\n"
        "**Concepts:** `JWT`, `middleware`\n\n"
        "**Files:** `auth.ts`\n\n"
    )
    assert "\n\n---\n\n## [my-api, 2025-12-01 14:30] - pattern: OAuth2 integration pattern" in printed


@each_case(
    ("tool", "arguments", "message"),
    [
        ("search", {"query": 5}, "Query must be string or array"),
        ("search", {"query": ["one"]}, "Query array must have 2-5 items"),
        ("search", {"query": ["one"] * 6}, "Query array must have 2-5 items"),
        ("search", {"query": "x"}, "Query must be at least 2 characters"),
        ("search", {"query": "auth", "after": "December"}, "Invalid date format"),
        ("get_observations", {"ids": ["obs-absent"]}, "Invalid observation ID"),
        ("get_observations", {"ids": ["obs-1"] * 21}, "Cannot get more than 20 observations at once"),
        ("read", {"path": "/home/ada/absent.jsonl"}, "File not found"),
        ("read", {"path": "chats://absent", "startLine": 0}, "Invalid line range"),
        ("read", {"path": "chats://absent", "startLine": 5, "endLine": 4}, "Invalid line range"),
    ],
)
async def test_error_is_the_documented_sentence(
    ada: LibraryUser, tool: str, arguments: dict[str, Any], message: str
) -> None:
    assert (await ada.call_error(f"memory_{tool}", **arguments)).startswith(f"Error: {message}")


async def test_search_is_refined_by_types_and_concepts(ada: LibraryUser) -> None:
    await record(ada, {}, {"title": "Login fails", "type": "bug-fix", "concepts": ["JWT"]}, {"concepts": ["OAuth"]})
    counts = [
        (await ada.call("memory_search", query="JWT", response_format="json", **filters))["count"]
        for filters in ({}, {"types": ["decision"]}, {"types": ["decision"], "concepts": ["JWT", "middleware"]})
    ]

    assert counts == [3, 2, 1]


async def test_lines_around_a_match_can_be_read(ada: LibraryUser) -> None:
    await ada.add_chat("Login", *(f"turn {number}" for number in range(40)), "the server said ERR_AUTH_FAILED")
    found = await ada.call("memory_search", query="ERR_AUTH_FAILED", mode="text", response_format="json")
    (row,) = found["results"]
    line = row["line_end"]

    around = await text(ada, "memory_read", path=row["path"], startLine=line - 10, endLine=line + 10)

    assert "ERR_AUTH_FAILED" in around
    assert "turn 39" in around
    assert "turn 20" not in around
