"""Starts a server and withdraws access on a full disk: `unshare -rm python -m ... home` prints what happens.

The data directory is a tmpfs of its own in the mount namespace of this process, so that it can really be full.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from auth.context import READ, WRITE
from config.paths import DataRoot
from tests.live import JWT_SECRET, live, make_settings
from tests.server.cli.program import Program
from tests.server.http_client import fetch

DISK = "size=4m"
PAGE = 4096
# Enough for the shared memory of a log, and too little for a library.
ROOM = 32 * PAGE


def fill(directory: Path) -> None:
    """Writes until not a single block is left."""
    with (directory / "filler").open("ab", buffering=0) as file:
        for block in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(bytes(block))
            except OSError:
                pass


async def status(url: str, secret: str) -> int:
    headers = {"Authorization": f"Bearer {secret}"}
    return (await fetch(url, "GET", "/api/v1/import", headers)).status


async def withdraw_access(program: Program) -> None:
    def run(*arguments: str) -> str:
        outcome = program.run(*arguments, FLORILEGIUM_JWT_SECRET=JWT_SECRET)
        return f"{' '.join(arguments[:2])}: {outcome.code} {outcome.stderr.splitlines()[-1] if outcome.code else ''}"

    async with live(make_settings(program.data_dir)) as server:
        secrets, keys = {}, {}
        for name in ("ada", "ben", "carl"):
            user = await server.user(name)
            key, secrets[name] = await server.runtime.registry.create_key(user.id, "key", [READ, WRITE])
            keys[name] = key.id
        print("before:", [await status(server.url, secret) for secret in secrets.values()])
        fill(program.data_dir)
        print(await asyncio.to_thread(run, "user", "add", "dora"))
        for command in (
            ("key", "revoke", keys["ada"]),
            ("user", "disable", "ben"),
            ("user", "delete", "carl", "--purge", "--yes"),
        ):
            await asyncio.to_thread(fill, program.data_dir)
            print(await asyncio.to_thread(run, *command))
        print("after:", [await status(server.url, secret) for secret in secrets.values()])
        (program.data_dir / "filler").unlink()
        print(await asyncio.to_thread(run, "user", "add", "dora"))
        print("reserved again:", (program.data_dir / "control.db-reserved").stat().st_blocks > 0)


def restart(program: Program) -> None:
    """Starts a server, in which nobody signs in with a password, on a full disk."""
    program.with_users("eve")
    secret = program.expect("key", "create", "eve", "--quiet")
    program.expect("add", "notes", "comet", "--user", "eve")
    fill(program.data_dir)
    with program.serving("--port", "0", FLORILEGIUM_JWT_SECRET=JWT_SECRET) as up:
        print("restarted:", asyncio.run(status(up.mcp.removesuffix("/mcp"), secret)))
    (program.data_dir / "filler").unlink()


def repair(program: Program) -> None:
    """Prints what repairing a damaged library says if its rows do not fit on the disk, and whether it was changed."""
    [eve] = [user["id"] for user in program.run("user", "list", "--json").json if user["name"] == "eve"]
    path = DataRoot(program.data_dir).paths_of(eve).chacha
    intact = path.read_bytes()
    path.write_bytes(intact[: PAGE * 10] + b"\xff" * PAGE + intact[PAGE * 11 :])
    damaged = path.read_bytes()
    fill(program.data_dir)
    filler = program.data_dir / "filler"
    os.truncate(filler, filler.stat().st_size - ROOM)
    outcome = program.run("repair", "--user", "eve")
    print(f"repair: {outcome.code}", outcome.stderr.splitlines()[-1], path.read_bytes() == damaged)
    filler.unlink()
    path.write_bytes(intact)


def use_read_only(program: Program) -> None:
    """Prints what commands say if the file system is read-only, without the path."""
    subprocess.run(["mount", "-o", "remount,ro", str(program.data_dir)], check=True)
    for command in (("serve", "--port", "0"), ("user", "add", "fred")):
        outcome = program.run(*command)
        print(f"read-only: {outcome.code}", outcome.stderr.splitlines()[-1].replace(str(program.data_dir), "DIR"))
    saved = program.run("backup", str(program.home / "saved"))
    print(f"backup: {saved.code}", saved.stdout.partition(": ")[2].partition(",")[0])
    print(program.expect("restore", str(program.home / "saved"), "--verify", "--user", "eve").partition(" in ")[0])
    checks = {
        line.split()[1]: line for line in program.run("doctor").stdout.splitlines() if line[:4] in ("ok  ", "fail")
    }
    for name in ("data", "libraries"):
        print(" ".join(checks[name].replace(str(program.data_dir), "DIR").split()))


def main() -> None:
    program = Program(Path(sys.argv[1]))
    program.data_dir.mkdir(parents=True, mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", str(program.data_dir)], check=True)
    program.data_dir.chmod(0o700)
    restart(program)
    asyncio.run(withdraw_access(program))
    repair(program)
    use_read_only(program)


if __name__ == "__main__":
    main()
