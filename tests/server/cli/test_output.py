"""Helpers for command output."""

import pytest

from server.cli.output import pluralize


@pytest.mark.parametrize(
    ("count", "nouns", "expected"),
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
def test_counts_agree_with_their_nouns(count: int, nouns: str, expected: str) -> None:
    assert pluralize(count, nouns) == expected
