"""What a profile shows, under which names, and what a caller bound to one cannot reach by any method."""

from typing import Any

import pytest
from msgspec.structs import replace

from auth.principal import READ, SCOPES
from config.errors import Forbidden, InvalidParams, NotFound, ResourceNotFound
from server.protocol.catalog import Catalog
from server.protocol.profiles import Profile, Profiles, UnknownProfile
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
        name="default", entries=(("echo", "echo"), ("not_there", "not_there")), takes_rest=True, has_resources=True
    ),
    # Lists `tell` under the name of another tool, and a tool only rulers may call.
    Profile(name="narrow", entries=(("echo", "tell"), ("rule", "rule")), instructions="Look narrowly."),
    Profile(name="other", entries=(("ask_name", "ask_name"), ("locate", "locate"))),
)


def door(samples: SampleCatalog, profile: str = "default", bound: str | None = None, **more: Any) -> DispatcherClient:
    """Somebody at the address of a profile, or with a credential that is bound to one."""
    scopes, peer = more.pop("scopes", SCOPES), more.pop("peer", None)
    principal = replace(make_principal("ada", scopes), profile=bound)
    dispatcher = make_dispatcher(samples.catalog, profiles=Profiles(PROFILES), **more)
    entered = DispatcherClient(dispatcher, principal, peer)
    entered.session = make_session(principal, profile=bound or profile)
    return entered


async def names(entered: DispatcherClient) -> list[str]:
    return [tool["name"] for tool in (await entered.legacy("tools/list"))["tools"]]


async def test_a_profile_lists_its_names_in_its_order_and_leaves_out_what_nobody_registered(
    samples: SampleCatalog,
) -> None:
    assert await names(door(samples, "narrow")) == ["echo", "rule"]


async def test_what_no_profile_names_follows_where_the_profile_takes_the_rest(samples: SampleCatalog) -> None:
    assert await names(door(samples)) == ["echo", "wait", "shout", "explode", "miss", "write_note"]


async def test_a_tool_added_while_the_server_runs_is_listed_at_once(samples: SampleCatalog) -> None:
    entered = door(samples)
    before = await names(entered)
    samples.catalog.add_tool(replace(samples.catalog.tools["echo"], name="novelty"))

    assert await names(entered) == [*before, "novelty"]


async def test_the_lists_of_two_profiles_and_of_two_scopes_are_kept_apart(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog, profiles=Profiles(PROFILES))
    lists = []
    for profile, scopes in (("default", SCOPES), ("narrow", SCOPES), ("narrow", (READ,)), ("default", SCOPES)):
        principal = make_principal("ada", scopes)
        entered = DispatcherClient(dispatcher, principal)
        entered.session = make_session(principal, profile=profile)
        lists.append(await names(entered))

    assert lists[0] == lists[3]
    assert lists[1:3] == [["echo", "rule"], ["echo"]]


async def test_a_name_means_what_the_profile_says_and_elsewhere_what_the_catalog_says(samples: SampleCatalog) -> None:
    told = (await door(samples, "narrow").call("echo"))["structuredContent"]
    echoed = (await door(samples).call("echo", {"text": "hello"}))["structuredContent"]

    assert b"told" in bytes(told)
    assert b"hello" in bytes(echoed)


async def test_by_an_address_everything_stays_callable(samples: SampleCatalog) -> None:
    result = await door(samples, "narrow").call("shout", {"text": "hello"})

    assert "isError" not in result


async def test_a_bound_caller_calls_what_the_profile_lists_and_nothing_else(samples: SampleCatalog) -> None:
    bound = door(samples, bound="narrow")

    assert "isError" not in await bound.call("echo")
    assert "isError" not in await bound.call("tell")  # the same tool by its own name
    for name in ("shout", "ask_name", "ask.name"):
        with pytest.raises(InvalidParams, match=f"'{name}' is outside the profile 'narrow' that this key is bound to"):
            await bound.call(name)
    with pytest.raises(InvalidParams, match="unknown tool 'nothing'"):
        await bound.call("nothing")


async def test_a_caller_bound_to_a_profile_that_takes_the_rest_lacks_only_what_others_name(
    samples: SampleCatalog,
) -> None:
    bound = door(samples, bound="default")

    assert "isError" not in await bound.call("shout", {"text": "hello"})
    with pytest.raises(InvalidParams, match="outside the profile"):
        await bound.call("ask_name")


async def test_a_profile_lends_no_scope(samples: SampleCatalog) -> None:
    bound = door(samples, bound="narrow", scopes=(READ,))

    assert await names(bound) == ["echo"]
    with pytest.raises(Forbidden):
        await bound.call("rule")


async def test_a_caller_bound_to_few_tools_has_no_resources_and_no_prompts(samples: SampleCatalog) -> None:
    bound = door(samples, bound="narrow")

    for method in ("resources/list", "resources/templates/list", "prompts/list"):
        (listed,) = (await bound.legacy(method)).values()
        assert listed == []
    for method in ("resources/read", "resources/subscribe"):
        with pytest.raises(ResourceNotFound):
            await bound.legacy(method, {"uri": "test://plain"})
    with pytest.raises(InvalidParams, match="unknown prompt"):
        await bound.legacy("prompts/get", {"name": "greet", "arguments": {"name": "Ben"}})
    for ref in ({"type": "ref/prompt", "name": "greet"}, {"type": "ref/resource", "uri": "test://items/{id}"}):
        with pytest.raises(InvalidParams, match="unknown"):
            await bound.legacy("completion/complete", {"ref": ref, "argument": {"name": "id", "value": "1"}})


@pytest.mark.parametrize(("profile", "bound"), [("narrow", None), ("default", "default")])
async def test_by_an_address_or_bound_to_a_wide_profile_resources_and_prompts_stay(
    samples: SampleCatalog, profile: str, bound: str | None
) -> None:
    entered = door(samples, profile, bound)

    assert (await entered.legacy("resources/list"))["resources"]
    assert (await entered.legacy("prompts/list"))["prompts"]
    assert (await entered.legacy("resources/read", {"uri": "test://plain"}))["contents"]


async def test_a_bound_caller_hears_no_news_of_resources(samples: SampleCatalog) -> None:
    ear, streams = RecordingPeer(), FakeStreams()
    streams.closed = True
    bound = door(samples, bound="narrow", peer=ear, streams=streams)

    await bound.modern("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["test://plain"]}})

    assert ear.heard[0]["params"]["notifications"] == {}


async def test_dotted_names_are_listed_for_tools_own_names_and_never_for_a_profiles(samples: SampleCatalog) -> None:
    assert await names(door(samples, "other", has_dotted_names=True)) == ["ask.name", "locate"]
    assert await names(door(samples, "narrow", has_dotted_names=True)) == ["echo", "rule"]


@pytest.mark.parametrize("is_dotted", [True, False])
@pytest.mark.parametrize("name", ["write_note", "write.note"])
async def test_both_names_are_callable_whichever_is_listed(samples: SampleCatalog, is_dotted: bool, name: str) -> None:
    assert "isError" not in await door(samples, has_dotted_names=is_dotted).call(name)


async def test_instructions_are_the_profiles_in_both_eras_and_absent_where_it_has_none(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog, profiles=Profiles(PROFILES))
    ada = make_principal("ada")

    narrow, other = (dispatcher.introduction(make_session(ada, profile=name)) for name in ("narrow", "other"))
    modern = await door(samples, "narrow").modern("server/discover")

    assert narrow["instructions"] == modern["instructions"] == "Look narrowly."
    assert "instructions" not in other


async def test_a_call_is_counted_under_the_tools_own_name(samples: SampleCatalog) -> None:
    recorder = RecordingObserver()
    entered = door(samples, "narrow", observer=recorder)

    await entered.call("echo")
    await entered.call("write.note")
    with pytest.raises(InvalidParams):
        await entered.call("made up")

    assert recorder.calls == [
        ("tools/call", "tell", "ok"),
        ("tools/call", "write_note", "ok"),
        ("tools/call", "", "error"),
    ]


# -- choosing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "named", "client", "expected"),
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
def test_the_credential_decides_before_the_address_and_the_address_before_the_client(
    bound: str | None, named: str | None, client: str, expected: str
) -> None:
    profiles = Profiles(PROFILES, {"Known": "other"})

    assert profiles.choose(replace(make_principal("ada"), profile=bound), named, client) == expected


@pytest.mark.parametrize("bound", [None, "narrow"])
def test_an_unknown_profile_is_refused_with_the_names_of_those_there_are(bound: str | None) -> None:
    with pytest.raises(
        UnknownProfile, match="'nowhere' not found; known profiles are default, narrow, other"
    ) as caught:
        Profiles(PROFILES).choose(replace(make_principal("ada"), profile=bound), "nowhere")

    assert isinstance(caught.value, NotFound)


def test_a_credential_bound_to_a_profile_that_is_gone_opens_nothing() -> None:
    principal = replace(make_principal("ada"), profile="retired")
    profiles = Profiles(PROFILES)

    for ask in (
        lambda: profiles.choose(principal, None),
        lambda: profiles.permits(principal, "echo"),
        lambda: profiles.permits_resources(principal),
    ):
        with pytest.raises(UnknownProfile):
            ask()


def test_a_client_cannot_be_given_a_profile_that_does_not_exist() -> None:
    with pytest.raises(UnknownProfile):
        Profiles(PROFILES, {"client": "nowhere"})


def test_without_profiles_everything_is_listed(samples: SampleCatalog) -> None:
    assert list(Profiles().surface("default", samples.catalog).tools) == list(samples.catalog.tools)
    assert Profiles().surface("default", Catalog()).tools == {}
