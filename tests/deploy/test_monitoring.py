"""The dashboard and the alerts use metrics and labels that the server has."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cases import each_case
from tests.live import live, make_settings
from tests.server.clients import ModernClient
from tests.server.http_client import fetch
from tests.test_architecture import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
# Labels and metrics that Prometheus itself adds.
ADDED_LABELS = {"job", "instance"}
ADDED_METRICS = {"up"}

_SELECTOR = re.compile(r"\b([a-z]\w*)(?:\{([^}]*)\})?(?=\s*(?:\[|[)/><=+*-]|$| or | and ))", re.MULTILINE)
_LABEL = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")


def dashboard_expressions() -> Iterator[str]:
    dashboard = msgspec.json.decode((MONITORING / "grafana-dashboard.json").read_bytes())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]


def alert_expressions() -> Iterator[str]:
    rules = yaml.safe_load((MONITORING / "prometheus-rules.yaml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])


def selectors(expression: str) -> dict[str, set[str]]:
    """Returns the metrics of an expression, each with the labels that select its series."""
    bare = _GROUPING.sub("", expression)
    found = {name: set(_LABEL.findall(labels or "")) for name, labels in _SELECTOR.findall(bare)}
    return {name: labels for name, labels in found.items() if "_" in name or name in ADDED_METRICS}


async def read_series(tmp_path: Path) -> dict[str, set[str]]:
    """Returns the names of all series of a server that does everything, with their labels."""
    settings = make_settings(tmp_path, metrics_token="scrape-me", semantic_model="fast")
    async with live(settings) as server:
        ada = await ModernClient.of(server, "ada")
        await ada.call("knowledge_search", {"query": "tea"})
        await ada.call("knowledge_search", {"query": 7})
        await fetch(server.url, "GET", "/mcp", {"Authorization": "Bearer wrong"})
        text = (await fetch(server.url, "GET", "/metrics", {"Authorization": "Bearer scrape-me"})).body.decode()
    series: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, set()).update(sample.labels)
    return series


async def test_every_metric_and_label_of_the_dashboard_and_the_alerts_exists(tmp_path: Path) -> None:
    series = await read_series(tmp_path)

    for expression in (*dashboard_expressions(), *alert_expressions()):
        used = selectors(expression)
        assert used, expression
        for name, labels in used.items():
            assert name in series or name in ADDED_METRICS, f"{name} in {expression}"
            assert labels <= series.get(name, set()) | ADDED_LABELS, expression
        grouped = {label.strip() for labels in _GROUPING.findall(expression) for label in labels.split(",")}
        known = set().union(*(series.get(name, set()) for name in used))
        assert grouped <= known | ADDED_LABELS, expression


async def test_every_metric_of_the_server_is_on_the_dashboard_or_has_a_reason(tmp_path: Path) -> None:
    shown = {name for expression in (*dashboard_expressions(), *alert_expressions()) for name in selectors(expression)}
    own = {name for name in await read_series(tmp_path) if name.startswith("florilegium_")}
    # Times of creation, parts of a histogram, and figures that another one on the dashboard includes.
    implied = re.compile(
        r".*_(created|sum|count)|florilegium_(embedding_coverage|job_interval_seconds|follow_runs_total"
        r"|followed_sources_running)"
    )

    assert {name for name in own - shown if not implied.fullmatch(name)} == set()


@each_case("expression", [*alert_expressions()])
def test_selectors_are_found(expression: str) -> None:
    assert all("florilegium" in name or "process" in name or name == "up" for name in selectors(expression))


def test_alerts_have_a_severity_and_a_summary_and_are_explained() -> None:
    rules = yaml.safe_load((MONITORING / "prometheus-rules.yaml").read_text())["groups"][0]["rules"]
    guide = (ROOT / "docs" / "deploy.md").read_text()

    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
        assert f"`{rule['alert']}`" in guide


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    panels = msgspec.json.decode((MONITORING / "grafana-dashboard.json").read_bytes())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
