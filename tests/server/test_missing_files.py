"""Lost and truncated files of a running deployment: an error with the way back, never an empty library."""

import shutil
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient, text_of

# PostgreSQL looks after its own files.
pytestmark = pytest.mark.sqlite

MISSING = "chacha.db of this library is missing or empty; restore it from a backup"


async def call(server: LiveServer, user: str, tool: str, /, **arguments: str) -> tuple[bool, str]:
    """Returns whether the call of this user succeeded, and its text."""
    response = await (await ModernClient.of(server, user)).call(tool, arguments)
    result = response.json().get("result") or {"isError": True, "content": [{"type": "text", "text": response.body}]}
    return not result.get("isError", False), str(text_of(result))


async def fill(server: LiveServer) -> None:
    """Creates a note of Ada and one of Ben, in files that the server creates itself."""
    for name in ("ada", "ben"):
        await server.runtime.registry.add_user(name, role="admin")
        is_ok, text = await call(server, name, "notes_create", title=f"Kettle of {name}", content="x")
        assert is_ok, text


async def create_notes(data_dir: Path) -> tuple[Path, Path]:
    """Creates a note of Ada and one of Ben. Returns their directories."""
    async with live(make_settings(data_dir)) as server:
        await fill(server)
        root = server.runtime.data_root
        ada, ben = [root.paths_of((await server.user(name)).id).chacha.parent for name in ("ada", "ben")]
        return ada, ben


def delete_file(home: Path) -> None:
    (home / "chacha.db").unlink()


def delete_directory(home: Path) -> None:
    shutil.rmtree(home)


def truncate(home: Path) -> None:
    (home / "chacha.db").write_bytes(b"")


@each_case("damage", [delete_file, delete_directory, truncate])
async def test_missing_file_is_an_error_and_not_an_empty_library(tmp_path: Path, damage: object) -> None:
    ada, _ = await create_notes(tmp_path)
    assert callable(damage)
    damage(ada)

    async with live(make_settings(tmp_path)) as server:
        written = await call(server, "ada", "notes_create", title="Kettle of tomorrow", content="x")
        found = await call(server, "ada", "notes_search", query="kettle")
        of_ben = await call(server, "ben", "notes_search", query="kettle")

    assert not written[0]
    assert MISSING in written[1]
    assert not found[0]
    assert MISSING in found[1]
    assert of_ben[0]
    assert "Kettle of ben" in of_ben[1]


async def test_other_files_of_the_user_stay_usable(tmp_path: Path) -> None:
    ada, _ = await create_notes(tmp_path)
    truncate(ada)

    async with live(make_settings(tmp_path)) as server:
        saved = await call(server, "ada", "prompts_save", name="Review", user_prompt="Read it")
        found = await call(server, "ada", "prompts_search", query="review")

    assert saved[0], saved[1]
    assert "Review" in found[1]


@pytest.mark.parametrize("damage", [delete_file, delete_directory])
async def test_files_that_are_deleted_below_a_running_server_are_noticed(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    async with live(make_settings(tmp_path)) as server:
        await fill(server)
        for name in ("ada", "ben"):
            assert (await call(server, name, "notes_search", query="kettle"))[0]
        damage(server.runtime.data_root.paths_of((await server.user("ada")).id).chacha.parent)
        written = [await call(server, "ada", "notes_create", title="Lost", content="x") for _ in range(3)]
        found = await call(server, "ada", "notes_search", query="kettle")
        of_ben = await call(server, "ben", "notes_create", title="Kept", content="x")

    assert [is_ok for is_ok, _ in written] == [False, False, False]
    assert "was deleted or replaced" in written[0][1]
    assert MISSING in written[1][1]
    assert not found[0]
    assert of_ben[0], of_ben[1]


async def test_log_of_a_lost_file_is_not_deleted(tmp_path: Path) -> None:
    """SQLite deletes the write-ahead log of an empty database when it opens it. The log may contain the last writes."""
    ada, _ = await create_notes(tmp_path)
    delete_file(ada)
    (ada / "chacha.db-wal").write_bytes(b"log")

    async with live(make_settings(tmp_path)) as server:
        await call(server, "ada", "notes_create", title="Kettle", content="x")

    assert (ada / "chacha.db-wal").read_bytes() == b"log"
    assert not (ada / "chacha.db").exists()
