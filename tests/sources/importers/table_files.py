"""Spreadsheets, OpenDocument and RTF texts, tables, transcripts, cards and patterns, with invented content."""

import io
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zipfile import ZipFile

import openpyxl  # type: ignore[import-untyped]

from tests.sources.importers.office_files import packed, word

_SHEET = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">%s</worksheet>'


def workbook() -> bytes:
    book = openpyxl.Workbook()
    tides = book.active
    assert tides is not None
    tides.title = "Tides"
    tides.append(["Place", "Height", "Day"])
    tides.append(["Harbour\nquay", 2.0, datetime(2024, 1, 5)])  # noqa: DTZ001 - cells have no time zone
    tides.append([])
    tides.append([None, 2.5, True])
    book.create_sheet("Empty")
    book.properties.title, book.properties.creator, book.properties.keywords = "Tide table", "Mara Field", "sea, tide"
    book.properties.created = datetime(2024, 1, 5, 10, 30)  # noqa: DTZ001
    buffer = io.BytesIO()
    book.save(buffer)
    with ZipFile(buffer) as archive:
        return packed({name: _without_time(archive.read(name)) for name in archive.namelist()})


def _without_time(part: bytes) -> bytes:
    """The library writes the time of saving."""
    return re.sub(rb"(<dcterms:modified[^>]*>)[^<]*", rb"\g<1>2024-01-05T10:30:00Z", part)


def workbook_with(sheet: str, **others: str | bytes) -> bytes:
    """Replaces the first sheet of a workbook."""
    with ZipFile(io.BytesIO(workbook())) as archive:
        parts: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    return packed({**parts, "xl/worksheets/sheet1.xml": _SHEET % sheet, **others})


ODT_CONTENT = """<?xml version="1.0"?><office:document-content
 xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"><office:automatic-styles>no</office:automatic-styles>
<office:body><office:text><text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>
<text:h text:outline-level="2">Low water</text:h><text:p>The <text:span>rocks</text:span><text:s
 text:c="3"/>show.<text:note>
<text:note-citation>1</text:note-citation><text:note-body><text:p>A footnote.</text:p></text:note-body></text:note>
</text:p><text:list><text:list-item><text:p>crab</text:p></text:list-item>
<text:list-item><text:p>star</text:p></text:list-item></text:list><table:table><table:table-row>
<table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell><text:p>b</text:p></table:table-cell>
</table:table-row></table:table><text:p>End.</text:p></office:text></office:body></office:document-content>"""
_ODT_META = """<office:document-meta xmlns:office="o" xmlns:dc="d" xmlns:meta="m"><office:meta>
<dc:title>The shore</dc:title><meta:initial-creator>Mara Field</meta:initial-creator>
<meta:creation-date>2024-01-05T10:30:00</meta:creation-date><meta:keyword>sea</meta:keyword>
</office:meta></office:document-meta>"""


def odt(content: str = ODT_CONTENT, **others: str) -> bytes:
    mimetype = "application/vnd.oasis.opendocument.text"
    return packed({"mimetype": mimetype, "content.xml": content, "meta.xml": _ODT_META, **others}, stored="mimetype")


RTF = (
    r"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Times;}}{\info{\title The shore}{\author Mara Field}}"
    r"{\*\generator x}\f0 Low \b water\b0 .\par {\pict\pngblip " + "89504e47" * 200 + r"}\'e9t\'e9 \u28526?\par}"
)
CSV = 'Place;Note\nHarbour;"two\nlines"\nQuay;calm\n'
YOUTUBE = [{"text": "The tide\nis out", "start": 1.0, "duration": 2.5}, {"text": "crabs", "start": 4.0, "duration": 1}]
WHISPER_TSV = "start\tend\ttext\n1000\t3500\tThe tide is out\n4000\t5000\tcrabs\n"
SBV = "0:00:01.000,0:00:03.500\nThe tide\nis out\n\n0:00:04.000,0:00:05.000\ncrabs\n"
CARD = {"name": "Wren", "description": "A bird.", "first_mes": "Hello!", "personality": "", "scenario": ""}


def webp(exif: bytes | None) -> bytes:
    chunks = b"VP8L" + (5).to_bytes(4, "little") + b"image\0"
    if exif is not None:
        chunks += b"EXIF" + len(exif).to_bytes(4, "little") + exif
    return b"RIFF" + (4 + len(chunks)).to_bytes(4, "little") + b"WEBP" + chunks


def webp_card(card: Mapping[str, Any] = CARD) -> bytes:
    return webp(b"II*\0\x08\0\0\0\x86\x92" + b"ASCII\0\0\0" + json.dumps(card).encode() + b"\0")


PATTERN = "# IDENTITY and PURPOSE\n\nYou sum up texts.\n\n# INPUT:\n\nINPUT:\n"
FABRIC = {
    "fabric/patterns/sum_up/system.md": PATTERN,
    "fabric/patterns/sum_up/user.md": "CONTENT:\n",
    "fabric/patterns/ask/system.md": "# STEPS\n\nAsk.\n",
    "fabric/main.go": "package main",
}
DOCUMENTS: dict[str, str | bytes] = {
    "papers/shore.docx": word(),
    "papers/a.txt": "Low water.",
    "papers/table.csv": CSV,
    "papers/b.jpg": b"\xff\xd8",
}

TABLE_SAMPLES: dict[str, tuple[str, bytes]] = {
    "tides.xlsx": ("documents", workbook()),
    "shore.odt": ("documents", odt()),
    "shore.rtf": ("documents", RTF.encode()),
    "places.csv": ("documents", CSV.encode()),
    "places.tsv": ("documents", CSV.replace(";", "\t").encode()),
    "video.json": ("subtitles", json.dumps([YOUTUBE]).encode()),
    "whisper.tsv": ("subtitles", WHISPER_TSV.encode()),
    "talk.sbv": ("subtitles", SBV.encode()),
    "wren.webp": ("character_cards", webp_card()),
    "patterns.zip": ("fabric", packed(FABRIC)),
    "system.md": ("fabric", PATTERN.encode()),
    "papers.zip": ("document_zip", packed(DOCUMENTS)),
}
