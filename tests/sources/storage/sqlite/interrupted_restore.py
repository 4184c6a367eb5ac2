"""Restores a user again and again, killed at each change of the file system: `python -m ... data backup user_id`.

Prints the titles of the notes and the names of the prompts that the user has after each time, and at last "complete".
"""

import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from config.paths import DataRoot, UserId
from sources.storage.sqlite.maintenance.backups import finish_restores, restore_user

CHANGES = ("os.mkdir", "os.rename", "os.rmdir", "os.remove")


def restore_until(change: int, backup: Path, data: DataRoot, user_id: UserId) -> bool:
    """Restores in a process that is killed before this change. Returns whether there were fewer."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    left = change

    def count(event: str, _arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in CHANGES:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    restore_user(backup, "ada", data, user_id)
    os._exit(0)


def contents(data: DataRoot, user_id: UserId) -> str:
    paths = data.paths_of(user_id)
    texts = []
    for path, sql in ((paths.chacha, "SELECT title FROM notes"), (paths.prompts, "SELECT name FROM prompts")):
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            texts += [text for (text,) in connection.execute(sql)]
    return ", ".join(texts)


def main(original: Path, backup: Path, user_id: UserId) -> None:
    change, is_complete = 0, False
    data = DataRoot(original.with_name("interrupted"))
    while not is_complete:
        change += 1
        shutil.rmtree(data.root, ignore_errors=True)
        shutil.copytree(original, data.root)
        is_complete = restore_until(change, backup, data, user_id)
        # As the next start of a server does.
        finish_restores(data)
        assert not list(data.root.glob("users/*/*/restored*"))
        print(contents(data, user_id))
    print("complete")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), UserId(sys.argv[3]))
