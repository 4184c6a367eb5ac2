"""Metrics of the process, of rejected credentials, rate limits, sign-ins and imports. Labels never name a user."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import InvalidStatus

from server.version import VERSION
from tests.live import LiveServer, live, make_settings
from tests.server.clients import ModernClient, WebSocketClient
from tests.server.http_client import fetch
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
