"""The caller's recent MCP calls over REST."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from auth.context import RequestContext
from config.numbers import clamp
from config.times import format_timestamp
from server.rest.audit import account_operation, client_names
from server.rest.operation import Operation
from server.runtime import Runtime

# Kept in memory, and shared by all workers through Redis if there are several.
_LIMIT_MAX = 1_000


class CallsRequest(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="How many calls, 1..1000.")] = 50


class RecordedCall(Struct, frozen=True, kw_only=True):
    """`client` is the id of an API key or of an application, `client_name` its name if it is known, `application` what
    the client calls itself. `outcome` is ok, failed, refused, unavailable, cancelled, error or input_required."""

    time: str
    method: str
    tool: str
    client: str
    client_name: str
    application: str
    outcome: str
    ms: float


class CallList(Struct, frozen=True):
    calls: Sequence[RecordedCall]


def calls_operation(runtime: Runtime) -> Operation:
    async def list_calls(context: RequestContext, request: CallsRequest) -> CallList:
        calls = await runtime.recent_calls.list(context.user_id, clamp(request.limit, 1, _LIMIT_MAX))
        names = await client_names(runtime.registry, runtime.oauth_grants, context.user_id)
        return CallList(
            [
                RecordedCall(
                    time=format_timestamp(call.time),
                    method=call.method,
                    tool=call.tool,
                    client=call.client,
                    client_name=names.get(call.client, ""),
                    application=call.application,
                    outcome=call.outcome,
                    ms=round(call.seconds * 1000, 1),
                )
                for call in calls
            ]
        )

    return account_operation(
        id="list_calls",
        method="GET",
        path="/api/v1/calls",
        summary="List your recent MCP calls",
        description=(
            "Which tools, resources and prompts your clients used, newest first, without arguments and results. They "
            "are kept for a day at most, and until the server is restarted."
        ),
        handler=list_calls,
    )
