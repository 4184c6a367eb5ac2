"""A catalog with one specimen of every behaviour the doors must carry: tools, resources and prompts for tests only."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from auth.principal import ADMIN, WRITE
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

NAME_SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
WRITING = Hints(read_only_hint=False, destructive_hint=True, idempotent_hint=False)


class Gate:
    """Where a running tool waits: the test sees that it came, lets it through, or sees that it was cancelled."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = asyncio.Event()


class EchoInput(Struct, forbid_unknown_fields=True):
    text: str = ""
    times: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


class EchoOutput(Struct, frozen=True):
    text: str
    user: str


class GateInput(Struct, forbid_unknown_fields=True):
    gate: str


class Nothing(Struct, forbid_unknown_fields=True):
    pass


class RegionInput(Struct, forbid_unknown_fields=True):
    region: Annotated[str | None, Meta(extra_json_schema={"x-mcp-header": "Region"})] = None
    shelf: Annotated[int | None, Meta(extra_json_schema={"x-mcp-header": "Shelf"})] = None


class SampleCatalog:
    """The catalog, and the gates its tool `wait` stands at."""

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
            _tool("tell", Nothing, _tell),
            _tool("shout", EchoInput, _shout, output=EchoOutput),
            _tool("ask_name", EchoInput, _ask_name, output=EchoOutput),
            _tool("explode", EchoInput, _explode),
            _tool("miss", EchoInput, _miss),
            _tool("locate", RegionInput, _locate),
        ]

    async def _wait(self, call: Call, given: GateInput) -> EchoOutput:
        gate = self.gates[given.gate]
        await call.progress(1)
        gate.reached.set()
        try:
            await gate.opened.wait()
        except asyncio.CancelledError:
            gate.cancelled.set()
            raise
        return EchoOutput(given.gate, call.context.principal.user_name)


def _tool(name: str, declared: type[Any], run: Any, **more: Any) -> Tool:
    return Tool(name=name, title=name.title(), description=f"Specimen {name}.", input=declared, handler=run, **more)


def _scoped_tools() -> list[Tool]:
    return [
        _tool("write_note", Nothing, _tell, scope=WRITE, hints=WRITING),
        _tool("rule", Nothing, _tell, scope=ADMIN),
    ]


async def _echo(call: Call, given: EchoInput) -> EchoOutput:
    return EchoOutput(given.text * given.times, call.context.principal.user_name)


async def _tell(call: Call, given: Nothing) -> EchoOutput:
    """Says something at every stage: progress, and a log line at three levels."""
    await call.progress(1, 2, "half")
    for level in ("debug", "info", "error"):
        await call.log(level, f"a line at {level}", "specimen")
    await call.progress(2, 2)
    return EchoOutput("told", call.context.principal.user_name)


async def _shout(call: Call, given: EchoInput) -> EchoOutput:
    """Says something long on the way to a short answer."""
    await call.log("error", given.text * given.times)
    return EchoOutput("shouted", call.context.principal.user_name)


async def _ask_name(call: Call, given: EchoInput) -> EchoOutput:
    question = InputRequest("elicitation/create", {"message": "Your name?", "requestedSchema": NAME_SCHEMA})
    answers = await call.ask({"name": question}, state={"text": given.text})
    name = (answers["name"].get("content") or {}).get("name", "nobody")
    return EchoOutput(f"{name}: {(call.state or {'text': given.text})['text']}", call.context.principal.user_name)


async def _explode(call: Call, given: EchoInput) -> EchoOutput:
    raise RuntimeError(f"failed on {given.text}")


async def _miss(call: Call, given: EchoInput) -> EchoOutput:
    raise NotFound("note", given.text)


async def _locate(call: Call, given: RegionInput) -> EchoOutput:
    return EchoOutput(f"{given.region} {given.shelf}", call.context.principal.user_name)


async def _read_text(call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    text = f"{call.context.principal.user_name} reads {variables.get('id', 'all')}"
    return [{"uri": uri, "mimeType": "text/plain", "text": text}]


async def _read_missing(call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    raise NotFound("item", variables["id"])


async def _read_broken(call: Call, uri: str, variables: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    raise RuntimeError(f"failed on {uri}")


def _resources() -> list[Resource]:
    return [
        Resource(uri="test://plain", name="plain", description="A text.", read=_read_text),
        Resource(uri="test://broken", name="broken", description="Fails.", read=_read_broken),
        Resource(uri="test://rules", name="rules", description="For rulers.", read=_read_text, scope=ADMIN),
    ]


def _templates() -> list[ResourceTemplate]:
    async def complete(call: Call, value: str, given: Mapping[str, str]) -> list[str]:
        return [text for n in range(150) if (text := str(n)).startswith(value)]

    return [
        ResourceTemplate(
            uri_template="test://items/{id}",
            name="items",
            description="One item.",
            read=_read_text,
            completers={"id": complete},
        ),
        ResourceTemplate(uri_template="test://lost/{id}", name="lost", description="Never there.", read=_read_missing),
    ]


def _prompts() -> list[McpPrompt]:
    async def complete(call: Call, value: str, given: Mapping[str, str]) -> list[str]:
        return [tone for tone in ("warm", "wry", "cool") if tone.startswith(value)]

    async def greet(call: Call, given: Mapping[str, str]) -> PromptResult:
        text = f"{call.context.principal.user_name} greets {given['name']}"
        return PromptResult([{"role": "user", "content": {"type": "text", "text": text}}])

    arguments = (McpPromptArgument(name="name", required=True), McpPromptArgument(name="tone", complete=complete))
    return [
        McpPrompt(name="greet", description="A greeting.", get=greet, arguments=arguments),
        McpPrompt(name="decree", description="For rulers.", get=greet, scope=ADMIN),
    ]
