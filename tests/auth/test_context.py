"""The request context is immutable and contains only the principal's own paths."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from auth.context import (
    READ,
    WRITE,
    ClientId,
    LibraryAccess,
    Principal,
    SessionId,
    ShareRule,
    build_context,
)
from config.errors import Forbidden, NotFound
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


def test_context_within_a_granted_library_has_its_paths_and_no_more_scopes_than_the_access(tmp_path: Path) -> None:
    root, owner = DataRoot(tmp_path), new_user_id()
    written = LibraryAccess("team", "Team", owner, "writer")
    shared = LibraryAccess("alice-work", "alice: work", owner, "writer", ShareRule("tag", "work"))
    scopes = frozenset({READ, WRITE, "admin"})
    bob = replace(principal(new_user_id()), scopes=scopes, libraries=(written, shared))
    context = build_context(bob, root, "r", is_agent=False)

    inside = context.within(written, root)

    assert (inside.user_id, inside.db_paths, inside.library) == (owner, root.paths_of(owner), written)
    assert inside.principal is bob
    assert inside.is_agent
    assert inside.scopes == {READ, WRITE}
    assert context.within(shared, root).scopes == {READ}
    with pytest.raises(Forbidden):
        build_context(principal(new_user_id()), root, "r").within(written, root)
