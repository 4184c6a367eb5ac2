"""What commands print in common."""

import pytest

from server.cli.output import counted


@pytest.mark.parametrize(
    ("count", "things", "told"),
    [
        (0, "notes", "0 notes"),
        (1, "notes", "1 note"),
        (1_204, "notes", "1,204 notes"),
        (1, "prompts", "1 prompt"),
        (1, "media", "1 media"),
        (1, "entries", "1 entry"),
        (2, "entries", "2 entries"),
        (1, "usable keys", "1 usable key"),
    ],
)
def test_one_thing_is_told_as_one(count: int, things: str, told: str) -> None:
    assert counted(count, things) == told
