"""The built-in profiles: their tools, the order of the tools, and their instructions."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from config.errors import ConfigurationError
from config.settings import Settings, check
from server.lifespan import open_runtime
from server.profiles import PROFILE_NAMES, PROFILES, profiles_of
from server.protocol.catalog import Catalog, Profile
from tests.cases import each_case
from tests.live import make_settings
from tests.server.protocol.dispatcher_fixture import make_principal

# Hosts truncate instructions at 2,048 characters.
INSTRUCTIONS_MAX_CHARS = 2000
SOURCE_TOOLS = [
    *("notes_search", "notes_get"),
    *("media_search", "media_get", "media_transcript"),
    *("chats_search", "chats_get"),
    *("characters_search", "characters_get"),
    *("prompts_search", "prompts_get"),
]
LISTED = {
    "default": ["knowledge_search", "knowledge_get", "search", "fetch", *SOURCE_TOOLS],
    "compact": ["knowledge_search", "knowledge_get"],
    "research": ["search", "fetch"],
    "write": [
        *("knowledge_search", "knowledge_get"),
        *("items_create", "items_update", "items_delete", "items_tag"),
        *("notes_append", "chats_append"),
    ],
    "memory": ["search", "get_observations", "read"],
    "letta": ["conversation_search"],
    "bus": ["bus_connect", "msg_post", "msg_list", "msg_search"],
}


@pytest.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[Catalog]:
    """The product's own catalog."""
    async with open_runtime(make_settings(tmp_path)) as runtime:
        yield runtime.dispatcher.catalog


@each_case("name", LISTED)
def test_each_profile_lists_its_tools_in_a_fixed_order(catalog: Catalog, name: str) -> None:
    assert list(profiles_of(Settings()).tools(name, catalog).listed) == LISTED[name]


def test_protocol_md_lists_the_tools_of_each_profile() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `/mcp")]
    documented = {row.partition("`/mcp/")[2].partition("`")[0]: set(re.findall(r"`(\w+)`", row)) for row in rows}

    assert set(documented) == set(PROFILE_NAMES)
    for name in set(LISTED) - {"default"}:
        assert set(LISTED[name]) <= documented[name]
    assert set(LISTED["default"]) - set(SOURCE_TOOLS) <= documented["default"]


def test_full_lists_every_tool(catalog: Catalog) -> None:
    full = next(profile for profile in PROFILES if profile.name == "full")

    assert set(catalog.tools) <= {tool for _, tool in full.entries}
    assert set(profiles_of(Settings()).tools("full", catalog).listed) == set(catalog.tools)


def test_session_and_server_tools_are_only_in_full() -> None:
    tools = {name: {tool for _, tool in profile.entries} for name, profile in zip(PROFILE_NAMES, PROFILES, strict=True)}

    for tool in ("server_info", "session_configure", "session_reset"):
        assert [name for name in tools if tool in tools[name]] == ["full"]


def test_two_profiles_can_list_different_tools_under_one_name() -> None:
    entries = {profile.name: dict(profile.entries) for profile in PROFILES}

    assert entries["memory"]["search"] == entries["full"]["memory_search"] == "memory_search"
    assert entries["research"]["search"] == entries["full"]["search"] == "search"


@each_case("profile", PROFILES)
def test_instructions_are_short_and_name_only_tools_of_their_profile(profile: Profile) -> None:
    all_tools = {tool for other in PROFILES for _, tool in other.entries if "_" in tool}

    assert len(profile.instructions) <= INSTRUCTIONS_MAX_CHARS
    mentioned = {tool for tool in all_tools if tool in profile.instructions}
    assert mentioned <= {tool for _, tool in profile.entries}


def test_profile_names_do_not_collide_with_other_paths_below_mcp() -> None:
    assert not {"ws", "ticket"} & set(PROFILE_NAMES)


@each_case("entry", ["openai-mcp", "=research", "openai-mcp=", ""])
def test_a_malformed_client_profile_is_rejected(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="expected NAME=PROFILE, such as openai-mcp=research"):
        check(Settings(client_profiles=(entry,)))


def test_an_unknown_client_profile_is_rejected_at_start_up() -> None:
    with pytest.raises(ConfigurationError, match="client_profiles: expected profiles from default, compact"):
        profiles_of(Settings(client_profiles=("openai-mcp=deep",)))


def test_a_client_name_can_contain_an_equals_sign() -> None:
    settings = Settings(client_profiles=("a=b=research",))
    check(settings)

    assert profiles_of(settings).choose(make_principal("ada"), None, "a=b") == "research"
