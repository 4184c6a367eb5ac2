"""The dispatcher on its own: what each method answers in each era, and what a failure becomes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from auth.principal import READ, WRITE
from config.errors import (
    FlorilegiumError,
    Forbidden,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    ResourceNotFound,
    Unavailable,
    UnsupportedVersion,
)
from server.protocol.call import Call, InputRequest, InputRequired
from server.protocol.catalog import McpPromptArgument, Tool, ToolResult
from server.protocol.changes import Change
from server.protocol.dispatcher import SERVER_INFO_KEY, SUBSCRIPTION_KEY
from tests.server.clients import ELICITATION, text_of
from tests.server.protocol.dispatcher_fixture import (
    CountingLimit,
    DispatcherClient,
    FakeStreams,
    RecordingObserver,
    RecordingPeer,
    make_dispatcher,
    make_principal,
)
from tests.server.sample_catalog import Nothing, SampleCatalog

LEGACY_ONLY = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
MODERN_ONLY = ("server/discover", "subscriptions/listen")
LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}


@pytest.fixture
def ada(samples: SampleCatalog) -> DispatcherClient:
    return DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))


def _with_tool(samples: SampleCatalog, run: Any, **offer: Any) -> DispatcherClient:
    """A door to a catalog with one more tool, called `odd`."""
    samples.catalog.add_tool(Tool(name="odd", title="Odd", description="Odd.", input=Nothing, handler=run))
    return DispatcherClient(make_dispatcher(samples.catalog, **offer), make_principal("ada"))


# -- eras -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*MODERN_ONLY, "initialize", "no/such", "", "tools/call "])
async def test_the_legacy_era_does_not_know_the_methods_of_the_other(ada: DispatcherClient, method: str) -> None:
    with pytest.raises(MethodNotFound):
        await ada.legacy(method)


@pytest.mark.parametrize("method", [*LEGACY_ONLY, "initialize", "no/such", "roots/list"])
async def test_the_modern_era_does_not_know_what_it_removed(ada: DispatcherClient, method: str) -> None:
    with pytest.raises(MethodNotFound):
        await ada.modern(method)


@pytest.mark.parametrize("method", [*LISTS, "server/discover", "resources/read"])
async def test_a_modern_answer_says_how_long_and_by_whom_it_may_be_kept(ada: DispatcherClient, method: str) -> None:
    result = await ada.modern(method, {"uri": "test://plain"} if method == "resources/read" else {})

    assert result["resultType"] == "complete"
    assert (result["ttlMs"], result["cacheScope"]) == (1000, "private")
    assert result["_meta"][SERVER_INFO_KEY]["name"] == "specimen"


@pytest.mark.parametrize("method", LISTS)
async def test_a_legacy_answer_carries_nothing_of_the_modern_era(ada: DispatcherClient, method: str) -> None:
    assert set(await ada.legacy(method)) == {LISTS[method]}


async def test_discovery_names_the_modern_versions_and_no_logging(ada: DispatcherClient) -> None:
    result = await ada.modern("server/discover")

    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["instructions"] == "Look."
    assert "logging" not in result["capabilities"]


async def test_a_modern_tool_answer_is_decorated_but_not_cacheable(ada: DispatcherClient) -> None:
    result = await ada.modern("tools/call", {"name": "echo", "arguments": {"text": "hi"}})

    assert result["resultType"] == "complete"
    assert "ttlMs" not in result


@pytest.mark.parametrize(
    ("meta", "error"),
    [
        ({"version": None}, InvalidParams),
        ({"capabilities": None}, InvalidParams),
        ({"capabilities": []}, InvalidParams),
        ({"version": 5}, InvalidParams),
        ({"version": "2025-11-25"}, UnsupportedVersion),
        ({"version": "2030-01-01"}, UnsupportedVersion),
        ({"log_level": "loud"}, InvalidParams),
        ({"log_level": ["info"]}, InvalidParams),
    ],
)
async def test_a_modern_envelope_that_is_incomplete_or_odd_is_refused(
    ada: DispatcherClient, meta: dict[str, Any], error: type[FlorilegiumError]
) -> None:
    with pytest.raises(error):
        await ada.modern("tools/list", **meta)


# -- tools ------------------------------------------------------------------------------------------------------


async def test_a_struct_is_answered_as_structured_content_and_as_the_same_json_in_text(
    samples: SampleCatalog, ada: DispatcherClient
) -> None:
    result = msgspec.json.decode(msgspec.json.encode(await ada.call("echo", {"text": "hi", "times": "2"})))
    structured = result["structuredContent"]

    assert structured == msgspec.json.decode(text_of(result)) == {"text": "hihi", "user": "ada"}
    listed = samples.catalog.tools["echo"].as_listed()
    assert jsonschema_rs.is_valid(listed["outputSchema"], structured)
    assert "isError" not in result


async def test_content_blocks_are_answered_as_they_are(samples: SampleCatalog) -> None:
    async def run(call: Call, given: Nothing) -> ToolResult:
        return ToolResult([{"type": "text", "text": "a"}], structured={"n": 1}, is_error=True)

    result = await _with_tool(samples, run).call("odd")

    assert result == {"content": [{"type": "text", "text": "a"}], "structuredContent": {"n": 1}, "isError": True}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"times": "many"}, "times: expected `int`, got `str`"),
        ({"times": 0}, "times:"),
        ({"txet": "x"}, "did you mean 'text'?"),
    ],
)
async def test_a_wrong_argument_is_an_answer_the_model_can_mend(
    ada: DispatcherClient, arguments: Any, sentence: str
) -> None:
    result = await ada.call("echo", arguments)

    assert result["isError"] is True
    assert sentence in text_of(result)


@pytest.mark.parametrize("params", [{"name": "nowhere"}, {"name": 7}, {"name": None}, {}, {"name": ["echo"]}])
async def test_an_unknown_tool_is_a_protocol_error(ada: DispatcherClient, params: Any) -> None:
    with pytest.raises(InvalidParams):
        await ada.legacy("tools/call", params)


@pytest.mark.parametrize("arguments", [[], "text", 7, True])
async def test_arguments_that_are_no_object_are_a_protocol_error(ada: DispatcherClient, arguments: Any) -> None:
    with pytest.raises(InvalidParams, match="arguments must be an object"):
        await ada.legacy("tools/call", {"name": "echo", "arguments": arguments})


async def test_a_tool_is_also_called_by_its_dotted_name(samples: SampleCatalog) -> None:
    door = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))

    assert "isError" not in await door.call("write.note")


async def test_a_failure_the_tool_foresaw_is_an_answer_with_its_sentence(ada: DispatcherClient) -> None:
    result = await ada.call("miss", {"text": "n1"})

    assert result == {"content": [{"type": "text", "text": "note 'n1' not found"}], "isError": True}


async def test_a_failure_nobody_foresaw_is_told_by_the_request_id_only(
    ada: DispatcherClient, failures: list[str]
) -> None:
    result = await ada.call("explode", {"text": "secret"})

    assert text_of(result) == "internal error (request request)"
    assert "RuntimeError" in failures.pop()


async def test_a_tool_over_its_deadline_is_stopped_and_says_so(samples: SampleCatalog) -> None:
    door = DispatcherClient(make_dispatcher(samples.catalog, deadline_ms=10), make_principal("ada"))

    result = await door.call("wait", {"gate": "never"})

    assert samples.gates["never"].cancelled.is_set()
    assert text_of(result) == "wait took longer than 10 ms"
    assert result["_meta"]["florilegium/retryAfterS"] > 0


async def test_a_resource_that_takes_too_long_is_stopped_as_a_tool_is(samples: SampleCatalog) -> None:
    async def read(call: Call, uri: str, variables: Mapping[str, str]) -> list[Mapping[str, Any]]:
        await asyncio.Event().wait()
        return []

    template = samples.catalog.templates["test://items/{id}"]
    samples.catalog.add_template(msgspec.structs.replace(template, read=read))
    door = DispatcherClient(make_dispatcher(samples.catalog, deadline_ms=10), make_principal("ada"))

    with pytest.raises(Unavailable, match="items took longer than 10 ms"):
        await door.legacy("resources/read", {"uri": "test://items/1"})


async def test_a_prompt_or_completion_that_fails_unforeseen_is_told_by_the_request_id_only(
    samples: SampleCatalog, failures: list[str]
) -> None:
    async def fail(*given: Any) -> Any:
        raise RuntimeError("a specimen failed")

    prompt = samples.catalog.prompts["greet"]
    broken = msgspec.structs.replace(prompt, get=fail, arguments=(McpPromptArgument(name="tone", complete=fail),))
    samples.catalog.add_prompt(broken)
    asked = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "tone", "value": ""}}
    door = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))

    with pytest.raises(FlorilegiumError, match=r"^internal error \(request request\)$"):
        await door.legacy("prompts/get", {"name": "greet"})
    with pytest.raises(FlorilegiumError, match=r"^internal error \(request request\)$"):
        await door.legacy("completion/complete", asked)
    assert ["RuntimeError" in failures.pop() for _ in range(2)] == [True, True]


async def test_the_deadline_stands_still_while_the_client_is_asked(samples: SampleCatalog) -> None:
    class Slow(RecordingPeer):
        async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            await asyncio.sleep(0.06)
            return {"action": "accept", "content": {"name": "Ada"}}

    door = DispatcherClient(make_dispatcher(samples.catalog, deadline_ms=40), make_principal("ada"), Slow())
    door.session.capabilities = ELICITATION

    assert "Ada: hi" in text_of(await door.call("ask_name", {"text": "hi"}))


async def test_a_tool_limit_counts_each_user_and_tool_apart_and_names_the_wait(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog, limit=CountingLimit(1))
    ada, ben = DispatcherClient(dispatcher, make_principal("ada")), DispatcherClient(dispatcher, make_principal("ben"))
    await ada.call("echo")

    refused = await ada.call("echo")

    assert refused["isError"] is True
    assert "retry after 8 s" in text_of(refused)
    assert refused["_meta"] == {"florilegium/retryAfterS": 7.5}
    assert "isError" not in await ada.call("write_note")
    assert "isError" not in await ben.call("echo")


# -- scopes -----------------------------------------------------------------------------------------------------


async def test_only_what_the_scopes_allow_is_listed(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog)
    reader, writer = (
        DispatcherClient(dispatcher, make_principal("ada", (READ,))),
        DispatcherClient(dispatcher, make_principal("ben", (READ, WRITE))),
    )

    seen = {tool["name"] for tool in (await reader.legacy("tools/list"))["tools"]}
    seen_more = {tool["name"] for tool in (await writer.legacy("tools/list"))["tools"]}
    assert "echo" in seen
    assert seen_more - seen == {"write_note"}
    assert [r["uri"] for r in (await reader.legacy("resources/list"))["resources"]] == ["test://plain", "test://broken"]
    assert [p["name"] for p in (await reader.legacy("prompts/list"))["prompts"]] == ["greet"]


async def test_a_tool_beyond_the_scopes_is_forbidden_by_the_name_of_the_scope(samples: SampleCatalog) -> None:
    reader = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada", (READ,)))

    with pytest.raises(Forbidden) as refused:
        await reader.call("write_note")

    assert refused.value.scope == WRITE


async def test_a_resource_or_prompt_beyond_the_scopes_is_absent(samples: SampleCatalog) -> None:
    reader = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada", (READ,)))

    with pytest.raises(ResourceNotFound) as hidden:
        await reader.legacy("resources/read", {"uri": "test://rules"})
    with pytest.raises(ResourceNotFound) as absent:
        await reader.legacy("resources/read", {"uri": "test://ruleX"})
    assert hidden.value.message == absent.value.message
    with pytest.raises(InvalidParams, match="unknown prompt"):
        await reader.legacy("prompts/get", {"name": "decree", "arguments": {"name": "x"}})


async def test_a_changed_catalog_changes_the_next_list(samples: SampleCatalog, ada: DispatcherClient) -> None:
    before = (await ada.legacy("tools/list"))["tools"]
    samples.catalog.remove_tool("echo")

    after = (await ada.legacy("tools/list"))["tools"]

    assert [t for t in before if t["name"] != "echo"] == after


# -- pages ------------------------------------------------------------------------------------------------------


async def test_pages_hold_every_tool_once_and_in_order(samples: SampleCatalog) -> None:
    door = DispatcherClient(make_dispatcher(samples.catalog, page_size=2), make_principal("ada"))
    names, cursor = list[str](), None

    while True:
        page = await door.legacy("tools/list", {"cursor": cursor} if cursor else {})
        assert len(page["tools"]) <= 2
        names += [tool["name"] for tool in page["tools"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            break

    assert names == list(samples.catalog.tools)


@pytest.mark.parametrize("cursor", ["", "x", "MQ==", "MTp4", "MTotMQ==", "MTo5OTk5", 7, [], {}, True, "\x00", "é"])
async def test_a_cursor_that_is_not_ours_is_refused(ada: DispatcherClient, cursor: Any) -> None:
    with pytest.raises(InvalidParams, match="cursor"):
        await ada.legacy("tools/list", {"cursor": cursor})


# -- resources, prompts, completion -----------------------------------------------------------------------------


async def test_a_template_is_read_with_its_variables_by_each_user_for_themselves(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog)

    read = [
        (
            await DispatcherClient(dispatcher, make_principal(name)).legacy(
                "resources/read", {"uri": "test://items/a%20b"}
            )
        )["contents"]
        for name in ("ada", "ben")
    ]

    assert [contents[0]["text"] for contents in read] == ["ada reads a b", "ben reads a b"]


@pytest.mark.parametrize("uri", ["test://nowhere", "test://lost/1", ""])
async def test_an_absent_resource_has_the_code_of_its_era(ada: DispatcherClient, uri: str) -> None:
    with pytest.raises(ResourceNotFound) as legacy:
        await ada.legacy("resources/read", {"uri": uri})
    with pytest.raises(InvalidParams) as modern:
        await ada.modern("resources/read", {"uri": uri})

    assert (legacy.value.code, modern.value.code) == (-32002, -32602)
    assert legacy.value.data == modern.value.data == {"uri": uri}


async def test_a_prompt_is_rendered_with_its_arguments(ada: DispatcherClient) -> None:
    result = await ada.legacy("prompts/get", {"name": "greet", "arguments": {"name": "Ben"}})

    assert result["description"] == "A greeting."
    assert result["messages"][0]["content"]["text"] == "ada greets Ben"


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"name": "greet"}, "needs the argument 'name'"),
        ({"name": "greet", "arguments": {"name": 5}}, "object of strings"),
        ({"name": "greet", "arguments": ["x"]}, "object of strings"),
        ({"name": "nobody"}, "unknown prompt 'nobody'"),
        ({}, "name must be a string"),
    ],
)
async def test_a_prompt_asked_for_wrongly_is_refused_with_the_reason(
    ada: DispatcherClient, params: Any, sentence: str
) -> None:
    with pytest.raises(InvalidParams, match=sentence):
        await ada.legacy("prompts/get", params)


@pytest.mark.parametrize(
    ("ref", "argument", "value", "expected"),
    [
        ({"type": "ref/prompt", "name": "greet"}, "tone", "w", ["warm", "wry"]),
        ({"type": "ref/prompt", "name": "greet"}, "name", "x", []),
        ({"type": "ref/prompt", "name": "greet"}, "unknown", "x", []),
        ({"type": "ref/resource", "uri": "test://items/{id}"}, "id", "14", ["14", *map(str, range(140, 150))]),
    ],
)
async def test_completion_offers_what_fits(
    ada: DispatcherClient, ref: Any, argument: str, value: str, expected: Any
) -> None:
    asked = {"ref": ref, "argument": {"name": argument, "value": value}}

    result = await ada.legacy("completion/complete", asked)

    assert result["completion"] == {"values": expected, "total": len(expected), "hasMore": False}


async def test_completion_shows_a_hundred_values_and_says_that_there_are_more(ada: DispatcherClient) -> None:
    ref = {"type": "ref/resource", "uri": "test://items/{id}"}

    result = await ada.legacy("completion/complete", {"ref": ref, "argument": {"name": "id", "value": ""}})

    assert len(result["completion"]["values"]) == 100
    assert (result["completion"]["total"], result["completion"]["hasMore"]) == (150, True)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt", "name": "greet"}},
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "tone"}},
        {"ref": {"type": "ref/prompt", "name": "decree "}, "argument": {"name": "tone", "value": ""}},
        {"ref": {"type": "ref/resource", "uri": "test://none"}, "argument": {"name": "tone", "value": ""}},
        {"ref": {"type": "ref/tool", "name": "echo"}, "argument": {"name": "tone", "value": ""}},
        {"ref": None, "argument": {"name": "tone", "value": ""}},
    ],
)
async def test_a_completion_of_something_unknown_or_malformed_is_refused(ada: DispatcherClient, params: Any) -> None:
    with pytest.raises(InvalidParams):
        await ada.legacy("completion/complete", params)


# -- legacy session state ---------------------------------------------------------------------------------------


async def test_a_log_level_is_kept_by_the_session(ada: DispatcherClient) -> None:
    assert await ada.legacy("logging/setLevel", {"level": "error"}) == {}
    assert ada.session.log_level == "error"


@pytest.mark.parametrize("level", ["loud", None, 7, [], {}])
async def test_a_log_level_that_does_not_exist_is_refused_with_those_that_do(ada: DispatcherClient, level: Any) -> None:
    with pytest.raises(InvalidParams, match="expected one of debug, info"):
        await ada.legacy("logging/setLevel", {"level": level})


async def test_subscriptions_belong_to_the_session_and_are_bounded(samples: SampleCatalog) -> None:
    door = DispatcherClient(make_dispatcher(samples.catalog, page_size=2), make_principal("ada"))

    for uri in ("a://1", "a://2"):
        await door.legacy("resources/subscribe", {"uri": uri})
    with pytest.raises(Unavailable):
        await door.legacy("resources/subscribe", {"uri": "a://3"})
    await door.legacy("resources/unsubscribe", {"uri": "a://1"})

    assert door.session.subscriptions == {"a://2"}


async def test_subscribing_again_at_the_limit_is_no_new_subscription(samples: SampleCatalog) -> None:
    door = DispatcherClient(make_dispatcher(samples.catalog, page_size=1), make_principal("ada"))
    await door.legacy("resources/subscribe", {"uri": "a://1"})

    assert await door.legacy("resources/subscribe", {"uri": "a://1"}) == {}


# -- speaking to the client -------------------------------------------------------------------------------------


async def test_the_modern_era_hears_no_log_line_it_did_not_ask_for(samples: SampleCatalog) -> None:
    ear = RecordingPeer()
    door = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"), ear)

    await door.modern("tools/call", {"name": "tell"})

    assert ear.heard == []


async def test_log_lines_below_the_asked_level_are_not_sent(samples: SampleCatalog) -> None:
    ear = RecordingPeer()
    door = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"), ear)

    await door.modern("tools/call", {"name": "tell"}, log_level="info")

    assert [message["params"]["level"] for message in ear.heard] == ["info", "error"]


async def test_progress_is_told_to_who_gave_a_token(samples: SampleCatalog) -> None:
    ear = RecordingPeer()
    door = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"), ear)

    await door.modern("tools/call", {"name": "tell"}, progress_token="t")

    assert [message["params"] for message in ear.heard] == [
        {"progressToken": "t", "progress": 1, "total": 2, "message": "half"},
        {"progressToken": "t", "progress": 2, "total": 2},
    ]


@pytest.mark.parametrize("token", [1.5, True, [], {}])
async def test_a_progress_token_of_a_wrong_type_is_refused(ada: DispatcherClient, token: Any) -> None:
    with pytest.raises(FlorilegiumError, match="progressToken"):
        await ada.modern("tools/list", progress_token=token)


# -- rounds of one modern call ----------------------------------------------------------------------------------


async def test_a_modern_question_ends_the_call_and_its_answer_completes_it(samples: SampleCatalog) -> None:
    door = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))
    params = {"name": "ask_name", "arguments": {"text": "hi"}}

    asked = await door.modern("tools/call", params, capabilities=ELICITATION)
    answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
    again = {**params, "inputResponses": answers, "requestState": asked["requestState"]}
    result = await door.modern("tools/call", again, capabilities=ELICITATION)

    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"]["name"]["method"] == "elicitation/create"
    assert "Ada: hi" in text_of(result)


async def test_a_question_the_client_cannot_answer_is_not_asked(ada: DispatcherClient) -> None:
    with pytest.raises(MissingCapability) as missing:
        await ada.modern("tools/call", {"name": "ask_name"})

    assert missing.value.data == {"requiredCapabilities": {"elicitation": {}}}


@pytest.mark.parametrize(
    "extra",
    [
        {"inputResponses": []},
        {"inputResponses": {"name": "Ada"}},
        {"requestState": 5},
        {"requestState": "rubbish"},
        {"requestState": ""},
    ],
)
async def test_answers_or_state_of_a_wrong_form_are_refused(ada: DispatcherClient, extra: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        await ada.modern("tools/call", {"name": "ask_name", **extra}, capabilities=ELICITATION)


async def test_a_resource_or_prompt_may_ask_as_well(samples: SampleCatalog) -> None:
    async def ask(call: Call, uri: str, variables: Mapping[str, str]) -> list[Mapping[str, Any]]:
        raise InputRequired({"q": InputRequest("roots/list", {})}, None)

    template = samples.catalog.templates["test://items/{id}"]
    samples.catalog.add_template(msgspec.structs.replace(template, read=ask))
    door = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))

    result = await door.modern("resources/read", {"uri": "test://items/1"})

    assert result["resultType"] == "input_required"
    assert "ttlMs" not in result


# -- subscriptions/listen ---------------------------------------------------------------------------------------


async def test_listening_acknowledges_first_and_then_tells_what_was_asked_for(samples: SampleCatalog) -> None:
    ear, streams, ada = RecordingPeer(), FakeStreams(), make_principal("ada")
    door = DispatcherClient(make_dispatcher(samples.catalog, streams=streams), ada, ear)
    wanted = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["a://1"]}

    listening = asyncio.create_task(door.modern("subscriptions/listen", {"notifications": wanted}))
    await ear.spoken.wait()
    samples.catalog.remove_tool("echo")
    samples.catalog.remove_prompt("greet")
    samples.catalog.changes.publish(Change("updated", "a://1", make_principal("ben").user_id))
    samples.catalog.changes.publish(Change("updated", "a://1", ada.user_id))
    while len(ear.heard) < 3:
        ear.spoken.clear()
        await asyncio.wait_for(ear.spoken.wait(), 5)
    streams.closed = True
    result = await asyncio.wait_for(listening, 5)

    assert [message["method"] for message in ear.heard] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    honoured = {"toolsListChanged": True, "resourceSubscriptions": ["a://1"]}
    assert ear.heard[0]["params"]["notifications"] == honoured
    assert all(message["params"]["_meta"] == {SUBSCRIPTION_KEY: 1} for message in ear.heard)
    assert result["_meta"][SUBSCRIPTION_KEY] == 1
    assert streams.entered == []


@pytest.mark.parametrize(
    "wanted", [None, [], "all", {"resourceSubscriptions": "a://1"}, {"resourceSubscriptions": [1]}]
)
async def test_listening_to_something_malformed_is_refused(ada: DispatcherClient, wanted: Any) -> None:
    with pytest.raises(InvalidParams):
        await ada.modern("subscriptions/listen", {"notifications": wanted})


# -- observation ------------------------------------------------------------------------------------------------


async def test_every_call_is_observed_once_with_words_of_ours_only(samples: SampleCatalog) -> None:
    recorder = RecordingObserver()
    door = DispatcherClient(make_dispatcher(samples.catalog, observer=recorder), make_principal("ada"))

    await door.call("echo", {"text": "hi"})
    await door.call("miss")
    await door.modern("tools/call", {"name": "ask_name"}, capabilities=ELICITATION)
    for method, params in (("tools/call", {"name": "user text"}), ("user/method", {})):
        with pytest.raises(FlorilegiumError):
            await door.legacy(method, params)

    assert recorder.calls == [
        ("tools/call", "echo", "ok"),
        ("tools/call", "miss", "failed"),
        ("tools/call", "ask_name", "input_required"),
        ("tools/call", "", "error"),
        ("unknown", "", "error"),
    ]
