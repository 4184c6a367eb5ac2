"""The dump script, and restoring one user from a dump, on a real PostgreSQL database with two users."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.deploy.test_backup_scripts import SCRIPTS
from tests.live import live, make_settings
from tests.server.http_client import fetch
from tests.servers.postgres import create_database, drop_database, program_environment
from tests.servers.shared import SharedServer
from tests.test_architecture import ROOT

pytestmark = pytest.mark.slow("dumps and restores databases")


class Deployment:
    """A database with the libraries of two users, and commands that use it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self._folder = folder
        parts = urlsplit(url)
        kept = {name: value for name, value in program_environment().items() if not name.startswith("FLORILEGIUM_")}
        self._environ = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FLORILEGIUM_DATA_DIR": str(folder / "data"),
            "FLORILEGIUM_STORAGE_URL": url,
            "PGHOST": parts.hostname or "",
            "PGPORT": str(parts.port),
            "PGUSER": parts.username or "",
            "PGPASSWORD": parts.password or "",
            "PGDATABASE": parts.path.lstrip("/"),
        }

    def run(self, *command: str, **environ: str) -> str:
        """Runs a command that must succeed, and returns what it prints."""
        done = self.try_run(*command, **environ)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def try_run(self, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={**self._environ, **environ},
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def notes(self, user: str) -> list[dict[str, str]]:
        listed = self.run("florilegium", "list", "notes", "--user", user, "--json")
        notes: list[dict[str, str]] = msgspec.json.decode(listed)["items"]
        return notes


@pytest.fixture
def deployment(tmp_path: Path, postgres_server: SharedServer) -> Iterator[Deployment]:
    url = create_database(postgres_server)
    made = Deployment(tmp_path, url)
    for user in ("ada", "ben"):
        made.run("florilegium", "user", "add", user)
        made.run("florilegium", "add", "notes", "--user", user, "--title", f"Tea of {user}", "Steep it.")
    yield made
    drop_database(postgres_server, url)


async def last_backups(tmp_path: Path, url: str) -> dict[str, float]:
    """Returns what the metrics of a server say about backups."""
    async with live(make_settings(tmp_path / "server", storage_url=url, metrics_token="scrape-me")) as server:
        text = (await fetch(server.url, "GET", "/metrics", {"Authorization": "Bearer scrape-me"})).body.decode()
    lines = (line.split() for line in text.splitlines() if line.startswith("florilegium_backup_"))
    return {name.split("_")[2]: float(value) for name, value in lines}


async def test_dumps_are_made_tried_rotated_and_reported(deployment: Deployment, tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for name in ("20260101T033000Z.dump", "20260102T033000Z.dump", "mine.dump", "20260102T033000Z.dump.partial"):
        (folder / name).touch()
    os.utime(folder / "20260102T033000Z.dump.partial", (1, 1))
    started_at = time.time()

    made = deployment.run(str(SCRIPTS / "backup-postgres.sh"), str(folder), "2")

    assert "can be restored: 2 users" in made
    assert "2 libraries of 2 users checked, 0 faults found." in made
    names = sorted(path.name for path in folder.iterdir())
    assert [names[0], names[-1], len(names)] == ["20260102T033000Z.dump", "mine.dump", 3]
    assert (folder / names[1]).stat().st_mode & 0o077 == 0
    databases = deployment.run(
        "psql", "-Atc", "SELECT datname FROM pg_database WHERE datname LIKE 'florilegium_drill%'"
    )
    assert databases == ""
    backups = await last_backups(tmp_path, deployment.url)
    assert backups["success"] >= started_at - 1
    assert backups["failure"] == 0


async def test_a_dump_that_fails_is_reported_and_deletes_no_other(deployment: Deployment, tmp_path: Path) -> None:
    folder, tools = tmp_path / "dumps", tmp_path / "tools"
    folder.mkdir()
    tools.mkdir()
    (folder / "20260101T033000Z.dump").touch()
    (tools / "pg_restore").write_text("#!/bin/sh\nexit 1\n")
    (tools / "pg_restore").chmod(0o755)
    path = f"{tools}{os.pathsep}{deployment.run('printenv', 'PATH').strip()}"

    made = deployment.try_run(str(SCRIPTS / "backup-postgres.sh"), str(folder), "0", PATH=path)

    assert made.returncode == 1
    assert (folder / "20260101T033000Z.dump").exists()
    assert len(list(folder.glob("*.partial"))) == 1
    backups = await last_backups(tmp_path, deployment.url)
    assert backups["failure"] > backups["success"] == 0


def test_one_user_is_restored_from_a_dump_as_the_documentation_says(deployment: Deployment, tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "scaling.md").read_text()
    steps = guide.partition("### One user from a dump\n")[2].partition("```sh\n")[2].partition("```")[0]
    deployment.run("pg_dump", "--format=custom", "--file=florilegium.dump")
    # Afterwards both users write, and ada deletes and changes what the dump has.
    for user in ("ada", "ben"):
        deployment.run("florilegium", "add", "notes", "--user", user, "--title", f"Later tea of {user}", "Steep it.")
    [deleted] = [note["uri"] for note in deployment.notes("ada") if note["title"] == "Tea of ada"]
    deployment.run("florilegium", "rm", "--yes", deleted, "--user", "ada")
    before = {user: deployment.notes(user) for user in ("ada", "ben")}

    deployment.run("sh", "-euc", steps, NAME="ada", DUMP="florilegium.dump")

    assert [note["title"] for note in before["ada"]] == ["Later tea of ada"]
    assert [(note["title"], note["uri"]) for note in deployment.notes("ada")] == [("Tea of ada", deleted)]
    assert deployment.notes("ben") == before["ben"]
    left = "SELECT count(*) FROM pg_database WHERE datname = 'florilegium_restore'"
    assert deployment.run("psql", "-Atc", left) == "0\n"
    assert deployment.run("florilegium", "check").endswith("2 libraries of 2 users checked, 0 faults found.\n")
