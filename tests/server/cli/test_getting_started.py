"""docs/getting-started.md, run as a reader would run it: parts 1 to 4 in their order, in one home directory.

TLS, the host kb.example.com and the identity provider are replaced by plain HTTP on this machine; a browser by a form.
"""

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from html import unescape
from http.cookiejar import CookieJar
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pytest

from tests.live import free_port
from tests.server.cli.program import EXECUTABLE, ROOT, Program, RunningServer, without_progress

# Several processes for each command, on a machine that may be busy.
TIMEOUT_S = 120
pytestmark = [pytest.mark.sqlite, pytest.mark.slow("follows the whole manual")]

PAGE = (ROOT / "docs" / "getting-started.md").read_text()
# Needs an identity provider.
_NOT_RUN = "/.well-known/oauth-protected-resource"
# Differs between two runs: ids, secrets, times, sizes and counts of rows.
_VOLATILE = re.compile(r"\b(k|u)_[a-z2-7]{10,}|flo_\S+|[\w-]{43}|\d{4}-\d\d-\d\dT[\d:]+Z|\d+ rows|0\.1\.\d+")


# A command goes on after | and \\, and in its here-document. What follows is its output.
_COMMAND = re.compile(r"^\$ ((?:.*[|\\]\n)*.*\n(?:>.*\n)*)((?:[^$\n].*\n|\n(?!\$))*)", re.MULTILINE)


def commands(part: int) -> Iterator[tuple[str, str]]:
    """Every command of a part, with its here-document, and the output that the page shows for it."""
    text = PAGE.partition(f"\n## Part {part}.")[2].partition(f"\n## Part {part + 1}.")[0]
    for block in re.findall(r"^ *```console\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        lines = (
            re.sub(r"^   (?=\$|       new|notes)", "", block, flags=re.MULTILINE) if block.startswith("   $") else block
        )
        for command, output in _COMMAND.findall(lines):
            yield re.sub(r"^> ?", "", command, flags=re.MULTILINE), output


def _comparable(text: str) -> str:
    return _VOLATILE.sub("*", without_progress(text)).strip()


class Reader:
    """Types the commands of the page in one shell, whose variables last."""

    def __init__(self, program: Program, port: int) -> None:
        self._program = program
        self._replacements = {
            "https://kb.example.com": f"http://127.0.0.1:{port}",
            "127.0.0.1:8765": f"127.0.0.1:{port}",
            "/home/ada": str(program.home),
            "/srv": str(program.home / "srv"),
        }
        (program.home / "srv").mkdir()
        (program.home / "bin").mkdir()
        command = program.home / "bin" / "florilegium"
        command.write_text(f'#!/bin/sh\nexec {" ".join(EXECUTABLE)} "$@"\n')
        command.chmod(0o755)
        self._environment = program.environment(FLORILEGIUM_PORT=str(port))
        self._environment["PATH"] = f"{program.home / 'bin'}:{self._environment['PATH']}"

    def here(self, text: str) -> str:
        for theirs, ours in self._replacements.items():
            text = text.replace(theirs, ours)
        return text

    def follow(self, part: int, after: Mapping[str, Callable[[], object]] = {}) -> list[str]:
        """Runs the commands of a part, except `serve`, and compares their output with that of the page. `after` has
        what else happens after a command."""
        done = []
        for command, output in commands(part):
            if command.startswith("florilegium serve") or _NOT_RUN in command:
                continue
            shown, printed = _comparable(self.here(output)), _comparable(self.type(self.here(command)))
            tries = TIMEOUT_S if "$JOB" in command else 0
            while printed != shown and tries:  # the import has not ended
                tries -= 1
                time.sleep(1)
                printed = _comparable(self.type(self.here(command)))
            if shown or not command.startswith("florilegium doctor"):
                assert printed == shown, command
            after.get(command.strip(), lambda: None)()
            done.append(command)
        return done

    def type(self, command: str) -> str:
        state = self._program.home / ".variables"
        script = (
            f"[ -e {state} ] && . {state}\n{command}\ndeclare -p KEY JOB FLORILEGIUM_CONFIG 2>/dev/null > {state}; true"
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self._program.home,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.stdout.decode()


def create_account(server: RunningServer, name: str) -> None:
    """What the first administrator does in a browser."""
    link = next(line.strip() for line in server.welcome.splitlines() if "/setup/" in line)
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
    page = browser.open(link, timeout=TIMEOUT_S).read().decode()
    assert "Take over the library of this server" in page
    [token] = re.findall(r'name="csrf_token" value="([^"]+)"', page)
    password = "correct horse battery staple"
    form = {"csrf_token": unescape(token), "name": name, "password": password, "repeated": password, "adopt_local": "1"}
    browser.addheaders += [("Origin", re.sub(r"(//[^/]+)/.*", r"\1", link))]
    assert browser.open(link, urlencode(form).encode(), timeout=TIMEOUT_S).status == 200


def test_parts_1_to_4_print_what_the_page_shows(program: Program) -> None:
    port = free_port()
    reader = Reader(program, port)
    arguments = ("--port", str(port))
    with program.serving(*arguments) as server:
        # As on the page, where the server is started after the first import: commands work with and without it.
        done = reader.follow(1)
        assert "Open http://127.0.0.1:" in server.welcome.splitlines()[0]
    assert {command.split()[1] for command in done if command.startswith("florilegium ")} == {
        *("import", "search", "get", "connect", "backup", "restore")
    }
    with program.serving(*arguments, "--require-auth", "true") as server:
        create_account(server, "ada")
        reader.follow(2)
        assert "Sourdough" in reader.type('florilegium search "sour loaf" --user ada')
    with ExitStack() as stack:
        config = {"FLORILEGIUM_CONFIG": str(program.home / "srv" / "florilegium.toml")}
        # The page leaves it to a service manager, once the settings are written.
        reader.follow(3, {"florilegium doctor": lambda: stack.enter_context(program.serving(*arguments, **config))})
        assert len(reader.follow(4)) == 4
