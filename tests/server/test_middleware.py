"""The middleware: request ids, logging and counting of every request."""

import re
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.contract import KnowledgeSearch
from server.app import RequestLogMiddleware, build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.clients import LegacyClient, handshake
from tests.server.http_client import fetch
from tests.server.in_process import call_app
from tests.server.sample_catalog import SampleCatalog

GENERATED_ID = re.compile(r"[0-9a-f]{16}\Z")


def answering_app(status: int = 200, *headers: tuple[bytes, bytes]) -> tuple[ASGIApp, Metrics]:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-own", b"1"), *headers]})
        await send({"type": "http.response.body", "body": b"done"})

    metrics = Metrics()
    return RequestLogMiddleware(inner, metrics, log_requests=True), metrics


@each_case("request_id", ["a", "ABC-123_x.y", "0" * 64])
async def test_a_valid_request_id_of_the_caller_is_used(request_id: str) -> None:
    app, _ = answering_app()

    response = await call_app(app, "GET", "/", {"X-Request-Id": request_id})

    assert response.header("x-request-id") == request_id
    assert response.header("x-own") == "1"


@each_case(
    "request_id",
    ["", " ", "a b", "x" * 65, "a\n", 'a"b', "<script>", "é", "a;b", "a/b", "../x", "{}", "%0d%0a", "a\x00", "a,b"],
)
async def test_an_invalid_request_id_is_replaced(request_id: str) -> None:
    app, _ = answering_app()

    response = await call_app(app, "GET", "/", {"X-Request-Id": request_id})

    assert GENERATED_ID.match(response.header("x-request-id") or "")


async def test_every_request_gets_a_new_id() -> None:
    app, _ = answering_app()

    ids = {(await call_app(app, "GET", "/")).header("x-request-id") for _ in range(20)}

    assert len(ids) == 20


async def test_an_unexpected_error_is_a_500_with_an_id_and_its_message_is_not_logged(
    tmp_path: Path, failures: list[str]
) -> None:
    class BrokenAggregator:
        async def search_with_defaults(self, context: object, request: KnowledgeSearch) -> NoReturn:
            raise ZeroDivisionError(request.query)

    async with open_runtime(make_settings(tmp_path, jwt_secret="")) as runtime:
        broken = replace(runtime, knowledge=replace(runtime.knowledge, aggregator=BrokenAggregator()))
        body = b'{"query": "private words"}'
        response = await call_app(
            build_app(broken, Metrics()), "POST", "/api/v1/search", {"Content-Type": "application/json"}, body
        )
    logged = failures.pop()

    request_id = response.header("x-request-id")
    assert (response.status, response.json()["error"]["message"]) == (500, f"internal error (request {request_id})")
    assert "ZeroDivisionError" in logged
    assert "private" not in logged


@each_case("status", [200, 404, 503])
async def test_every_response_is_counted_by_its_status(status: int) -> None:
    app, metrics = answering_app(status)

    await call_app(app, "GET", "/")

    assert f'florilegium_http_responses_total{{status="{status}"}} 1.0' in (await metrics.render()).decode()


async def test_every_response_has_the_request_id_including_errors(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path), catalog=samples.catalog) as server:
        ada = LegacyClient(server, {**await server.bearer("ada"), "X-Request-Id": "mine"})
        responses = [
            await ada.post(handshake()),
            await ada.post(b"invalid"),
            await LegacyClient(server, {"X-Request-Id": "mine"}).post(handshake()),
            await fetch(server.url, "GET", "/nowhere", {"X-Request-Id": "mine"}),
            await fetch(server.url, "GET", "/healthz", {"X-Request-Id": "mine"}),
            await ada.post(handshake(), {"Origin": "https://evil.example"}),
        ]

    assert [response.header("x-request-id") for response in responses] == ["mine"] * 6
    assert [response.status for response in responses] == [200, 400, 401, 404, 200, 403]
