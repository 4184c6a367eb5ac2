"""The benchmark that counts instead of timing: it finds what has grown, and its table is complete."""

import tomllib

import pytest

from bench.counts import TABLE, grown, main


def test_a_figure_may_grow_by_five_percent() -> None:
    assert grown({"echo_calls": 105, "search_calls": 90}, {"echo_calls": 100, "search_calls": 100}) == []
    assert grown({"echo_calls": 106}, {"echo_calls": 100}) == ["echo_calls has grown from 100 to 106"]


def test_a_new_figure_has_to_be_added_to_the_table() -> None:
    assert grown({"echo_calls": 1}, {}) == ["echo_calls is not in counts.toml"]


@pytest.mark.slow("starts a server and six commands")
def test_every_figure_of_the_table_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    result = capsys.readouterr().out.splitlines()[-1].removeprefix("RESULT ")
    measured = {figure.partition("=")[0] for figure in result.split()}
    assert measured == tomllib.loads(TABLE.read_text())["counts"].keys()
