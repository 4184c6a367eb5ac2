"""Traces: what a collector receives of requests, calls, searches and reads of a library."""

import asyncio
import io
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from config import otlp
from config.errors import ConfigurationError
from config.settings import Settings, check
from tests.cases import each_case
from tests.live import free_port, live, make_settings
from tests.server.clients import ModernClient, WebSocketClient, modern_params
from tests.server.http_client import fetch
from tests.server.otlp_collector import OtlpCollector, attributes_of, collecting
from tests.server.sample_catalog import SampleCatalog

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
SEARCH = {"query": "private-word", "sources": ["notes", "media"]}


def children(collector: OtlpCollector, parent: Span) -> dict[str, Span]:
    return {span.name: span for span in collector.spans if span.parent_span_id == parent.span_id}


async def test_a_search_is_traced_from_the_request_to_the_library(tmp_path: Path, log: io.StringIO) -> None:
    with collecting() as collector:
        settings = make_settings(tmp_path, tracing_endpoint=collector.url, log_requests=True)
        async with live(settings) as server:
            ada = await ModernClient.of(server, "ada")
            headers = {"traceparent": PARENT, "X-Request-Id": "from-the-caller"}
            response = await ada.call("knowledge_search", SEARCH, headers=headers)
            await (await ModernClient.of(server, "ben")).call("knowledge_search", SEARCH)
    assert "isError" not in response.json()["result"]

    request, other = collector.named("POST /mcp")
    assert request.trace_id.hex() == TRACE
    assert request.parent_span_id.hex() == "00f067aa0ba902b7"
    assert request.kind == Span.SPAN_KIND_SERVER
    assert attributes_of(request) == {
        "http.request.method": "POST",
        "url.path": "/mcp",
        "http.response.status_code": 200,
        "florilegium.request_id": "from-the-caller",
        "florilegium.outcome": "ok",
        "enduser.id": "ada",
        "florilegium.client": "test-client",
    }
    call = children(collector, request)["tools/call knowledge_search"]
    assert attributes_of(call)["gen_ai.tool.name"] == "knowledge_search"
    sources = children(collector, call)
    assert {"search notes", "search media"} <= sources.keys()
    assert "storage read" in children(collector, sources["search notes"])
    # Reads for embeddings, which belong to no request, begin traces of their own.
    assert {span.trace_id for span in collector.spans if span.parent_span_id} == {request.trace_id, other.trace_id}
    assert attributes_of(other)["enduser.id"] == "ben"
    assert collector.resource["service.name"] == "florilegium"
    assert b"private-word" not in collector.body
    [line] = [line for line in log.getvalue().splitlines() if "from-the-caller" in line and "POST /mcp" in line]
    assert msgspec.json.decode(line)["trace_id"] == TRACE


async def test_calls_on_a_websocket_join_the_trace_of_their_client(tmp_path: Path, samples: SampleCatalog) -> None:
    with collecting() as collector:
        settings = make_settings(tmp_path, tracing_endpoint=collector.url)
        async with (
            live(settings, catalog=samples.catalog) as server,
            WebSocketClient.open(server.ws, await server.bearer("ada")) as socket,
        ):
            params = modern_params({"name": "echo", "arguments": {"text": "private-word"}}, traceparent=PARENT)
            await socket.request("tools/call", params)
            await socket.request("tools/call", modern_params({"name": "miss", "arguments": {}}, traceparent="nonsense"))

    [echo], [miss] = collector.named("tools/call echo"), collector.named("tools/call miss")
    assert (echo.trace_id.hex(), echo.parent_span_id.hex()) == (TRACE, "00f067aa0ba902b7")
    assert attributes_of(echo)["enduser.id"] == "ada"
    assert miss.trace_id.hex() != TRACE
    assert not miss.parent_span_id
    assert attributes_of(miss)["florilegium.outcome"] == "failed"
    assert b"private-word" not in collector.body


async def test_an_error_is_traced_without_its_message(
    tmp_path: Path, samples: SampleCatalog, failures: list[str]
) -> None:
    with collecting() as collector:
        settings = make_settings(tmp_path, tracing_endpoint=collector.url)
        async with live(settings, catalog=samples.catalog) as server:
            ada = await ModernClient.of(server, "ada")
            await ada.call("explode", {"text": "private-word"})
            await ada.request("no/such/method")
            await fetch(server.url, "GET", "/reset/secret-of-a-link")
    failures.clear()

    [unknown] = collector.named("unknown")
    assert unknown.status.code == Status.STATUS_CODE_ERROR
    assert attributes_of(unknown)["error.type"] == "MethodNotFound"
    assert [attributes_of(span)["url.path"] for span in collector.named("GET")] == ["/reset/…"]
    assert b"secret-of-a-link" not in collector.body
    assert b"private-word" not in collector.body


async def test_a_sample_is_traced(tmp_path: Path, samples: SampleCatalog) -> None:
    with collecting() as collector:
        settings = make_settings(tmp_path, tracing_endpoint=collector.url, tracing_sample_ratio=0)
        async with live(settings, catalog=samples.catalog) as server:
            ada = await ModernClient.of(server, "ada")
            await ada.call("echo")
            await ada.call("report", headers={"traceparent": PARENT})

    assert {span.name for span in collector.spans} == {"POST /mcp", "tools/call report"}


async def test_a_collector_that_does_not_answer_changes_nothing_for_callers(
    tmp_path: Path, samples: SampleCatalog, failures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "_EXPORT_TIMEOUT_S", 0.5)
    endpoint = f"http://127.0.0.1:{free_port()}/v1/traces"
    async with live(make_settings(tmp_path, tracing_endpoint=endpoint), catalog=samples.catalog) as server:
        response = await (await ModernClient.of(server, "ada")).call("echo")

    assert response.status == 200
    # The thread that sends the spans reports that it could not; otherwise it would do so during another test.
    async with asyncio.timeout(30):
        while not failures:
            await asyncio.sleep(0.05)
    failures.clear()


@each_case("endpoint", ["collector:4318", "http://user:secret@host/v1/traces", "ftp://host"])
def test_an_invalid_endpoint_is_refused(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="tracing_endpoint: expected an http:// or https:// URL") as error:
        check(Settings(data_dir=str(tmp_path), tracing_endpoint=endpoint))

    assert "secret" not in error.value.message


def test_without_an_endpoint_nothing_of_opentelemetry_is_loaded() -> None:
    modules = "sys, server.app, server.web_routes, server.lifespan"
    program = f"import {modules}; print([m for m in sys.modules if 'opentelemetry' in m])"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert process.stdout == "[]\n"
