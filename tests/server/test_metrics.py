"""Metrics of the process, of rejected credentials, rate limits, sign-ins and imports. Labels never name a user."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from server.metrics import HOURS_KEPT, Metrics
from server.version import VERSION
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient, WebSocketClient
from tests.server.http_client import fetch
from tests.server.rest.rest_client import RestClient
from tests.server.sample_catalog import SampleCatalog

SCRAPE = {"Authorization": "Bearer scrape-me"}


async def read_metrics(server: LiveServer) -> dict[tuple[str, ...], float]:
    """Returns the value of every series by its name and label values."""
    text = (await fetch(server.url, "GET", "/metrics", SCRAPE)).body.decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_process_is_measured(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, metrics_token="scrape-me"), catalog=samples.catalog) as server:
        metrics = await read_metrics(server)

    assert metrics["process_resident_memory_bytes",] > 1e6
    assert metrics["process_cpu_seconds_total",] > 0
    assert metrics["process_open_fds",] > 3
    assert metrics["florilegium_info", VERSION] == 1


async def test_requests_without_a_valid_credential_are_counted(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(tmp_path, metrics_token="scrape-me", rate_failures_burst=2, rate_failures_per_minute=0.1)
    async with live(settings, catalog=samples.catalog) as server:
        await fetch(server.url, "GET", "/mcp")
        for number in range(3):
            await fetch(server.url, "GET", "/mcp", {"Authorization": f"Bearer canary-{number}"})
        with pytest.raises(InvalidStatus):
            async with WebSocketClient.open(f"{server.ws}?ticket=canary"):
                pass
        metrics = await read_metrics(server)

    assert metrics["florilegium_auth_failures_total", "missing"] == 1
    # Two credentials and a ticket; the third credential was refused unseen.
    assert metrics["florilegium_auth_failures_total", "rejected"] == 3
    assert metrics["florilegium_auth_failures_total", "refused"] == 1
    assert metrics["florilegium_rate_limited_total", "failures"] == 1
    assert not any("canary" in value for key in metrics for value in key)


async def test_calls_refused_by_a_rate_limit_are_counted(tmp_path: Path, samples: SampleCatalog) -> None:
    settings = make_settings(
        tmp_path, metrics_token="scrape-me", rate_user_burst=4, rate_user_per_minute=0.1, rate_tool_burst=1,
        rate_tool_per_minute=0.1,
    )  # fmt: skip
    async with live(settings, catalog=samples.catalog) as server:
        ada = await ModernClient.of(server, "ada")
        for _ in range(6):
            await ada.call("echo")
        await (await ModernClient.of(server, "ben")).call("echo")
        metrics = await read_metrics(server)

    assert metrics["florilegium_rate_limited_total", "tool"] == 3
    assert metrics["florilegium_rate_limited_total", "user"] == 2


async def test_security_events_are_counted(tmp_path: Path, samples: SampleCatalog) -> None:
    async with live(make_settings(tmp_path, metrics_token="scrape-me"), catalog=samples.catalog) as server:
        await fetch(server.url, "GET", "/mcp", {"Authorization": "Bearer wrong"})
        server.runtime.audit.record("sign_in.failed", (await server.user("ada")).id, detail="password")
        metrics = await read_metrics(server)

    assert metrics["florilegium_security_events_total", "credential.reject"] == 1
    assert metrics["florilegium_security_events_total", "sign_in.failed"] == 1


async def test_imports_are_counted_by_outcome(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path, metrics_token="scrape-me")) as server:
        for user, body in (("ada", b"# Tea\n\nSteep it."), ("ben", b"\0\0\0\0")):
            headers = {**await server.bearer(user), "Content-Type": "application/octet-stream"}
            started = await fetch(server.url, "POST", "/api/v1/import?name=tea.md", headers, body)
            # Ends with the import.
            await fetch(server.url, "GET", f"/api/v1/import/{started.json()['id']}/events", headers)
        metrics = await read_metrics(server)

    assert metrics["florilegium_imports_total", "done"] == 1
    assert metrics["florilegium_imports_total", "failed"] == 1
    assert metrics["florilegium_import_items_total",] == 1
    assert metrics["florilegium_imports_running",] == metrics["florilegium_imports_waiting",] == 0


async def test_figures_of_hours_are_kept_for_a_week(own_api: RestClient) -> None:
    metrics = Metrics()
    metrics.watch(own_api.server.runtime)
    start = 1_000 * 3600.0

    metrics.record_call("tools/call", "search", "ok", 0.02)
    metrics.update_hours(start)
    metrics.record_call("tools/call", "search", "error", 0.3)
    metrics.responses[503] += 1
    metrics.update_hours(start + 60)
    await own_api.search({"query": "galleon"}, "ada")
    metrics.update_hours(start + 3600)
    metrics.update_hours(start + 2 * 3600)

    first, second, third = metrics.hours
    assert (first.hour, first.calls, first.failed_calls, first.server_errors, first.searches) == (1000, 2, 1, 1, 0)
    assert (sum(first.durations), round(first.seconds, 3)) == (2, 0.32)
    assert (second.hour, second.calls, second.searches, second.failed_searches) == (1001, 0, 1, 0)
    assert (third.hour, third.calls, third.searches, third.seconds) == (1002, 0, 0, 0)
    for hour in range(HOURS_KEPT):
        metrics.update_hours(start + (10 + hour) * 3600)
    assert (len(metrics.hours), metrics.hours[0].hour) == (HOURS_KEPT, 1010)


async def test_status_has_the_calls_of_the_hour_and_their_latency(tmp_path: Path) -> None:
    async with live(make_settings(tmp_path)) as server:
        client = await ModernClient.of(server, "ada")
        for _ in range(3):
            await client.call("knowledge_search", {"query": "galleon"})
        body = (await fetch(server.url, "GET", "/api/v1/server", await server.bearer("ada"))).json()

    assert body["hours"][-1]["time"].endswith(":00:00Z")
    assert sum(hour["calls"] for hour in body["hours"]) == body["calls"]["ok"] == 3
    assert sum(hour["searches"] for hour in body["hours"]) == 3
    assert all(hour["call_ms_p95"] > 0 for hour in body["hours"] if hour["calls"])
