"""The check that tests named in a compatibility manifest use a transport."""

from pathlib import Path

import pytest

from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.cli.program import Program
from tests.server.clients import WebSocketClient
from tests.server.http_client import fetch
from tests.server.rest.rest_client import open_rest_client
from tests.transport_requests import require_transport

TEST = "tests/test_birds.py::test_it_sings"
NAMED = frozenset((TEST,))


@each_case("case", ["", "[finch]", "[a[b]::test]"])
def test_named_test_without_a_request_fails(case: str) -> None:
    with (
        pytest.raises(AssertionError, match="must use a transport"),
        require_transport(f"{TEST}{case}", NAMED),
    ):
        pass


def test_other_test_needs_no_request() -> None:
    with require_transport("tests/test_birds.py::test_it_flies", NAMED):
        pass


async def test_request_in_the_process_counts(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path) as api:
        with require_transport(TEST, NAMED):
            assert (await api.get("/health", None)).status == 200


async def test_requests_over_sockets_count(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        with require_transport(TEST, NAMED):
            assert (await fetch(server.url, "GET", "/health")).status == 200
        with require_transport(TEST, NAMED):
            async with WebSocketClient.open(server.ws, await server.bearer("ada")) as socket:
                assert "result" in await socket.initialize()


def test_program_counts(tmp_path: Path) -> None:
    with require_transport(TEST, NAMED):
        assert Program(tmp_path).run("--version").code == 0
