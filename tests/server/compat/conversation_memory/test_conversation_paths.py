"""Paths of conversations: no metadata of a session can turn into a file system path."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from server.compat.conversation_memory.responses import path_of, project_of, summary_of
from sources.records import Conversation

TIME = "2026-01-01T00:00:00.000Z"
segments = st.text(st.sampled_from("ab.-_~:\\ `\n/%"), max_size=8)


def conversation(session_id: str = "", **metadata: Any) -> Conversation:
    return Conversation(
        uuid="c-1",
        created_at=TIME,
        last_modified=TIME,
        version=1,
        client_id="test",
        content_hash="",
        title="Ships",
        namespace="work",
        session_id=session_id,
        character_id=None,
        message_count=0,
        metadata=metadata,
    )


def test_session_has_its_archive_path() -> None:
    assert path_of(conversation("s-1", path="my-api/s-1.jsonl")) == "my-api/s-1.jsonl"


def test_other_conversation_has_its_uri_as_path() -> None:
    assert path_of(conversation()) == "chats://c-1"
    assert path_of(conversation("s-1", path="my-api/other.jsonl")) == "chats://c-1"
    assert path_of(conversation("s-1", path=7)) == "chats://c-1"
    assert path_of(conversation("s-1", path="/my-api/s-1.jsonl")) == "chats://c-1"


@given(st.lists(segments, max_size=3), segments)
def test_path_never_leads_out_of_the_archive(folders: list[str], session_id: str) -> None:
    path = path_of(conversation(session_id, path="/".join([*folders, f"{session_id}.jsonl"])))

    parts = path.removeprefix("chats://").split("/")
    assert not {"", ".", ".."} & set(parts)
    assert "`" not in path
    assert path.isprintable()
    assert path.startswith("chats://") or not set("~:\\") & set(path)


def test_project_and_summary_come_from_the_session_or_the_conversation() -> None:
    assert project_of(conversation(project="my-api")) == "my-api"
    assert project_of(conversation(project=7)) == "work"
    assert summary_of(conversation(summary="Tokens\n rotate")) == "Tokens rotate"
    assert summary_of(conversation()) == "Ships"
