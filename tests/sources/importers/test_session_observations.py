"""Observations derived from agent sessions: they contain nothing that is not in the session."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from sources.drafts import ObservationDraft
from sources.importers.formats.session_observations import AgentToolCall, AgentTurn, derive_observations
from sources.reading.exchanges import LineRange

READ = AgentToolCall("", "Read", arguments={"file_path": "src/auth.ts"})
EDIT = AgentToolCall("", "Edit", arguments={"file_path": "src/jwt.ts", "old_string": "a", "new_string": "b"})
COMMIT = AgentToolCall("", "Bash", {"command": "git commit -m 'auth: rotate tokens' -m 'They were kept.'"})
FAILED = AgentToolCall("", "Bash", {"command": "make"}, result="make: *** [test] Error 2\n\ntrace", is_error=True)


def turn(role: str, text: str = "", line: int = 1, *calls: AgentToolCall, **fields: Any) -> AgentTurn:
    return AgentTurn(role=role, key="", text=text, lines=LineRange(line, line), calls=calls, **fields)


def observe(*turns: AgentTurn, limit: int = 100) -> list[ObservationDraft]:
    return derive_observations(turns, limit, session_id="s-1", project="my-api", conversation_id="c-1")


def test_exchange_with_files_becomes_one_observation() -> None:
    [draft] = observe(
        turn("user", "Rotate the tokens. Please.", 3, time="2026-01-02T03:04:05Z"),
        turn("assistant", "I look.", 4, READ),
        turn("user", "", 5),
        turn("assistant", "", 6, EDIT, READ),
    )

    assert (draft.type, draft.title, draft.origin) == ("general", "Rotate the tokens.", "derived")
    assert (draft.files_read, draft.files_modified) == (("src/auth.ts",), ("src/jwt.ts",))
    assert (draft.line_start, draft.line_end, draft.conversation_id) == (3, 6, "c-1")
    assert (draft.project, draft.session_id, draft.created_at) == ("my-api", "s-1", "2026-01-02T03:04:05Z")


def test_exchange_without_files_yields_no_observation() -> None:
    assert observe(turn("user", "Hello."), turn("assistant", "Good day.")) == []


def test_failed_call_modifies_no_files() -> None:
    failed = AgentToolCall(
        key="", name="Edit", arguments={"file_path": "src/jwt.ts"}, result="no such file", is_error=True
    )

    [draft] = observe(turn("user", "Rotate the tokens."), turn("assistant", "", 2, failed))

    assert (draft.type, draft.title, draft.files_modified) == ("error", "Edit: no such file", UNSET)


def test_error_is_quoted() -> None:
    [draft] = observe(turn("user", "Build."), turn("assistant", "", 2, FAILED))

    assert (draft.type, draft.title) == ("error", "Bash: make: *** [test] Error 2")
    assert (draft.facts, draft.line_start) == (["make: *** [test] Error 2", "trace"], 2)


def test_commit_is_named_after_its_subject() -> None:
    [draft] = observe(turn("user", "Commit."), turn("assistant", "", 7, COMMIT))

    assert (draft.type, draft.title, draft.narrative) == ("commit", "auth: rotate tokens", "They were kept.")


def test_session_summary_becomes_an_observation() -> None:
    [draft] = observe(turn("assistant", "Tokens rotate now. The rest follows.", 9, is_summary=True))

    assert (draft.type, draft.title) == ("summary", "Tokens rotate now.")
    assert draft.narrative == "Tokens rotate now. The rest follows."


def test_files_of_a_patch_are_listed() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b/c.py\n+z\n*** End Patch"

    [draft] = observe(
        turn("user", "Go."),
        turn("assistant", "", 2, AgentToolCall("", "apply_patch", arguments={"input": patch})),
    )

    assert draft.files_modified == ("a.py", "b/c.py")


def test_repeated_error_is_one_observation() -> None:
    assert len(observe(turn("user", "Build."), turn("assistant", "", 2, FAILED), turn("assistant", "", 3, FAILED))) == 1


def test_ids_are_stable_when_a_session_grows() -> None:
    start = [turn("user", "Rotate the tokens."), turn("assistant", "", 2, EDIT, COMMIT)]

    first, later = observe(*start), observe(*start, turn("user", "Now what?", 3), turn("assistant", "", 4, READ))

    assert [draft.uuid for draft in later][: len(first)] == [draft.uuid for draft in first]
    assert len(later) == len(first) + 1


def test_number_of_observations_is_limited() -> None:
    turns = [turn("assistant", f"Summary {number}.", number, is_summary=True) for number in range(1, 10)]

    assert len(observe(*turns, limit=4)) == 4


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
calls = st.builds(
    AgentToolCall,
    key=st.just(""),
    name=st.sampled_from(["Read", "Edit", "Bash", "apply_patch", "Other"]),
    arguments=st.dictionaries(st.sampled_from(["file_path", "command", "input"]), st.one_of(words, st.integers())),
    result=words,
    is_error=st.booleans(),
)
turns = st.builds(
    AgentTurn,
    key=st.just(""),
    role=st.sampled_from(["user", "assistant", "tool"]),
    lines=st.builds(lambda line: LineRange(line, line), st.integers(1, 99)),
    text=words,
    calls=st.lists(calls, max_size=3).map(tuple),
    is_summary=st.booleans(),
)


@given(st.lists(turns, max_size=8))
def test_every_observation_quotes_its_session(turns: list[AgentTurn]) -> None:
    source = "\n".join(
        [turn.text for turn in turns]
        + [f"{call.name}: {call.result}\n{call.arguments}" for turn in turns for call in turn.calls]
    )
    words = set(source.split()) | set(source.replace("\\", "").split())

    for draft in observe(*turns):
        assert draft.title
        assert draft.origin == "derived"
        if draft.type in ("general", "summary"):
            assert set(str(draft.title).rstrip("…").split()) <= words
