"""Sources that are switched off, and settings of single sources."""

from pathlib import Path
from typing import Any

import pytest

from aggregator.fanout import Breaker
from config.errors import ConfigurationError
from config.paths import UserId
from config.settings import Settings, check
from sources.registry import load_sources
from tests.build_settings import build_settings
from tests.cases import each_case
from tests.server.rest.rest_client import RpcError, open_rest_client


async def test_source_that_is_switched_off_has_no_tools_and_is_not_searched(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, sources_off=("chats",)) as api:
        ada, ben = await api.library_user("ada"), await api.library_user("ben")
        for user in (ada, ben):
            await user.add_chat("Harbour", "Where is the galleon?")
        note = await ada.add_note("Voyage", "A galleon.")
        tools = [tool["name"] for tool in (await ada.request("tools/list"))["tools"]]
        found = await ada.call("knowledge_search", query="galleon", explain=True)
        with pytest.raises(RpcError, match="chats"):
            await ada.request("tools/call", name="chats_search", arguments={"query": "galleon"})
        listed = (await ada.request("resources/templates/list"))["resourceTemplates"]
        pages = [(await api.get(path)).status for path in ("/", "/?q=galleon", "/library", "/api/v1/library")]
        missing = [(await api.get(path)).status for path in ("/library?source=chats", "/conversations/1")]

    assert not [name for name in tools if name.startswith(("chats_", "conversation_search", "msg_"))]
    assert [item["uri"] for item in found["results"]] == [f"notes://{note}"]
    assert not [entry for entry in listed if entry["uriTemplate"].startswith("chats://")]
    assert (pages, missing) == ([200] * 4, [404] * 2)


async def test_data_of_a_source_is_kept_while_it_is_switched_off(tmp_path: Path) -> None:
    async with open_rest_client(tmp_path, sources_off=("chats",)) as api:
        chat = await (await api.library_user("ada")).add_chat("Harbour", "Where is the galleon?")
    async with open_rest_client(tmp_path) as api:
        found = await (await api.library_user("ada")).call("knowledge_search", query="galleon")

    assert [item["uri"].startswith(f"chats://{chat}/") for item in found["results"]] == [True]


def test_limits_of_a_source_replace_those_of_all() -> None:
    settings = Settings(source_limits=("media.breaker_failures=2", "media.breaker_pause_s=1.5"))

    media, notes = settings.of_source("media"), settings.of_source("notes")

    assert (media.breaker_failures, media.breaker_pause_s) == (2, 1.5)
    assert notes == settings


def test_breaker_of_a_source_has_its_own_limits() -> None:
    breaker, ada = Breaker(Settings(source_limits=("media.breaker_failures=1",))), UserId("ada")

    for source in ("media", "notes"):
        breaker.record_failure(ada, source)

    assert breaker.wait_s(ada, "media") > 0
    assert breaker.wait_s(ada, "notes") == 0


@each_case(
    ("entry", "problem"),
    [
        ("media.port=1", "expected SOURCE.SETTING=VALUE"),
        ("breaker_failures=1", "expected SOURCE.SETTING=VALUE"),
        ("media.breaker_failures", "breaker_failures"),
        ("media.breaker_failures=0", ">= 1"),
        ("media.search_deadline_ms=soon", "int"),
    ],
)
def test_invalid_limit_is_an_error(entry: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        check(Settings(source_limits=(entry,)))


@each_case("changes", [{"sources_off": ("mails",)}, {"source_limits": ("mails.breaker_failures=1",)}])
def test_unknown_source_is_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="expected one of notes, media"):
        load_sources(build_settings(**changes))
