"""The tools, resources, templates and prompts that the official conformance suite expects on a server.

Names and texts come from the suite's scenario descriptions. The product does not contain any of them.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from config.errors import FlorilegiumError
from server.protocol.call import Call
from server.protocol.catalog import (
    Catalog,
    Change,
    McpPrompt,
    McpPromptArgument,
    PromptResult,
    Resource,
    ResourceTemplate,
    Tool,
    ToolResult,
)
from tests.conformance.blocks import Block, Handler, NoInput, audio, embedded, image, red_pixel, text, tool
from tests.conformance.input_tools import elicitation_tools, elicited, round_tools, text_form

# Long enough that a client receives three separate events (the suite asks for about 50 ms).
PAUSE_S = 0.05


def add_fixtures(catalog: Catalog) -> None:
    """Adds the suite's fixtures to the server's own catalog."""
    for added in (*_content_tools(), *_notifying_tools(), *elicitation_tools(), *round_tools()):
        catalog.add_tool(added)
    for added in (*_schema_tools(), *_changing_tools(catalog)):
        catalog.add_tool(added)
    for resource in _resources():
        catalog.add_resource(resource)
    catalog.add_template(_template())
    for prompt in _prompts():
        catalog.add_prompt(prompt)


def _content_tools() -> list[Tool]:
    def returning(*blocks: Block) -> Handler:
        async def return_blocks(call: Call, args: NoInput) -> ToolResult:
            return ToolResult(blocks)

        return return_blocks

    async def fail(call: Call, args: NoInput) -> ToolResult:
        raise FlorilegiumError("This tool intentionally returns an error for testing")

    return [
        tool("test_simple_text", returning(text("This is a simple text response for testing."))),
        tool("test_image_content", returning(image())),
        tool("test_audio_content", returning(audio())),
        tool(
            "test_embedded_resource",
            returning(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
        ),
        tool(
            "test_multiple_content_types",
            returning(
                text("Multiple content types test:"),
                image(),
                embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
            ),
        ),
        tool("test_error_handling", fail),
        # This server does not resume streams: a call whose response is one JSON object has nothing to resume.
        tool("test_reconnection", returning(text("Returned in one piece."))),
    ]


# -- tools that send notifications ----------------------------------------------------------------------------------


def _notifying_tools() -> list[Tool]:
    async def log(call: Call, args: NoInput) -> ToolResult:
        await call.log("info", "Tool execution started")
        await asyncio.sleep(PAUSE_S)
        await call.log("info", "Tool processing data")
        await asyncio.sleep(PAUSE_S)
        await call.log("info", "Tool execution completed")
        return ToolResult([text("Logged three messages.")])

    async def progress(call: Call, args: NoInput) -> ToolResult:
        await call.progress(0, 100)
        await asyncio.sleep(PAUSE_S)
        await call.progress(50, 100)
        await asyncio.sleep(PAUSE_S)
        await call.progress(100, 100)
        return ToolResult([text("Reported progress three times.")])

    async def need_sampling(call: Call, args: NoInput) -> ToolResult:
        call.require_capability("sampling")
        return ToolResult([text("The client can sample.")])

    return [
        tool("test_tool_with_logging", log),
        tool("test_logging_tool", log),
        tool("test_tool_with_progress", progress),
        tool("test_missing_capability", need_sampling),
    ]


# -- schemas and changes --------------------------------------------------------------------------------------------


class RegionInput(Struct, forbid_unknown_fields=True):
    region: Annotated[
        str,
        Meta(description="Repeated by the client in Mcp-Param-Region.", extra_json_schema={"x-mcp-header": "Region"}),
    ]


class ContactInput(Struct, forbid_unknown_fields=True, rename="camel"):
    name: str | None = None
    address: dict[str, str] | None = None
    contact_method: str | None = None
    phone: str | None = None
    email: str | None = None


# The keywords of JSON Schema 2020-12 that SEP-1613 and SEP-2106 require to arrive unchanged.
_CONTACT_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def _schema_tools() -> list[Tool]:
    async def regional(call: Call, args: RegionInput) -> ToolResult:
        return ToolResult([text(f"region={args.region}")])

    async def contact(call: Call, args: ContactInput) -> ToolResult:
        return ToolResult([text(f"contact={args.name}")])

    return [
        tool("test_x_mcp_header", regional, RegionInput),
        tool("json_schema_2020_12_tool", contact, ContactInput, _CONTACT_SCHEMA),
    ]


def _changing_tools(catalog: Catalog) -> list[Tool]:
    """Returns tools that announce a changed list or resource."""

    async def change_tools(call: Call, args: NoInput) -> ToolResult:
        catalog.changes.publish(Change("tools"))
        return ToolResult([text("The list of tools has changed.")])

    async def change_prompts(call: Call, args: NoInput) -> ToolResult:
        catalog.changes.publish(Change("prompts"))
        return ToolResult([text("The list of prompts has changed.")])

    async def change_resource(call: Call, args: NoInput) -> ToolResult:
        catalog.changes.publish(Change("updated", "test://watched-resource", call.context.user_id))
        return ToolResult([text("The watched resource has changed.")])

    return [
        tool("test_trigger_tool_change", change_tools),
        tool("test_trigger_prompt_change", change_prompts),
        tool("test_trigger_resource_change", change_resource),
    ]


# -- resources and prompts ------------------------------------------------------------------------------------------


def _resources() -> list[Resource]:
    async def static_text(call: Call, uri: str, variables: Mapping[str, str]) -> list[Block]:
        words = "This is the content of the static text resource."
        return [{"uri": uri, "mimeType": "text/plain", "text": words}]

    async def static_binary(call: Call, uri: str, variables: Mapping[str, str]) -> list[Block]:
        return [{"uri": uri, "mimeType": "image/png", "blob": red_pixel()}]

    async def watched(call: Call, uri: str, variables: Mapping[str, str]) -> list[Block]:
        return [{"uri": uri, "mimeType": "text/plain", "text": "Watch me."}]

    return [
        Resource(uri="test://static-text", name="static-text", description="A fixed text.", reader=static_text),
        Resource(
            uri="test://static-binary",
            name="static-binary",
            description="A fixed image.",
            reader=static_binary,
            mime_type="image/png",
        ),
        Resource(uri="test://watched-resource", name="watched", description="A watched text.", reader=watched),
    ]


def _template() -> ResourceTemplate:
    async def read(call: Call, uri: str, variables: Mapping[str, str]) -> list[Block]:
        identity = variables["id"]
        words = f'{{"id":"{identity}","templateTest":true,"data":"Data for ID: {identity}"}}'
        return [{"uri": uri, "mimeType": "application/json", "text": words}]

    return ResourceTemplate(
        uri_template="test://template/{id}/data",
        name="template",
        description="Data for one id.",
        reader=read,
        mime_type="application/json",
    )


def _user(content: Block) -> Block:
    return {"role": "user", "content": content}


def _prompts() -> list[McpPrompt]:
    async def simple(call: Call, args: Mapping[str, str]) -> PromptResult:
        return PromptResult([_user(text("This is a simple prompt for testing."))])

    async def with_arguments(call: Call, args: Mapping[str, str]) -> PromptResult:
        words = f"Prompt with arguments: arg1='{args['arg1']}', arg2='{args['arg2']}'"
        return PromptResult([_user(text(words))])

    async def with_resource(call: Call, args: Mapping[str, str]) -> PromptResult:
        resource = embedded(args["resourceUri"], "text/plain", "Embedded resource content for testing.")
        return PromptResult([_user(resource), _user(text("Please process the embedded resource above."))])

    async def with_image(call: Call, args: Mapping[str, str]) -> PromptResult:
        return PromptResult([_user(image()), _user(text("Please analyze the image above."))])

    async def asking(call: Call, args: Mapping[str, str]) -> PromptResult:
        responses = await call.request_input(
            {"user_context": text_form("What context should the prompt use?", "context")}
        )
        return PromptResult([_user(text(f"Context: {elicited(responses['user_context'], 'context')}"))])

    async def complete(call: Call, value: str, args: Mapping[str, str]) -> list[str]:
        return [word for word in ("paris", "park", "party", "test") if word.startswith(value)]

    return [
        McpPrompt(name="test_simple_prompt", description="A prompt without arguments.", handler=simple),
        McpPrompt(
            name="test_prompt_with_arguments",
            description="A prompt with two arguments.",
            handler=with_arguments,
            arguments=(
                McpPromptArgument(name="arg1", description="First test argument.", required=True, completer=complete),
                McpPromptArgument(name="arg2", description="Second test argument.", required=True),
            ),
        ),
        McpPrompt(
            name="test_prompt_with_embedded_resource",
            description="A prompt that embeds a resource.",
            handler=with_resource,
            arguments=(McpPromptArgument(name="resourceUri", description="The resource to embed.", required=True),),
        ),
        McpPrompt(name="test_prompt_with_image", description="A prompt with an image.", handler=with_image),
        McpPrompt(name="test_input_required_result_prompt", description="A prompt that asks first.", handler=asking),
    ]
