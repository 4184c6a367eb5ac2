"""A kind of another distribution works everywhere: bookmarks, which `tests/plugins/bookmarks` declares, are stored,
found, read, changed, exported, backed up and followed through the real program, on both engines."""

import json
import os
import re
import site
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Struct

from tests.cases import each_case
from tests.live import HTTP_OPTIONS, free_port
from tests.server.clients import ModernClient, text_of
from tests.servers.postgres import create_database, drop_database, postgres_server

pytestmark = [
    pytest.mark.slow("builds and installs a distribution, and starts servers"),
    pytest.mark.sqlite,  # runs on both engines by itself
]

ROOT = Path(__file__).parents[2]
_BUILD = "import sys, uv_build; print(uv_build.build_wheel(sys.argv[1]))"
_LINKS = {
    "results": [
        {
            "url": "https://www.postgresql.org/docs/",
            "title": "PostgreSQL manual",
            "description": "How to run the relational server.",
            "tag_names": ["db"],
            "unread": True,
        },
        {"url": "https://leeks.example/broth", "title": "Leek broth", "description": "A recipe.", "tag_names": []},
    ]
}
_SQLITE = {
    "title": "SQLite documentation",
    "content": "The manual of the embedded database engine.",
    "tags": ["db"],
    "fields": {
        "url": "https://sqlite.org/docs.html",
        "author": "Hipp",
        "quotes": ["Small. Fast. Reliable."],
        "rating": 5,
        "is_unread": True,
    },
}


class Installation(Struct, frozen=True):
    """The program in an environment that has the distribution, with one data directory."""

    python: Path
    home: Path
    storage_url: str

    def environment(self, data: str = "data") -> dict[str, str]:
        variables = {"PATH": os.environ["PATH"], "HOME": str(self.home), "FLORILEGIUM_DATA_DIR": str(self.home / data)}
        return {**variables, "FLORILEGIUM_STORAGE_URL": self.storage_url} if self.storage_url else variables

    def run(self, *arguments: str, data: str = "data") -> str:
        command = [str(self.python), "-m", "server.cli", *arguments]
        done = subprocess.run(
            command, cwd=self.home, env=self.environment(data), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))


def install(folder: Path, project: Path) -> Path:
    """Builds a distribution and unpacks it into a new environment, which also has the packages of this one."""
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    command = [sys.executable, "-c", _BUILD, str(folder)]
    built = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert built.returncode == 0, built.stderr
    options = ["--without-pip", "--symlinks", str(folder / "environment")]
    subprocess.run([sys.executable, "-m", "venv", *options], timeout=120, check=True)
    [packages] = folder.glob("environment/lib/python*/site-packages")
    with zipfile.ZipFile(folder / built.stdout.split()[-1]) as archive:
        archive.extractall(packages)
    (packages / "dependencies.pth").write_text("\n".join([*site.getsitepackages(), str(ROOT)]))
    return folder / "environment" / "bin" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("distribution"), ROOT / "tests" / "plugins" / "bookmarks")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def storage_url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "sqlite":
        yield ""
        return
    url = create_database(postgres_server())
    yield url
    drop_database(postgres_server(), url)


@pytest.fixture
def program(python: Path, storage_url: str, tmp_path: Path) -> Iterator[Installation]:
    """A library that no server uses."""
    url = create_database(postgres_server()) if storage_url else ""
    yield Installation(python, tmp_path, url)
    if url:
        drop_database(postgres_server(), url)


class Server(Struct, frozen=True):
    url: str
    http: httpx2.Client

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    async def bearer(self, name: str) -> dict[str, str]:
        return {}

    def rest(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        response = self.http.request(method, f"/api/v1{path}", json=body, params=query)
        assert response.is_success, response.text
        return response.json()

    def page(self, path: str) -> str:
        response = self.http.get(path, headers={"Accept": "text/html"})
        assert response.status_code == 200, response.text
        return response.text

    def submit(self, path: str, fields: Mapping[str, str]) -> str:
        """Sends a form of the console and returns the page that follows."""
        token = re.search(r'name="csrf_token" value="([^"]+)"', self.page(path))
        assert token is not None
        form = {"csrf_token": token[1], **fields}
        headers = {"Accept": "text/html", "Origin": self.url}
        response = self.http.post(path.partition("?")[0], data=form, headers=headers, follow_redirects=True)
        assert response.status_code == 200, response.text
        return response.text

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Calls a tool over MCP."""
        client = await ModernClient.of(self, "ada")
        result = (await client.call(tool, arguments)).json()["result"]
        assert not result.get("isError"), text_of(result)
        return result["structuredContent"]


@pytest.fixture(scope="module")
def server(python: Path, storage_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of an engine."""
    program, port = Installation(python, tmp_path_factory.mktemp("home"), storage_url), free_port()
    command = [str(program.python), "-m", "server.cli", "serve", "--port", str(port), "--user-max-items", "4"]
    with subprocess.Popen(
        command,
        cwd=program.home,
        env=program.environment(),
        stderr=subprocess.STDOUT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        output = []
        for line in process.stdout:
            output.append(line)
            if f":{port}" in line:
                break
        else:
            pytest.fail(f"the server ended: {''.join(output)}")
        url = f"http://127.0.0.1:{port}"
        try:
            with httpx2.Client(**HTTP_OPTIONS, base_url=url) as http:
                yield Server(url, http)
        finally:
            process.terminate()
            process.communicate()


async def test_a_bookmark_is_written_found_and_read_over_mcp(server: Server) -> None:
    created = await server.call("items_create", source="bookmarks", **_SQLITE)
    assert created["uri"] == f"bookmarks://{created['id']}"
    # By words, in its own source and in all of them.
    own = await server.call("bookmarks_search", query="reliable engine", tags=["db"])
    assert [hit["title"] for hit in own["results"]] == ["SQLite documentation"]
    found = await server.call("knowledge_search", query="tag:db Hipp")
    assert [hit["uri"] for hit in found["results"]] == [created["uri"]]
    # By an excerpt, in every mode.
    for mode in ("snippet", "chunk", "chunk_with_siblings", "full", "auto"):
        read = await server.call("knowledge_get", uri=created["uri"], query="reliable", retrieval={"mode": mode})
        assert "Small. Fast. Reliable." in read["content"], mode
    read = await server.call("bookmarks_get", id=created["id"])
    assert read["content"].startswith("# SQLite documentation\n\n## Url\n\nhttps://sqlite.org/docs.html\n")
    # Changed, tagged and deleted.
    changed = await server.call("items_update", uri=created["uri"], fields={"rating": 4}, expected_version=1)
    assert changed["version"] == 2
    tagged = await server.call("items_tag", uri=created["uri"], add=["web"])
    assert tagged["tags"] == ["db", "web"]
    await server.call("items_delete", uri=created["uri"])
    assert (await server.call("bookmarks_search", query="reliable"))["results"] == []


def test_rest_lists_changes_and_restores_bookmarks(server: Server) -> None:
    created = server.rest("POST", "/items/bookmarks", _SQLITE)
    stored = server.rest("GET", "/items/fields", uri=created["uri"])
    assert stored["fields"] == _SQLITE["fields"]
    [listed] = server.rest("GET", "/library/items", source="bookmarks")["items"]
    for empty in (None, ""):
        server.rest("PATCH", f"/items/bookmarks/{created['id']}", {"fields": {"rating": 3}})
        server.rest("PATCH", f"/items/bookmarks/{created['id']}", {"fields": {"rating": empty}})
        assert server.rest("GET", "/items/fields", uri=created["uri"])["fields"]["rating"] is None
    assert (listed["title"], listed["chars"]) == ("SQLite documentation", len(str(_SQLITE["content"])))
    assert server.rest("GET", "/library")["sources"]["bookmarks"] == 1
    server.rest("DELETE", f"/items/bookmarks/{created['id']}")
    assert server.rest("GET", "/library")["sources"]["bookmarks"] == 0
    server.rest("POST", "/items/restore", {"uri": created["uri"]})
    assert server.rest("POST", "/search", {"query": "reliable"})["results"][0]["uri"] == created["uri"]
    server.rest("DELETE", f"/items/bookmarks/{created['id']}")


@each_case(
    ("fields", "problem"),
    [
        ({"url": "https://a", "colour": "red"}, "fields.colour: unknown argument"),
        ({"url": "https://a", "rating": "high"}, "fields.rating: expected `int`"),
        ({}, "url: expected a non-empty string"),
    ],
)
def test_values_that_the_declaration_does_not_permit_are_rejected(
    server: Server, fields: Mapping[str, Any], problem: str
) -> None:
    response = server.http.post("/api/v1/items/bookmarks", json={"title": "A page", "fields": fields})
    assert response.status_code == 400
    assert problem in response.text


def test_the_console_lists_and_edits_bookmarks(server: Server) -> None:
    entered = {
        "source": "bookmarks",
        "title": "Leek soup",
        "content": "A recipe.",
        "url": "https://leeks.example",
        "quotes.0": "Chop the leeks.",
        "is_unread": "yes",
        "tags": "food, soup",
    }
    form = server.page("/new?source=bookmarks")
    assert all(f">{label}</label>" in form for label in ("Title", "Description", "Address", "Rating"))
    assert "Begins with https://" in form
    page = server.submit("/new?source=bookmarks", entered)
    assert "Chop the leeks." in page
    assert "Bookmarks" in server.page("/library")
    assert "Leek soup" in server.page("/library?source=bookmarks")
    [item] = server.rest("GET", "/library/items", source="bookmarks")["items"]
    path = f"/edit/bookmarks/{item['uri'].partition('://')[2]}"
    server.submit(path, {**entered, "version": "1", "rating": "3", "content": "A better recipe."})
    stored = server.rest("GET", "/items/fields", uri=item["uri"])
    assert (stored["content"], stored["fields"]["rating"]) == ("A better recipe.", 3)
    assert stored["fields"]["is_unread"] is True


def test_bookmarks_count_for_the_quota(server: Server) -> None:
    [item] = server.rest("GET", "/library/items", source="bookmarks")["items"]
    for number in range(3):
        server.rest("POST", "/items/bookmarks", {"title": f"Page {number}", "fields": {"url": f"https://{number}"}})
    response = server.http.post("/api/v1/items/bookmarks", json={"title": "One more", "fields": {"url": "https://x"}})
    assert response.status_code == 507, response.text
    for listed in server.rest("GET", "/library/items", source="bookmarks")["items"]:
        if listed != item:
            server.rest("DELETE", "/items", uri=listed["uri"])


def test_commands_import_follow_embed_and_export_bookmarks(program: Installation, tmp_path: Path) -> None:
    """A file is imported by the format that the distribution adds, and followed; meanings are compared; an export is
    imported into another library, and exported there: nothing is lost."""
    links = tmp_path / "links" / "links.json"
    links.parent.mkdir()
    links.write_text(json.dumps(_LINKS))
    program.run("follow", "add", str(links.parent))
    program.run("follow", "run")
    assert program.run("list", "bookmarks").count("bookmarks://") == 2
    links.write_text(json.dumps({"results": _LINKS["results"][:1]}))
    program.run("follow", "run")
    assert "Leek broth" not in program.run("list", "bookmarks")
    program.run("user", "add", "ben")
    assert "bookmarks://" not in program.run("list", "bookmarks", "--user", "ben")
    copy = tmp_path / "copy.json"
    copy.write_text(json.dumps(_LINKS))
    program.run("import", str(copy))
    program.run("embed")
    hits = program.json("search", "vegetable dish", "--source", "bookmarks")["results"]
    assert "Leek" in hits[0]["title"]
    program.run("export", str(tmp_path / "exported"))
    other = Installation(program.python, tmp_path, "")
    other.run("import", str(tmp_path / "exported"), data="other")
    other.run("export", str(tmp_path / "again"), data="other")
    lines, again = (_lines(tmp_path / name / "bookmarks.jsonl") for name in ("exported", "again"))
    assert again == lines
    assert {line["kind"] for line in lines} == {"bookmark"}


def test_a_backup_with_bookmarks_is_restored_and_checked(python: Path, tmp_path: Path) -> None:
    program = Installation(python, tmp_path, "")
    program.run("add", "bookmark", "--title", "SQLite", "--field", "url=https://sqlite.org", "The embedded engine.")
    program.run("embed")
    program.run("backup", str(tmp_path / "backup"))
    program.run("restore", str(tmp_path / "backup"), data="restored")
    assert "SQLite" in program.run("search", "embedded", data="restored")
    program.run("reindex", data="restored")
    assert "0 faults" in program.run("check", data="restored")


def test_a_library_from_before_the_installation_gets_the_table(program: Installation, tmp_path: Path) -> None:
    """Notes and their vectors are there first; the distribution is installed, and later declares one more field."""
    plain = Installation(Path(sys.executable), tmp_path, program.storage_url)
    plain.run("add", "note", "--title", "Leeks", "Chop them.")
    plain.run("embed")
    program.run("add", "bookmark", "--title", "SQLite", "--field", "url=https://sqlite.org", "The embedded engine.")
    project, changed = ROOT / "tests" / "plugins" / "bookmarks", tmp_path / "changed"
    (changed / "florilegium_bookmarks").mkdir(parents=True)
    added = 'comment: Annotated[str, Field("Comment", is_searched=True, is_embedded=True)] = ""'
    for path in (project / "pyproject.toml", *(project / "florilegium_bookmarks").glob("*.py")):
        text = path.read_text().replace("    rating:", f"    {added}\n    rating:")
        (changed / path.relative_to(project)).write_text(text)
    upgraded = Installation(install(tmp_path / "upgraded", changed), tmp_path, program.storage_url)
    [uri] = re.findall(r"bookmarks://\S+", upgraded.run("list", "bookmarks"))
    upgraded.run("edit", uri, "--field", "comment=Marvellous")
    upgraded.run("embed")
    assert "SQLite" in upgraded.run("search", "marvellous engine")
    # Without the distribution, its items are out of reach, and nothing else is.
    assert "Leeks" in plain.run("search", "chop")


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]
