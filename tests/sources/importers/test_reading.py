"""Highlights, bookmarks, saved articles and references: what becomes of each part, and hostile files."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.events import FailedItem, ImportedMedia, ImportedNote, ImportEvent, SkippedItem
from sources.importers.registry import all_importers, importer_by_name
from tests.cases import each_case
from tests.sources.importers.office_files import packed
from tests.sources.importers.reading_files import (
    BOOKMARKS,
    CLIPPINGS,
    CSL,
    OMNIVORE,
    OMNIVORE_ID,
    RDF,
    READING_SAMPLES,
    READWISE,
)
from tests.sources.importers.single_files import read, write

CREATED = "2024-01-05T10:30:00.000Z"


def events_of(path: Path, format_name: str, **limits: Any) -> list[ImportEvent]:
    return read(importer_by_name(format_name, all_importers()), path, **limits)


def sample_events(tmp_path: Path, name: str) -> list[ImportEvent]:
    format_name, data = READING_SAMPLES[name]
    return events_of(write(tmp_path / name, data), format_name)


def drafts(events: list[ImportEvent]) -> list[Any]:
    return [event.draft for event in events if isinstance(event, ImportedMedia | ImportedNote)]


def reasons(events: list[ImportEvent]) -> list[str]:
    return [event.reason for event in events if isinstance(event, SkippedItem)]


def test_kindle_book_becomes_a_note(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "My Clippings.txt")
    shore, ebb = drafts(events)

    assert (shore.title, shore.created_at) == ("The Shore", CREATED)
    assert shore.metadata == {"author": "Mara Field", "highlights": 2}
    assert shore.content == (
        "> Pools show\n> at low water.\n(Your Highlight on page 12 | Location 170-172)\n\n"
        "Note: Go there.\n(Your Note on page 12 | Location 172)"
    )
    assert (ebb.title, ebb.content) == ("Ebbe und Flut", "> Das Meer.\n(Ihre Markierung bei Position 5-6)")
    assert reasons(events) == ["bookmark without text"]


def test_kindle_book_is_updated_by_new_clippings(tmp_path: Path) -> None:
    before = drafts(sample_events(tmp_path, "My Clippings.txt"))
    more = CLIPPINGS + "The Shore (Mara Field)\n- Your Highlight on page 20 | Added on x\n\nMore.\n==========\n"

    after = drafts(events_of(write(tmp_path / "b.txt", more), "kindle"))

    assert [book.uuid for book in after] == [book.uuid for book in before]
    assert after[0].metadata["highlights"] == 3


def test_readwise_book_becomes_a_note(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "readwise.csv")
    shore, ebb = drafts(events)

    assert (shore.title, shore.created_at, shore.tags) == ("The Shore", CREATED, ("books", "sea", "tide"))
    assert shore.content == ("> Pools show, at low water.\nNote: Go there.\n(page 12)\n\n> Second\n(location 190)")
    assert (ebb.title, ebb.content) == ("Ebb", "> Other text")
    assert reasons(events) == ["highlight without text"]


@each_case(
    ("name", "expected"),
    [
        (
            "bookmarks.html",
            [
                ("https://example.org/tide?a=1&b=2", "Tide & pools", ("water", "pools"), CREATED, "Bookmarks/Sea"),
                ("https://example.org/deep", "Deep sea", (), None, "Bookmarks/Sea/Deep"),
                ("https://example.org/top", "Top", (), None, "Bookmarks"),
            ],
        ),
        (
            "chrome.json",
            [
                ("https://example.org/t", "Tide", (), CREATED, "Bar"),
                ("https://example.org/d", "D", (), None, "Bar/Sea"),
            ],
        ),
        ("firefox.json", [("https://example.org/f", "Tide", ("water", "pools"), CREATED, "Sea")]),
        ("part_000000.csv", [("https://example.org/p", "Tide", ("water", "rock pools"), CREATED, None)]),
        (
            "ril_export.html",
            [
                ("https://example.org/h", "Tide", ("water", "pools"), CREATED, None),
                ("https://example.org/r", "Old", (), CREATED, None),
            ],
        ),
    ],
)
def test_saved_links_become_media(tmp_path: Path, name: str, expected: list[tuple[Any, ...]]) -> None:
    links = drafts(sample_events(tmp_path, name))

    assert [
        (link.url, link.title, link.tags, link.created_at or None, link.metadata.get("folder")) for link in links
    ] == expected
    assert {link.media_type for link in links} == {"bookmark"}


def test_bookmark_has_its_description_and_address_as_text(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "bookmarks.html")

    assert drafts(events)[0].content == "Tide & pools\nhttps://example.org/tide?a=1&b=2\n\nAll about tides."
    assert reasons(events) == ["bookmark without a web address"]


def test_pocket_states_are_kept(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "part_000000.csv")

    assert drafts(events)[0].metadata == {"state": "unread"}
    assert reasons(events) == ["bookmark of an address that is listed twice"]
    old = drafts(sample_events(tmp_path, "ril_export.html"))
    assert [link.metadata["state"] for link in old] == ["unread", "archive"]


def test_karakeep_links_become_media_and_texts_notes(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "karakeep.json")
    link, note = drafts(events)

    assert (link.url, link.tags, link.created_at) == ("https://example.org/k", ("water",), CREATED)
    assert link.content == "Tide\nhttps://example.org/k\n\nRead this."
    assert (note.title, note.content) == ("Low water.", "Low water.")
    assert reasons(events) == ["bookmark of a file"]


def test_omnivore_page_has_content_and_highlights(tmp_path: Path) -> None:
    tide, bare = drafts(sample_events(tmp_path, "omnivore.zip"))

    assert (tide.uuid, tide.title, tide.author, tide.created_at) == (OMNIVORE_ID, "Tide", "Mara Field", CREATED)
    assert tide.content == "# Tide\n\nIt moves.\n\n## Highlights\n\n> It moves."
    assert (tide.tags, tide.metadata["state"]) == (("water",), "Archived")
    assert bare.content == "Only this."


def test_csl_reference_becomes_media(tmp_path: Path) -> None:
    reference, failed = events_of(write(tmp_path / "a.json", json.dumps(CSL)), "zotero")
    (draft,) = drafts([reference])

    assert (draft.title, draft.author, draft.media_type) == ("On tides", "Mara Field; Tide Office", "reference")
    assert draft.url == "https://doi.org/10.1000/tide"
    assert draft.content == ("Mara Field; Tide Office (2019). On tides. Shore Letters.\n\nWater moves.\n\nRead twice.")
    assert (draft.tags, draft.created_at) == (("sea", "rock pools"), "2019-03-01T00:00:00.000Z")
    assert draft.metadata == {
        "type": "article-journal",
        "date": "2019-03",
        "publication": "Shore Letters",
        "doi": "10.1000/tide",
        "volume": "7",
        "page": "1-9",
    }
    assert failed == FailedItem("reference 2", "the reference has no title")


def test_zotero_rdf_has_notes_and_collections(tmp_path: Path) -> None:
    (draft,) = drafts(sample_events(tmp_path, "library.rdf"))

    assert (draft.title, draft.author, draft.url) == ("On tides", "Mara Field", "https://example.org/z")
    assert draft.content == "Mara Field (2019). On tides. Shore Letters.\n\nWater moves.\n\nRead twice."
    assert draft.tags == ("sea", "tides")
    assert draft.metadata == {
        "type": "journalArticle",
        "date": "2019-03-01",
        "publication": "Shore Letters",
        "page": "1-9",
        "collections": ["Sea"],
    }


def test_reference_is_the_same_in_json_and_rdf(tmp_path: Path) -> None:
    (csl,) = drafts(events_of(write(tmp_path / "a.json", json.dumps(CSL[:1])), "zotero"))
    (rdf,) = drafts(events_of(write(tmp_path / "a.rdf", RDF), "zotero"))

    assert csl.uuid == rdf.uuid


@each_case(
    ("name", "format_name", "data", "problem"),
    [
        ("a.rdf", "zotero", RDF.replace("<rdf:RDF", '<!DOCTYPE a [<!ENTITY b "c">]><rdf:RDF', 1), "with declarations"),
        ("a.rdf", "zotero", RDF[:-30], "XML is invalid"),
        ("a.json", "karakeep", '{"bookmarks": ' + "[" * 5_000, "JSON is"),
        ("a.json", "karakeep", '{"bookmarks": 1}', "bookmarks: expected a list"),
        ("a.json", "bookmarks", '{"roots": {}, "x": ' + "[" * 200 + "]" * 200 + "}", "levels deep"),
        ("a.html", "bookmarks", BOOKMARKS + "<dl>" * 200_000 + "</p>" * 400_000, "nested more than"),
        ("a.csv", "readwise", READWISE + "," * 100_001, "at most 100000 columns"),
        ("a.csv", "readwise", READWISE.partition("\n")[0], "no highlights found"),
        ("a.txt", "kindle", "nothing", "no highlights found"),
        ("a.zip", "omnivore", packed({"a.json": "[]"}), "metadata_….json is missing"),
        ("a.zip", "omnivore", packed({**OMNIVORE, "../x": "x"}), "points outside the archive"),
    ],
)
def test_hostile_files_are_rejected(
    tmp_path: Path, name: str, format_name: str, data: str | bytes, problem: str
) -> None:
    with pytest.raises(InvalidParams, match=problem):
        events_of(write(tmp_path / name, data), format_name)


@each_case("name", ["bookmarks.html", "My Clippings.txt", "library.rdf", "karakeep.json"])
def test_oversized_file_is_rejected(tmp_path: Path, name: str) -> None:
    format_name, data = READING_SAMPLES[name]
    with pytest.raises(TooLarge):
        events_of(write(tmp_path / name, data), format_name, line_max_bytes=100)
