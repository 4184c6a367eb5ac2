"""A user id leads only to that user's files, whatever is on the disk or in the id."""

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
    """Drops root privileges temporarily, because root can write everywhere."""
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


def test_new_user_ids_are_valid_and_unique(tmp_path: Path) -> None:
    ids = {new_user_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert len({DataRoot(tmp_path).paths_of(user_id).media for user_id in ids}) == 1000


def test_databases_of_a_user_are_in_a_directory_named_after_the_id(tmp_path: Path) -> None:
    user_id = UserId("u_" + "ab" * 13)
    paths = DataRoot(tmp_path).paths_of(user_id)
    home = tmp_path / "users" / "ab" / user_id
    assert (paths.media, paths.chacha, paths.prompts) == (
        home / "media.db",
        home / "chacha.db",
        home / "prompts.db",
    )


@pytest.mark.parametrize("text", NOT_USER_IDS.values(), ids=NOT_USER_IDS.keys())
def test_invalid_user_id_is_rejected_by_every_method(data: DataRoot, text: str) -> None:
    before = sorted(data.root.rglob("*"))
    methods = (
        data.paths_of,
        data.prepare_user,
        data.remove_user,
        lambda user_id: data.ensure_database(user_id, "media"),
    )
    for method in methods:
        with pytest.raises(NotFound) as raised:
            method(UserId(text))
        assert raised.value.message == "user '(not a user id)' not found"
    assert sorted(data.root.rglob("*")) == before


@given(st.text(max_size=40) | st.from_regex(r"u_[a-z2-7/.]{26}", fullmatch=True))
def test_path_stays_below_the_root_for_arbitrary_text(text: str) -> None:
    root = Path("/srv/florilegium")
    try:
        media = DataRoot(root).paths_of(UserId(text)).media
    except NotFound:
        return
    assert Path(os.path.normpath(media)).is_relative_to(root / "users")
    assert media.parent.name == text


def test_created_files_are_private_even_with_an_open_umask(tmp_path: Path) -> None:
    data = DataRoot(tmp_path / "above" / "data")
    with umask(0):
        data.prepare()
        media = data.ensure_database(ADA, "media")
    directories = [data.root.parent, data.root, *list(media.parents)[:3]]
    assert {mode_of(directory) for directory in directories} == {0o700}
    assert mode_of(media) == mode_of(data.control_path) == 0o600


def test_preparing_twice_keeps_existing_files(data: DataRoot) -> None:
    data.control_path.write_bytes(b"control")
    data.ensure_database(ADA, "media").write_bytes(b"ada's")
    data.prepare()
    assert data.ensure_database(ADA, "media").read_bytes() == b"ada's"
    assert data.ensure_database(BOB, "media").read_bytes() == b""
    assert data.control_path.read_bytes() == b"control"


def test_existing_root_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    DataRoot(shared).prepare()
    assert mode_of(shared) == 0o755
    assert mode_of(shared / "users") == 0o700


def test_permissions_of_others_are_removed_from_a_user_directory(data: DataRoot) -> None:
    home = data.prepare_user(ADA).media.parent
    home.chmod(0o755)
    data.prepare_user(ADA)
    assert mode_of(home) == 0o700


def test_root_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "volume")
    data = DataRoot(tmp_path / "link")
    data.prepare()
    data.ensure_database(ADA, "media")
    assert list((tmp_path / "volume" / "users").glob("*/*/media.db"))


def test_relative_root_is_made_absolute() -> None:
    assert DataRoot(Path("data")).root == Path.cwd() / "data"


@pytest.mark.parametrize("depth", [1, 2, 3], ids=["users", "shard", "user directory"])
def test_linked_directory_below_the_root_is_rejected(data: DataRoot, tmp_path: Path, depth: int) -> None:
    outside = tmp_path / "outside"
    data.ensure_database(ADA, "chacha")
    directory = data.paths_of(ADA).media.parents[3 - depth]
    directory.rename(outside)
    directory.symlink_to(outside)
    before = sorted(outside.rglob("*"))
    for method in (data.prepare_user, data.remove_user, lambda user_id: data.ensure_database(user_id, "media")):
        with pytest.raises(StorageError, match="expected a directory, found a link or a file"):
            method(ADA)
    assert sorted(outside.rglob("*")) == before


def test_database_that_links_to_another_users_is_rejected(data: DataRoot) -> None:
    bobs = data.ensure_database(BOB, "media")
    data.prepare_user(ADA).media.symlink_to(bobs)
    with pytest.raises(StorageError, match="not a regular file"):
        data.ensure_database(ADA, "media")


def test_dangling_link_is_rejected_and_its_target_not_created(data: DataRoot, tmp_path: Path) -> None:
    data.prepare_user(ADA).media.symlink_to(tmp_path / "target")
    with pytest.raises(StorageError, match="not a regular file"):
        data.ensure_database(ADA, "media")
    assert not (tmp_path / "target").exists()


def test_database_with_a_second_hard_link_is_rejected(data: DataRoot) -> None:
    bobs = data.ensure_database(BOB, "media")
    data.prepare_user(ADA).media.hardlink_to(bobs)
    with pytest.raises(StorageError, match="second hard link"):
        data.ensure_database(ADA, "media")


def test_directory_in_place_of_a_database_is_rejected(data: DataRoot) -> None:
    data.prepare_user(ADA).chacha.mkdir()
    with pytest.raises(StorageError, match="not a regular file"):
        data.ensure_database(ADA, "chacha")


def test_pipe_in_place_of_a_database_is_rejected_without_blocking(data: DataRoot) -> None:
    os.mkfifo(data.prepare_user(ADA).prompts)
    with pytest.raises(StorageError, match="not a regular file"):
        data.ensure_database(ADA, "prompts")


def test_linked_control_database_is_rejected_at_start(tmp_path: Path) -> None:
    (tmp_path / "control.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="not a regular file"):
        DataRoot(tmp_path).prepare()


def test_root_that_is_a_file_is_rejected_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StorageError, match=r"data cannot be used: .*set data_dir to another directory"):
        DataRoot(tmp_path / "data").prepare()


def test_unwritable_root_is_rejected_with_the_command_that_fixes_it(tmp_path: Path) -> None:
    locked = tmp_path / "it's locked"
    locked.mkdir(mode=0o500)
    with unprivileged():
        uid = os.geteuid()
        with pytest.raises(StorageError) as raised:
            DataRoot(locked / "data").prepare()
    assert f"is not writable by uid {uid}" in raised.value.message
    assert f"chown -R {uid} '" in raised.value.message


def test_prepared_root_that_became_read_only_is_rejected() -> None:
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)  # accessible without root privileges, unlike pytest's own
        data = DataRoot(Path(directory) / "data")
        with unprivileged():
            data.prepare()
            data.root.chmod(0o500)
            with pytest.raises(StorageError, match="is not writable by uid"):
                data.prepare()
            data.root.chmod(0o700)
            data.prepare()


def test_root_that_this_account_may_not_search_is_reported_with_its_owner() -> None:
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        data = DataRoot(Path(directory) / "data")
        data.prepare()
        owner = 4321 if os.geteuid() == 0 else os.geteuid()  # only root can give a directory away
        os.chown(data.root, owner, -1)
        data.root.chmod(0o700 if os.geteuid() == 0 else 0)
        with unprivileged():
            expected = "belongs to uid 4321, and uid 65534 may not use it" if owner == 4321 else "is not writable"
            for look in (data.has_control, data.require_control):
                with pytest.raises(StorageError, match=expected):
                    look()
        data.root.chmod(0o700)


def test_failure_at_a_users_files_does_not_reveal_the_path(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as raised:
        DataRoot(tmp_path / "absent").prepare_user(ADA)
    assert raised.value.message == "the user's files cannot be accessed: no such file or directory"


def test_removing_a_user_keeps_other_users_and_link_targets(data: DataRoot, tmp_path: Path) -> None:
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


def test_removing_an_unknown_user_does_nothing(data: DataRoot) -> None:
    data.ensure_database(BOB, "media")
    data.remove_user(ADA)
    assert data.paths_of(BOB).media.exists()


def test_ensure_database_keeps_the_lock_of_an_open_database(data: DataRoot) -> None:
    media = data.ensure_database(ADA, "media")
    attempt = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with closing(sqlite3.connect(media, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        data.ensure_database(ADA, "media")
        command = [sys.executable, "-c", attempt, str(media)]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "database is locked" in other.stderr


def test_many_threads_can_ensure_one_database(data: DataRoot) -> None:
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(data.ensure_database(ADA, "media"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert paths == [data.paths_of(ADA).media] * 16
