"""The simulation of placement: no user is lost, loads end within the tolerance, and the page has its figures."""

import pytest

from bench.placement import TOLERANCE, add_machines, draw_sizes, main, place_by_hash, place_by_load, rebalance
from tests.test_architecture import ROOT


def test_adding_a_machine_moves_users_until_all_are_within_the_tolerance() -> None:
    sizes = draw_sizes(5_000, 50_000_000, seed=7)
    before = place_by_load(sizes, 4)
    placement = add_machines(before, 1)

    moves = rebalance(placement)

    loads = placement.loads()
    mean = sum(sizes) / 5
    assert sum(loads) == pytest.approx(sum(sizes))
    assert all(abs(load - mean) <= TOLERANCE * mean for load in loads)
    assert moves.count == sum(a != b for a, b in zip(before.machines, placement.machines, strict=True))
    assert moves.total_bytes == pytest.approx(loads[4])
    assert sum(placement.users()) == 5_000


def test_a_hash_places_every_user_on_the_same_machine_again() -> None:
    sizes = draw_sizes(1_000, 1_000_000, seed=7)

    assert place_by_hash(sizes, 10).machines == place_by_hash(sizes, 10).machines
    assert min(place_by_hash(sizes, 10).users()) > 50


def test_a_user_larger_than_a_machine_stays_where_it_is() -> None:
    placement = add_machines(place_by_load([1e12, 1.0, 1.0], 1), 1)

    rebalance(placement)

    assert placement.machines[0] == 0


def test_the_page_has_the_figures_of_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    main([])

    first, sizes, _, by_hash, *_, emptying = capsys.readouterr().out.splitlines()
    page = (ROOT / "docs" / "scale.md").read_text()
    users, median, largest = first.split()[0], sizes.split()[3], sizes.split()[-3]
    assert f"for {users} users with {median} MB (median) to {float(largest):.0f} GB" in " ".join(page.split())
    assert f"has {by_hash.split()[-1]} times the mean" in page
    assert emptying.endswith(" 9.0 hours")
    assert "would take nine hours" in page
