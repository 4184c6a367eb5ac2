"""A soak of a few seconds loses nothing, and would notice a lost write and growing memory."""

import re
from pathlib import Path

import pytest

from bench.soak import QUICK, SoakResult, open_soak
from bench.soak_load import Evidence, UserName
from bench.soak_samples import Trend, fit
from tests.bench.runs import output_of

FLAT = Trend(100.0, 101.0, 0.5)
USERS = (UserName("user0"), UserName("user1"))


def test_quick_soak_loses_nothing_and_prints_the_result() -> None:
    last = output_of("bench.soak", "--quick")[-1]
    counts = re.fullmatch(
        r"RESULT lost=0 writes=(\d+) kills=(\d+) stops=(\d+) rss_growth=[+-][0-9.]+% "
        r"descriptors_growth=[+-][0-9.]+% threads_growth=[+-][0-9.]+%",
        last,
    )
    assert counts is not None
    assert all(int(count) > 0 for count in counts.groups())


async def test_lost_write_is_found(tmp_path: Path) -> None:
    async with open_soak(QUICK, tmp_path) as soak:
        for name in USERS:
            user = soak.load.users[name]
            created = [(await user.rest("POST", "/api/v1/items/notes", {"title": title})).json() for title in "ab"]
            soak.load.evidence += [
                Evidence(name, f"/api/v1/items?uri={item['uri']}&mode=full", item["title"]) for item in created
            ]
        assert await soak.find_lost() == []
        lost = soak.load.evidence[2]
        note_id = lost.path.partition("notes://")[2].partition("&")[0]
        response = await soak.load.users[USERS[1]].rest("DELETE", f"/api/v1/items/notes/{note_id}")

        assert response.status_code == 200
        assert await soak.find_lost() == [lost]


# -- trends ------------------------------------------------------------------------------------------------------------


def test_line_is_fitted_through_the_samples() -> None:
    assert fit([0, 1, 2, 3], [10, 12, 14, 16]) == Trend(10, 16, 0)
    assert fit([5], [7]) == Trend(7, 7, 0)


@pytest.mark.parametrize(
    ("trend", "is_flat"),
    [
        (Trend(100, 100, 0), True),
        (Trend(100, 90, 0), True),
        (Trend(100, 110, 1), True),
        (Trend(100, 115, 1), False),
        (Trend(100, 115, 8), True),
        (Trend(10, 40, 1), False),
    ],
)
def test_growth_beyond_a_tenth_and_the_scatter_is_not_flat(trend: Trend, *, is_flat: bool) -> None:
    assert trend.is_flat is is_flat


@pytest.mark.parametrize(("sampled_s", "growing"), [(60.0, []), (600.0, ["descriptors"])])
def test_growth_is_judged_in_long_runs(sampled_s: float, growing: list[str]) -> None:
    result = SoakResult(1, (), {}, 0, 1, 1, (), sampled_s, FLAT, Trend(10, 40, 1), FLAT)

    assert result.growing == growing
