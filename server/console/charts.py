"""The geometry of charts, which templates draw as inline SVG (`templates/charts.html`).

A chart is readable without colour: series differ in their pattern, days in the size of their square, and directions in
the shape of the node. Beside every chart there is a table, or a list, with the same values and links.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from msgspec import Struct

# Units of the view box; the picture is scaled to the width of the page.
_WIDTH, _HEIGHT = 720, 190
_LEFT, _TOP, _BOTTOM = 40, 8, 22
_COLUMN_WIDTH_MAX = 40
# Labels below the columns that fit next to each other.
_LABELS_MAX = 12
# More columns than this are hard to point at.
COLUMNS_MAX = 36


class ColumnPart(Struct, frozen=True):
    y: float
    height: float
    series: int


class Column(Struct, frozen=True, kw_only=True):
    """`axis_label` is empty for most columns if there are many. `text` says what the column shows."""

    x: float
    width: float
    label: str
    axis_label: str
    address: str
    text: str
    parts: tuple[ColumnPart, ...]


class ColumnChart(Struct, frozen=True, kw_only=True):
    """`ticks` are the heights of the lines with their labels."""

    series: tuple[str, ...]
    columns: tuple[Column, ...]
    ticks: tuple[tuple[float, str], ...]
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT
    bottom: int = _HEIGHT - _BOTTOM


class ChartRow(Struct, frozen=True, kw_only=True):
    """The values of a column, by series."""

    label: str
    text: str
    values: Mapping[str, float]
    address: str = ""
    short_label: str = ""


def column_chart(rows: Sequence[ChartRow], series: Sequence[str]) -> ColumnChart:
    """Stacks the values of each row. Series that no row has are left out."""
    used = [name for name in series if any(row.values.get(name) for row in rows)]
    highest = max((sum(row.values.values()) for row in rows), default=0) or 1
    # The next of 2, 4, 10, 20, 40, 100…, so that half of it is as round.
    unit = 10.0 ** math.floor(math.log10(highest))
    top = next(end for factor in (1, 2, 4, 10) if (end := factor * unit) >= highest and (end >= 2 or highest < 1))
    floor, room = _HEIGHT - _BOTTOM, _HEIGHT - _BOTTOM - _TOP
    slot = (_WIDTH - _LEFT) / max(1, len(rows))
    width = min(slot * 0.8, _COLUMN_WIDTH_MAX)
    step = math.ceil(len(rows) / _LABELS_MAX)
    columns = []
    for index, row in enumerate(rows):
        parts, y = [], float(floor)
        for number, name in enumerate(used):
            if value := row.values.get(name):
                # A value that is there is seen, however small.
                height = max(1.5, room * value / top)
                y -= height
                parts.append(ColumnPart(round(y, 1), round(height, 1), number))
        columns.append(
            Column(
                x=round(_LEFT + slot * index + (slot - width) / 2, 1),
                width=round(width, 1),
                label=row.label,
                # Counted from the end, which is what people look at.
                axis_label=(row.short_label or row.label) if (len(rows) - 1 - index) % step == 0 else "",
                address=row.address,
                text=row.text,
                parts=tuple(parts),
            )
        )
    ticks = [(round(floor - room * share, 1), f"{top * share:,.10g}") for share in (0, 0.5, 1)]
    return ColumnChart(series=tuple(used), columns=tuple(columns), ticks=tuple(ticks))


# -- calendar ----------------------------------------------------------------------------------------------------------

_CELL = 13
_LEVELS = 4


class CalendarDay(Struct, frozen=True):
    """A day with items. `level` is 1 to 4; the size and the colour of its square follow from it."""

    x: float
    y: float
    size: float
    level: int
    day: str
    count: int


class CalendarChart(Struct, frozen=True):
    """`empty` are the corners of all days, `months` the positions of the names of months."""

    days: tuple[CalendarDay, ...]
    empty: tuple[tuple[int, int], ...]
    months: tuple[tuple[int, int], ...]
    width: int = 54 * _CELL
    height: int = 8 * _CELL
    cell: int = _CELL - 2


def calendar_chart(year: int, counts: Mapping[str, int]) -> CalendarChart:
    """A column for each week, which begins on Monday, and a row for each day of the week."""
    first, most = date(year, 1, 1), max(counts.values(), default=1)
    days, empty, months = [], [], []
    for offset in range((date(year, 12, 31) - first).days + 1):
        day = first + timedelta(days=offset)
        week, weekday = divmod(offset + first.weekday(), 7)
        x, y = week * _CELL, (weekday + 1) * _CELL
        empty.append((x, y))
        if day.day == 1:
            months.append((x, day.month))
        if count := counts.get(day.isoformat()):
            level = min(_LEVELS, 1 + int(_LEVELS * (count - 1) / most))
            size = (_CELL - 2) * (0.4 + 0.6 * level / _LEVELS)
            shift = (_CELL - 2 - size) / 2
            days.append(CalendarDay(round(x + shift, 1), round(y + shift, 1), round(size, 1), level, f"{day}", count))
    return CalendarChart(tuple(days), tuple(empty), tuple(months))


# -- link graph --------------------------------------------------------------------------------------------------------

# More notes than this do not fit around one.
NEIGHBOURS_MAX = 24
_LABEL_CHARS = 24
_RADIUS_X, _RADIUS_Y = 190, 130


class GraphNode(Struct, frozen=True, kw_only=True):
    """A note around the one in the middle. `direction` is out, in or both, seen from there."""

    x: float
    y: float
    label: str
    title: str
    address: str
    direction: str
    anchor: str


class LinkGraph(Struct, frozen=True, kw_only=True):
    """`lines` are links between the notes around. `omitted` is how many notes are not shown."""

    nodes: tuple[GraphNode, ...]
    lines: tuple[tuple[float, float, float, float], ...]
    omitted: int
    width: int = 720
    height: int = 330
    x: int = 360
    y: int = 165


def link_graph(
    links: Mapping[str, tuple[str, str]], backlinks: Mapping[str, tuple[str, str]], between: Sequence[tuple[str, str]]
) -> LinkGraph:
    """Places notes on an ellipse. The mappings have title and address by URI."""
    notes = {**links, **backlinks}
    shown = list(notes)[:NEIGHBOURS_MAX]
    nodes: dict[str, GraphNode] = {}
    for index, uri in enumerate(shown):
        angle = 2 * math.pi * (index + 0.5) / len(shown) - math.pi / 2
        x, y = 360 + _RADIUS_X * math.cos(angle), 165 + _RADIUS_Y * math.sin(angle)
        title, address = notes[uri]
        direction = "both" if uri in links and uri in backlinks else "out" if uri in links else "in"
        nodes[uri] = GraphNode(
            x=round(x, 1),
            y=round(y, 1),
            label=title if len(title) <= _LABEL_CHARS else f"{title[: _LABEL_CHARS - 1].rstrip()}…",
            title=title,
            address=address,
            direction=direction,
            anchor="start" if x >= 360 else "end",
        )
    lines = [
        (nodes[one].x, nodes[one].y, nodes[other].x, nodes[other].y)
        for one, other in between
        if one in nodes and other in nodes
    ]
    return LinkGraph(nodes=tuple(nodes.values()), lines=tuple(lines), omitted=len(notes) - len(shown))
