"""A catalog for tests, with a tool, resource or prompt for every behaviour that the transports have to support."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from auth.context import ADMIN, WRITE
from config.errors import NotFound
from server.protocol.call import Call, InputRequest
from server.protocol.catalog import (
    Catalog,
    Hints,
    McpPrompt,
    McpPromptArgument,
    PromptResult,
    Resource,
    ResourceTemplate,
    Tool,
)
from tests.server.http_client import WAIT_MAX_S

NAME_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
WRITING = Hints(read_only_hint=False, destructive_hint=True, idempotent_hint=False)


class Gate:
    """Events of one run of the tool `wait`: a test can wait until it runs, let it continue, or see its cancellation."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.waiting = 0

    async def wait_for_calls(self, count: int) -> None:
        """Waits until that many calls are waiting at the gate."""
        async with asyncio.timeout(WAIT_MAX_S):
            while self.waiting < count:
                await asyncio.sleep(0.005)


class EchoInput(Struct, forbid_unknown_fields=True):
    text: str = ""
    times: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


class EchoOutput(Struct, frozen=True):
    text: str
    user: str


class GateInput(Struct, forbid_unknown_fields=True):
    gate: str


class NoInput(Struct, forbid_unknown_fields=True):
    pass


class RegionInput(Struct, forbid_unknown_fields=True):
    region: Annotated[str | None, Meta(extra_json_schema={"x-mcp-header": "Region"})] = None
    shelf: Annotated[int | None, Meta(extra_json_schema={"x-mcp-header": "Shelf"})] = None


class SampleCatalog:
    """The catalog, and the gates of its tool `wait`."""

    def __init__(self) -> None:
        self.gates: defaultdict[str, Gate] = defaultdict(Gate)
        self.catalog = Catalog()
        for tool in (*self._tools(), *_scoped_tools()):
            self.catalog.add_tool(tool)
        for resource in _resources():
            self.catalog.add_resource(resource)
        for template in _templates():
            self.catalog.add_template(template)
        for prompt in _prompts():
            self.catalog.add_prompt(prompt)

    def _tools(self) -> list[Tool]:
        return [
            _tool("echo", EchoInput, _echo, output=EchoOutput),
            _tool("wait", GateInput, self._wait, output=EchoOutput),
            _tool("report", NoInput, _report),
            _tool("shout", EchoInput, _shout, output=EchoOutput),
            _tool("ask_name", EchoInput, _ask_name, output=EchoOutput),
            _tool("explode", EchoInput, _explode),
            _tool("miss", EchoInput, _miss),
            _tool("locate", RegionInput, _locate),
        ]

    async def _wait(self, call: Call, args: GateInput) -> EchoOutput:
        gate = self.gates[args.gate]
        await call.progress(1)
        gate.waiting += 1
        gate.reached.set()
        try:
            await gate.opened.wait()
        except asyncio.CancelledError:
            gate.cancelled.set()
            raise
        return EchoOutput(args.gate, call.context.principal.user_name)


def _tool(name: str, input_type: type[Any], handler: Any, **more: Any) -> Tool:
    return Tool(
        name=name, title=name.title(), description=f"Sample tool {name}.", input=input_type, handler=handler, **more
    )


def _scoped_tools() -> list[Tool]:
    return [
        _tool("write_note", NoInput, _report, scope=WRITE, hints=WRITING),
        _tool("administer", NoInput, _report, scope=ADMIN),
    ]


async def _echo(call: Call, args: EchoInput) -> EchoOutput:
    return EchoOutput(args.text * args.times, call.context.principal.user_name)


async def _report(call: Call, args: NoInput) -> EchoOutput:
    """Reports progress twice and logs a message at three levels."""
    await call.progress(1, 2, "half")
    for level in ("debug", "info", "error"):
        await call.log(level, f"a line at {level}", "sample")
    await call.progress(2, 2)
    return EchoOutput("reported", call.context.principal.user_name)


async def _shout(call: Call, args: EchoInput) -> EchoOutput:
    """Sends a long log message before a short result."""
    await call.log("error", args.text * args.times)
    return EchoOutput("shouted", call.context.principal.user_name)


async def _ask_name(call: Call, args: EchoInput) -> EchoOutput:
    request = InputRequest("elicitation/create", {"message": "Your name?", "requestedSchema": NAME_SCHEMA})
    responses = await call.request_input({"name": request}, state={"text": args.text})
    name = (responses["name"].get("content") or {}).get("name", "nobody")
    return EchoOutput(f"{name}: {(call.state or {'text': args.text})['text']}", call.context.principal.user_name)


async def _explode(call: Call, args: EchoInput) -> EchoOutput:
    raise RuntimeError(f"failed on {args.text}")


async def _miss(call: Call, args: EchoInput) -> EchoOutput:
    raise NotFound("note", args.text)


async def _locate(call: Call, args: RegionInput) -> EchoOutput:
    return EchoOutput(f"{args.region} {args.shelf}", call.context.principal.user_name)


async def _read_text(call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    text = f"{call.context.principal.user_name} reads {variables.get('id', 'all')}"
    return [{"uri": uri, "mimeType": "text/plain", "text": text}]


async def _read_missing(call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    raise NotFound("item", variables["id"])


async def _read_broken(call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    raise RuntimeError(f"failed on {uri}")


def _resources() -> list[Resource]:
    return [
        Resource(uri="test://plain", name="plain", description="A text.", reader=_read_text),
        Resource(uri="test://broken", name="broken", description="Fails.", reader=_read_broken),
        Resource(uri="test://admin", name="admin", description="For administrators.", reader=_read_text, scope=ADMIN),
    ]


async def _complete_number(call: Call, value: str, args: Mapping[str, str]) -> list[str]:
    return [text for n in range(150) if (text := str(n)).startswith(value)]


def _templates() -> list[ResourceTemplate]:
    return [
        ResourceTemplate(
            uri_template="test://items/{id}",
            name="items",
            description="One item.",
            reader=_read_text,
            completers={"id": _complete_number},
        ),
        ResourceTemplate(
            uri_template="test://lost/{id}", name="lost", description="Always not found.", reader=_read_missing
        ),
    ]


async def _complete_tone(call: Call, value: str, args: Mapping[str, str]) -> list[str]:
    return [tone for tone in ("warm", "wry", "cool") if tone.startswith(value)]


async def _greet(call: Call, args: Mapping[str, str]) -> PromptResult:
    text = f"{call.context.principal.user_name} greets {args['name']}"
    return PromptResult([{"role": "user", "content": {"type": "text", "text": text}}])


def _prompts() -> list[McpPrompt]:
    arguments = (
        McpPromptArgument(name="name", required=True),
        McpPromptArgument(name="tone", completer=_complete_tone),
    )
    return [
        McpPrompt(name="greet", description="A greeting.", handler=_greet, arguments=arguments),
        McpPrompt(name="admin_prompt", description="For administrators.", handler=_greet, scope=ADMIN),
    ]
