"""Hostile queries: every query of `tests.sources.hostile_queries` to every tool that takes one."""

import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from tests.attack.app_client import AttackRequest, Client
from tests.attack.leak_detector import LeakDetector
from tests.attack.surface import Surface, ToolTarget
from tests.attack.tenants import Tenant
from tests.server.clients import message, modern_headers, modern_params
from tests.sources.hostile_queries import hostile_queries


class QueryResult(Struct):
    queries: int
    tools: int
    leaks: list[str]
    failures: list[str]


def query_tools(surface: Surface) -> list[str]:
    """Returns the reading tools with an argument `query`."""
    tools = [target for target in surface.targets if isinstance(target, ToolTarget)]
    return [tool.name for tool in tools if tool.is_read_only and "query" in tool.schema.get("properties", {})]


async def attack_with_queries(
    client: Client, surface: Surface, tenant: Tenant, detector: LeakDetector, deadline_s: float, every: int = 1
) -> QueryResult:
    """Sends every n-th query until the deadline."""
    tools, started_at = query_tools(surface), time.monotonic()
    result = QueryResult(0, len(tools), [], [])
    for query in _encodable(hostile_queries())[::every]:
        for tool in tools:
            if time.monotonic() - started_at > deadline_s:
                return result
            result.queries += 1
            await _search(client, tenant, detector, tool, query, result)
    return result


async def _search(
    client: Client, tenant: Tenant, detector: LeakDetector, tool: str, query: str, result: QueryResult
) -> None:
    params = {"name": tool, "arguments": {"query": query}}
    body = msgspec.json.encode(message("tools/call", modern_params(params), 1))
    request = AttackRequest(tool, "POST", "/mcp/full", modern_headers("tools/call", params), body)
    try:
        response = await client.send(request, tenant.credential)
    except TimeoutError:
        result.failures.append(f"{tool} {query[:60]!r}: no response in time")
        return
    if response.status >= 500 or b'"code":-32603' in response.body or b"internal error" in response.body:
        result.failures.append(f"{tool} {query[:60]!r}: {response.status} {response.body[:200]!r}")
    result.leaks += [f"{tool} showed data of {owner}" for owner in detector.owners_in(response.body, tenant.name)]


def _encodable(queries: Sequence[str]) -> list[str]:
    """Leaves out lone surrogates, which no JSON in UTF-8 can contain."""
    return [query for query in queries if not any("\ud800" <= character <= "\udfff" for character in query)]
