"""A user id leads to that user's files and to nothing else, whatever stands on the disk or in the id."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import NotFound, StorageError
from config.paths import DataRoot, UserId, new_user_id

ADA = new_user_id()
BOB = new_user_id()

NOT_USER_IDS = {
    "empty": "",
    "parent": "..",
    "grandparent": "../..",
    "absolute": "/etc/passwd",
    "prefix then parent": "u_../x",
    "parent of the right length": "u_" + "../" * 8 + "aa",
    "separator inside": ADA[:14] + "/" + ADA[15:],
    "backslash": ADA[:14] + "\\" + ADA[15:],
    "NUL at the end": ADA + "\0",
    "NUL inside": ADA[:14] + "\0" + ADA[15:],
    "percent-encoded": "u_%2e%2e%2f" + "a" * 17,
    "upper case": ADA.upper(),
    "upper case after the prefix": "u_" + ADA[2:].upper(),
    "Cyrillic look-alike": "u_" + "а" * 26,
    "full-width letters": "u_" + "ａ" * 26,
    "Arabic digits": "u_" + "٢" * 26,
    "digit outside base32": "u_" + "1" * 26,
    "one short": ADA[:-1],
    "one long": ADA + "a",
    "ten thousand characters": "u_" + "a" * 9_998,
    "trailing newline": ADA + "\n",
    "leading space": " " + ADA,
    "no prefix": ADA[2:],
    "drive letter": "C:" + ADA[2:],
    "home": "~" + ADA[1:],
}


@pytest.fixture
def data(tmp_path: Path) -> DataRoot:
    root = DataRoot(tmp_path / "data")
    root.prepare()
    return root


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write everywhere, so a test of refusal steps down to nobody for the moment."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_new_user_ids_are_valid_and_differ(tmp_path: Path) -> None:
    ids = {new_user_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert len({DataRoot(tmp_path).paths_of(user_id).media for user_id in ids}) == 1000


def test_databases_of_a_user_lie_in_a_directory_named_by_the_id(tmp_path: Path) -> None:
    user_id = UserId("u_" + "ab" * 13)
    paths = DataRoot(tmp_path).paths_of(user_id)
    home = tmp_path / "users" / "ab" / user_id
    assert (paths.media, paths.chacha, paths.prompts) == (
        home / "media.db",
        home / "chacha.db",
        home / "prompts.db",
    )


@pytest.mark.parametrize("text", NOT_USER_IDS.values(), ids=NOT_USER_IDS.keys())
def test_text_that_is_no_user_id_is_refused_by_every_function(data: DataRoot, text: str) -> None:
    before = sorted(data.root.rglob("*"))
    doors = (
        data.paths_of,
        data.prepare_user,
        data.remove_user,
        lambda user_id: data.ensure_database(user_id, "media"),
    )
    for door in doors:
        with pytest.raises(NotFound) as refusal:
            door(UserId(text))
        assert refusal.value.message == "user '(not a user id)' not found"
    assert sorted(data.root.rglob("*")) == before


@given(st.text(max_size=40) | st.from_regex(r"u_[a-z2-7/.]{26}", fullmatch=True))
def test_a_path_stays_below_the_root_for_any_text(text: str) -> None:
    root = Path("/srv/florilegium")
    try:
        media = DataRoot(root).paths_of(UserId(text)).media
    except NotFound:
        return
    assert Path(os.path.normpath(media)).is_relative_to(root / "users")
    assert media.parent.name == text


def test_everything_made_is_private_even_under_an_open_umask(tmp_path: Path) -> None:
    data = DataRoot(tmp_path / "above" / "data")
    with umask(0):
        data.prepare()
        media = data.ensure_database(ADA, "media")
    directories = [data.root.parent, data.root, *list(media.parents)[:3]]
    assert {mode_of(directory) for directory in directories} == {0o700}
    assert mode_of(media) == mode_of(data.control_path) == 0o600


def test_preparing_twice_keeps_what_is_there(data: DataRoot) -> None:
    data.control_path.write_bytes(b"control")
    data.ensure_database(ADA, "media").write_bytes(b"ada's")
    data.prepare()
    assert data.ensure_database(ADA, "media").read_bytes() == b"ada's"
    assert data.ensure_database(BOB, "media").read_bytes() == b""
    assert data.control_path.read_bytes() == b"control"


def test_a_root_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    DataRoot(shared).prepare()
    assert mode_of(shared) == 0o755
    assert mode_of(shared / "users") == 0o700


def test_a_user_directory_open_to_others_is_closed(data: DataRoot) -> None:
    home = data.prepare_user(ADA).media.parent
    home.chmod(0o755)
    data.prepare_user(ADA)
    assert mode_of(home) == 0o700


def test_a_root_behind_a_link_is_the_operators_choice(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "volume")
    data = DataRoot(tmp_path / "link")
    data.prepare()
    data.ensure_database(ADA, "media")
    assert list((tmp_path / "volume" / "users").glob("*/*/media.db"))


def test_a_relative_root_does_not_move_with_the_working_directory() -> None:
    assert DataRoot(Path("data")).root == Path.cwd() / "data"


@pytest.mark.parametrize("depth", [1, 2, 3], ids=["users", "shard", "user directory"])
def test_a_linked_directory_below_the_root_is_refused(data: DataRoot, tmp_path: Path, depth: int) -> None:
    outside = tmp_path / "outside"
    data.ensure_database(ADA, "chacha")
    step = data.paths_of(ADA).media.parents[3 - depth]
    step.rename(outside)
    step.symlink_to(outside)
    before = sorted(outside.rglob("*"))
    for door in (data.prepare_user, data.remove_user, lambda user_id: data.ensure_database(user_id, "media")):
        with pytest.raises(StorageError, match="a link or a file stands where a directory belongs"):
            door(ADA)
    assert sorted(outside.rglob("*")) == before


def test_a_database_that_links_to_another_users_is_refused(data: DataRoot) -> None:
    bobs = data.ensure_database(BOB, "media")
    data.prepare_user(ADA).media.symlink_to(bobs)
    with pytest.raises(StorageError, match="not a regular file"):
        data.ensure_database(ADA, "media")


def test_a_dangling_link_is_refused_and_its_target_is_not_made(data: DataRoot, tmp_path: Path) -> None:
    data.prepare_user(ADA).media.symlink_to(tmp_path / "made")
    with pytest.raises(StorageError, match="not a regular file"):
        data.ensure_database(ADA, "media")
    assert not (tmp_path / "made").exists()


def test_a_database_with_a_second_hard_link_is_refused(data: DataRoot) -> None:
    bobs = data.ensure_database(BOB, "media")
    data.prepare_user(ADA).media.hardlink_to(bobs)
    with pytest.raises(StorageError, match="second hard link"):
        data.ensure_database(ADA, "media")


def test_a_directory_in_place_of_a_database_is_refused(data: DataRoot) -> None:
    data.prepare_user(ADA).chacha.mkdir()
    with pytest.raises(StorageError, match="not a regular file"):
        data.ensure_database(ADA, "chacha")


def test_a_pipe_in_place_of_a_database_is_refused_without_waiting(data: DataRoot) -> None:
    os.mkfifo(data.prepare_user(ADA).prompts)
    with pytest.raises(StorageError, match="not a regular file"):
        data.ensure_database(ADA, "prompts")


def test_a_linked_control_database_is_refused_at_start(tmp_path: Path) -> None:
    (tmp_path / "control.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="not a regular file"):
        DataRoot(tmp_path).prepare()


def test_a_root_that_is_a_file_is_refused_naming_it(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StorageError, match=r"data cannot be used: .*choose another with data_dir"):
        DataRoot(tmp_path / "data").prepare()


def test_a_root_without_permission_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    locked = tmp_path / "it's locked"
    locked.mkdir(mode=0o500)
    with unprivileged():
        uid = os.geteuid()
        with pytest.raises(StorageError) as refusal:
            DataRoot(locked / "data").prepare()
    assert f"cannot be written by uid {uid}" in refusal.value.message
    assert f"chown -R {uid} '" in refusal.value.message


def test_a_prepared_root_that_can_no_longer_be_written_is_refused() -> None:
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)  # so that it can be entered as nobody, unlike pytest's own
        data = DataRoot(Path(directory) / "data")
        with unprivileged():
            data.prepare()
            data.root.chmod(0o500)
            with pytest.raises(StorageError, match="cannot be written by uid"):
                data.prepare()
            data.root.chmod(0o700)
            data.prepare()


def test_a_failure_at_a_users_files_names_no_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refusal:
        DataRoot(tmp_path / "absent").prepare_user(ADA)
    assert refusal.value.message == "the user's files cannot be used: no such file or directory"


def test_removing_a_user_leaves_the_other_and_what_links_point_to(data: DataRoot, tmp_path: Path) -> None:
    for user_id in (ADA, BOB):
        data.ensure_database(user_id, "media").write_text(user_id)
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "kept directory").mkdir()
    (tmp_path / "kept directory" / "inner").write_text("kept")
    home = data.paths_of(ADA).media.parent
    (home / "link").symlink_to(tmp_path / "kept")
    (home / "directory link").symlink_to(tmp_path / "kept directory")
    data.remove_user(ADA)
    assert not home.exists()
    assert data.paths_of(BOB).media.read_text() == BOB
    assert (tmp_path / "kept").read_text() == (tmp_path / "kept directory" / "inner").read_text() == "kept"


def test_removing_an_absent_user_is_no_error(data: DataRoot) -> None:
    data.ensure_database(BOB, "media")
    data.remove_user(ADA)
    assert data.paths_of(BOB).media.exists()


def test_looking_at_a_database_in_use_keeps_its_lock(data: DataRoot) -> None:
    media = data.ensure_database(ADA, "media")
    attempt = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with closing(sqlite3.connect(media, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        data.ensure_database(ADA, "media")
        command = [sys.executable, "-c", attempt, str(media)]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "database is locked" in other.stderr


def test_many_threads_may_ask_for_one_database_at_once(data: DataRoot) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(data.ensure_database(ADA, "media"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert found == [data.paths_of(ADA).media] * 16
