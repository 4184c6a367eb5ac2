"""Exports of note programs: what becomes of each part of a note, and hostile exports."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from config.errors import InvalidParams, TooLarge
from sources.drafts import NoteDraft
from sources.importers.engine.discovery import DiscoveredFile, discover
from sources.importers.engine.events import FailedItem, ImportedNote, ImportEvent, SkippedItem
from sources.importers.registry import all_importers, importer_by_name
from sources.storage.contract import Library
from tests.cases import each_case
from tests.sources.importers.note_exports import (
    APPLE_ZIP,
    BEAR_2,
    BEAR_ID,
    ENEX,
    IPYNB,
    JOPLIN,
    KEEP,
    KEEP_TEXT,
    LOGSEQ,
    NOTE_ID,
    NOTE_SAMPLES,
    NOTION_PAGES,
    ORG_ID,
    ROAM,
    ROW_ID,
    TEA_ID,
    apple_database,
    jex,
    notion_zip,
    unpacked,
)
from tests.sources.importers.office_files import packed
from tests.sources.importers.single_files import LIMITS, import_here, read, write
from tests.sources.storage.library_fixture import open_library_fixture

CREATED = "2024-01-05T10:30:00.000Z"
UPDATED = "2024-01-06T10:30:00.000Z"


def events_of(path: Path, format_name: str, **limits: Any) -> list[ImportEvent]:
    return read(importer_by_name(format_name, all_importers()), path, **limits)


def sample_events(tmp_path: Path, name: str) -> list[ImportEvent]:
    format_name, data = NOTE_SAMPLES[name]
    return events_of(write(tmp_path / name, data), format_name)


def notes_in(events: list[ImportEvent]) -> list[NoteDraft]:
    return [event.draft for event in events if isinstance(event, ImportedNote)]


def reasons(events: list[ImportEvent]) -> list[str]:
    return [event.reason for event in events if isinstance(event, SkippedItem)]


def summary(note: NoteDraft) -> tuple[object, ...]:
    return (note.title, note.content, note.tags, note.created_at, note.metadata)


def formats_in(folder: Path) -> dict[str, str]:
    found = discover([folder], LIMITS, all_importers())
    return {file.name: file.importer.name for file in found if isinstance(file, DiscoveredFile)}


# -- Notion ------------------------------------------------------------------------------------------------------------


def test_notion_pages_keep_their_ids_and_properties(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "notion.zip")
    tea, harbour = notes_in(events)

    assert (tea.title, tea.tags, tea.metadata) == ("Tea", ("green",), {"path": "Tea.md"})
    assert tea.uuid == "01234567-89ab-cdef-0123-456789abcdef"
    assert (harbour.title, harbour.tags) == ("Harbour", ("city", "quay side"))
    assert harbour.created_at == "2024-01-05T15:04:00.000Z"
    assert harbour.metadata == {
        "path": "Tea/Shops/Harbour.md",
        "properties": {"Tags": "city, quay side", "Created": "January 5, 2024 3:04 PM", "Rating": "5"},
    }
    assert str(harbour.content).endswith("Open on Sundays.")
    assert reasons(events).count("table of a database whose rows are pages") == 2


@each_case("data", [packed(NOTION_PAGES), notion_zip(3)])
def test_notion_pages_are_the_same_however_they_are_packed(tmp_path: Path, data: bytes) -> None:
    nested = {note.uuid: note.content for note in notes_in(sample_events(tmp_path, "notion.zip"))}
    other = notes_in(events_of(write(tmp_path / "other.zip", data), "notion"))
    folder = unpacked(packed(NOTION_PAGES), tmp_path / "export")

    assert {note.uuid: note.content for note in other} == nested
    assert {note.uuid: note.content for note in notes_in(events_of(folder, "notion"))} == nested
    assert formats_in(folder) == {"export": "notion"}


def test_notion_page_as_html_is_read(tmp_path: Path) -> None:
    (note,) = notes_in(sample_events(tmp_path, "pages.zip"))

    assert (note.title, note.content) == ("Kettle", "# Kettle\n\nBoils at 100 degrees.")


def test_lines_with_colons_are_properties_only_in_a_database(tmp_path: Path) -> None:
    page = {f"Plain {TEA_ID}.md": "# Plain\n\nRemember: tea.\n"}
    (note,) = notes_in(events_of(write(tmp_path / "a.zip", packed(page)), "notion"))

    assert note.metadata == {"path": "Plain.md"}


def test_damaged_part_does_not_stop_the_others(tmp_path: Path) -> None:
    block = "ExportBlock-00000000-0000-4000-8000-000000000000"
    parts: dict[str, str | bytes] = {
        f"{block}-Part-1.zip": b"PK\x03\x04torn",
        f"{block}-Part-2.zip": packed(NOTION_PAGES),
    }

    events = events_of(write(tmp_path / "a.zip", packed(parts)), "notion")

    assert len(notes_in(events)) == 2
    assert [event.problem for event in events if isinstance(event, FailedItem)] == ["archive: not a valid zip file"]


@pytest.mark.slow("makes a large file")
def test_bomb_inside_an_inner_zip_is_rejected(tmp_path: Path) -> None:
    bomb = packed({f"Tea {TEA_ID}.md": "x" * (8 << 20), f"Tea {ROW_ID}.md": "x" * (8 << 20)})
    path = write(tmp_path / "a.zip", packed({"ExportBlock-00000000-0000-4000-8000-000000000000-Part-1.zip": bomb}))

    (failed,) = [e for e in events_of(path, "notion", unpacked_max_bytes=10 << 20) if isinstance(e, FailedItem)]

    assert "larger than 10485760 bytes" in failed.problem


@each_case("name", ["notes.enex", "Shopping.json", "notes.jex", "roam.json", "notes.bearbk", "all_notes_1.json"])
def test_notes_keep_the_time_of_their_last_change(tmp_path: Path, name: str) -> None:
    changed = [note for note in notes_in(sample_events(tmp_path, name)) if "updated" in dict(note.metadata or {})]
    assert changed
    for note in changed:
        assert dict(note.metadata or {})["updated"] == note.last_modified
        assert str(note.last_modified) > str(note.created_at)


# -- Evernote ----------------------------------------------------------------------------------------------------------


def test_evernote_notes_keep_text_tags_and_times(tmp_path: Path) -> None:
    low, high = notes_in(sample_events(tmp_path, "notes.enex"))

    assert summary(low) == (
        "Low tide",
        "Pools show at noon.\n[x] bucket\n[ ] net & line\n\n- crab\n\n[encrypted text]",
        ("sea", "rock pools"),
        CREATED,
        {
            "updated": UPDATED,
            "url": "https://example.org/tide",
            "author": "Mara Field",
            "attachments": ["pool.png"],
        },
    )
    assert (high.title, high.content) == ("High tide", "Only sea.")


def test_evernote_note_is_known_again_in_a_newer_export_of_its_notebook(tmp_path: Path) -> None:
    before = notes_in(sample_events(tmp_path, "notes.enex"))
    edited = ENEX.replace("at noon", "at one").replace(
        "<note><title>High", "<note><title>New</title></note><note><title>High"
    )

    after = notes_in(events_of(write(tmp_path / "notes (1).enex", edited), "evernote"))

    assert [after[0].uuid, after[2].uuid] == [note.uuid for note in before]


def kettle(path: Path, text: str, updated: str = "20240106T103000Z") -> Path:
    """Writes a notebook with one note, whose title and creation time are always the same."""
    times = f"<created>20240105T103000Z</created><updated>{updated}</updated>"
    return write(path, f"<en-export><note><title>Kettle</title><content>{text}</content>{times}</note></en-export>")


async def import_notebook(library: Library, path: Path) -> tuple[str, ...]:
    """Returns the outcomes."""
    summary = await import_here(library, path)
    return tuple(name for name, count in msgspec.structs.asdict(summary.kinds["notes"]).items() if count)


async def import_with_former_id(library: Library, path: Path) -> str:
    """Imports a notebook of one note as earlier versions did. Returns the id of the note."""
    [event] = events_of(path, "evernote")
    assert isinstance(event, ImportedNote)
    assert event.former_uuid != event.draft.uuid
    await library.notes.upsert_many([replace(event.draft, uuid=event.former_uuid)])
    return event.former_uuid


async def texts_of(library: Library) -> dict[str, str]:
    return {note.uuid: note.content for note in (await library.notes.list(10, 0)).rows}


async def test_evernote_note_keeps_the_id_of_an_import_by_an_earlier_version(tmp_path: Path) -> None:
    work = kettle(tmp_path / "Work.enex", "copper")
    async with open_library_fixture(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        former = await import_with_former_id(ada, work)
        same = await import_notebook(ada, work)
        changed = await import_notebook(ada, kettle(work, "brass", "20240107T103000Z"))
        reverted = await import_notebook(ada, kettle(work, "copper", "20240108T103000Z"))
        assert await texts_of(ada) == {former: "copper"}

        await ada.notes.delete(former)
        deleted = await import_notebook(ada, kettle(work, "tin", "20240109T103000Z"))
        assert await texts_of(ada) == {}
        async with libraries.library("ben") as ben:
            others = await import_notebook(ben, work)
            assert former not in await texts_of(ben)

    assert (same, changed, reverted) == (("unchanged",), ("updated",), ("updated",))
    assert (deleted, others) == (("deleted",), ("new",))


@each_case(
    ("stored", "first", "second"),
    [("copper", "copper", "iron"), ("copper", "iron", "copper"), ("copper", "brass", "iron")],
)
async def test_equal_evernote_notes_of_an_earlier_import_stay_apart(
    tmp_path: Path, stored: str, first: str, second: str
) -> None:
    work, home = tmp_path / "Work.enex", tmp_path / "Home.enex"
    async with open_library_fixture(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        former = await import_with_former_id(ada, kettle(work, stored))
        for _ in range(2):
            await import_notebook(ada, kettle(home, first))
            await import_notebook(ada, kettle(work, second))
        await import_notebook(ada, kettle(home, f"{first} lid", "20240107T103000Z"))
        texts = await texts_of(ada)

    assert former in texts
    assert sorted(texts.values()) == sorted([f"{first} lid", second])


async def test_older_evernote_note_with_another_text_does_not_take_an_id(tmp_path: Path) -> None:
    work, home = tmp_path / "Work.enex", tmp_path / "Home.enex"
    async with open_library_fixture(tmp_path / "data") as libraries, libraries.library("ada") as ada:
        former = await import_with_former_id(ada, kettle(work, "copper"))
        await import_notebook(ada, kettle(home, "iron", "20240105T103000Z"))
        texts = await texts_of(ada)

    assert texts.pop(former) == "copper"
    assert list(texts.values()) == ["iron"]


def test_evernote_note_that_is_too_large_fails_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.enex", ENEX.replace("at noon", "x" * 5_000))

    first, second = events_of(path, "evernote", line_max_bytes=3_000)

    assert isinstance(first, FailedItem)
    assert isinstance(second, ImportedNote)


@each_case(
    ("data", "problem"),
    [
        (
            ENEX.replace('dtd">\n', 'dtd" [<!ENTITY a "b"><!ENTITY c "&a;&a;">]>\n', 1),
            "document type with declarations",
        ),
        (ENEX[:-30], "XML is invalid"),
        ("<en-export><!--" + "x" * (3 << 20), "tag or comment of more than"),
    ],
)
def test_hostile_enex_is_rejected(tmp_path: Path, data: str, problem: str) -> None:
    with pytest.raises(InvalidParams, match=problem):
        events_of(write(tmp_path / "a.enex", data), "evernote")


# -- Google Keep -------------------------------------------------------------------------------------------------------


def test_keep_note_keeps_list_labels_and_times(tmp_path: Path) -> None:
    (note,) = notes_in(sample_events(tmp_path, "Shopping.json"))

    assert summary(note) == (
        "Shopping",
        "- [x] tea\n- [ ] jam\n\n[Jam](https://example.org/jam)",
        ("home",),
        CREATED,
        {"updated": UPDATED, "pinned": True, "attachments": ["a.jpg"]},
    )


def test_keep_notes_are_the_same_in_zip_and_folder(tmp_path: Path) -> None:
    trash = {**KEEP, "isTrashed": True}
    files = {
        "Takeout/Keep/Shopping.json": json.dumps(KEEP),
        "Takeout/Keep/Shopping.html": "<html><body>Shopping</body></html>",
        "Takeout/Keep/2024.json": json.dumps(KEEP_TEXT),
        "Takeout/Keep/Gone.json": json.dumps(trash),
    }
    zipped = events_of(write(tmp_path / "a.zip", packed(files)), "google_keep")
    folder = unpacked(packed(files), tmp_path / "unpacked")
    found = [file for file in discover([folder], LIMITS, all_importers()) if isinstance(file, DiscoveredFile)]
    single = [event for file in found for event in read(file.importer, file.path)]

    assert {file.importer.name for file in found} == {"google_keep"}
    assert [note.title for note in notes_in(zipped)] == ["Shopping", "Bring the bucket."]
    assert {note.uuid for note in notes_in(single)} == {note.uuid for note in notes_in(zipped)}
    assert sorted(reasons(single)) == ["note in the trash", "web page of a note that is also there as JSON"]


# -- Joplin ------------------------------------------------------------------------------------------------------------


def test_joplin_notes_have_their_notebook_and_tags(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "notes.jex")
    pools, page = notes_in(events)

    assert pools.uuid == f"{NOTE_ID[:8]}-{NOTE_ID[:4]}-{NOTE_ID[:4]}-{NOTE_ID[:4]}-{NOTE_ID[:12]}"
    assert summary(pools) == (
        "Rock pools",
        "Crabs hide.\n\nkey: value in the text",
        ("crab",),
        CREATED,
        {"notebook": "Sea/Tides", "updated": UPDATED, "url": "https://example.org/p", "todo": "open"},
    )
    assert page.content == "Some bold"
    assert reasons(events) == ["encrypted note", "attachment"]


def test_joplin_folder_has_the_same_notes(tmp_path: Path) -> None:
    folder = unpacked(packed(JOPLIN), tmp_path / "raw")

    by_title = {note.title: note for note in notes_in(events_of(folder, "joplin"))}
    assert by_title == {note.title: note for note in notes_in(sample_events(tmp_path, "notes.jex"))}
    assert formats_in(folder) == {"raw": "joplin"}


@each_case(
    ("data", "problem"),
    [
        (jex()[:700], "truncated here"),
        (jex()[:512].replace(b"0000644", b"0000644") + b"x" * 100, "truncated here"),
        (jex()[:1024] + b"x" * 512, "damaged or truncated"),
        (jex()[:124] + b"99999999999\0" + jex()[136:], "a size is not a number"),
        (jex()[:124] + b"77777777777\0" + jex()[136:], "larger than"),
    ],
)
def test_damaged_jex_is_reported(tmp_path: Path, data: bytes, problem: str) -> None:
    path = write(tmp_path / "a.jex", data)
    try:
        problems = [event.problem for event in events_of(path, "joplin") if isinstance(event, FailedItem)]
    except InvalidParams as error:
        problems = [error.message]

    assert any(problem in text for text in problems)


# -- Logseq and Roam ---------------------------------------------------------------------------------------------------


def test_logseq_pages_and_journals_become_notes(tmp_path: Path) -> None:
    folder = unpacked(packed(LOGSEQ), tmp_path / "mine")
    events = events_of(folder, "logseq")
    notes = {note.title: note for note in notes_in(events)}

    assert set(notes) == {"sea/tide?", "The plan", "2024-01-05"}
    assert notes["sea/tide?"].tags == ("water", "rock pools", "calm", "slow sea")
    assert notes["sea/tide?"].metadata == {
        "path": "pages/sea___tide%3F.md",
        "links": ["rock pools", "slow sea", "Moon"],
        "properties": {"tags": "water, [[rock pools]]", "alias": "ebb"},
    }
    assert notes["The plan"].tags == ("sail", "dawn")
    assert notes["2024-01-05"].created_at == "2024-01-05T00:00:00.000Z"
    assert formats_in(folder) == {"mine": "logseq"}
    zipped = notes_in(sample_events(tmp_path, "graph.zip"))
    assert {note.uuid for note in zipped} == {note.uuid for note in notes.values()}


def test_journals_of_two_graphs_are_different_notes(tmp_path: Path) -> None:
    ids = [
        {note.uuid for note in notes_in(events_of(unpacked(packed(LOGSEQ), tmp_path / graph), "logseq"))}
        for graph in ("work", "home")
    ]

    assert ids[0].isdisjoint(ids[1])


def test_journals_of_two_zipped_graphs_are_different_notes(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{graph}.zip", packed(LOGSEQ)) for graph in ("work", "home")]
    work, home = ({note.uuid for note in notes_in(events_of(file, "logseq"))} for file in files)
    assert not work & home
    folder = unpacked(packed(LOGSEQ), tmp_path / "work")
    assert {note.uuid for note in notes_in(events_of(folder, "logseq"))} == work


@each_case("name", ["roam.json", "roam.zip"])
def test_roam_pages_become_outlines(tmp_path: Path, name: str) -> None:
    events = sample_events(tmp_path, name)
    (note,) = notes_in(events)

    assert summary(note) == (
        "Tides",
        "- ## Low water\n  - #crab in [[Pools]]\n    more\n- #[[slow sea]]",
        ("crab", "slow sea"),
        CREATED,
        {"links": ["Pools", "slow sea"], "updated": UPDATED},
    )
    assert reasons(events) == ["page without blocks"]


def test_deep_roam_page_fails_alone(tmp_path: Path) -> None:
    deep = (
        '{"title": "Deep", "create-time": 1, "children": ' + '[{"string": "x", "children": ' * 300 + "[]" + "}]" * 300
    )
    path = write(tmp_path / "a.json", f"[{deep}}}, {json.dumps(ROAM[0])}]")

    failed, note = events_of(path, "roam")

    assert isinstance(failed, FailedItem)
    assert "levels deep" in failed.problem
    assert isinstance(note, ImportedNote)


# -- Bear, Org, reStructuredText, Jupyter, Apple Notes -----------------------------------------------------------------


def test_bear_backup_keeps_ids_tags_and_times(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "notes.bearbk")
    (note,) = notes_in(events)

    assert note.uuid == BEAR_ID.lower()
    assert (note.title, note.tags, note.created_at) == ("Low tide", ("rock pools", "sea/shore"), CREATED)
    assert note.metadata == {"path": "Notes.bearbk/Low tide.textbundle", "updated": UPDATED, "pinned": True}
    assert sorted(reasons(events)) == ["attachment", "note in the trash"]


def test_bear_2_backup_in_a_folder_has_the_notes_of_the_older_backup(tmp_path: Path) -> None:
    (older,) = notes_in(sample_events(tmp_path, "notes.bearbk"))
    folder = tmp_path / "backups"
    folder.mkdir()
    write(folder / "notes.bear2bk", packed(BEAR_2))

    found = [file for file in discover([folder], LIMITS, all_importers()) if isinstance(file, DiscoveredFile)]
    (note,) = [note for file in found for note in notes_in(read(file.importer, file.path))]

    assert (note.uuid, note.content, note.tags) == (older.uuid, older.content, older.tags)


def test_text_bundles_in_a_folder_are_read_as_notes(tmp_path: Path) -> None:
    folder = unpacked(packed(BEAR_2), tmp_path / "notes")
    found = [file for file in discover([folder], LIMITS, all_importers()) if isinstance(file, DiscoveredFile)]

    assert {file.importer.name for file in found} == {"bear"}
    assert [note.uuid for file in found for note in notes_in(read(file.importer, file.path))] == [BEAR_ID.lower()]
    assert formats_in(folder / "Low tide.textbundle") == {"Low tide.textbundle": "bear"}


def test_org_file_has_title_tags_date_and_id(tmp_path: Path) -> None:
    (note,) = notes_in(sample_events(tmp_path, "tide.org"))

    assert (note.title, note.tags, note.created_at, note.uuid) == (
        "Tide tables",
        ("sea", "moon", "calm"),
        CREATED,
        ORG_ID,
    )
    assert note.metadata == {"path": "tide.org", "author": "Mara Field"}
    assert str(note.content).endswith("* Low water :calm:\nSome text.")


def test_rst_file_has_title_tags_and_date(tmp_path: Path) -> None:
    (note,) = notes_in(sample_events(tmp_path, "tide.rst"))

    assert (note.title, note.tags, note.created_at) == ("Tide table", ("sea", "rock pools"), "2024-01-05T00:00:00.000Z")
    assert note.metadata == {"path": "tide.rst", "author": "Mara Field"}
    assert str(note.content).startswith("==========\nTide table")


def test_notebook_has_text_code_and_printed_results(tmp_path: Path) -> None:
    (note,) = notes_in(sample_events(tmp_path, "tide.ipynb"))

    assert note.title == "Tide model"
    assert note.content == (
        "# Tide model\nIt moves.\n\n```python\nprint('low')\n```\n\n```\nlow\n```\n\n```\n<Figure>\n```\n\n"
        "```\nValueError: dry\n```"
    )
    assert note.metadata == {"path": "tide.ipynb", "language": "python"}


@each_case(
    ("data", "problem"),
    [
        (b'{"cells": [], "nbformat": ' + b"[" * 50_000, "JSON is"),
        (b'{"cells": []}', "not a Jupyter notebook"),
        (json.dumps(IPYNB).encode()[:-20], "JSON is malformed"),
        (b'{"nbformat": 4, "cells": [' + b"{}," * 2_500_000 + b"{}]}", "JSON has more than"),
    ],
)
def test_hostile_notebook_is_rejected(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(InvalidParams, match=problem):
        events_of(write(tmp_path / "a.ipynb", data), "jupyter")


def test_apple_notes_from_json_keep_their_ids(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "all_notes_1.json")
    (note,) = notes_in(events)

    assert note.uuid == "7f2c1e52-93b4-4f6a-8c1d-2b3a4d5e6f70"
    assert summary(note) == (
        "Low tide",
        "Low tide\nPools show. #crab",
        ("crab",),
        "2024-01-05T09:30:00.000Z",
        {"folder": "Sea", "account": "iCloud", "updated": "2024-01-06T09:30:00.000Z", "pinned": True},
    )
    assert reasons(events) == ["locked note"]


def test_apple_notes_from_sqlite_are_read(tmp_path: Path) -> None:
    path = apple_database(tmp_path / "notes.db")
    (note,) = notes_in(events_of(path, "apple_notes"))

    assert summary(note) == ("Low tide", "Low tide\n\nPools.", (), CREATED, {"folder": "Sea", "updated": UPDATED})
    assert formats_in(tmp_path) == {f"{tmp_path.name}/notes.db": "apple_notes"}


def test_apple_notes_from_its_zip_are_read(tmp_path: Path) -> None:
    events = sample_events(tmp_path, "iCloud Notes.zip")
    (note,) = notes_in(events)

    assert (note.title, note.content, note.created_at) == ("Low tide", "Low tide\nPools show.", CREATED)
    assert reasons(events) == ["file in the archive not containing a note"]


# -- hostile archives --------------------------------------------------------------------------------------------------


@each_case(
    ("format_name", "entries"),
    [
        ("notion", {f"Tea {TEA_ID}.md": "x"}),
        ("google_keep", {"Takeout/Keep/a.json": json.dumps(KEEP)}),
        ("logseq", {"logseq/config.edn": "{}", "pages/a.md": "x"}),
        ("bear", {"a.textbundle/text.md": "x", "a.textbundle/info.json": "{}"}),
        ("apple_notes", APPLE_ZIP),
        ("roam", {"a.json": json.dumps(ROAM)}),
    ],
)
def test_archive_that_leads_outside_or_unpacks_to_too_much_is_rejected(
    tmp_path: Path, format_name: str, entries: dict[str, str | bytes]
) -> None:
    with pytest.raises(InvalidParams, match="points outside the archive"):
        events_of(write(tmp_path / "out.zip", packed({**entries, "../../x.md": "x"})), format_name)
    with pytest.raises(TooLarge):
        events_of(write(tmp_path / "bomb.zip", packed(entries)), format_name, unpacked_max_bytes=0)
