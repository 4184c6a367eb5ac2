"""Documents of every kind: their text in reading order, what they say of themselves, and those made to harm."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import InvalidParams, TooLarge
from sources.importers.arrivals import Skipped
from sources.importers.documents import IMPORTER
from sources.importers.importer import Limits
from sources.importers.parsers.book import parse_book
from sources.importers.parsers.confined import Kind, parse_confined
from sources.importers.parsers.office import parse_slides, parse_word
from sources.importers.parsers.prose import Parsed
from sources.importers.parsers.web_page import parse_page
from tests.sources.importers.office_files import (
    ENCRYPTION,
    FOOTNOTES,
    OPF,
    PAGE,
    WORD,
    book,
    packed,
    pdf,
    slides,
    word,
)
from tests.sources.importers.single_files import LIMITS, damaged, draft, read, reader_of, short_id, survive, write

SAMPLES = {
    "a.txt": b"A plain text.\r\n",
    "a.html": PAGE.encode(),
    "a.docx": word(),
    "a.pptx": slides(),
    "a.epub": book(),
    "a.pdf": pdf("Low water.", "High water."),
}
PARSERS: dict[str, Callable[[Path, Limits], Parsed]] = {
    "a.html": parse_page,
    "a.docx": parse_word,
    "a.pptx": parse_slides,
    "a.epub": parse_book,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_documents_are_recognised_by_their_content(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, SAMPLES[name])

    assert reader_of(path) == "documents"
    if name != "a.txt":
        assert reader_of(path.rename(tmp_path / "without a suffix")) == "documents"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "A plain text."),
        (
            "a.html",
            "# Tide pools\n\nAt low water the rocks show.\n\n- crab\n- star\nfish\n\na  b\n  c\n\n1\t2",
        ),
        (
            "a.docx",
            "## Low water\n\nThe rocks show.\nSecond line.\n\n- crab\n\na\tb\nc\n\nbox\n\nA footnote.",
        ),
        ("a.pptx", "# Slide 1\n\nfirst\n\nmore\n\n# Slide 2\n\nlast\n\nmore\n\nNotes:\n\nsay this\n\nmore"),
        ("a.epub", "# One\n\nLow.\n\n# Two\n\nHigh water."),
        ("a.pdf", "Low water.\n\nHigh water."),
    ],
)
def test_the_text_stands_in_reading_order(tmp_path: Path, name: str, text: str) -> None:
    media = draft(IMPORTER, write(tmp_path / name, SAMPLES[name]))

    assert media.content == text
    assert media.media_type == {"txt": "text"}.get(name[2:], name[2:])
    assert draft(IMPORTER, tmp_path / name) == media


@pytest.mark.parametrize(
    ("name", "said", "others"),
    [
        ("a.html", ("Tide & pools", "Mara Field", "2024-05-01T10:30:00.000Z"), {"keywords": "sea, tide"}),
        ("a.docx", ("The shore", "Mara Field", "2024-05-01T10:30:00.000Z"), {"keywords": "sea, tide"}),
        ("a.pptx", ("The shore", "Mara Field", "2024-05-01T10:30:00.000Z"), {"keywords": "sea, tide", "slides": 2}),
        (
            "a.epub",
            ("The Shore", "Mara Field, Ben Ash", "2019-01-01T00:00:00.000Z"),
            {"chapters": 2, "language": "en", "identifier": "urn:isbn:1", "subjects": ["sea"]},
        ),
        ("a.pdf", ("The shore", "Mara Field", "2024-05-01T10:30:00.000Z"), {"pages": 2}),
    ],
)
def test_a_document_is_called_what_it_calls_itself(
    tmp_path: Path, name: str, said: tuple[str, str, str], others: dict[str, Any]
) -> None:
    media = draft(IMPORTER, write(tmp_path / name, SAMPLES[name]))

    assert (media.title, media.author, media.created_at) == said
    assert media.metadata == {"file": name, **others}
    assert media.tags == (("sea", "tide") if "keywords" in others else ())


def test_a_page_has_the_address_it_names(tmp_path: Path) -> None:
    assert draft(IMPORTER, write(tmp_path / "a.html", PAGE)).url == "https://example.org/tide"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("<html><p>été".encode("utf-8-sig"), "été"),
        ("<html><p>été".encode("utf-16"), "été"),
        ("<html><p>été".encode("cp1252"), "été"),
        (b'<html><meta charset="koi8-r"><p>' + "море".encode("koi8-r"), "море"),
        (b'<html><meta charset="nonsense"><p>a', "a"),
        (b"<html><p>a<svg><title>no</title><p>no</svg>b<!-- no -->c</foo>d", "abcd"),
        (b"<html><pre>a\n <b>b</b>\n", "a\n b"),
    ],
)
def test_pages_are_read_as_browsers_read_them(tmp_path: Path, data: bytes, text: str) -> None:
    assert draft(IMPORTER, write(tmp_path / "a.html", data)).content == text


def test_a_document_without_text_is_left_out(tmp_path: Path) -> None:
    assert read(IMPORTER, write(tmp_path / "scan.pdf", pdf(""))) == [Skipped("a document without text")]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("entities.docx", word('<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;&b;">]>' + WORD.partition("?>")[2])),
        ("files.docx", word('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>')),
        ("defaults.docx", word('<!DOCTYPE a [<!ATTLIST a b CDATA "c">]><a/>')),
        ("torn.docx", word(WORD[:-20])),
        ("no.docx", word("not XML")),
        ("half.docx", word()[:-40]),
        ("out.docx", word(**{"../../out": "x"})),
        ("locked.epub", book(**{"META-INF/encryption.xml": ENCRYPTION})),
        ("empty.epub", book(**{"OEBPS/book.opf": OPF.replace("itemref", "other")})),
        ("lost.epub", book(**{"META-INF/container.xml": "<container/>"})),
        ("elsewhere.epub", book(**{"META-INF/container.xml": '<a><rootfile full-path="../../etc/x"/></a>'})),
        ("torn.pdf", b"%PDF-1.7\nnothing"),
        ("other.zip", packed({"a.txt": "x"})),
        ("a.txt", b"a\0b"),
    ],
    ids=short_id,
)
def test_hostile_documents_are_refused_with_a_sentence(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(InvalidParams, match=r"got .+, expected") as refused:
        read(IMPORTER, write(tmp_path / name, data))
    assert "root:" not in refused.value.message


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            "bomb.docx",
            word(f"{WORD.partition('<w:body>')[0]}<w:body><w:t>{'x' * (20 << 20)}</w:t></w:body></w:document>"),
        ),
        ("bomb.epub", book(**{"OEBPS/text/two.xhtml": "<p>" + "x" * (12 << 20)})),
        ("long.html", b"<html>" + b"x" * (20 << 20)),
    ],
    ids=["docx", "epub", "html"],
)
def test_a_document_that_unpacks_to_more_than_an_item_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(InvalidParams, match="larger than"):
        read(IMPORTER, write(tmp_path / name, data))


def test_a_parser_gets_so_much_memory_and_no_more(tmp_path: Path) -> None:
    path = write(tmp_path / "a.html", b"<html>" + b"x" * (9 << 20))

    assert len(draft(IMPORTER, path).content) == 9 << 20
    with pytest.raises(InvalidParams, match="more than 48 MiB of memory"):
        read(IMPORTER, path, parser_memory_max_bytes=48 << 20)


def test_a_parser_gets_so_much_time_and_no_more(tmp_path: Path) -> None:
    path = write(tmp_path / "a.html", b"<html>" + b"<p>x" * 4_000_000)

    with pytest.raises(InvalidParams, match=r"not read within 0\.2 s"):
        read(IMPORTER, path, parser_deadline_s=0.2)
    with pytest.raises(InvalidParams, match="more than 1 s of processor time"):
        read(IMPORTER, path, parser_cpu_s=1)


def test_a_parser_that_ends_badly_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "a.html", PAGE)

    with pytest.raises(InvalidParams, match=r"got one that is damaged, expected"):
        parse_confined(path, cast("Kind", "of another kind"), LIMITS)


def test_a_file_is_the_same_item_when_its_text_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.docx", word())
    before = draft(IMPORTER, path)

    after = draft(IMPORTER, write(path, word(FOOTNOTES)))

    assert (after.uuid, after.content) == (before.uuid, "A footnote.\n\nA footnote.")


@given(damaged({name: SAMPLES[name] for name in PARSERS}))
def test_a_damaged_document_is_read_or_refused(sample: tuple[str, bytes]) -> None:
    name, data = sample
    with TemporaryDirectory() as folder, suppress(InvalidParams, TooLarge):
        assert isinstance(PARSERS[name](write(Path(folder, name), data), LIMITS), Parsed)


@given(damaged({"word/document.xml": WORD.encode()}))
def test_damaged_markup_is_read_or_refused(sample: tuple[str, bytes]) -> None:
    name, data = sample
    with TemporaryDirectory() as folder, suppress(InvalidParams, TooLarge):
        assert isinstance(parse_word(write(Path(folder, "a.docx"), packed({name: data})), LIMITS), Parsed)


@settings(max_examples=5)
@given(damaged({"a.pdf": SAMPLES["a.pdf"]}))
def test_a_damaged_pdf_is_read_or_refused(sample: tuple[str, bytes]) -> None:
    survive(IMPORTER, *sample)


@given(st.sampled_from(sorted(PARSERS)), st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(name: str, data: bytes) -> None:
    with TemporaryDirectory() as folder, suppress(InvalidParams, TooLarge):
        assert isinstance(PARSERS[name](write(Path(folder, name), data), LIMITS), Parsed)
