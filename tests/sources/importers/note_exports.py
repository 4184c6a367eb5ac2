"""Small exports of note programs, with invented content."""

import io
import json
import sqlite3
import tarfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

from tests.sources.importers.office_files import packed

TEA_ID, ROW_ID = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
KETTLE_ID = "00112233445566778899aabbccddeeff"
NOTION_PAGES: dict[str, str | bytes] = {
    f"Tea {TEA_ID}.md": f"# Tea\n\nSteep for three minutes. #green\n\n[Shops](Shops%20{ROW_ID}.csv)\n",
    f"Tea/Shops {ROW_ID}.csv": 'Name,Tags\nHarbour,"city, quay"\n',
    f"Tea/Shops {ROW_ID}_all.csv": 'Name,Tags\nHarbour,"city, quay"\n',
    f"Tea/Shops/Harbour {ROW_ID}.md": (
        "# Harbour\n\nTags: city, quay side\nCreated: January 5, 2024 3:04 PM\nRating: 5\n\nOpen on Sundays.\n"
    ),
    "Tea/leaf.png": b"\x89PNG\r\n\x1a\n",
}
NOTION_PAGE = f"""<html><head><title>Kettle</title></head><body><article id="{KETTLE_ID}" class="page sans">
<h1 class="page-title">Kettle</h1><p>Boils at <b>100</b> degrees.</p></article></body></html>"""

ENEX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE en-export SYSTEM "http://xml.evernote.com/pub/evernote-export3.dtd">
<en-export export-date="20240601T080000Z" application="Evernote" version="10">
<note><title>Low tide</title><created>20240105T103000Z</created><updated>20240106T103000Z</updated>
<tag>sea</tag><tag>rock pools</tag><note-attributes><author>Mara Field</author>
<source-url>https://example.org/tide</source-url></note-attributes>
<content><![CDATA[<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE en-note SYSTEM
"http://xml.evernote.com/pub/enml2.dtd"><en-note><div>Pools <b>show</b> at noon.</div><div><br/></div>
<div><en-todo checked="true"/>bucket</div><div><en-todo/>net &amp; line</div><ul><li>crab</li></ul>
<en-crypt hint="x">c2VjcmV0</en-crypt><en-media type="image/png" hash="00"/></en-note>]]></content>
<resource><data encoding="base64">iVBORw0KGgo=</data><mime>image/png</mime>
<resource-attributes><file-name>pool.png</file-name></resource-attributes></resource></note>
<note><title>High tide</title><content><![CDATA[<en-note>Only sea.</en-note>]]></content>
<created>20240107T000000Z</created></note></en-export>"""

KEEP = {
    "color": "DEFAULT",
    "isTrashed": False,
    "isPinned": True,
    "isArchived": False,
    "title": "Shopping",
    "listContent": [{"text": "tea", "isChecked": True}, {"text": "jam", "isChecked": False}],
    "labels": [{"name": "home"}],
    "annotations": [{"source": "WEBLINK", "title": "Jam", "url": "https://example.org/jam"}],
    "attachments": [{"filePath": "a.jpg", "mimetype": "image/jpeg"}],
    "userEditedTimestampUsec": 1704537000000000,
    "createdTimestampUsec": 1704450600000000,
}
KEEP_TEXT = {**KEEP, "title": "", "listContent": None, "textContent": "Bring\nthe bucket.", "annotations": []}
KEEP_TEXT["createdTimestampUsec"] = 1704450600000001

NOTE_ID, BOOK_ID, SHELF_ID, TAG_ID = (digit * 32 for digit in "abcd")
JOPLIN = {
    f"{NOTE_ID}.md": (
        "Rock pools\n\nCrabs hide.\n\nkey: value in the text\n\n"
        f"id: {NOTE_ID}\nparent_id: {BOOK_ID}\ncreated_time: 2024-01-05T10:30:00.000Z\n"
        "updated_time: 2024-01-06T10:30:00.000Z\nis_todo: 1\ntodo_completed: 0\nsource_url: https://example.org/p\n"
        "markup_language: 1\nencryption_applied: 0\ntype_: 1"
    ),
    f"{'1' * 32}.md": f"Page\n\n<p>Some <b>bold</b></p>\n\nid: {'1' * 32}\nmarkup_language: 2\ntype_: 1",
    f"{'2' * 32}.md": f"id: {'2' * 32}\nencryption_applied: 1\ntype_: 1",
    f"{'3' * 32}.md": f"pool.png\n\nid: {'3' * 32}\nmime: image/png\ntype_: 4",
    f"{BOOK_ID}.md": f"Tides\n\nid: {BOOK_ID}\nparent_id: {SHELF_ID}\ntype_: 2",
    f"{SHELF_ID}.md": f"Sea\n\nid: {SHELF_ID}\nparent_id: {BOOK_ID}\ntype_: 2",
    f"{TAG_ID}.md": f"crab\n\nid: {TAG_ID}\ntype_: 5",
    f"{'e' * 32}.md": f"id: {'e' * 32}\nnote_id: {NOTE_ID}\ntag_id: {TAG_ID}\ntype_: 6",
    f"resources/{'3' * 32}.png": "not read",
}

LOGSEQ: dict[str, str | bytes] = {
    "logseq/config.edn": "{}",
    "pages/sea___tide%3F.md": (
        "tags:: water, [[rock pools]]\nalias:: ebb\n\n- Low water #calm #[[slow sea]]\n\t- see [[Moon]]\n"
    ),
    "pages/plan.org": "#+TITLE: The plan\n#+FILETAGS: :sail:\n* Start :dawn:\n",
    "journals/2024_01_05.md": "- Walked to the quay.\n",
    "journals/2024_01_06.md": "",
    "assets/pool.png": b"\x89PNG",
    "logseq/bak/pages/old.md": "- old\n",
}

ROAM = [
    {
        "title": "Tides",
        "uid": "aaaaaaaaa",
        "create-time": 1704450600000,
        "edit-time": 1704537000000,
        "children": [
            {"string": "Low water", "uid": "b", "heading": 2, "children": [{"string": "#crab in [[Pools]]\nmore"}]},
            {"string": "#[[slow sea]]", "uid": "c"},
        ],
    },
    {"title": "Empty", "uid": "d", "create-time": 1704450600000},
]

BEAR_ID = "0F2C1E52-93B4-4F6A-8C1D-2B3A4D5E6F70"
BEAR_INFO = {
    "net.shinyfrog.bear": {
        "creationDate": "2024-01-05T10:30:00Z",
        "modificationDate": "2024-01-06T10:30:00Z",
        "uniqueIdentifier": f"{BEAR_ID}-123-0000",
        "trashed": 0,
        "pinned": 1,
    },
    "type": "net.daringfireball.markdown",
    "version": 2,
}
BEAR: dict[str, str | bytes] = {
    "Notes.bearbk/Low tide.textbundle/text.markdown": "# Low tide\n#sea/shore #rock pools# here\n",
    "Notes.bearbk/Low tide.textbundle/info.json": json.dumps(BEAR_INFO),
    "Notes.bearbk/Low tide.textbundle/assets/pool.png": b"\x89PNG",
    "Notes.bearbk/Gone.textbundle/text.markdown": "# Gone\n",
    "Notes.bearbk/Gone.textbundle/info.json": json.dumps({"net.shinyfrog.bear": {"trashed": 1}}),
}
# Bear 2 puts the bundles at the top.
BEAR_2 = {name.removeprefix("Notes.bearbk/"): data for name, data in BEAR.items()}
TEXTPACK = {"text.md": "Only a line.\n", "info.json": '{"version": 2}'}

ORG_ID = "5b0c9a52-1111-4222-8333-444455556666"
ORG = f""":PROPERTIES:
:ID:       {ORG_ID}
:END:
#+title: Tide tables
#+filetags: :sea:moon:
#+date: [2024-01-05 Fri 10:30]
#+author: Mara Field
* Low water :calm:
Some text.
"""
RST = """==========
Tide table
==========

:Author: Mara Field
:Date: 2024-01-05
:Tags: sea, rock pools

Text with ``code``.

Second
------
"""
IPYNB = {
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Tide model\n", "It moves."]},
        {
            "cell_type": "code",
            "execution_count": 1,
            "metadata": {},
            "source": "print('low')",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["low\n"]},
                {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": ["<Figure>"]}},
                {"output_type": "error", "ename": "ValueError", "evalue": "dry", "traceback": []},
            ],
        },
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}

APPLE_JSON = {
    "version": "17",
    "file_path": "NoteStore.sqlite",
    "backup_type": "iTunes",
    "cloudkit_participants": {},
    "notes": {
        "7": {
            "account": "iCloud",
            "folder": "Sea",
            "note_id": 7,
            "uuid": "7F2C1E52-93B4-4F6A-8C1D-2B3A4D5E6F70",
            "title": "Low tide",
            "plaintext": "Low tide\nPools show. #crab",
            "creation_time": "2024-01-05 10:30:00 +0100",
            "modify_time": "2024-01-06 10:30:00 +0100",
            "is_pinned": True,
        },
        "8": {"note_id": 8, "title": "Secret", "plaintext": None, "is_password_protected": True},
    },
}
APPLE_ZIP: dict[str, str | bytes] = {
    "iCloud Notes/Notes/Low tide-2024-01-05T10_30_00Z/Low tide-2024-01-05T10_30_00Z.txt": "Low tide\nPools show.",
    "iCloud Notes/Notes/Low tide-2024-01-05T10_30_00Z/pool.jpg": b"\xff\xd8",
}


def notion_zip(parts: int = 1) -> bytes:
    """Returns the zip that Notion offers, which contains zips."""
    block = "ExportBlock-00000000-0000-4000-8000-000000000000"
    pages = list(NOTION_PAGES.items())
    shares: list[dict[str, str | bytes]] = [dict(pages[number::parts]) for number in range(parts)]
    return packed({f"{block}-Part-{number}.zip": packed(share) for number, share in enumerate(shares, 1)})


def jex(files: Mapping[str, str] = JOPLIN) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, text in files.items():
            data = text.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def apple_database(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE folders (id INTEGER PRIMARY KEY, long_id TEXT, name TEXT, parent INTEGER)")
    connection.execute(
        "CREATE TABLE notes (id TEXT PRIMARY KEY, created TEXT, updated TEXT, folder INTEGER, title TEXT, body TEXT)"
    )
    connection.execute("INSERT INTO folders VALUES (1, 'x', 'Sea', NULL)")
    row = ("x-coredata://A/ICNote/p1", "2024-01-05T10:30:00", "2024-01-06T10:30:00", 1, "Low tide")
    connection.execute("INSERT INTO notes VALUES (?, ?, ?, ?, ?, ?)", (*row, "<div>Low tide</div><div>Pools.</div>"))
    connection.commit()
    connection.close()
    return path


def unpacked(archive: bytes, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(io.BytesIO(archive)) as opened:
        opened.extractall(folder)
    return folder


# Every file name has the format that must read it.
NOTE_SAMPLES: dict[str, tuple[str, bytes]] = {
    "notion.zip": ("notion", notion_zip()),
    "part.zip": ("notion", packed(NOTION_PAGES)),
    "pages.zip": ("notion", packed({f"Kettle {KETTLE_ID}.html": NOTION_PAGE})),
    "notes.enex": ("evernote", ENEX.encode()),
    "Shopping.json": ("google_keep", json.dumps(KEEP).encode()),
    "takeout.zip": ("google_keep", packed({"Takeout/Keep/Shopping.json": json.dumps(KEEP), "Takeout/a.html": "x"})),
    "notes.jex": ("joplin", jex()),
    "graph.zip": ("logseq", packed({f"mine/{name}": data for name, data in LOGSEQ.items()})),
    "roam.json": ("roam", json.dumps(ROAM).encode()),
    "roam.zip": ("roam", packed({"mine.json": json.dumps(ROAM)})),
    "notes.bearbk": ("bear", packed(BEAR)),
    # Another note, because all samples are imported into one library.
    "notes.bear2bk": (
        "bear",
        packed({**BEAR_2, "Low tide.textbundle/info.json": json.dumps(BEAR_INFO).replace("0F2C", "1F2C")}),
    ),
    "note.textpack": ("bear", packed(TEXTPACK)),
    "tide.org": ("org", ORG.encode()),
    "tide.rst": ("rst", RST.encode()),
    "tide.ipynb": ("jupyter", json.dumps(IPYNB).encode()),
    "all_notes_1.json": ("apple_notes", json.dumps(APPLE_JSON).encode()),
    "iCloud Notes.zip": ("apple_notes", packed(APPLE_ZIP)),
}
