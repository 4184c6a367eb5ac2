"""Fixture tools that request input from the client: during the call in the legacy era, in rounds in the modern era."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from config.errors import FlorilegiumError
from server.protocol.call import Call, InputRequest
from server.protocol.catalog import Tool, ToolResult
from tests.conformance.blocks import NoInput, text, tool


def elicitation(message: str, properties: Mapping[str, Any], required: Sequence[str] = ()) -> InputRequest:
    schema = {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}
    return InputRequest("elicitation/create", {"message": message, "requestedSchema": schema})


def sampling(prompt: str, max_tokens: int = 100) -> InputRequest:
    message = {"role": "user", "content": text(prompt)}
    return InputRequest("sampling/createMessage", {"messages": [message], "maxTokens": max_tokens})


def roots() -> InputRequest:
    return InputRequest("roots/list", {})


def text_form(message: str, name: str) -> InputRequest:
    return elicitation(message, {name: {"type": "string"}}, [name])


def confirmation() -> InputRequest:
    return elicitation("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])


def elicited(response: Mapping[str, Any], name: str) -> Any:
    """Returns a field of an accepted form; None if the form was declined or the field left empty."""
    content = response.get("content")
    return content.get(name) if isinstance(content, Mapping) else None


def sampled(response: Mapping[str, Any]) -> str:
    content = response.get("content")
    return str(content.get("text", "")) if isinstance(content, Mapping) else ""


class SamplingInput(Struct, forbid_unknown_fields=True):
    prompt: Annotated[str, Meta(description="The prompt to send to the language model.")]


class ElicitationInput(Struct, forbid_unknown_fields=True):
    message: Annotated[str, Meta(description="The message to show the user.")]


_USER_FORM = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
_DEFAULTS_FORM = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}


def _titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, start=1)]


_OPTIONS = ["option1", "option2", "option3"]
_ENUMS_FORM = {
    "untitledSingle": {"type": "string", "enum": _OPTIONS},
    "titledSingle": {"type": "string", "oneOf": _titled("First Option", "Second Option", "Third Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": _titled("First Choice", "Second Choice", "Third Choice")}},
}


async def _sample(call: Call, args: SamplingInput) -> ToolResult:
    responses = await call.request_input({"completion": sampling(args.prompt)})
    return ToolResult([text(f"LLM response: {sampled(responses['completion'])}")])


async def _elicit(call: Call, args: ElicitationInput) -> ToolResult:
    responses = await call.request_input({"user": elicitation(args.message, _USER_FORM, ["username", "email"])})
    return ToolResult([text(f"User response: {_outcome(responses['user'])}")])


async def _elicit_form(form: Mapping[str, Any], call: Call, args: NoInput) -> ToolResult:
    responses = await call.request_input({"form": elicitation("Please fill in the form", form)})
    return ToolResult([text(f"Elicitation completed: {_outcome(responses['form'])}")])


def elicitation_tools() -> list[Tool]:
    return [
        tool("test_sampling", _sample, SamplingInput),
        tool("test_elicitation", _elicit, ElicitationInput),
        tool("test_elicitation_sep1034_defaults", partial(_elicit_form, _DEFAULTS_FORM)),
        tool("test_elicitation_sep1330_enums", partial(_elicit_form, _ENUMS_FORM)),
        tool("test_streaming_elicitation", partial(_elicit_form, _USER_FORM)),
    ]


def _outcome(response: Mapping[str, Any]) -> str:
    return f"action={response.get('action')}, content={response.get('content')}"


async def _elicit_name(call: Call, args: NoInput) -> ToolResult:
    responses = await call.request_input({"user_name": text_form("What is your name?", "name")})
    return ToolResult([text(f"Hello, {elicited(responses['user_name'], 'name')}!")])


async def _sample_capital(call: Call, args: NoInput) -> ToolResult:
    responses = await call.request_input({"capital_question": sampling("What is the capital of France?")})
    return ToolResult([text(sampled(responses["capital_question"]))])


async def _list_roots(call: Call, args: NoInput) -> ToolResult:
    responses = await call.request_input({"client_roots": roots()})
    uris = [root["uri"] for root in responses["client_roots"].get("roots", [])]
    return ToolResult([text(f"Roots: {', '.join(uris)}")])


async def _check_state(call: Call, args: NoInput) -> ToolResult:
    await call.request_input({"confirm": confirmation()}, state="confirming")
    if call.state != "confirming":
        raise FlorilegiumError("the response came without the request state")
    return ToolResult([text("state-ok")])


async def _request_three_inputs(call: Call, args: NoInput) -> ToolResult:
    requests = {
        "user_name": text_form("What is your name?", "name"),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    }
    responses = await call.request_input(requests, state="requested")
    name, greeting = elicited(responses["user_name"], "name"), sampled(responses["greeting"])
    return ToolResult([text(f"{greeting} {name}, {len(responses['client_roots'].get('roots', []))} roots")])


async def _request_twice(call: Call, args: NoInput) -> ToolResult:
    name = call.state.get("name") if isinstance(call.state, dict) else None
    if name is None:
        first = await call.request_input({"step1": text_form("Step 1: What is your name?", "name")}, state={})
        name = elicited(first["step1"], "name")
    second = await call.request_input(
        {"step2": text_form("Step 2: What is your favorite color?", "color")}, state={"name": name}
    )
    return ToolResult([text(f"{name} likes {elicited(second['step2'], 'color')}")])


async def _request_declared_inputs(call: Call, args: NoInput) -> ToolResult:
    candidates = {"sampling": sampling("Say hello"), "elicitation": confirmation(), "roots": roots()}
    requests = {name: request for name, request in candidates.items() if name in call.client.capabilities}
    responses = await call.request_input(requests)
    return ToolResult([text(f"Answered: {', '.join(sorted(responses))}")])


def round_tools() -> list[Tool]:
    """Returns tools for the modern era's rounds: each requires input and is called again with the responses."""
    prefix = "test_input_required_result_"
    return [
        tool(prefix + "elicitation", _elicit_name),
        tool(prefix + "sampling", _sample_capital),
        tool(prefix + "list_roots", _list_roots),
        tool(prefix + "request_state", _check_state),
        tool(prefix + "tampered_state", _check_state),
        tool(prefix + "multiple_inputs", _request_three_inputs),
        tool(prefix + "multi_round", _request_twice),
        tool(prefix + "capabilities", _request_declared_inputs),
    ]
