"""The dispatcher on its own: the result of each method in each era, and how errors are reported."""

import asyncio
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from auth.context import READ
from config.errors import (
    FlorilegiumError,
    InvalidParams,
    MethodNotFound,
    ResourceNotFound,
    Unavailable,
    UnsupportedVersion,
)
from server.protocol.call import Call, InputRequest, InputRequired
from server.protocol.catalog import McpPromptArgument, Tool, ToolResult
from server.protocol.dispatcher import SERVER_INFO_KEY
from tests.cases import each_case
from tests.server.clients import ELICITATION, text_of
from tests.server.protocol.dispatcher_fixture import (
    CountingLimit,
    DispatcherClient,
    RecordingObserver,
    RecordingPeer,
    make_dispatcher,
    make_principal,
)
from tests.server.sample_catalog import NoInput, SampleCatalog

LEGACY_ONLY = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
MODERN_ONLY = ("server/discover", "subscriptions/listen")
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


@pytest.fixture
def ada(samples: SampleCatalog) -> DispatcherClient:
    return DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))


def _with_tool(samples: SampleCatalog, handler: Any, **options: Any) -> DispatcherClient:
    """Returns a client of a catalog with an additional tool called `odd`."""
    samples.catalog.add_tool(Tool(name="odd", title="Odd", description="Odd.", input=NoInput, handler=handler))
    return DispatcherClient(make_dispatcher(samples.catalog, **options), make_principal("ada"))


# -- eras -------------------------------------------------------------------------------------------------------


@each_case("method", [*MODERN_ONLY, "initialize", "no/such", "", "tools/call "])
async def test_modern_and_unknown_methods_are_not_found_in_the_legacy_era(ada: DispatcherClient, method: str) -> None:
    with pytest.raises(MethodNotFound):
        await ada.legacy(method)


@each_case("method", [*LEGACY_ONLY, "initialize", "no/such", "roots/list"])
async def test_methods_removed_from_the_modern_era_are_not_found(ada: DispatcherClient, method: str) -> None:
    with pytest.raises(MethodNotFound):
        await ada.modern(method)


@each_case("method", [*LISTS, "server/discover", "resources/read"])
async def test_a_modern_result_has_cache_hints_and_server_info(ada: DispatcherClient, method: str) -> None:
    result = await ada.modern(method, {"uri": "test://plain"} if method == "resources/read" else {})

    assert result["resultType"] == "complete"
    assert (result["ttlMs"], result["cacheScope"]) == (1000, "private")
    assert result["_meta"][SERVER_INFO_KEY]["name"] == "sample"


async def test_discovery_returns_the_modern_versions_and_no_logging_capability(ada: DispatcherClient) -> None:
    result = await ada.modern("server/discover")

    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["instructions"] == "Look."
    assert "logging" not in result["capabilities"]


async def test_a_modern_tool_result_has_no_cache_hints(ada: DispatcherClient) -> None:
    result = await ada.modern("tools/call", {"name": "echo", "arguments": {"text": "hi"}})

    assert result["resultType"] == "complete"
    assert "ttlMs" not in result


@each_case(
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
async def test_incomplete_or_invalid_modern_meta_is_rejected(
    ada: DispatcherClient, meta: dict[str, Any], error: type[FlorilegiumError]
) -> None:
    with pytest.raises(error):
        await ada.modern("tools/list", **meta)


# -- tools ------------------------------------------------------------------------------------------------------


async def test_a_struct_is_returned_as_structured_content_and_as_json_text(
    samples: SampleCatalog, ada: DispatcherClient
) -> None:
    result = msgspec.json.decode(msgspec.json.encode(await ada.call("echo", {"text": "hi", "times": "2"})))
    structured = result["structuredContent"]

    assert structured == msgspec.json.decode(text_of(result)) == {"text": "hihi", "user": "ada"}
    listed = samples.catalog.tools["echo"].as_listed()
    assert jsonschema_rs.is_valid(listed["outputSchema"], structured)
    assert "isError" not in result


async def test_content_blocks_are_returned_unchanged(samples: SampleCatalog) -> None:
    async def return_blocks(call: Call, args: NoInput) -> ToolResult:
        return ToolResult([{"type": "text", "text": "a"}], structured={"n": 1}, is_error=True)

    result = await _with_tool(samples, return_blocks).call("odd")

    assert result == {"content": [{"type": "text", "text": "a"}], "structuredContent": {"n": 1}, "isError": True}


@each_case(
    ("arguments", "expected_text"),
    [
        ({"times": "many"}, "times: expected `int`, got `str`"),
        ({"times": 0}, "times:"),
        ({"txet": "x"}, "did you mean 'text'?"),
    ],
)
async def test_an_invalid_argument_is_reported_in_the_tool_result(
    ada: DispatcherClient, arguments: Any, expected_text: str
) -> None:
    result = await ada.call("echo", arguments)

    assert result["isError"] is True
    assert expected_text in text_of(result)


@each_case("params", [{"name": "nowhere"}, {"name": 7}, {"name": None}, {}, {"name": ["echo"]}])
async def test_an_unknown_tool_is_a_protocol_error(ada: DispatcherClient, params: Any) -> None:
    with pytest.raises(InvalidParams):
        await ada.legacy("tools/call", params)


@each_case("arguments", [[], "text", 7, True])
async def test_arguments_that_are_not_an_object_are_a_protocol_error(ada: DispatcherClient, arguments: Any) -> None:
    with pytest.raises(InvalidParams, match="arguments: expected an object"):
        await ada.legacy("tools/call", {"name": "echo", "arguments": arguments})


async def test_an_expected_error_of_a_tool_is_reported_in_its_result(ada: DispatcherClient) -> None:
    result = await ada.call("miss", {"text": "n1"})

    assert result == {"content": [{"type": "text", "text": "note 'n1' not found"}], "isError": True}


async def test_an_unexpected_error_of_a_tool_reveals_only_the_request_id(
    ada: DispatcherClient, failures: list[str]
) -> None:
    result = await ada.call("explode", {"text": "secret"})

    assert text_of(result) == "internal error (request request)"
    assert "RuntimeError" in failures.pop()


async def test_a_tool_that_exceeds_its_deadline_is_cancelled(samples: SampleCatalog) -> None:
    client = DispatcherClient(make_dispatcher(samples.catalog, deadline_ms=10), make_principal("ada"))

    result = await client.call("wait", {"gate": "never"})

    assert samples.gates["never"].cancelled.is_set()
    assert text_of(result) == "wait took longer than 10 ms"
    assert result["_meta"]["florilegium/retryAfterS"] > 0


async def test_a_resource_that_exceeds_the_deadline_is_unavailable(samples: SampleCatalog) -> None:
    async def read(call: Call, uri: str, variables: Mapping[str, str]) -> list[Mapping[str, Any]]:
        await asyncio.Event().wait()
        return []

    template = samples.catalog.templates["test://items/{id}"]
    samples.catalog.add_template(msgspec.structs.replace(template, reader=read))
    client = DispatcherClient(make_dispatcher(samples.catalog, deadline_ms=10), make_principal("ada"))

    with pytest.raises(Unavailable, match="items took longer than 10 ms"):
        await client.legacy("resources/read", {"uri": "test://items/1"})


async def test_an_unexpected_error_of_a_prompt_or_completion_reveals_only_the_request_id(
    samples: SampleCatalog, failures: list[str]
) -> None:
    async def fail(*args: Any) -> Any:
        raise RuntimeError("failed")

    prompt = samples.catalog.prompts["greet"]
    broken = msgspec.structs.replace(prompt, handler=fail, arguments=(McpPromptArgument(name="tone", completer=fail),))
    samples.catalog.add_prompt(broken)
    params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "tone", "value": ""}}
    client = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))

    with pytest.raises(FlorilegiumError, match=r"^internal error \(request request\)$"):
        await client.legacy("prompts/get", {"name": "greet"})
    with pytest.raises(FlorilegiumError, match=r"^internal error \(request request\)$"):
        await client.legacy("completion/complete", params)
    assert ["RuntimeError" in failures.pop() for _ in range(2)] == [True, True]


async def test_the_deadline_is_paused_while_the_client_answers(samples: SampleCatalog) -> None:
    class SlowPeer(RecordingPeer):
        async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            await asyncio.sleep(0.06)
            return {"action": "accept", "content": {"name": "Ada"}}

    client = DispatcherClient(make_dispatcher(samples.catalog, deadline_ms=40), make_principal("ada"), SlowPeer())
    client.session.capabilities = ELICITATION

    assert "Ada: hi" in text_of(await client.call("ask_name", {"text": "hi"}))


async def test_the_tool_limit_applies_per_user_and_tool_and_reports_when_to_retry(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog, limit=CountingLimit(1))
    ada, ben = DispatcherClient(dispatcher, make_principal("ada")), DispatcherClient(dispatcher, make_principal("ben"))
    await ada.call("echo")

    limited = await ada.call("echo")

    assert limited["isError"] is True
    assert "retry after 8 s" in text_of(limited)
    assert limited["_meta"] == {"florilegium/retryAfterS": 7.5}
    assert "isError" not in await ada.call("write_note")
    assert "isError" not in await ben.call("echo")


# -- scopes -----------------------------------------------------------------------------------------------------


async def test_a_resource_or_prompt_without_its_scope_is_not_found(samples: SampleCatalog) -> None:
    reader = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada", (READ,)))

    with pytest.raises(ResourceNotFound) as hidden:
        await reader.legacy("resources/read", {"uri": "test://admin"})
    with pytest.raises(ResourceNotFound) as absent:
        await reader.legacy("resources/read", {"uri": "test://adminX"})
    assert hidden.value.message == absent.value.message
    with pytest.raises(InvalidParams, match="unknown prompt"):
        await reader.legacy("prompts/get", {"name": "admin_prompt", "arguments": {"name": "x"}})


# -- resources and prompts -----------------------------------------------------------------------------


async def test_each_user_reads_a_template_with_its_variables(samples: SampleCatalog) -> None:
    dispatcher = make_dispatcher(samples.catalog)

    responses = [
        (
            await DispatcherClient(dispatcher, make_principal(name)).legacy(
                "resources/read", {"uri": "test://items/a%20b"}
            )
        )["contents"]
        for name in ("ada", "ben")
    ]

    assert [contents[0]["text"] for contents in responses] == ["ada reads a b", "ben reads a b"]


@each_case("uri", ["test://nowhere", "test://lost/1", ""])
async def test_a_missing_resource_has_the_error_code_of_its_era(ada: DispatcherClient, uri: str) -> None:
    with pytest.raises(ResourceNotFound) as legacy:
        await ada.legacy("resources/read", {"uri": uri})
    with pytest.raises(InvalidParams) as modern:
        await ada.modern("resources/read", {"uri": uri})

    assert (legacy.value.code, modern.value.code) == (-32002, -32602)
    assert legacy.value.data == modern.value.data == {"uri": uri}


async def test_a_prompt_is_filled_with_its_arguments(ada: DispatcherClient) -> None:
    result = await ada.legacy("prompts/get", {"name": "greet", "arguments": {"name": "Ben"}})

    assert result["description"] == "A greeting."
    assert result["messages"][0]["content"]["text"] == "ada greets Ben"


@each_case(
    ("params", "expected_message"),
    [
        ({"name": "greet"}, "requires the argument 'name'"),
        ({"name": "greet", "arguments": {"name": 5}}, "object of strings"),
        ({"name": "greet", "arguments": ["x"]}, "object of strings"),
        ({"name": "unknown"}, "unknown prompt 'unknown'"),
        ({}, "name: expected a string, got nothing"),
    ],
)
async def test_an_invalid_prompt_request_is_rejected_with_the_reason(
    ada: DispatcherClient, params: Any, expected_message: str
) -> None:
    with pytest.raises(InvalidParams, match=expected_message):
        await ada.legacy("prompts/get", params)


# -- legacy session state ---------------------------------------------------------------------------------------


async def test_a_log_level_is_stored_in_the_session(ada: DispatcherClient) -> None:
    assert await ada.legacy("logging/setLevel", {"level": "error"}) == {}
    assert ada.session.log_level == "error"


@each_case("level", ["loud", None, 7, [], {}])
async def test_an_unknown_log_level_is_rejected_with_the_known_ones(ada: DispatcherClient, level: Any) -> None:
    with pytest.raises(InvalidParams, match="expected one of debug, info"):
        await ada.legacy("logging/setLevel", {"level": level})


# -- messages to the client -------------------------------------------------------------------------------------


async def test_log_messages_below_the_requested_level_are_not_sent(samples: SampleCatalog) -> None:
    peer = RecordingPeer()
    client = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"), peer)

    await client.modern("tools/call", {"name": "report"}, log_level="info")

    assert [message["params"]["level"] for message in peer.messages] == ["info", "error"]


async def test_progress_is_sent_to_a_client_with_a_progress_token(samples: SampleCatalog) -> None:
    peer = RecordingPeer()
    client = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"), peer)

    await client.modern("tools/call", {"name": "report"}, progress_token="t")

    assert [message["params"] for message in peer.messages] == [
        {"progressToken": "t", "progress": 1, "total": 2, "message": "half"},
        {"progressToken": "t", "progress": 2, "total": 2},
    ]


@each_case("token", [1.5, True, [], {}])
async def test_a_progress_token_of_the_wrong_type_is_rejected(ada: DispatcherClient, token: Any) -> None:
    with pytest.raises(FlorilegiumError, match="progressToken"):
        await ada.modern("tools/list", progress_token=token)


# -- rounds of one modern call ----------------------------------------------------------------------------------


@each_case(
    "extra",
    [
        {"inputResponses": []},
        {"inputResponses": {"name": "Ada"}},
        {"requestState": 5},
        {"requestState": "invalid"},
        {"requestState": ""},
    ],
)
async def test_malformed_input_responses_or_state_are_rejected(ada: DispatcherClient, extra: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        await ada.modern("tools/call", {"name": "ask_name", **extra}, capabilities=ELICITATION)


async def test_a_resource_can_require_input(samples: SampleCatalog) -> None:
    async def require_input(call: Call, uri: str, variables: Mapping[str, str]) -> list[Mapping[str, Any]]:
        raise InputRequired({"q": InputRequest("roots/list", {})}, None)

    template = samples.catalog.templates["test://items/{id}"]
    samples.catalog.add_template(msgspec.structs.replace(template, reader=require_input))
    client = DispatcherClient(make_dispatcher(samples.catalog), make_principal("ada"))

    result = await client.modern("resources/read", {"uri": "test://items/1"})

    assert result["resultType"] == "input_required"
    assert "ttlMs" not in result


# -- observation ------------------------------------------------------------------------------------------------


async def test_every_call_is_observed_once_and_unknown_names_are_not_recorded(samples: SampleCatalog) -> None:
    observer = RecordingObserver()
    client = DispatcherClient(make_dispatcher(samples.catalog, observer=observer), make_principal("ada"))

    await client.call("echo", {"text": "hi"})
    await client.call("miss")
    await client.modern("tools/call", {"name": "ask_name"}, capabilities=ELICITATION)
    for method, params in (("tools/call", {"name": "user text"}), ("user/method", {})):
        with pytest.raises(FlorilegiumError):
            await client.legacy(method, params)

    assert observer.calls == [
        ("tools/call", "echo", "ok"),
        ("tools/call", "miss", "failed"),
        ("tools/call", "ask_name", "input_required"),
        ("tools/call", "", "error"),
        ("unknown", "", "error"),
    ]
