"""The operation of CONTRIBUTING.md: its two files are enough to use it over MCP and REST, as a command and a form."""

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

import server.operations
from auth.context import READ
from server.cli import florilegium
from tests.live import live, make_settings
from tests.server.cli.program import Program
from tests.server.console.signed_in import HTML, csrf_token, session_cookie
from tests.server.rest.rest_client import rest_client_of

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture(autouse=True)
def _untagged(tmp_path: Path) -> Iterator[None]:
    """Adds the module of the guide to `server.operations`, and its line to the table of subjects."""
    found = re.search(r"server/operations/(\w+)\.py`:\n\n```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    name, code = found.groups()
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / f"{name}.py").write_text(code)
    server.operations.__path__.append(str(tmp_path / "added"))
    server.operations.SUBJECTS.append(name)
    yield
    server.operations.SUBJECTS.remove(name)
    server.operations.__path__.remove(str(tmp_path / "added"))
    sys.modules.pop(f"server.operations.{name}", None)


async def test_it_is_a_tool_a_rest_operation_a_form_and_a_command_on_a_server(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path / "server")) as running:
        api = rest_client_of(running)
        ada, ben = [await api.library_user(name) for name in ("ada", "ben")]
        uri = f"notes://{await ada.add_note('Kettle', 'copper')}"
        await ada.add_note("Voyage", "a galleon", tags=["sea"])
        expected = {"looked_at": 2, "uris": [uri]}

        assert await ada.call("notes_untagged", limit=20) == expected
        assert (await api.get("/api/v1/untagged-notes?limit=20")).json() == expected
        assert (await api.get("/api/v1/untagged-notes?limit=0")).status == 400
        assert await ben.call("notes_untagged") == {"looked_at": 0, "uris": []}
        assert "/api/v1/untagged-notes" in (await api.get("/openapi.json")).json()["paths"]

        cookie = await session_cookie(api, "ada")
        form = (await api.get("/forms/untagged", None, accept=HTML, cookie=cookie)).body.decode()
        assert "How many of the newest notes to look at." in form
        headers = {"accept": HTML, "cookie": cookie, "content-type": "application/x-www-form-urlencoded"}
        headers["origin"] = running.runtime.settings.base_url
        body = urlencode({"csrf_token": csrf_token(form), "limit": "20"}).encode()
        sent = await api.request("POST", "/forms/untagged", None, headers, body)
        assert (sent.status, uri in sent.body.decode()) == (200, True)
        wrong = body.replace(b"limit=20", b"limit=0")
        assert (await api.request("POST", "/forms/untagged", None, headers, wrong)).status == 400

        user = await running.user("ada")
        _, key = await running.runtime.registry.create_key(user.id, "cli", [READ])
        arguments = ["--server", running.url, "untagged", "--limit", "20", "--json"]
        result = await asyncio.to_thread(CliRunner().invoke, florilegium, arguments, env={"FLORILEGIUM_TOKEN": key})
        assert (result.exit_code, uri in result.stdout) == (0, True), result.stderr


def test_it_is_a_command_on_the_files(tmp_path: Path) -> None:
    program = Program(tmp_path)
    uri = program.run("add", "note", "copper", "--title", "Kettle", "--json").json["uri"]
    program.expect("add", "note", "a galleon", "--title", "Voyage", "--tag", "sea")

    assert program.run("untagged", "--json").json == {"looked_at": 2, "uris": [uri]}
    assert program.expect("untagged", "--limit", "10").splitlines() == ["looked at: 2", f"uris: {uri}"]
    assert program.run("untagged", "--limit", "0").code == 2
    assert "--limit INTEGER" in program.expect("untagged", "--help")
    assert "untagged" in program.expect("--help")
