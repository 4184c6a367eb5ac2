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
from sources.importers.engine.imported_items import SkippedItem
from sources.importers.engine.importer import ImportLimits
from sources.importers.formats.documents import IMPORTER
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
    PDF_CATALOGUE,
    WORD,
    book,
    one_page_pdf,
    packed,
    pdf,
    pdf_of,
    printed_pdf,
    relations,
    slide,
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
LOCK = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'00' * 32}> /U <{'00' * 32}> >> /ID [<00> <00>]"
# 400 KB of what a parser that looks for an end again and again takes seconds for.
UNENDED = ("<!--", "<a ", "<a b='", "</", "<?x ", "<![CDATA[", "<script>", "<title>", "&", "&#x", "<table>", "<a b='&")
PARSERS: dict[str, Callable[[Path, ImportLimits], Parsed]] = {
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
        ('<html><meta charset="iso-8859-1"><p>été'.encode("utf-8-sig"), "été"),
        (b'<html><meta charset="iso-8859-1"><p>\x93a\x94', "“a”"),
        (b'<html><meta charset="utf-16"><p>' + "été".encode(), "été"),
        (b'<html><meta charset="punycode"><p>a-b', "a-b"),
        (b'<?xml version="1.0" encoding="windows-1251"?><html><p>' + "море".encode("cp1251"), "море"),
        (b"<html><p>a<p>b<div>c</p>d", "a\n\nb\n\ncd"),
        (b"<html><p>1 < 2 && 3 > 2 &copy &notin; &#x93;", "1 < 2 && 3 > 2 © ∉ “"),
        (b"<html><p>a<br/>b<script>if (1 < 2) '<p>no'</script>c", "a\nbc"),
        (b"<html><p>&#xd800;&#0;a", "\ufffd\ufffda"),
    ],
)
def test_pages_are_read_as_browsers_read_them(tmp_path: Path, data: bytes, text: str) -> None:
    assert draft(IMPORTER, write(tmp_path / "a.html", data)).content == text


def test_what_xhtml_closes_where_it_begins_is_closed(tmp_path: Path) -> None:
    head = (
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="a.js"/><style type="text/css"/></head>'
    )
    page = f"{head}<body><iframe/><textarea/><svg/><noscript/><pre/><p>Low.</p></body></html>"

    assert draft(IMPORTER, write(tmp_path / "a.xhtml", page)).content == "Low."
    assert draft(IMPORTER, write(tmp_path / "a.epub", book(**{"OEBPS/text/two.xhtml": page}))).content.endswith("Low.")


def test_markup_in_a_title_is_text_as_html5_says(tmp_path: Path) -> None:
    assert draft(IMPORTER, write(tmp_path / "a.html", "<html><title>a <b> c</title><p>x")).title == "a <b> c"


def test_a_printed_pdf_is_read_as_it_was_meant(tmp_path: Path) -> None:
    media = draft(IMPORTER, write(tmp_path / "a.pdf", printed_pdf()))

    assert media.content == (
        "Of the Shore\nThe first tide\ncomes in slowly, as the Anglo-Saxon word has it, at 5.30.\n"
        "Let 𝑥 be its height.\n1\n\nIt goes at noon – or later.\n2"
    )
    assert (media.title, media.created_at, media.tags) == (
        "Über die Küste",
        "2024-05-01T00:00:00.000Z",
        ("sea", "tide"),
    )


def test_a_document_without_text_is_left_out(tmp_path: Path) -> None:
    assert read(IMPORTER, write(tmp_path / "scan.pdf", pdf(""))) == [SkippedItem("a document without text")]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (pdf_of(PDF_CATALOGUE, "<< /Type /Pages /Kids [] /Count 0 >>", trailer=LOCK), "one that needs a password"),
        (pdf_of(PDF_CATALOGUE, "<< /Type /Pages /Kids [] /Count 0 >>", "<< >>"), "one without pages"),
        (pdf_of(PDF_CATALOGUE, "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1000 >>", "<< >>"), "a damaged page"),
        (
            pdf_of(PDF_CATALOGUE, f"<< /Type /Pages /Kids [{'3 0 R ' * 30_000}] /Count 30000 >>", "<< /Type /Page >>"),
            "",
        ),
        (b"%PDF-1.7\nnothing", "a damaged one"),
    ],
    ids=["password", "empty", "cycle", "many", "torn"],
)
def test_a_pdf_that_cannot_be_read_says_why(tmp_path: Path, data: bytes, problem: str) -> None:
    expected = problem or "30000 pages, expected at most 20000"

    with pytest.raises(InvalidParams, match=f"the PDF: got {expected}"):
        read(IMPORTER, write(tmp_path / "a.pdf", data))


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


@pytest.mark.parametrize("unended", UNENDED)
def test_a_page_without_ends_is_read_at_once(tmp_path: Path, unended: str) -> None:
    page = "<html><p>Low water.</p>" + unended * (400_000 // len(unended))

    assert draft(IMPORTER, write(tmp_path / "a.html", page), parser_cpu_s=1).content.startswith("Low water.")


def test_a_page_may_be_deep_and_not_compare_its_depths_with_ends(tmp_path: Path) -> None:
    deep = "<html>" + "<div>" * 200_000 + "Low water."

    assert draft(IMPORTER, write(tmp_path / "a.html", deep), parser_cpu_s=2).content == "Low water."
    with pytest.raises(
        InvalidParams, match=r"the page: got elements within one another, 2500 levels, expected at most"
    ):
        read(IMPORTER, write(tmp_path / "a.html", deep + "</p>" * 200_000), parser_cpu_s=2)


@pytest.mark.parametrize(
    "inside",
    [
        "<!--" + "x" * (2 << 20),
        f'<w:a b="{"x" * (2 << 20)}"/>',
        "<w:a " + " ".join(f"a{n}='1'" for n in range(200_000)) + "/>",
    ],
    ids=["comment", "attribute", "attributes"],
)
def test_a_tag_without_end_is_refused(tmp_path: Path, inside: str) -> None:
    data = word(WORD.replace("</w:body>", f"{inside}</w:body>"))

    with pytest.raises(InvalidParams, match="XML: got a tag or comment of more than 1048576 bytes"):
        read(IMPORTER, write(tmp_path / "a.docx", data), parser_cpu_s=1)


def test_what_is_named_a_thousand_times_is_read_once(tmp_path: Path) -> None:
    listed = '<p xmlns:r="urn:r"><sldIdLst>' + '<sldId r:id="a"/>' * 10_000 + "</sldIdLst></p>"
    parts = {"ppt/presentation.xml": listed, "ppt/slides/slide1.xml": slide("first") + " " * 1_000_000}
    links = {"ppt/_rels/presentation.xml.rels": relations(a=("slide", "slides/slide1.xml"))}
    items = "".join(f'<item id="i{n}" href="text/two.xhtml" media-type="text/html"/>' for n in range(10_000))
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(10_000))

    shown = draft(IMPORTER, write(tmp_path / "a.pptx", packed({**parts, **links})), parser_cpu_s=1)
    opened = draft(
        IMPORTER,
        write(tmp_path / "a.epub", book(**{"OEBPS/book.opf": f"<package>{items}{spine}</package>"})),
        parser_cpu_s=1,
    )

    assert shown.content == "# Slide 1\n\nfirst\n\nmore"
    assert opened.content == "# Two\n\nHigh water."


def test_a_crash_of_a_parser_is_told_with_its_signal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", one_page_pdf(b" " * (100 << 20)))

    with pytest.raises(InvalidParams, match=r"made its parser crash \(SIG[A-Z]+\), by damage or .+ 128 MiB of memory"):
        read(IMPORTER, path, parser_memory_max_bytes=128 << 20)


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
