"""Markdown files and vaults: what a note says of itself, its tags and links, and what is left out."""

import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.imported_items import FailedItem, ImportedNote, ImportEvent, SkippedItem
from sources.importers.formats.markdown import IMPORTER
from tests.sources.importers.chat_reading import zip_file
from tests.sources.importers.single_files import LIMITS, damaged, draft, read, reader_of, survive, write

NOTE = """---
title: Tide pools
tags: [sea, "#shore/rock"]
aliases: [Rock pools, Pools]
created: 2024-05-01 10:30
rating: 1.10
---

# Another heading

At low water see [[Crabs|the crabs]], [[Sea stars#Arms]] and ![[pool.png]]. #low-water #2024

```python
x = "[[not a link]]" #notatag
```
Inline `#neither` code, C# and a#b. %%a comment%%
"""


def test_a_note_keeps_its_text_and_what_it_says_of_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "vault" / "sea" / "tide.md", NOTE)
    (tmp_path / "vault" / ".obsidian").mkdir()

    note = draft(IMPORTER, path)

    assert note.title == "Tide pools"
    assert note.content == NOTE.partition("---\n\n")[2].strip("\n")
    assert note.tags == ("sea", "shore/rock", "low-water")
    assert note.created_at == "2024-05-01T10:30:00.000Z"
    assert note.metadata == {
        "path": "sea/tide.md",
        "links": ["Crabs", "Sea stars#Arms", "pool.png"],
        "aliases": ["Rock pools", "Pools"],
        "front_matter": {
            "title": "Tide pools",
            "tags": ["sea", "#shore/rock"],
            "aliases": ["Rock pools", "Pools"],
            "created": "2024-05-01 10:30",
            "rating": "1.10",
        },
    }


@pytest.mark.parametrize(
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
def test_a_note_is_called_by_its_first_heading_or_its_file(tmp_path: Path, text: str, title: str) -> None:
    assert draft(IMPORTER, write(tmp_path / "file.md", text)).title == title


@pytest.mark.parametrize(
    ("front", "tags"),
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
def test_tags_come_in_many_forms(tmp_path: Path, front: str, tags: tuple[str, ...]) -> None:
    assert draft(IMPORTER, write(tmp_path / "a.md", f"---\n{front}\n---\ntext")).tags == tags


@pytest.mark.parametrize(
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
def test_front_matter_that_is_none_stays_in_the_text(tmp_path: Path, block: str) -> None:
    text = f"---\n{block}\n---\nbody"

    note = draft(IMPORTER, write(tmp_path / "a.md", text))

    assert note.content == text
    assert "front_matter" not in note.metadata


def test_a_vault_gives_its_notes_by_their_places_and_nothing_else(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    for name in ("b.md", "sub/b.md", "sub/a.MD", ".obsidian/app.md", ".trash/gone.md"):
        write(vault / name, f"in {name}")
    write(vault / "pool.png", b"\x89PNG")
    write(vault / "broken.md", b"nul \0 here")
    (vault / "leading-out.md").symlink_to(write(tmp_path / "secret.md", "secret"))

    found = read(IMPORTER, vault)

    notes = [one.draft for one in found if isinstance(one, ImportedNote)]
    assert [note.metadata for note in notes] == [{"path": "b.md"}, {"path": "sub/a.MD"}, {"path": "sub/b.md"}]
    assert len({note.uuid for note in notes}) == 3
    assert [one for one in found if not isinstance(one, ImportedNote)] == [
        FailedItem("broken.md", "the file: got a NUL character, expected text"),
        SkippedItem("a file of the vault that is no note"),
    ]
    assert read(IMPORTER, vault) == found


def test_a_note_is_the_same_alone_in_a_moved_vault_and_with_the_others(tmp_path: Path) -> None:
    write(tmp_path / "old" / "a.md", "text")
    (tmp_path / "old" / ".obsidian").mkdir()
    before = draft(IMPORTER, tmp_path / "old")

    vault = (tmp_path / "old").rename(tmp_path / "new")

    assert draft(IMPORTER, vault) == before
    assert draft(IMPORTER, vault / "a.md") == before


def test_files_with_the_same_name_outside_of_a_vault_are_different_notes(tmp_path: Path) -> None:
    first, second = (write(tmp_path / place / "readme.md", "text") for place in ("a", "b"))

    assert draft(IMPORTER, first).uuid != draft(IMPORTER, second).uuid
    assert draft(IMPORTER, first).metadata == {"path": "readme.md"}


def test_vaults_and_markdown_files_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "vault" / ".obsidian").mkdir(parents=True)
    plain = write(tmp_path / "plain" / "a.md", "# Text")

    assert reader_of(tmp_path / "vault") == reader_of(plain) == "markdown"
    assert reader_of(plain.parent) is None
    assert IMPORTER.recognizes(probe_file(write(tmp_path / "b.md", b"\0\1"), LIMITS)) == 0


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"a\0b", InvalidParams),
        (b"x" * 5_000, TooLarge),
    ],
)
def test_what_is_no_note_is_refused(tmp_path: Path, data: bytes, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        read(IMPORTER, write(tmp_path / "a.md", data), item_max_chars=1_000)


@pytest.mark.parametrize(
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
    ids=range(8),
)
def test_a_megabyte_of_marks_is_read_like_any_other(tmp_path: Path, text: str) -> None:
    note = draft(IMPORTER, write(tmp_path / "a.md", text))

    assert len(note.content) >= len(text.strip("\n")) - len("---\n---\n")


@given(damaged({"a.md": NOTE.encode()}))
def test_a_damaged_note_is_read_or_refused(sample: tuple[str, bytes]) -> None:
    survive(IMPORTER, *sample)


@given(st.binary(max_size=500))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    survive(IMPORTER, "a.md", data)


# -- a vault in a zip --------------------------------------------------------------------------------------------------


def vault_files(folder: Path) -> dict[str, bytes]:
    files = {"Tea.md": b"# Tea", "sea/tide.md": NOTE.encode(), "sea/pool.png": b"\0", ".trash/old.md": b"gone"}
    for name, content in (files | {".obsidian/app.json": b"{}"}).items():
        write(folder / name, content)
    return files | {".obsidian/app.json": b"{}"}


@pytest.mark.parametrize("prefix", ["", "vault/", "my stuff/vault/"])
@pytest.mark.parametrize("has_place", [True, False])
def test_a_zipped_vault_gives_the_notes_that_its_folder_gives(tmp_path: Path, prefix: str, has_place: bool) -> None:
    files = vault_files(tmp_path / "vault")
    path = zip_file(tmp_path / "sent.zip", {prefix + name: content for name, content in files.items()})

    from_folder, from_zip = read(IMPORTER, tmp_path / "vault"), read(IMPORTER, path, has_place=has_place)

    assert known(from_zip) == known(from_folder)
    assert len(known(from_zip)) == 2
    assert [one for one in from_zip if isinstance(one, SkippedItem)] == [
        SkippedItem("a file of the vault that is no note")
    ]
    assert reader_of(path) == "markdown"


def known(arrivals: list[ImportEvent]) -> dict[str, object]:
    """All but when a note was made: a zip names no zone."""
    drafts = [one.draft for one in arrivals if isinstance(one, ImportedNote)]
    return {str(draft.uuid): (draft.title, draft.content, draft.tags, draft.metadata) for draft in drafts}


def test_notes_of_a_zip_that_is_no_vault_take_nobodys_place(tmp_path: Path) -> None:
    one = zip_file(tmp_path / "one.zip", {"a/README.md": b"# One"})
    two = zip_file(tmp_path / "two.zip", {"a/README.md": b"# Two"})
    for has_place in (True, False):
        first, second = draft(IMPORTER, one, has_place=has_place), draft(IMPORTER, two, has_place=has_place)
        assert (first.title, second.title) == ("One", "Two")
        assert first.uuid != second.uuid
        assert draft(IMPORTER, one, has_place=has_place) == first
    alone = write(tmp_path / "README.md", "# One")
    assert draft(IMPORTER, one, has_place=False).uuid == draft(IMPORTER, alone, has_place=False).uuid


def test_a_note_in_a_zip_is_as_old_as_the_zip_says_and_called_as_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mac.zip"
    with zipfile.ZipFile(path, "w") as archive:
        # A Mac writes UTF-8 and does not say so.
        archive.writestr(zipfile.ZipInfo("日本語.md".encode().decode("cp437"), (2024, 5, 1, 10, 30, 0)), "text")
        archive.writestr("__MACOSX/._日本語.md", b"\0")
    note = draft(IMPORTER, path)
    assert (note.title, note.created_at) == ("日本語", "2024-05-01T10:30:00.000Z")


def test_a_broken_note_of_a_zip_is_told_and_the_others_come(tmp_path: Path) -> None:
    path = zip_file(tmp_path / "a.zip", {"a.md": b"\0", "b.md": b"# B", "c.md": b"x" * 500})
    found = read(IMPORTER, path, item_max_chars=100)
    assert [one.draft.title for one in found if isinstance(one, ImportedNote)] == ["B"]
    assert [one.place for one in found if isinstance(one, FailedItem)] == ["a.md", "c.md"]


@pytest.mark.parametrize("name", ["../out.md", "/etc/out.md", "a/../../out.md"])
def test_a_zip_of_notes_that_leads_out_of_itself_is_refused(tmp_path: Path, name: str) -> None:
    path = zip_file(tmp_path / "a.zip", {"a.md": b"# A", name: b"# Out"})
    with pytest.raises(InvalidParams, match="expected names inside of it"):
        read(IMPORTER, path)
    assert reader_of(path) is None


def test_a_zip_of_a_program_with_a_page_to_read_is_no_vault(tmp_path: Path) -> None:
    program = zip_file(tmp_path / "a.zip", {"a/README.md": b"# A", "a/main.py": b"x", "a/setup.py": b"x"})
    notes = zip_file(tmp_path / "b.zip", {"b/One.md": b"# A", "b/Two.md": b"# B", "b/": b"", "b/picture.png": b"x"})
    assert reader_of(program) is None
    assert reader_of(notes) == "markdown"


def test_a_zip_of_notes_with_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link.md")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidParams, match="a symbolic link"):
        read(IMPORTER, tmp_path / "a.zip")
