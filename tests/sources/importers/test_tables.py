"""Spreadsheets, OpenDocument, RTF, tables, zips of documents, more transcripts, WebP cards and Fabric's patterns."""

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.events import FailedItem, ImportedMedia, ImportEvent, SkippedItem
from sources.importers.parsers.office import parse_rich_text, parse_text_document
from sources.importers.parsers.parsed_document import ParsedDocument
from sources.importers.parsers.tables import parse_table, parse_workbook
from sources.importers.registry import all_importers, importer_by_name
from tests.cases import each_case
from tests.sources.importers.office_files import packed, word
from tests.sources.importers.single_files import LIMITS, damaged_files, in_process, read, write
from tests.sources.importers.table_files import (
    CARD,
    DOCUMENTS,
    ODT_CONTENT,
    PATTERN,
    RTF,
    TABLE_SAMPLES,
    odt,
    webp,
    workbook,
    workbook_with,
)

PARSERS = {
    "a.xlsx": (parse_workbook, workbook()),
    "a.odt": (parse_text_document, odt()),
    "a.rtf": (parse_rich_text, RTF.encode()),
    "a.csv": (parse_table, b"a,b\n1,2\n"),
}


def events_of(path: Path, format_name: str, **limits: Any) -> list[ImportEvent]:
    return read(in_process(importer_by_name(format_name, all_importers())), path, **limits)


def sample_drafts(tmp_path: Path, name: str) -> list[Any]:
    format_name, data = TABLE_SAMPLES[name]
    events = events_of(write(tmp_path / name, data), format_name)
    return [getattr(event, "draft") for event in events if hasattr(event, "draft")]  # noqa: B009 - some have none


@each_case(
    ("name", "kind", "text"),
    [
        ("tides.xlsx", "xlsx", "# Tides\n\nPlace\tHeight\tDay\nHarbour quay\t2\t2024-01-05\n\t2.5\tTrue\n\n# Empty"),
        (
            "shore.odt",
            "odt",
            "## Low water\n\nThe rocks show. [ A footnote.]\n\n- crab\n- star\n\na\tb\n\nEnd.",
        ),
        ("shore.rtf", "rtf", "Low water.\n\nété 潮"),
        ("places.csv", "csv", "Place\tNote\nHarbour\ttwo lines\nQuay\tcalm"),
        ("places.tsv", "csv", "Place\tNote\nHarbour\ttwo lines\nQuay\tcalm"),
    ],
)
def test_text_is_in_reading_order(tmp_path: Path, name: str, kind: str, text: str) -> None:
    (media,) = sample_drafts(tmp_path, name)

    assert (media.media_type, media.content) == (kind, text)


def test_properties_of_the_document_are_used(tmp_path: Path) -> None:
    (sheet,), (text,), (rtf,) = (sample_drafts(tmp_path, name) for name in ("tides.xlsx", "shore.odt", "shore.rtf"))

    assert (sheet.title, sheet.author, sheet.tags) == ("Tide table", "Mara Field", ("sea", "tide"))
    assert (sheet.created_at, sheet.metadata["sheets"]) == ("2024-01-05T10:30:00.000Z", 2)
    assert (text.title, text.author, text.created_at) == ("The shore", "Mara Field", "2024-01-05T10:30:00.000Z")
    assert (rtf.title, rtf.author) == ("The shore", "Mara Field")


def test_zip_of_documents_becomes_media(tmp_path: Path) -> None:
    format_name, data = TABLE_SAMPLES["papers.zip"]
    events = events_of(write(tmp_path / "papers.zip", data), format_name)
    drafts: list[Any] = [event.draft for event in events if isinstance(event, ImportedMedia)]

    assert [(draft.title, draft.media_type) for draft in drafts] == [
        ("The shore", "docx"),
        ("a", "text"),
        ("table", "csv"),
    ]
    assert drafts[0].metadata["path"] == "papers/shore.docx"
    assert SkippedItem("file in the archive not containing a document") in events


def test_damaged_document_in_a_zip_fails_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zip", packed({**DOCUMENTS, "torn.docx": word("not XML")}))

    (failed,) = [event for event in events_of(path, "document_zip") if isinstance(event, FailedItem)]

    assert failed.location == "torn.docx"
    assert "XML is invalid" in failed.problem


def test_empty_document_in_a_zip_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zip", packed({"empty.docx": b"", "empty.txt": b""}))

    assert events_of(path, "document_zip") == [SkippedItem("document without text")] * 2


@each_case("name", ["video.json", "whisper.tsv", "talk.sbv"])
def test_transcripts_have_times(tmp_path: Path, name: str) -> None:
    (media,) = sample_drafts(tmp_path, name)

    assert [(segment.start_ms, segment.end_ms, segment.text) for segment in media.segments] == [
        (1000, 3500, "The tide is out"),
        (4000, 5000, "crabs"),
    ]


def test_webp_card_is_read(tmp_path: Path) -> None:
    (character,) = sample_drafts(tmp_path, "wren.webp")

    assert (character.name, character.description, character.first_message) == ("Wren", "A bird.", "Hello!")


def test_webp_card_in_utf_16_is_read(tmp_path: Path) -> None:
    data = webp(b"II*\0UNICODE\0" + json.dumps(CARD).encode("utf-16-le"))
    (event,) = events_of(write(tmp_path / "a.webp", data), "character_cards")

    assert event.draft.name == "Wren"  # type: ignore[union-attr]


def test_fabric_pattern_is_named_by_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "patterns" / "sum_up"
    system, user = write(folder / "system.md", PATTERN), write(folder / "user.md", "CONTENT:\n")

    (event,) = events_of(system, "fabric")

    assert event.draft.name == "sum_up"  # type: ignore[union-attr]
    assert event.draft.system_prompt == PATTERN.strip()  # type: ignore[union-attr]
    assert event.draft.user_prompt == "CONTENT:"  # type: ignore[union-attr]
    assert events_of(user, "fabric") == [SkippedItem("user part of a pattern")]


def test_fabric_patterns_in_a_zip_are_read(tmp_path: Path) -> None:
    prompts = sample_drafts(tmp_path, "patterns.zip")

    assert [(prompt.name, prompt.user_prompt) for prompt in prompts] == [("sum_up", "CONTENT:"), ("ask", "")]


# -- hostile files -----------------------------------------------------------------------------------------------------


def rows(cells: str, count: int) -> str:
    return (
        "<sheetData>"
        + "".join(f'<row r="{number}">{cells % number}</row>' for number in range(1, count + 1))
        + "</sheetData>"
    )


@pytest.mark.slow("reads hostile documents")
@each_case(
    ("name", "data", "problem"),
    lambda: [
        ("wide.xlsx", workbook_with(rows('<c r="XFD%d"><v>1</v></c>', 700)), "more than 3000000 cells"),
        ("bomb.xlsx", workbook_with("<sheetData>" + " " * (40 << 20) + "</sheetData>"), "times its packed size"),
        (
            "entities.xlsx",
            workbook_with("", **{"xl/sharedStrings.xml": '<!DOCTYPE a [<!ENTITY b "c">]><sst>&b;</sst>'}),
            "XML contains a document type",
        ),
        ("torn.xlsx", workbook()[:-40], "not a valid zip file"),
        ("out.xlsx", workbook_with("", **{"../../x": "x"}), "points outside"),
        ("entities.odt", odt('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'), "with declarations"),
        ("torn.odt", odt(ODT_CONTENT[:-30]), "XML is invalid"),
        ("locked.odt", odt(**{"META-INF/manifest.xml": "<a><encryption-data/></a>"}), "protected by a password"),
        ("bomb.odt", odt(ODT_CONTENT.replace("End.", "x" * (20 << 20))), "larger than"),
        ("columns.csv", "a,b\n" + "," * 100_001, "at most 100000 columns"),
    ],
)
def test_hostile_documents_are_rejected(tmp_path: Path, name: str, data: bytes | str, problem: str) -> None:
    with pytest.raises((InvalidParams, TooLarge), match=problem):
        events_of(write(tmp_path / name, data), "documents")


@pytest.mark.slow("reads hostile documents")
def test_sheet_with_millions_of_declared_cells_is_read(tmp_path: Path) -> None:
    sheet = '<dimension ref="A1:XFD1048576"/><sheetData><row r="1000000"><c r="A1000000"><v>7</v></c></row></sheetData>'
    (event,) = events_of(write(tmp_path / "a.xlsx", workbook_with(sheet)), "documents")

    assert event.draft.content == "# Tides\n\n7\n\n# Empty"  # type: ignore[union-attr]


@pytest.mark.slow("reads hostile documents")
@each_case("text", ["{" * 100_000, "\\" * 100_000, "\\u" * 50_000, "{\\*" * 50_000, "a1" * 100_000])
def test_hostile_rtf_is_read_quickly(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.rtf", "{\\rtf1 Low water.\\par " + text)
    problem = ""
    try:
        events_of(path, "documents", parser_cpu_s=10)
    except InvalidParams as error:
        problem = str(error)
    assert "CPU time" not in problem


@each_case(
    "data",
    [webp(None), webp(b""), webp(b"}{"), webp(b"x" * 100), webp(b"{}")[:-1], b"RIFF\0\0\0\0WEBP" + b"\0" * 200_000],
)
def test_image_without_a_card_is_not_recognized(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "a.webp", data)
    with pytest.raises(InvalidParams):
        events_of(path, "character_cards")


@given(damaged_files({name: data for name, (_, data) in PARSERS.items()}))
def test_damaged_document_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    name, data = sample
    with TemporaryDirectory() as folder, suppress(InvalidParams, TooLarge):
        assert isinstance(PARSERS[name][0](write(Path(folder, name), data), LIMITS), ParsedDocument)
