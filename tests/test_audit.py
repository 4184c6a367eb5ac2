"""`make audit`: the pinned packages of a lock are looked up in a database of known vulnerabilities."""

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.test_architecture import ROOT

LOCK = """\
# made by a tool
Sound-Package==1.2 \\
    --hash=sha256:00
weak_package==0.9 ; sys_platform == 'linux' \\
    --hash=sha256:01
"""


class Database(http.server.BaseHTTPRequestHandler):
    """Answers like OSV: version 0.9 is affected, 1.2 is not."""

    queries: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        self.queries.extend(queries)
        results = [{"vulns": [{"id": "PYSEC-1"}]} if query["version"] == "0.9" else {} for query in queries]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"results": results}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Prints nothing."""


@pytest.fixture
def database() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), Database) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def audit(lock: Path, database: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "audit.py"), str(lock), "--database", database]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_affected_package_fails_the_audit(database: str, tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text(LOCK)
    outcome = audit(tmp_path / "lock.txt", database)
    assert outcome.returncode == 1
    assert outcome.stdout == "weak_package 0.9: PYSEC-1\n2 packages checked, 1 with known vulnerabilities.\n"


def test_every_pinned_package_is_looked_up(database: str) -> None:
    Database.queries.clear()
    assert audit(ROOT / "requirements.txt", database).returncode == 0
    names = {query["package"]["name"] for query in Database.queries}
    assert {"aiosqlite", "msgspec", "starlette", "uvicorn"} <= names
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert names == {line.partition("==")[0] for line in lines if "==" in line and not line.startswith((" ", "#"))}


def test_an_audit_without_a_network_says_so(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text(LOCK)
    outcome = audit(tmp_path / "lock.txt", "http://127.0.0.1:1")
    assert outcome.returncode == 75
    assert outcome.stdout.startswith("Not checked: http://127.0.0.1:1 cannot be reached")


def test_an_audit_of_no_package_says_so(database: str, tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("# nothing\n")
    outcome = audit(tmp_path / "lock.txt", database)
    assert (outcome.returncode, outcome.stdout) == (75, "Not checked: the locks pin no package.\n")


def test_ci_runs_the_audit_and_tells_its_outcomes_apart() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    locks = sorted(path.name for path in ROOT.glob("requirements*.txt"))
    [line] = [line for line in script.splitlines() if "audit.py" in line]
    assert sorted(word for word in line.split() if word.startswith("requirements")) == locks
    assert '[ "$audit" = 75 ]' in script
