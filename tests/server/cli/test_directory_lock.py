"""One server per data directory: a second one is refused and names the first, until the first has ended."""

import pytest

from tests.server.cli.program import Program
from tests.server.cli.requests import who_am_i

# A data directory without SQLite files needs no lock.
pytestmark = [pytest.mark.sqlite, pytest.mark.slow("kills processes")]


def test_a_second_server_is_refused_and_told_who_is_running(program: Program) -> None:
    with program.serving("--port", "0") as first:
        second = program.run("serve", "--port", "0")
        assert second.code == 1
        assert f"is in use by `florilegium serve` (pid {first.process.pid} on " in second.stderr
        assert who_am_i(first.mcp) == (200, "local")
        first.process.kill()
        first.process.wait()
        with program.serving("--port", "0") as third:
            assert who_am_i(third.mcp) == (200, "local")
