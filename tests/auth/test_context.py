"""The request context is immutable and contains only the principal's own paths."""

from pathlib import Path

import pytest

from auth.context import READ, ClientId, Principal, SessionId, build_context
from config.errors import NotFound
from config.paths import DataRoot, UserId, new_user_id


def principal(user_id: UserId) -> Principal:
    return Principal(user_id, "someone", ClientId("reader"), frozenset({READ}), "key", "k_1", epoch=2)


def test_context_contains_the_caller_and_the_database_paths(tmp_path: Path) -> None:
    root, alice = DataRoot(tmp_path), principal(new_user_id())

    context = build_context(alice, root, "request-1", SessionId("s_1"))

    assert context.principal is alice
    assert (context.user_id, context.client_id) == (alice.user_id, alice.client_id)
    assert context.scopes == {READ}
    assert context.db_paths == root.paths_of(alice.user_id)
    assert (context.session, context.request_id, dict(context.config)) == ("s_1", "request-1", {})


def test_two_users_never_share_a_path(tmp_path: Path) -> None:
    root = DataRoot(tmp_path)
    alice, bob = (build_context(principal(new_user_id()), root, "r").db_paths for _ in range(2))

    assert {alice.media, alice.chacha, alice.prompts}.isdisjoint({bob.media, bob.chacha, bob.prompts})


def test_two_data_roots_never_share_a_path(tmp_path: Path) -> None:
    user = principal(new_user_id())

    here = build_context(user, DataRoot(tmp_path / "here"), "r")
    there = build_context(user, DataRoot(tmp_path / "there"), "r")

    assert here.db_paths != there.db_paths


def test_context_is_immutable(tmp_path: Path) -> None:
    context = build_context(principal(new_user_id()), DataRoot(tmp_path), "r")

    with pytest.raises(AttributeError):
        context.user_id = new_user_id()  # type: ignore[misc]  # assignment must fail
    with pytest.raises(TypeError):
        context.config["user"] = "bob"  # type: ignore[index]  # as above


def test_invalid_user_id_raises_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        build_context(principal(UserId("../../etc")), DataRoot(tmp_path), "r")
