"""`florilegium user adopt-local`: the library of a single user becomes that of an account, whole or not at all."""

from pathlib import Path

import pytest

from config.paths import DataRoot, new_user_id
from tests.server.cli.program import Program

pytestmark = pytest.mark.sqlite


def titles(program: Program, user: str) -> list[str]:
    return [item["title"] for item in program.run("list", "notes", "--user", user, "--json").json["items"]]


def prepare(program: Program) -> None:
    (program.home / "halley.md").write_text("# Halley\n\ncomet\n")
    program.expect("add", "notes", "comet", "--title", "Mine")
    program.expect("follow", "add", "halley.md")
    program.with_users("ada", "ben")


def test_an_account_takes_the_library_and_the_followed_sources(program: Program) -> None:
    prepare(program)
    assert program.expect("user", "adopt-local", "ada") == "ada has the library of local now: 1 item."
    assert titles(program, "ada") == ["Mine"]
    assert [one["location"] for one in program.run("follow", "list", "--user", "ada", "--json").json] == [
        str(program.home / "halley.md")
    ]
    assert program.run("check").code == 0
    [event] = program.run("audit", "--action", "user.adopt_local", "--json").json
    assert (event["user"], event["detail"]) == ("ada", "local")
    again = program.run("user", "adopt-local", "ben")
    assert (again.code, "there is no library of 'local' to take over" in again.stderr) == (1, True)
    # The single user starts again with an empty library.
    program.expect("add", "notes", "comet", "--title", "New")
    assert titles(program, "local") == ["New"]
    refused = program.run("user", "adopt-local", "ada")
    assert (refused.code, "the user already has items; only an empty library can be replaced" in refused.stderr) == (
        1,
        True,
    )
    assert (titles(program, "ada"), titles(program, "local")) == (["Mine"], ["New"])
    assert program.run("user", "adopt-local", "eve").code == 1


def test_a_running_server_moves_the_library(program: Program) -> None:
    prepare(program)
    with program.serving("--port", "0", "--require-auth", "true"):
        assert "Mine" in titles(program, "local")
        assert titles(program, "ada") == []
        program.expect("user", "adopt-local", "ada")
        assert "Mine" in titles(program, "ada")
        assert titles(program, "local") == []


def make_users(root: Path) -> tuple[DataRoot, Path, Path]:
    data_root = DataRoot(root)
    data_root.prepare()
    source, target = new_user_id(), new_user_id()
    library, empty = (data_root.prepare_user(user_id).media.parent for user_id in (source, target))
    (library / "media.db").write_text("library")
    (empty / "media.db").write_text("empty")
    return data_root, library, empty


def test_a_crash_at_any_step_leaves_one_of_the_two_libraries_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th step fails, for every n until all succeed."""
    steps = 0
    for failing in range(1, 10):
        data_root, source, target = make_users(tmp_path / str(failing))
        count = 0

        def fail(original: object, failing: int = failing) -> object:
            def step(*arguments: object, **options: object) -> object:
                nonlocal count
                count += 1
                if count == failing:
                    raise KeyboardInterrupt
                return original(*arguments, **options)  # type: ignore[operator]

            return step

        with monkeypatch.context() as patched:
            patched.setattr("pathlib.Path.rename", fail(Path.rename))
            patched.setattr("config.paths.sync_directory", fail(lambda directory: None))
            patched.setattr("shutil.rmtree", fail(__import__("shutil").rmtree))
            try:
                data_root.move_user(source.name, target.name)  # type: ignore[arg-type]
            except KeyboardInterrupt:
                pass
            else:
                steps = failing
        data_root.undo_moves()
        moved = not source.exists()
        assert (target / "media.db").read_text() == ("library" if moved else "empty")
        assert moved or (source / "media.db").read_text() == "library"
        assert not list(target.parent.glob("*.replaced"))
        if steps:
            break
    assert steps == 6
