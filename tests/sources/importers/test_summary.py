"""Counts in the summary of an import."""

import pytest

from config.errors import InvalidParams
from config.settings import Settings
from sources.importers.engine.limits import import_limits
from sources.importers.engine.summary import ImportSummary, OutcomeCounts, count_reason
from sources.importers.engine.values import parse_json
from tests.cases import each_case


@each_case(
    ("count", "reason", "phrase"),
    [
        (1, "empty message", "1 empty message"),
        (3, "empty message", "3 empty messages"),
        (2_000, "message of a deleted conversation", "2,000 messages of a deleted conversation"),
        (2, "summary without text", "2 summaries without text"),
        (2, "activity of another product", "2 activities of another product"),
        (2, "key", "2 keys"),
        (2, "media item in the trash", "2 media items in the trash"),
        (2, "file in the vault not containing a note", "2 files in the vault not containing a note"),
        (1, "unsupported file (.mp3)", "1 unsupported file (.mp3)"),
        (9, "unsupported file (.mp3, …)", "9 unsupported files (.mp3, …)"),
        (2, "file not used by chatgpt (.md)", "2 files not used by chatgpt (.md)"),
        (2, "system message", "2 system messages"),
        (8, "message about joining or leaving", "8 messages about joining or leaving"),
        (2, "entry other than a message", "2 entries other than a message"),
    ],
)
def test_skip_reasons_are_pluralized(count: int, reason: str, phrase: str) -> None:
    assert count_reason(count, reason) == phrase


def test_summaries_are_added() -> None:
    total = ImportSummary(files=1, kinds={"notes": OutcomeCounts(new=1)}, skipped={"empty message": 1})
    total.add(ImportSummary(failed_files=1, kinds={"notes": OutcomeCounts(new=2)}, skipped={"empty message": 2}))
    assert total.kinds == {"notes": OutcomeCounts(new=3)}
    assert (total.files, total.failures, total.skipped) == (1, 1, {"empty message": 3})


def test_malformed_json_is_called_so_once() -> None:
    with pytest.raises(InvalidParams, match=r"^JSON is malformed: trailing comma in array"):
        parse_json(b"[1,]", import_limits(Settings()))
