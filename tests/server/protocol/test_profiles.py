"""Profiles: which tools they list, under which names, and what a restricted caller cannot reach."""

from typing import Any

import pytest
from msgspec.structs import replace

from auth.context import READ, SCOPES
from config.errors import Forbidden, InvalidParams, ResourceNotFound
from server.protocol.catalog import Profile, Profiles, UnknownProfile
from tests.cases import each_case
from tests.server.protocol.dispatcher_fixture import (
    DispatcherClient,
    FakeStreams,
    RecordingObserver,
    RecordingPeer,
    make_dispatcher,
    make_principal,
    make_session,
)
from tests.server.sample_catalog import SampleCatalog

PROFILES = (
    Profile(
        name="default",
        entries=(("echo", "echo"), ("not_there", "not_there")),
        includes_other_tools=True,
        has_resources=True,
    ),
    # Lists `report` under the name of another tool, and a tool for administrators.
    Profile(name="narrow", entries=(("echo", "report"), ("administer", "administer")), instructions="Look narrowly."),
    Profile(name="other", entries=(("ask_name", "ask_name"), ("locate", "locate"))),
)


def make_client(
    samples: SampleCatalog, profile: str = "default", restricted_to: str | None = None, **more: Any
) -> DispatcherClient:
    """Returns a client at the address of a profile, or with a credential that is restricted to one."""
    scopes, peer = more.pop("scopes", SCOPES), more.pop("peer", None)
    principal = replace(make_principal("ada", scopes), profile=restricted_to)
    dispatcher = make_dispatcher(samples.catalog, profiles=Profiles(PROFILES), **more)
    client = DispatcherClient(dispatcher, principal, peer)
    client.session = make_session(principal, profile=restricted_to or profile)
    return client


async def tool_names(client: DispatcherClient) -> list[str]:
    return [tool["name"] for tool in (await client.legacy("tools/list"))["tools"]]


async def test_a_profile_lists_its_tools_in_order_and_skips_unregistered_ones(
    samples: SampleCatalog,
) -> None:
    assert await tool_names(make_client(samples, "narrow")) == ["echo", "administer"]


async def test_tools_that_no_profile_names_are_appended_where_the_profile_includes_them(samples: SampleCatalog) -> None:
    assert await tool_names(make_client(samples)) == ["echo", "wait", "shout", "explode", "miss", "write_note"]


async def test_a_tool_added_at_run_time_is_listed_at_once(samples: SampleCatalog) -> None:
    client = make_client(samples)
    before = await tool_names(client)
    samples.catalog.add_tool(replace(samples.catalog.tools["echo"], name="added"))

    assert await tool_names(client) == [*before, "added"]


async def test_lists_are_cached_per_profile_and_scopes(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog, profiles=Profiles(PROFILES))
    lists = []
    for profile, scopes in (("default", SCOPES), ("narrow", SCOPES), ("narrow", (READ,)), ("default", SCOPES)):
        principal = make_principal("ada", scopes)
        client = DispatcherClient(dispatcher, principal)
        client.session = make_session(principal, profile=profile)
        lists.append(await tool_names(client))

    assert lists[0] == lists[3]
    assert lists[1:3] == [["echo", "administer"], ["echo"]]


async def test_a_name_assigned_by_a_profile_takes_precedence_in_that_profile_only(samples: SampleCatalog) -> None:
    reported = (await make_client(samples, "narrow").call("echo"))["structuredContent"]
    echoed = (await make_client(samples).call("echo", {"text": "hello"}))["structuredContent"]

    assert b"reported" in bytes(reported)
    assert b"hello" in bytes(echoed)


async def test_a_restricted_caller_can_call_only_tools_of_its_profile(samples: SampleCatalog) -> None:
    restricted = make_client(samples, restricted_to="narrow")

    assert "isError" not in await restricted.call("echo")
    assert "isError" not in await restricted.call("report")  # the same tool by its own name
    for name in ("shout", "ask_name", "ask.name"):
        with pytest.raises(InvalidParams, match=f"'{name}' is not part of the profile 'narrow' of this API key"):
            await restricted.call(name)
    with pytest.raises(InvalidParams, match="Unknown tool: nothing"):
        await restricted.call("nothing")


async def test_a_caller_restricted_to_a_profile_with_other_tools_lacks_only_tools_of_other_profiles(
    samples: SampleCatalog,
) -> None:
    restricted = make_client(samples, restricted_to="default")

    assert "isError" not in await restricted.call("shout", {"text": "hello"})
    with pytest.raises(InvalidParams, match="not part of the profile"):
        await restricted.call("ask_name")


async def test_a_profile_grants_no_scope(samples: SampleCatalog) -> None:
    restricted = make_client(samples, restricted_to="narrow", scopes=(READ,))

    assert await tool_names(restricted) == ["echo"]
    with pytest.raises(Forbidden):
        await restricted.call("administer")


async def test_a_caller_restricted_to_a_profile_without_resources_sees_no_resources_or_prompts(
    samples: SampleCatalog,
) -> None:
    restricted = make_client(samples, restricted_to="narrow")

    for method in ("resources/list", "resources/templates/list", "prompts/list"):
        (listed,) = (await restricted.legacy(method)).values()
        assert listed == []
    for method in ("resources/read", "resources/subscribe"):
        with pytest.raises(ResourceNotFound):
            await restricted.legacy(method, {"uri": "test://plain"})
    with pytest.raises(InvalidParams, match="unknown prompt"):
        await restricted.legacy("prompts/get", {"name": "greet", "arguments": {"name": "Ben"}})
    for ref in ({"type": "ref/prompt", "name": "greet"}, {"type": "ref/resource", "uri": "test://items/{id}"}):
        with pytest.raises(InvalidParams, match="unknown"):
            await restricted.legacy("completion/complete", {"ref": ref, "argument": {"name": "id", "value": "1"}})


@pytest.mark.parametrize(("profile", "restricted_to"), [("narrow", None), ("default", "default")])
async def test_resources_and_prompts_are_available_unless_a_restriction_excludes_them(
    samples: SampleCatalog, profile: str, restricted_to: str | None
) -> None:
    client = make_client(samples, profile, restricted_to)

    assert (await client.legacy("resources/list"))["resources"]
    assert (await client.legacy("prompts/list"))["prompts"]
    assert (await client.legacy("resources/read", {"uri": "test://plain"}))["contents"]


async def test_a_restricted_caller_cannot_subscribe_to_resources(samples: SampleCatalog) -> None:
    peer, streams = RecordingPeer(), FakeStreams()
    streams.closed = True
    restricted = make_client(samples, restricted_to="narrow", peer=peer, streams=streams)

    await restricted.modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["test://plain"]}})

    assert peer.messages[0]["params"]["notifications"] == {}


async def test_dotted_names_are_listed_for_a_tools_own_name_only(samples: SampleCatalog) -> None:
    assert await tool_names(make_client(samples, "other", has_dotted_names=True)) == ["ask.name", "locate"]
    assert await tool_names(make_client(samples, "narrow", has_dotted_names=True)) == ["echo", "administer"]


async def test_a_call_is_recorded_under_the_tools_own_name(samples: SampleCatalog) -> None:
    observer = RecordingObserver()
    client = make_client(samples, "narrow", observer=observer)

    await client.call("echo")
    await client.call("write.note")
    with pytest.raises(InvalidParams):
        await client.call("unknown")

    assert observer.calls == [
        ("tools/call", "report", "ok"),
        ("tools/call", "write_note", "ok"),
        ("tools/call", "", "error"),
    ]


# -- choosing ---------------------------------------------------------------------------------------------------


@each_case(
    ("restricted_to", "address_profile", "client_name", "expected"),
    [
        (None, None, "", "default"),
        (None, None, "known", "other"),
        (None, None, "KNOWN", "other"),
        (None, None, "unknown", "default"),
        (None, "narrow", "known", "narrow"),
        (None, "default", "known", "default"),
        ("narrow", None, "known", "narrow"),
        ("narrow", "other", "known", "narrow"),
        ("narrow", "narrow", "", "narrow"),
    ],
)
def test_the_credential_takes_precedence_over_the_address_and_the_address_over_the_client(
    restricted_to: str | None, address_profile: str | None, client_name: str, expected: str
) -> None:
    profiles = Profiles(PROFILES, {"Known": "other"})

    assert (
        profiles.choose(replace(make_principal("ada"), profile=restricted_to), address_profile, client_name) == expected
    )


def test_a_credential_restricted_to_a_removed_profile_is_rejected() -> None:
    principal = replace(make_principal("ada"), profile="retired")
    profiles = Profiles(PROFILES)

    for check in (
        lambda: profiles.choose(principal, None),
        lambda: profiles.permits(principal, "echo"),
        lambda: profiles.permits_resources(principal),
    ):
        with pytest.raises(UnknownProfile):
            check()


def test_a_client_cannot_be_assigned_an_unknown_profile() -> None:
    with pytest.raises(UnknownProfile):
        Profiles(PROFILES, {"client": "nowhere"})
