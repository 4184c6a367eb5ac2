"""The bundle for desktop applications: valid for the official tool, and started as an application does."""

import asyncio
import json
import os
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from msgspec import Struct

from auth.context import SCOPES
from server.registry_entry import DESCRIPTION
from server.version import VERSION
from tests.clients import node_tools
from tests.deploy.test_release import build_release
from tests.live import live, make_settings
from tests.server.http_client import fetch

pytestmark = pytest.mark.slow("builds a release")

# What Claude Desktop calls to find out how to start a bundle.
APPLICATION = """\
import { readFileSync } from "fs";
import { getMcpConfigForManifest } from "@anthropic-ai/mcpb";
const [extensionPath, userConfig, HOME] = process.argv.slice(1);
const manifest = JSON.parse(readFileSync(extensionPath + "/manifest.json", "utf-8"));
const entered = { userConfig: JSON.parse(userConfig), systemDirs: { HOME } };
console.log(JSON.stringify(await getMcpConfigForManifest({ manifest, extensionPath, pathSeparator: "/", ...entered })));
"""


class Bundle(Struct, frozen=True):
    """An installed bundle."""

    folder: Path
    manifest: dict[str, Any]
    home: Path

    async def command(self, **entered: Any) -> dict[str, Any]:
        """Returns the command, arguments and variables for what a user has entered."""
        arguments = (str(self.folder), json.dumps(entered), str(self.home))
        result = await node_tools.run_node("--input-type=module", "--eval", APPLICATION, *arguments, timeout_s=60)
        assert result.code == 0, result.stderr
        config: dict[str, Any] = json.loads(result.stdout)
        if shutil.which("uv") is None:
            # As uv does, except that it would install the wheel.
            program = config["args"].index("main.py")
            config["command"], config["args"] = (
                sys.executable,
                [str(self.folder / "main.py"), *config["args"][program + 1 :]],
            )
            config["env"]["PYTHONPATH"] = str(self.folder / "wheel")
            [wheel] = self.folder.glob("*.whl")
            shutil.unpack_archive(wheel, self.folder / "wheel", "zip")
        return config


@pytest.fixture(scope="module")
async def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle")
    built = build_release(folder / "dist")
    assert built.returncode == 0, built.stderr
    [packed] = (folder / "dist").glob("*.mcpb")
    tool, installed = node_tools.program("mcpb"), folder / "installed"
    unpacked = await node_tools.run_node(tool, "unpack", str(packed), str(installed), timeout_s=60)
    assert unpacked.code == 0, unpacked.stdout + unpacked.stderr
    validated = await node_tools.run_node(tool, "validate", str(installed / "manifest.json"), timeout_s=60)
    assert validated.code == 0, validated.stdout + validated.stderr
    manifest = json.loads((installed / "manifest.json").read_text())
    published = node_tools.packages() / "@anthropic-ai" / "mcpb" / "schemas"
    schema = published / f"mcpb-manifest-v{manifest['manifest_version']}.schema.json"
    jsonschema_rs.validate(json.loads(schema.read_text()), manifest)
    return Bundle(installed, manifest, folder / "home")


async def search(config: dict[str, Any], log: Path, query: str) -> list[Any]:
    """Starts the bundle with the official client, and searches until something is found."""
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 - as in python_client.py
    from mcp.client.stdio import stdio_client  # noqa: PLC0415 - as above

    # All variables, because uv may need some to reach its index from this network.
    command = StdioServerParameters(command=config["command"], args=config["args"], env={**os.environ, **config["env"]})
    found: list[Any] = []
    with log.open("w") as errors:
        # The first start installs Python packages.
        async with Client(stdio_client(command, errlog=errors), read_timeout_seconds=300) as client:
            async with asyncio.timeout(120):
                while not found:
                    answer = await client.call_tool("knowledge_search", {"query": query})
                    found = (answer.structured_content or {}).get("results", [])
                    await asyncio.sleep(0.1)
    return found


async def test_bundle_serves_the_chosen_folder_over_stdio(bundle: Bundle, tmp_path: Path) -> None:
    notes = tmp_path / "my notes"
    notes.mkdir()
    (notes / "dome.md").write_text("# Dome\n\nThe dome sticks because wheel seven has a flat spot.")
    config = await bundle.command(data_folder=str(tmp_path / "data"), folders=[str(notes)])
    found = await search(config, tmp_path / "log", "why does the dome stick")

    assert (bundle.manifest["version"], bundle.manifest["description"]) == (VERSION, DESCRIPTION)
    assert "wheel seven" in json.dumps(found)
    assert (tmp_path / "data" / "control.db").exists()


async def test_bundle_needs_no_input_of_its_user(bundle: Bundle) -> None:
    config = await bundle.command()
    entered = runpy.run_path(str(bundle.folder / "main.py"))["entered"]

    assert entered(config["env"]["FLORILEGIUM_DATA_DIR"]) == str(Path.home() / "Florilegium")
    assert {entered(config["env"]["FLORILEGIUM_BUNDLE_SERVER"]), *map(entered, config["args"][4:])} == {""}


async def test_bundle_forwards_to_a_server_that_was_entered(bundle: Bundle, tmp_path: Path) -> None:
    async with live(make_settings(tmp_path / "data")) as server:
        _, key = await server.runtime.registry.create_key((await server.user("ada")).id, "desktop", SCOPES)
        headers = {**await server.bearer("ada"), "Content-Type": "application/json"}
        note = b'{"title": "Harbour", "content": "A galleon in the harbour."}'
        assert (await fetch(server.url, "POST", "/api/v1/items/notes", headers, note)).status == 201
        config = await bundle.command(server_url=server.mcp, api_key=key)
        found = await search(config, tmp_path / "log", "galleon")

    assert "Harbour" in json.dumps(found)
