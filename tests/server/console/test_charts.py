"""The geometry of charts, and the page about usage, which is made of them."""

import re
from datetime import date

from hypothesis import example, given
from hypothesis import strategies as st

from server.console.charts import NEIGHBOURS_MAX, ChartRow, calendar_chart, column_chart, link_graph
from tests.server.console.signed_in import open_page, page_text
from tests.server.rest.rest_client import RestClient

VALUES = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**9), max_size=3), max_size=40)


@given(VALUES)
def test_columns_are_inside_the_picture_and_as_high_as_their_values(values: list[dict[str, int]]) -> None:
    chart = column_chart([ChartRow(label=str(n), text="", values=row) for n, row in enumerate(values)], "abc")

    assert chart.series == tuple(name for name in "abc" if any(row.get(name) for row in values))
    top = float(chart.ticks[-1][1].replace(",", ""))
    for column, row in zip(chart.columns, values, strict=True):
        assert chart.left <= column.x <= column.x + column.width <= chart.width
        assert [chart.series[one.series] for one in column.parts] == [name for name in "abc" if row.get(name)]
        assert all(one.height >= 1.5 for one in column.parts)
        assert sum(row.values()) <= top
        for one in column.parts:
            share = row[chart.series[one.series]] / top
            assert abs(one.height - max(1.5, share * (chart.bottom - chart.ticks[-1][0]))) < 0.2


@example(9999)
@example(1)
@given(st.integers(1, 9999))
def test_every_day_of_a_year_has_its_place_in_the_calendar(year: int) -> None:
    day = date(year, 12, 31)
    chart = calendar_chart(year, {day.isoformat(): 3})

    assert len(chart.empty) == len(set(chart.empty)) in (365, 366)
    assert all(x + chart.cell <= chart.width and y + chart.cell <= chart.height for x, y in chart.empty)
    assert [month for _, month in chart.months] == list(range(1, 13))
    [shown] = chart.days
    assert (shown.day, shown.count) == (day.isoformat(), 3)
    assert 1 <= shown.level <= 4


def test_busier_days_are_larger() -> None:
    chart = calendar_chart(2025, {"2025-01-01": 1, "2025-01-02": 6, "2025-01-03": 10})

    assert [one.level for one in chart.days] == [1, 3, 4]
    assert chart.days[0].size < chart.days[1].size < chart.days[2].size


def test_graph_shows_direction_and_says_how_many_notes_it_leaves_out() -> None:
    def notes(*uris: str) -> dict[str, tuple[str, str]]:
        return {uri: (f"Title {uri}", f"/items/{uri}") for uri in uris}

    graph = link_graph(notes("a", "b"), notes("b", "c"), [("a", "c"), ("a", "unknown")])
    large = link_graph(notes(*map(str, range(NEIGHBOURS_MAX + 3))), {}, [])

    assert {node.title: node.direction for node in graph.nodes} == {
        "Title a": "out",
        "Title b": "both",
        "Title c": "in",
    }
    a, _, c = graph.nodes
    assert graph.lines == ((a.x, a.y, c.x, c.y),)
    assert (graph.omitted, large.omitted, len(large.nodes)) == (0, 3, NEIGHBOURS_MAX)
    assert all(0 < node.x < large.width and 0 < node.y < large.height for node in large.nodes)


async def test_usage_page_shows_the_searches_of_the_hour_and_the_storage_of_users(own_api: RestClient) -> None:
    ada, ben = [await own_api.library_user(name) for name in ("ada", "ben")]
    await ada.add_note("Voyage", "a galleon")
    await ben.add_note("Harbour", "a galleon")
    for _ in range(3):
        await own_api.search({"query": "galleon"}, "ben")

    page = await page_text(own_api, "/admin/usage")

    searches = re.findall(r'aria-label="[\d-]+ [\d:]+ UTC: (\d+) answered, 0 failed or refused"', page)
    assert sum(map(int, searches)) == 3
    assert [f'<a href="/admin/users/{name}">' in page for name in ("ada", "ben")] == [True, True]
    await own_api.server.runtime.registry.set_role((await own_api.server.user("ben")).id, "writer")
    assert (await open_page(own_api, "/admin/usage", "ben")).status == 403
