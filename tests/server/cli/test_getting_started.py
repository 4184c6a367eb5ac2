"""Part 1 of docs/getting-started.md, run as a reader would run it. Parts 2 and 3 need TLS and an identity provider."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.cli.program import EXECUTABLE, ROOT, TIMEOUT_S, Program

pytestmark = pytest.mark.slow("follows the whole manual")

PAGE = (ROOT / "docs" / "getting-started.md").read_text()
# These need a running server, or print the current time.
_NOT_RUN = ("florilegium serve", "florilegium backup", "florilegium restore", "curl")


def _commands() -> Iterator[tuple[str, str]]:
    """Every command in part 1, including its here-document, with the output that the page shows for it."""
    part = PAGE.partition("\n## Part 1.")[2].partition("\n## Part 2.")[0]
    for block in re.findall(r"^```console\n(.*?)^```$", part, re.MULTILINE | re.DOTALL):
        for command, output in re.findall(r"^\$ (.*\n(?:>.*\n)*)((?:[^$\n].*\n|\n)*)", block, re.MULTILINE):
            if not command.startswith(_NOT_RUN):
                yield re.sub(r"^> ?", "", command, flags=re.MULTILINE), output


def _install_command(folder: Path) -> None:
    folder.mkdir()
    command = folder / "florilegium"
    command.write_text(f'#!/bin/sh\nexec {" ".join(EXECUTABLE)} "$@"\n')
    command.chmod(0o755)


def test_part_1_prints_what_the_page_shows(program: Program) -> None:
    _install_command(program.home / "bin")
    environment = program.environment()
    environment["PATH"] = f"{program.home / 'bin'}:{environment['PATH']}"
    commands = list(_commands())

    for command, output in commands:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=program.home,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.stdout.decode() == output, command

    assert [name for name in ("import", "search", "get", "connect") if f"florilegium {name} " in str(commands)] == [
        "import",
        "search",
        "get",
        "connect",
    ]
