"""How clients and directories present the server: server information, `server.json` and the registry API.

The rules of `server.json` are those of its schema of 2025-12-11 and of the public registry, as far as they apply to the
members that are used here. They were compared with `server.schema.json` of modelcontextprotocol/registry at commit
13760d02, which no package carries. Unknown members are rejected, which the schema does not do.
"""

import base64
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from server.protocol.dispatcher import SERVER_INFO_KEY
from server.registry_entry import own_entry, registry_document
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.clients import LegacyClient, ModernClient, handshake
from tests.server.http_client import fetch

ROOT = Path(__file__).parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


# -- rules of server.json ----------------------------------------------------------------------------------------------


class Input(Struct, forbid_unknown_fields=True, kw_only=True):
    description: str = ""
    default: str = ""
    placeholder: str = ""
    format: Literal["string", "number", "boolean", "filepath"] = "string"
    is_required: bool = msgspec.field(default=False, name="isRequired")
    is_secret: bool = msgspec.field(default=False, name="isSecret")


class NamedInput(Input):
    name: str


class PositionalArgument(Struct, forbid_unknown_fields=True):
    type: Literal["positional"]
    value: str


class Stdio(Struct, forbid_unknown_fields=True, tag_field="type", tag="stdio"):
    pass


class Package(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    registry_type: Literal["npm", "pypi", "oci", "nuget", "mcpb", "cargo"]
    identifier: str
    transport: Stdio
    version: Annotated[str, Meta(min_length=1)]
    runtime_hint: Literal["npx", "uvx", "docker", "dnx"]
    package_arguments: list[PositionalArgument] = []
    environment_variables: list[NamedInput] = []


class Remote(Struct, forbid_unknown_fields=True):
    type: Literal["streamable-http", "sse"]
    url: Annotated[str, Meta(pattern=r"^https?://[^\s]+$")]
    headers: list[NamedInput] = []
    variables: dict[str, Input] = {}


class Icon(Struct, forbid_unknown_fields=True, rename="camel"):
    src: Annotated[str, Meta(pattern=r"^https://[^\s]+$", max_length=255)]
    mime_type: Literal["image/png", "image/jpeg", "image/svg+xml", "image/webp"]
    sizes: list[Annotated[str, Meta(pattern=r"^(\d+x\d+|any)$")]]


class ServerDocument(Struct, forbid_unknown_fields=True, kw_only=True):
    schema: Literal["https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"] = msgspec.field(
        name="$schema"
    )
    name: Annotated[str, Meta(min_length=3, max_length=200, pattern=r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$")]
    title: Annotated[str, Meta(min_length=1, max_length=100)]
    description: Annotated[str, Meta(min_length=1, max_length=100)]
    # A version, not a range of versions.
    version: Annotated[str, Meta(max_length=255, pattern=r"^\d+\.\d+\.\d+([-+.].*)?$")]
    website_url: Annotated[str, Meta(pattern=r"^https?://[^\s]+$")] = msgspec.field(
        default="http://", name="websiteUrl"
    )
    packages: list[Package] = []
    remotes: list[Remote] = []
    icons: list[Icon] = []


def test_server_json_is_current_and_follows_the_rules_of_the_registry() -> None:
    document = json.loads((ROOT / "server.json").read_text())
    read = msgspec.convert(document, ServerDocument)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert document == registry_document(), "run `make docs`"
    assert {read.version, *(package.version for package in read.packages)} == {project["version"]}
    assert [package.identifier for package in read.packages] == [project["name"]]
    # A registry accepts a package only if its description repeats the name.
    assert f"<!-- mcp-name: {read.name} -->" in (ROOT / project["readme"]).read_text()
    [remote] = read.remotes
    assert (remote.url, list(remote.variables)) == ("https://{host}/mcp", ["host"])


# -- the registry of one server ----------------------------------------------------------------------------------------


@each_case(
    ("url", "name"),
    [
        ("https://kb.example.com", "com.example.kb/florilegium"),
        ("https://kb.example.com:8443/base", "com.example.kb/florilegium"),
        ("http://[::1]:8765", "--1/florilegium"),
        ("http://localhost:8765", "localhost/florilegium"),
    ],
)
def test_entry_of_this_server_follows_the_rules(url: str, name: str) -> None:
    server = own_entry(build_settings(public_url=url))["server"]
    read = msgspec.convert(server, ServerDocument)

    assert (read.name, [remote.url for remote in read.remotes]) == (name, [f"{url}/mcp"])
    assert [icon.src for icon in read.icons] == ([f"{url}/icon.png"] if url.startswith("https") else [])


def test_only_a_server_without_sign_in_asks_clients_for_a_key() -> None:
    def headers(**changes: Any) -> list[Any]:
        [remote] = own_entry(build_settings(**changes))["server"]["remotes"]
        return [header["name"] for header in remote.get("headers", [])]

    assert headers(require_auth=True) == []
    assert headers(require_auth=True, oauth_server="off") == ["Authorization"]
    assert headers() == []


async def test_registry_lists_this_server_to_clients_without_a_credential(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:

        async def get(path: str) -> Any:
            response = await fetch(server.url, "GET", path)
            assert response.header("access-control-allow-origin") == "*"
            return response.json() if response.status == 200 else response.status

        entry = own_entry(server.runtime.settings)
        name, version = entry["server"]["name"], entry["server"]["version"]
        whole, nothing = {"servers": [entry], "metadata": {"count": 1}}, {"servers": [], "metadata": {"count": 0}}
        path = f"/v0.1/servers/{quote(name, safe='')}/versions"

        assert await get("/v0.1/servers") == await get("/v0.1/servers?limit=50&version=latest") == whole
        assert await get("/v0.1/servers?search=FLORI") == await get(f"/v0.1/servers?version={version}") == whole
        assert await get("/v0.1/servers?search=weather") == await get("/v0.1/servers?version=9.9.9") == nothing
        assert await get("/v0.1/servers?cursor=x") == nothing
        assert await get(path) == whole
        assert await get(f"{path}/latest") == await get(f"{path}/{version}") == entry
        assert await get(f"{path}/9.9.9") == await get("/v0.1/servers/com.example%2Fother/versions/latest") == 404
        icon = await fetch(server.url, "GET", "/icon.png")
        assert (icon.header("content-type"), icon.body[:8]) == ("image/png", PNG)


# -- server information ------------------------------------------------------------------------------------------------


async def test_both_eras_describe_the_server_once_with_icons_and_website(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, public_url="https://kb.example.com")) as server:
        bearer = await server.bearer("ada")
        legacy = (await LegacyClient(server, bearer).post(handshake())).json()["result"]["serverInfo"]
        modern = ModernClient(server, bearer)
        discovered = (await modern.request("server/discover")).json()["result"]["_meta"][SERVER_INFO_KEY]
        listed = (await modern.request("tools/list")).json()["result"]["_meta"][SERVER_INFO_KEY]

    assert legacy == discovered
    assert legacy["websiteUrl"] == "https://kb.example.com/about/documentation"
    assert legacy["description"] == registry_document()["description"]
    for icon, size, begin in zip(legacy["icons"], (["any"], ["64x64"]), (b"<svg", PNG), strict=True):
        head, _, data = icon["src"].partition(",")
        assert (head, icon["sizes"]) == (f"data:{icon['mimeType']};base64", size)
        assert base64.b64decode(data).startswith(begin)
    # Every modern result names the server, so that it does so in a few bytes.
    assert set(listed) == {"name", "title", "version"}
