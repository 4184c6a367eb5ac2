"""What a session proves by itself becomes observations; nothing in them is not in the session."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from sources.drafts import ObservationDraft
from sources.importers.formats.agent_sessions.observations import AgentSession, SessionTurn, ToolCall, derive
from sources.reading.exchanges import LineRange

READ = ToolCall(name="Read", arguments={"file_path": "src/auth.ts"})
EDIT = ToolCall(name="Edit", arguments={"file_path": "src/jwt.ts", "old_string": "a", "new_string": "b"})
COMMIT = ToolCall(name="Bash", arguments={"command": "git commit -m 'auth: rotate tokens' -m 'They were kept.'"})
FAILED = ToolCall(name="Bash", arguments={"command": "make"}, result="make: *** [test] Error 2\n\ntrace", is_error=True)


def turn(role: str, text: str = "", line: int = 1, *calls: ToolCall, **more: Any) -> SessionTurn:
    return SessionTurn(role=role, text=text, lines=LineRange(line, line), calls=calls, **more)


def session(*turns: SessionTurn) -> AgentSession:
    return AgentSession(session_id="s-1", project="my-api", turns=turns, conversation_id="c-1")


def observe(*turns: SessionTurn) -> list[ObservationDraft]:
    return list(derive(session(*turns), max_observations=100))


def test_an_exchange_that_touched_files_is_one_observation_with_them() -> None:
    [found] = observe(
        turn("user", "Rotate the tokens. Please.", 3, time="2026-01-02T03:04:05Z"),
        turn("assistant", "I look.", 4, READ),
        turn("user", "", 5),
        turn("assistant", "", 6, EDIT, READ),
    )

    assert (found.type, found.title, found.origin) == ("general", "Rotate the tokens.", "derived")
    assert (found.files_read, found.files_modified) == (("src/auth.ts",), ("src/jwt.ts",))
    assert (found.line_start, found.line_end, found.conversation_id) == (3, 6, "c-1")
    assert (found.project, found.session_id, found.created_at) == ("my-api", "s-1", "2026-01-02T03:04:05Z")


def test_talk_without_files_is_no_observation() -> None:
    assert observe(turn("user", "Hello."), turn("assistant", "Good day.")) == []


def test_a_call_that_failed_touched_nothing() -> None:
    failed = ToolCall(name="Edit", arguments={"file_path": "src/jwt.ts"}, result="no such file", is_error=True)

    [found] = observe(turn("user", "Rotate the tokens."), turn("assistant", "", 2, failed))

    assert (found.type, found.title, found.files_modified) == ("error", "Edit: no such file", UNSET)


def test_an_error_is_quoted() -> None:
    [found] = observe(turn("user", "Build."), turn("assistant", "", 2, FAILED))

    assert (found.type, found.title) == ("error", "Bash: make: *** [test] Error 2")
    assert (found.facts, found.line_start) == (["make: *** [test] Error 2", "trace"], 2)


def test_a_commit_is_called_by_its_subject() -> None:
    [found] = observe(turn("user", "Commit."), turn("assistant", "", 7, COMMIT))

    assert (found.type, found.title, found.narrative) == ("commit", "auth: rotate tokens", "They were kept.")


def test_a_summary_of_the_session_is_kept() -> None:
    [found] = observe(turn("assistant", "Tokens rotate now. The rest follows.", 9, is_summary=True))

    assert (found.type, found.title) == ("summary", "Tokens rotate now.")
    assert found.narrative == "Tokens rotate now. The rest follows."


def test_a_patch_names_the_files_it_changes() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b/c.py\n+z\n*** End Patch"

    [found] = observe(
        turn("user", "Go."), turn("assistant", "", 2, ToolCall(name="apply_patch", arguments={"input": patch}))
    )

    assert found.files_modified == ("a.py", "b/c.py")


def test_the_same_error_is_told_once() -> None:
    assert len(observe(turn("user", "Build."), turn("assistant", "", 2, FAILED), turn("assistant", "", 3, FAILED))) == 1


def test_a_session_that_grew_keeps_the_ids_it_had() -> None:
    begin = [turn("user", "Rotate the tokens."), turn("assistant", "", 2, EDIT, COMMIT)]

    first, later = observe(*begin), observe(*begin, turn("user", "Now what?", 3), turn("assistant", "", 4, READ))

    assert [one.uuid for one in later][: len(first)] == [one.uuid for one in first]
    assert len(later) == len(first) + 1


def test_there_is_a_limit_to_what_one_session_says() -> None:
    turns = [turn("assistant", f"Summary {number}.", number, is_summary=True) for number in range(1, 10)]

    assert len(derive(session(*turns), max_observations=4)) == 4


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
calls = st.builds(
    ToolCall,
    name=st.sampled_from(["Read", "Edit", "Bash", "apply_patch", "Other"]),
    arguments=st.dictionaries(st.sampled_from(["file_path", "command", "input"]), st.one_of(words, st.integers())),
    result=words,
    is_error=st.booleans(),
)
turns = st.builds(
    SessionTurn,
    role=st.sampled_from(["user", "assistant", "tool"]),
    lines=st.builds(lambda line: LineRange(line, line), st.integers(1, 99)),
    text=words,
    calls=st.lists(calls, max_size=3).map(tuple),
    is_summary=st.booleans(),
)


@given(st.lists(turns, max_size=8))
def test_every_observation_quotes_its_session(said: list[SessionTurn]) -> None:
    source = "\n".join(
        [one.text for one in said]
        + [f"{call.name}: {call.result}\n{call.arguments}" for one in said for call in one.calls]
    )
    spoken = set(source.split()) | set(source.replace("\\", "").split())

    for found in derive(session(*said), max_observations=100):
        assert found.title
        assert found.origin == "derived"
        if found.type in ("general", "summary"):
            assert set(str(found.title).rstrip("…").split()) <= spoken
