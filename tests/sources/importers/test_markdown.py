"""Markdown files and Obsidian vaults: front matter, tags, links, and what is not imported."""

import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.events import FailedItem, ImportedNote, ImportEvent, SkippedItem
from sources.importers.engine.file_probe import probe_file
from sources.importers.registry import load_importer
from tests.cases import each_case
from tests.sources.importers.chat_files import zip_file
from tests.sources.importers.single_files import (
    LIMITS,
    damaged_files,
    importer_for,
    read,
    read_draft,
    read_or_reject,
    write,
)

IMPORTER = load_importer("markdown")

NOTE = """---
title: Tide pools
tags: [sea, "#shore/rock"]
aliases: [Rock pools, Pools]
created: 2024-05-01 10:30
Updated at: 2024-06-02
rating: 1.10
---

# Another heading

At low water see [[Crabs|the crabs]], [[Sea stars#Arms]] and ![[pool.png]]. #low-water #2024

```python
x = "[[not a link]]" #notatag
```
Inline `#neither` code, C# and a#b. %%a comment%%
"""


def test_note_keeps_its_text_and_front_matter(tmp_path: Path) -> None:
    path = write(tmp_path / "vault" / "sea" / "tide.md", NOTE)
    (tmp_path / "vault" / ".obsidian").mkdir()

    note = read_draft(IMPORTER, path)

    assert note.title == "Tide pools"
    assert note.content == NOTE.partition("---\n\n")[2].strip("\n")
    assert note.tags == ("sea", "shore/rock", "low-water")
    assert note.created_at == "2024-05-01T10:30:00.000Z"
    assert note.last_modified == "2024-06-02T00:00:00.000Z"
    assert note.metadata == {
        "path": "sea/tide.md",
        "links": ["Crabs", "Sea stars#Arms", "pool.png"],
        "aliases": ["Rock pools", "Pools"],
        "front_matter": {
            "title": "Tide pools",
            "tags": ["sea", "#shore/rock"],
            "aliases": ["Rock pools", "Pools"],
            "created": "2024-05-01 10:30",
            "Updated at": "2024-06-02",
            "rating": "1.10",
        },
    }


@each_case(
    ("text", "title"),
    [
        ("# Heading ##\ntext", "Heading"),
        ("text\n\n# Later\n", "Later"),
        ("```\n# a comment\n```\ntext", "file"),
        ("## Second level", "file"),
        ("---\ntitle:\n---\ntext", "file"),
        ("", "file"),
    ],
)
def test_title_is_the_first_heading_or_the_file_name(tmp_path: Path, text: str, title: str) -> None:
    assert read_draft(IMPORTER, write(tmp_path / "file.md", text)).title == title


@each_case(
    ("front_matter", "tags"),
    [
        ("tags: a, b c", ("a", "b c")),
        ("tags: a b", ("a", "b")),
        ("tag: '#one'", ("one",)),
        ("tags:\n  - x\n  - y z", ("x", "y z")),
        ("Tags: [A]\ntag: b", ("A", "b")),
        ("tags: {a: b}", ()),
        ("tags:", ()),
        ("tags: [no, 2024, " + "x" * 101 + "]", ("no", "2024")),
    ],
)
def test_forms_of_tags_are_parsed(tmp_path: Path, front_matter: str, tags: tuple[str, ...]) -> None:
    assert read_draft(IMPORTER, write(tmp_path / "a.md", f"---\n{front_matter}\n---\ntext")).tags == tags


@each_case(
    "block",
    [
        "a: [unclosed",
        "a: &x [1]\nb: *x",
        "just a line",
        "- a\n- list",
        "a: " + "[" * 200 + "]" * 200,
        "a: \x01",
        "? [a]\n: b",
    ],
)
def test_invalid_front_matter_stays_in_the_text(tmp_path: Path, block: str) -> None:
    text = f"---\n{block}\n---\nbody"

    note = read_draft(IMPORTER, write(tmp_path / "a.md", text))

    assert note.content == text
    assert "front_matter" not in note.metadata


@each_case(
    "value",
    ["Incident: checkout outage", "It's here: Anna's plan", "Shopping:", "a: b: c", 'see http://x.example: "good"'],
)
def test_value_with_a_colon_needs_no_quotation_marks(tmp_path: Path, value: str) -> None:
    text = f"---\ntitle: {value}\ncreated: 2026-08-21\ntags: [work, 'x: y']\n---\nbody"

    note = read_draft(IMPORTER, write(tmp_path / "a.md", text))

    assert (note.title, note.tags, note.content) == (value, ("work", "x: y"), "body")
    assert note.created_at is not None
    assert note.created_at.startswith("2026-08-21")


def test_vault_yields_notes_by_path_and_reports_other_files(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    for name in ("b.md", "sub/b.md", "sub/a.MD", ".obsidian/app.md", ".trash/gone.md"):
        write(vault / name, f"in {name}")
    write(vault / "pool.png", b"\x89PNG")
    write(vault / "broken.md", b"nul \0 here")
    (vault / "leading-out.md").symlink_to(write(tmp_path / "secret.md", "secret"))

    events = read(IMPORTER, vault)

    notes = [event.draft for event in events if isinstance(event, ImportedNote)]
    assert [note.metadata for note in notes] == [{"path": "b.md"}, {"path": "sub/a.MD"}, {"path": "sub/b.md"}]
    assert len({note.uuid for note in notes}) == 3
    assert [event for event in events if not isinstance(event, ImportedNote)] == [
        FailedItem("broken.md", "expected text, got a NUL character"),
        SkippedItem("file in the vault not containing a note"),
    ]
    assert read(IMPORTER, vault) == events


def test_note_keeps_its_id_in_a_moved_vault_and_when_read_alone(tmp_path: Path) -> None:
    write(tmp_path / "old" / "a.md", "text")
    (tmp_path / "old" / ".obsidian").mkdir()
    before = read_draft(IMPORTER, tmp_path / "old")

    (tmp_path / "elsewhere").mkdir()
    vault = (tmp_path / "old").rename(tmp_path / "elsewhere" / "old")

    assert read_draft(IMPORTER, vault) == before
    assert read_draft(IMPORTER, vault / "a.md") == before


def test_files_with_the_same_name_outside_a_vault_are_different_notes(tmp_path: Path) -> None:
    first, second = (write(tmp_path / folder / "readme.md", "text") for folder in ("a", "b"))

    assert read_draft(IMPORTER, first).uuid != read_draft(IMPORTER, second).uuid
    assert read_draft(IMPORTER, first).metadata == {"path": "readme.md"}


def test_vaults_and_markdown_files_are_recognized(tmp_path: Path) -> None:
    (tmp_path / "vault" / ".obsidian").mkdir(parents=True)
    plain = write(tmp_path / "plain" / "a.md", "# Text")

    assert importer_for(tmp_path / "vault") == importer_for(plain) == "markdown"
    assert importer_for(plain.parent) is None
    assert IMPORTER.recognizes(probe_file(write(tmp_path / "b.md", b"\0\1"), LIMITS)) == 0


@each_case(
    ("data", "error"),
    [
        (b"a\0b", InvalidParams),
        (b"x" * 5_000, TooLarge),
    ],
)
def test_binary_and_oversized_files_are_rejected(tmp_path: Path, data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        read(IMPORTER, write(tmp_path / "a.md", data), item_max_chars=1_000)


@each_case(
    "text",
    [
        "`" + "a``" * 300_000,
        "\n".join("`" * (count % 1_000 + 1) + " x" for count in range(2_000)),
        "[[" * 500_000,
        "#1" * 500_000,
        "# " + " " * 1_000_000 + "x",
        "---\n" * 250_000,
        "```\n" * 250_000,
        "---\na: " + "[" * 60_000 + "\n---\n",
    ],
)
def test_repeated_markup_is_read_quickly(tmp_path: Path, text: str) -> None:
    note = read_draft(IMPORTER, write(tmp_path / "a.md", text))

    assert len(note.content) >= len(text.strip("\n")) - len("---\n---\n")


def test_note_that_is_too_large_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match=r"a\.md is larger than 400 bytes \(4 for each of item_max_chars\)"):
        read(IMPORTER, write(tmp_path / "a.md", "x" * 401), item_max_chars=100)


@given(damaged_files({"a.md": NOTE.encode()}))
def test_damaged_note_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    read_or_reject(IMPORTER, *sample)


@given(st.binary(max_size=500))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    read_or_reject(IMPORTER, "a.md", data)


# -- a vault in a zip --------------------------------------------------------------------------------------------------


def vault_files(folder: Path) -> dict[str, bytes]:
    files = {"Tea.md": b"# Tea", "sea/tide.md": NOTE.encode(), "sea/pool.png": b"\0", ".trash/old.md": b"gone"}
    for name, content in (files | {".obsidian/app.json": b"{}"}).items():
        write(folder / name, content)
    return files | {".obsidian/app.json": b"{}"}


@each_case("prefix", ["", "vault/", "my stuff/vault/"])
@each_case("has_stable_path", [True, False])
def test_zipped_vault_equals_its_folder(tmp_path: Path, prefix: str, has_stable_path: bool) -> None:
    files = vault_files(tmp_path / "vault")
    path = zip_file(
        tmp_path / ("sent.zip" if prefix else "vault.zip"), {prefix + name: content for name, content in files.items()}
    )

    from_folder, from_zip = read(IMPORTER, tmp_path / "vault"), read(IMPORTER, path, has_stable_path=has_stable_path)

    assert notes_without_times(from_zip) == notes_without_times(from_folder)
    assert len(notes_without_times(from_zip)) == 2
    skipped = [event for event in from_zip if isinstance(event, SkippedItem)]
    assert skipped == [SkippedItem("file in the vault not containing a note")]
    assert importer_for(path) == "markdown"


@each_case("name", ["Index.md", "daily/2026-11-16.md"])
def test_notes_with_the_same_path_in_two_vaults_are_different(tmp_path: Path, name: str) -> None:
    for vault in ("work", "home"):
        write(tmp_path / vault / ".obsidian/app.json", "{}")
        write(tmp_path / vault / name, f"# Notes of {vault}")
    zips = [zip_file(tmp_path / f"{stem}.zip", {".obsidian/app.json": b"{}", name: b"# Zip"}) for stem in ("a", "b")]
    archives = [
        zip_file(tmp_path / f"{vault}.zip", {f"{vault}/.obsidian/app.json": b"{}", f"{vault}/{name}": b"#"})
        for vault in ("work", "home")
    ]

    folders = [read_draft(IMPORTER, tmp_path / vault).uuid for vault in ("work", "home")]

    assert folders[0] != folders[1]
    assert [read_draft(IMPORTER, tmp_path / vault / name).uuid for vault in ("work", "home")] == folders
    assert [read_draft(IMPORTER, path).uuid for path in archives] == folders
    assert len({read_draft(IMPORTER, path).uuid for path in zips}) == 2


def notes_without_times(events: list[ImportEvent]) -> dict[str, object]:
    """Leaves out creation times, which have no time zone in a zip."""
    drafts = [event.draft for event in events if isinstance(event, ImportedNote)]
    return {str(draft.uuid): (draft.title, draft.content, draft.tags, draft.metadata) for draft in drafts}


def test_notes_with_the_same_name_in_two_zips_are_different(tmp_path: Path) -> None:
    one = zip_file(tmp_path / "one.zip", {"a/README.md": b"# One"})
    two = zip_file(tmp_path / "two.zip", {"a/README.md": b"# Two"})
    for has_stable_path in (True, False):
        first, second = (
            read_draft(IMPORTER, one, has_stable_path=has_stable_path),
            read_draft(IMPORTER, two, has_stable_path=has_stable_path),
        )
        assert (first.title, second.title) == ("One", "Two")
        assert first.uuid != second.uuid
        assert read_draft(IMPORTER, one, has_stable_path=has_stable_path) == first
    alone = write(tmp_path / "README.md", "# One")
    assert (
        read_draft(IMPORTER, one, has_stable_path=False).uuid == read_draft(IMPORTER, alone, has_stable_path=False).uuid
    )


def test_note_in_a_zip_has_its_entry_time_and_decoded_name(tmp_path: Path) -> None:
    path = tmp_path / "mac.zip"
    with zipfile.ZipFile(path, "w") as archive:
        # macOS writes UTF-8 without the flag that says so.
        archive.writestr(zipfile.ZipInfo("日本語.md".encode().decode("cp437"), (2024, 5, 1, 10, 30, 0)), "text")
        archive.writestr("__MACOSX/._日本語.md", b"\0")
    note = read_draft(IMPORTER, path)
    assert (note.title, note.created_at) == ("日本語", "2024-05-01T10:30:00.000Z")


def test_failed_note_in_a_zip_is_reported_and_the_others_are_imported(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.zip", {"a.md": b"\0", "b.md": b"# B", "c.md": b"x" * 500})
    events = read(IMPORTER, path, item_max_chars=100)
    assert [event.draft.title for event in events if isinstance(event, ImportedNote)] == ["B"]
    assert [event.location for event in events if isinstance(event, FailedItem)] == ["a.md", "c.md"]


@each_case("name", ["../out.md", "/etc/out.md", "a/../../out.md"])
def test_zip_with_path_traversal_is_rejected(tmp_path: Path, name: str) -> None:
    path = zip_file(tmp_path / "a.zip", {"a.md": b"# A", name: b"# Out"})
    with pytest.raises(InvalidParams, match="points outside the archive"):
        read(IMPORTER, path)
    assert importer_for(path) is None


def test_source_archive_with_a_readme_is_not_recognized(tmp_path: Path) -> None:
    program = zip_file(tmp_path / "a.zip", {"a/README.md": b"# A", "a/main.py": b"x", "a/setup.py": b"x"})
    notes = zip_file(tmp_path / "b.zip", {"b/One.md": b"# A", "b/Two.md": b"# B", "b/": b"", "b/picture.png": b"x"})
    assert importer_for(program) is None
    assert importer_for(notes) == "markdown"


def test_zip_with_a_symbolic_link_is_rejected(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link.md")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidParams, match="is a symbolic link"):
        read(IMPORTER, tmp_path / "a.zip")
