"""Around every request: an id for its log lines, kept from the caller where it is harmless, and one count."""

import re
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.search import KnowledgeSearch
from server.app import build_app
from server.lifespan import open_runtime
from server.metrics import Metrics
from server.middleware import RequestLogMiddleware
from tests.live import live, make_settings
from tests.server.clients import LegacyClient, handshake
from tests.server.http_client import fetch
from tests.server.in_process import call_app
from tests.server.sample_catalog import SampleCatalog

OURS = re.compile(r"[0-9a-f]{16}\Z")


def _app(status: int = 200) -> tuple[ASGIApp, Metrics]:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b"done"})

    metrics = Metrics()
    return RequestLogMiddleware(inner, metrics, log_requests=True), metrics


@pytest.mark.parametrize("given", ["a", "ABC-123_x.y", "0" * 64])
async def test_a_harmless_id_of_the_caller_is_kept(given: str) -> None:
    app, _ = _app()

    answer = await call_app(app, "GET", "/", {"X-Request-Id": given})

    assert answer.header("x-request-id") == given
    assert answer.header("x-own") == "1"


@pytest.mark.parametrize(
    "given",
    ["", " ", "a b", "x" * 65, "a\n", 'a"b', "<script>", "é", "a;b", "a/b", "../x", "{}", "%0d%0a", "a\x00", "a,b"],
)
async def test_any_other_id_is_replaced_by_one_of_ours(given: str) -> None:
    app, _ = _app()

    answer = await call_app(app, "GET", "/", {"X-Request-Id": given})

    assert OURS.match(answer.header("x-request-id") or "")


async def test_an_id_of_ours_is_new_for_every_request() -> None:
    app, _ = _app()

    ids = {(await call_app(app, "GET", "/")).header("x-request-id") for _ in range(20)}

    assert len(ids) == 20


async def test_a_failure_nobody_foresaw_is_a_500_with_an_id_and_its_words_are_not_logged(
    tmp_path: Path, failures: list[str]
) -> None:
    class Broken:
        async def search(self, context: object, asked: KnowledgeSearch) -> NoReturn:
            raise ZeroDivisionError(asked.query)

    async with open_runtime(make_settings(tmp_path, jwt_secret="")) as runtime:
        broken = replace(runtime, knowledge=replace(runtime.knowledge, aggregator=Broken()))
        body = b'{"query": "somebody\'s words"}'
        answer = await call_app(
            build_app(broken, Metrics()), "POST", "/api/v1/search", {"Content-Type": "application/json"}, body
        )
    heard = failures.pop()

    request_id = answer.header("x-request-id")
    assert (answer.status, answer.json()["error"]["message"]) == (500, f"internal error (request {request_id})")
    assert "ZeroDivisionError" in heard
    assert "somebody" not in heard


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_every_response_is_counted_by_its_status(status: int) -> None:
    app, metrics = _app(status)

    await call_app(app, "GET", "/")

    assert f'florilegium_http_responses_total{{status="{status}"}} 1.0' in metrics.render().decode()


async def test_every_answer_carries_its_id_also_a_refusal(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path), catalog=samples.catalog) as server:
        ada = LegacyClient(server, {**await server.bearer("ada"), "X-Request-Id": "mine"})
        answers = [
            await ada.post(handshake()),
            await ada.post(b"rubbish"),
            await LegacyClient(server, {"X-Request-Id": "mine"}).post(handshake()),
            await fetch(server.url, "GET", "/nowhere", {"X-Request-Id": "mine"}),
            await fetch(server.url, "GET", "/healthz", {"X-Request-Id": "mine"}),
            await ada.post(handshake(), {"Origin": "https://evil.example"}),
        ]

    assert [answer.header("x-request-id") for answer in answers] == ["mine"] * 6
    assert [answer.status for answer in answers] == [200, 400, 401, 404, 200, 403]
