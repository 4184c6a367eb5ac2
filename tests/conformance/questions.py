"""Fixture tools that ask the client something: over the open call in the legacy era, in rounds in the modern one."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from config.errors import FlorilegiumError
from server.protocol.call import Call, InputRequest
from server.protocol.catalog import Tool, ToolResult
from tests.conformance.blocks import Nothing, text, tool


def elicitation(message: str, properties: Mapping[str, Any], required: Sequence[str] = ()) -> InputRequest:
    schema = {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}
    return InputRequest("elicitation/create", {"message": message, "requestedSchema": schema})


def sampling(prompt: str, max_tokens: int = 100) -> InputRequest:
    message = {"role": "user", "content": text(prompt)}
    return InputRequest("sampling/createMessage", {"messages": [message], "maxTokens": max_tokens})


def roots() -> InputRequest:
    return InputRequest("roots/list", {})


def one_text(message: str, name: str) -> InputRequest:
    return elicitation(message, {name: {"type": "string"}}, [name])


def confirmation() -> InputRequest:
    return elicitation("Please confirm", {"ok": {"type": "boolean"}}, ["ok"])


def elicited(answer: Mapping[str, Any], name: str) -> Any:
    """A field of a form that the user accepted; None for one declined or left open."""
    content = answer.get("content")
    return content.get(name) if isinstance(content, Mapping) else None


def sampled(answer: Mapping[str, Any]) -> str:
    content = answer.get("content")
    return str(content.get("text", "")) if isinstance(content, Mapping) else ""


class Prompted(Struct, forbid_unknown_fields=True):
    prompt: Annotated[str, Meta(description="The prompt to send to the language model.")]


class Messaged(Struct, forbid_unknown_fields=True):
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


async def _sample(call: Call, given: Prompted) -> ToolResult:
    answers = await call.request_input({"completion": sampling(given.prompt)})
    return ToolResult([text(f"LLM response: {sampled(answers['completion'])}")])


async def _elicit(call: Call, given: Messaged) -> ToolResult:
    answers = await call.request_input({"user": elicitation(given.message, _USER_FORM, ["username", "email"])})
    return ToolResult([text(f"User response: {_outcome(answers['user'])}")])


async def _elicit_form(form: Mapping[str, Any], call: Call, given: Nothing) -> ToolResult:
    answers = await call.request_input({"form": elicitation("Please fill in the form", form)})
    return ToolResult([text(f"Elicitation completed: {_outcome(answers['form'])}")])


def question_tools() -> list[Tool]:
    return [
        tool("test_sampling", _sample, Prompted),
        tool("test_elicitation", _elicit, Messaged),
        tool("test_elicitation_sep1034_defaults", partial(_elicit_form, _DEFAULTS_FORM)),
        tool("test_elicitation_sep1330_enums", partial(_elicit_form, _ENUMS_FORM)),
        tool("test_streaming_elicitation", partial(_elicit_form, _USER_FORM)),
    ]


def _outcome(answer: Mapping[str, Any]) -> str:
    return f"action={answer.get('action')}, content={answer.get('content')}"


async def _elicit_name(call: Call, given: Nothing) -> ToolResult:
    answers = await call.request_input({"user_name": one_text("What is your name?", "name")})
    return ToolResult([text(f"Hello, {elicited(answers['user_name'], 'name')}!")])


async def _sample_capital(call: Call, given: Nothing) -> ToolResult:
    answers = await call.request_input({"capital_question": sampling("What is the capital of France?")})
    return ToolResult([text(sampled(answers["capital_question"]))])


async def _list_roots(call: Call, given: Nothing) -> ToolResult:
    answers = await call.request_input({"client_roots": roots()})
    uris = [root["uri"] for root in answers["client_roots"].get("roots", [])]
    return ToolResult([text(f"Roots: {', '.join(uris)}")])


async def _keep_state(call: Call, given: Nothing) -> ToolResult:
    await call.request_input({"confirm": confirmation()}, state="confirming")
    if call.state != "confirming":
        raise FlorilegiumError("the answer came without the state of its question")
    return ToolResult([text("state-ok")])


async def _ask_three(call: Call, given: Nothing) -> ToolResult:
    questions = {
        "user_name": one_text("What is your name?", "name"),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": roots(),
    }
    answers = await call.request_input(questions, state="asked")
    name, greeting = elicited(answers["user_name"], "name"), sampled(answers["greeting"])
    return ToolResult([text(f"{greeting} {name}, {len(answers['client_roots'].get('roots', []))} roots")])


async def _ask_twice(call: Call, given: Nothing) -> ToolResult:
    name = call.state.get("name") if isinstance(call.state, dict) else None
    if name is None:
        first = await call.request_input({"step1": one_text("Step 1: What is your name?", "name")}, state={})
        name = elicited(first["step1"], "name")
    second = await call.request_input(
        {"step2": one_text("Step 2: What is your favorite color?", "color")}, state={"name": name}
    )
    return ToolResult([text(f"{name} likes {elicited(second['step2'], 'color')}")])


async def _ask_what_is_declared(call: Call, given: Nothing) -> ToolResult:
    offered = {"sampling": sampling("Say hello"), "elicitation": confirmation(), "roots": roots()}
    questions = {name: question for name, question in offered.items() if name in call.client.capabilities}
    answers = await call.request_input(questions)
    return ToolResult([text(f"Answered: {', '.join(sorted(answers))}")])


def round_tools() -> list[Tool]:
    """Tools of the modern era's rounds: each asks, ends, and is called again with the answers."""
    prefix = "test_input_required_result_"
    return [
        tool(prefix + "elicitation", _elicit_name),
        tool(prefix + "sampling", _sample_capital),
        tool(prefix + "list_roots", _list_roots),
        tool(prefix + "request_state", _keep_state),
        tool(prefix + "tampered_state", _keep_state),
        tool(prefix + "multiple_inputs", _ask_three),
        tool(prefix + "multi_round", _ask_twice),
        tool(prefix + "capabilities", _ask_what_is_declared),
    ]
