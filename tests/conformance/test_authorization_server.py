"""The official conformance suite's scenarios for authorization servers."""

import re
from pathlib import Path

import pytest

from auth.oauth.clients import OAuthClients
from tests.clients.node_tools import program
from tests.clients.oauth_person import add_person, run_node_with
from tests.live import free_port, live, make_settings

pytestmark = pytest.mark.slow("runs the official suite of TypeScript")

TIMEOUT_S = 120


async def test_authorization_server_passes_all_scenarios(tmp_path: Path) -> None:
    port = free_port()
    async with live(make_settings(tmp_path / "data")) as server:
        clients = OAuthClients(server.runtime.registry.database, server.runtime.settings)
        document = {"client_name": "Conformance suite", "redirect_uris": [f"http://127.0.0.1:{port}/callback"]}
        client, _ = await clients.add(document, is_confidential=False)
        result = await run_node_with(
            await add_person(server, "ada"),
            program("conformance"),
            "authorization",
            *("--url", server.url),
            *("--client-id", client.id),
            *("--resource", server.mcp),
            *("--port", str(port)),
            directory=tmp_path,
            extra_environment={},
            timeout_s=TIMEOUT_S,
        )

    assert result.code == 0, result.stdout + result.stderr
    summary = re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)
    assert "authorization-server-metadata-endpoint" in summary
    assert "authorization-code-grant" in summary
    assert "0 failed" in summary, summary
