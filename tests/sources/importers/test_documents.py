"""Documents of every kind: text in reading order, properties, and malicious files."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import InvalidParams, TooLarge
from config.settings import Settings
from sources.importers.engine.events import SkippedItem
from sources.importers.engine.limits import ImportLimits, import_limits
from sources.importers.parsers.epub import parse_epub
from sources.importers.parsers.office import parse_slides, parse_word
from sources.importers.parsers.parsed_document import DocumentKind, ParsedDocument, parse_in_subprocess
from sources.importers.parsers.web_page import parse_page
from sources.importers.registry import load_importer
from tests.cases import each_case
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
from tests.sources.importers.single_files import (
    LIMITS,
    damaged_files,
    importer_for,
    in_process,
    read,
    read_draft,
    read_or_reject,
    write,
)

IMPORTER = load_importer("documents")

# Parses in this process, except for PDF.
HERE = in_process(IMPORTER)
SAMPLES = {
    "a.txt": b"A plain text.\r\n",
    "a.html": PAGE.encode(),
    "a.docx": word(),
    "a.pptx": slides(),
    "a.epub": book(),
    "a.pdf": pdf("Low water.", "High water."),
}
LOCK = f"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <{'00' * 32}> /U <{'00' * 32}> >> /ID [<00> <00>]"
# Repeated to 400 KB, these take seconds in a parser that searches for the end again and again.
UNTERMINATED = (
    "<!--",
    "<a ",
    "<a b='",
    "</",
    "<?x ",
    "<![CDATA[",
    "<script>",
    "<title>",
    "&",
    "&#x",
    "<table>",
    "<a b='&",
)
PARSERS: dict[str, Callable[[Path, ImportLimits], ParsedDocument]] = {
    "a.html": parse_page,
    "a.docx": parse_word,
    "a.pptx": parse_slides,
    "a.epub": parse_epub,
}


@each_case("name", SAMPLES)
def test_documents_are_recognized_by_content(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, SAMPLES[name])

    assert importer_for(path) == "documents"
    if name != "a.txt":
        assert importer_for(path.rename(tmp_path / "without a suffix")) == "documents"


@each_case(
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
def test_text_is_in_reading_order(tmp_path: Path, name: str, text: str) -> None:
    media = read_draft(HERE, write(tmp_path / name, SAMPLES[name]))

    assert media.content == text
    assert media.media_type == {"txt": "text"}.get(name[2:], name[2:])
    assert read_draft(HERE, tmp_path / name) == media


@each_case(
    ("name", "properties", "metadata"),
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
def test_properties_of_the_document_are_used(
    tmp_path: Path, name: str, properties: tuple[str, str, str], metadata: dict[str, Any]
) -> None:
    media = read_draft(HERE, write(tmp_path / name, SAMPLES[name]))

    assert (media.title, media.author, media.created_at) == properties
    assert media.metadata == {"file": name, **metadata}
    assert media.tags == (("sea", "tide") if "keywords" in metadata else ())


def test_page_has_its_canonical_url(tmp_path: Path) -> None:
    assert read_draft(HERE, write(tmp_path / "a.html", PAGE)).url == "https://example.org/tide"


@each_case(
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
def test_pages_are_read_as_in_browsers(tmp_path: Path, data: bytes, text: str) -> None:
    assert read_draft(HERE, write(tmp_path / "a.html", data)).content == text


def test_self_closing_xhtml_elements_are_empty(tmp_path: Path) -> None:
    head = (
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="a.js"/><style type="text/css"/></head>'
    )
    page = f"{head}<body><iframe/><textarea/><svg/><noscript/><pre/><p>Low.</p></body></html>"

    assert read_draft(HERE, write(tmp_path / "a.xhtml", page)).content == "Low."
    assert read_draft(HERE, write(tmp_path / "a.epub", book(**{"OEBPS/text/two.xhtml": page}))).content.endswith("Low.")


def test_markup_in_a_title_is_text(tmp_path: Path) -> None:
    assert read_draft(HERE, write(tmp_path / "a.html", "<html><title>a <b> c</title><p>x")).title == "a <b> c"


def test_hyphens_and_fonts_of_a_printed_pdf_are_decoded(tmp_path: Path) -> None:
    media = read_draft(HERE, write(tmp_path / "a.pdf", printed_pdf()))

    assert media.content == (
        "Of the Shore\nThe first tide\ncomes in slowly, as the Anglo-Saxon word has it, at 5.30.\n"
        "Let 𝑥 be its height.\n1\n\nIt goes at noon – or later.\n2"
    )
    assert (media.title, media.created_at, media.tags) == (
        "Über die Küste",
        "2024-05-01T00:00:00.000Z",
        ("sea", "tide"),
    )


def test_document_without_text_is_skipped(tmp_path: Path) -> None:
    assert read(HERE, write(tmp_path / "scan.pdf", pdf(""))) == [SkippedItem("document without text")]


@pytest.mark.slow("reads damaged files")
@each_case(
    ("data", "problem"),
    [
        (pdf_of(PDF_CATALOGUE, "<< /Type /Pages /Kids [] /Count 0 >>", trailer=LOCK), "PDF is protected by a password"),
        (pdf_of(PDF_CATALOGUE, "<< /Type /Pages /Kids [] /Count 0 >>", "<< >>"), "PDF has no pages"),
        (
            pdf_of(PDF_CATALOGUE, "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1000 >>", "<< >>"),
            "PDF contains a damaged page",
        ),
        (
            pdf_of(PDF_CATALOGUE, f"<< /Type /Pages /Kids [{'3 0 R ' * 30_000}] /Count 30000 >>", "<< /Type /Page >>"),
            "PDF: expected at most 20000 pages, got 30000",
        ),
        (b"%PDF-1.7\nnothing", "PDF is damaged"),
    ],
)
def test_unreadable_pdf_is_rejected_with_the_reason(tmp_path: Path, data: bytes, problem: str) -> None:
    with pytest.raises(InvalidParams, match=problem):
        read(HERE, write(tmp_path / "a.pdf", data))


@each_case(
    ("name", "data", "problem"),
    lambda: [
        (
            "entities.docx",
            word('<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;&b;">]>' + WORD.partition("?>")[2]),
            "document type with declarations",
        ),
        (
            "files.docx",
            word('<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'),
            "document type with declarations",
        ),
        ("defaults.docx", word('<!DOCTYPE a [<!ATTLIST a b CDATA "c">]><a/>'), "document type with declarations"),
        ("torn.docx", word(WORD[:-20]), "XML is invalid: .+ in line"),
        ("no.docx", word("not XML"), "XML is invalid: .+ in line 1"),
        ("half.docx", word()[:-40], "not a valid zip file"),
        ("out.docx", word(**{"../../out": "x"}), "points outside the archive"),
        ("locked.epub", book(**{"META-INF/encryption.xml": ENCRYPTION}), "EPUB is protected: 1 of 2 chapters"),
        ("empty.epub", book(**{"OEBPS/book.opf": OPF.replace("itemref", "other")}), "EPUB has no chapters"),
        ("lost.epub", book(**{"META-INF/container.xml": "<container/>"}), "EPUB container names no package"),
        (
            "elsewhere.epub",
            book(**{"META-INF/container.xml": '<a><rootfile full-path="../../etc/x"/></a>'}),
            "'../../etc/x' is missing",
        ),
        ("torn.pdf", b"%PDF-1.7\nnothing", "PDF is damaged"),
        ("other.zip", packed({"a.txt": "x"}), "a zip file, but not a document"),
        ("a.txt", b"a\0b", "expected text, got a NUL character"),
    ],
)
def test_malicious_documents_are_rejected(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    with pytest.raises(InvalidParams, match=problem) as rejected:
        read(HERE, write(tmp_path / name, data))
    assert "root:" not in rejected.value.message


@pytest.mark.slow("makes a large file")
@each_case(
    ("name", "data"),
    lambda: [
        (
            "bomb.docx",
            word(f"{WORD.partition('<w:body>')[0]}<w:body><w:t>{'x' * (20 << 20)}</w:t></w:body></w:document>"),
        ),
        ("bomb.epub", book(**{"OEBPS/text/two.xhtml": "<p>" + "x" * (12 << 20)})),
        ("long.html", b"<html>" + b"x" * (20 << 20)),
    ],
)
def test_document_with_too_much_text_is_rejected(tmp_path: Path, name: str, data: bytes) -> None:
    with pytest.raises(InvalidParams, match="larger than"):
        read(IMPORTER, write(tmp_path / name, data))


@pytest.mark.slow("reads hostile documents")
@each_case("markup", UNTERMINATED)
def test_page_with_unterminated_markup_is_read_quickly(tmp_path: Path, markup: str) -> None:
    page = "<html><p>Low water.</p>" + markup * (400_000 // len(markup))

    assert read_draft(IMPORTER, write(tmp_path / "a.html", page), parser_cpu_s=10).content.startswith("Low water.")


@pytest.mark.slow("reads hostile documents")
def test_deep_page_is_read_unless_it_has_many_end_tags(tmp_path: Path) -> None:
    """The limit of the CPU time leaves room for a slow machine: the page with end tags would take minutes."""
    deep = "<html>" + "<div>" * 200_000 + "Low water."

    assert read_draft(IMPORTER, write(tmp_path / "a.html", deep), parser_cpu_s=10).content == "Low water."
    with pytest.raises(InvalidParams, match="HTML is nested more than 2499 levels deep"):
        read(IMPORTER, write(tmp_path / "a.html", deep + "</p>" * 200_000), parser_cpu_s=10)


@each_case(
    "inside",
    lambda: [
        "<!--" + "x" * (2 << 20),
        f'<w:a b="{"x" * (2 << 20)}"/>',
        "<w:a " + " ".join(f"a{n}='1'" for n in range(200_000)) + "/>",
    ],
)
def test_overlong_tag_is_rejected(tmp_path: Path, inside: str) -> None:
    data = word(WORD.replace("</w:body>", f"{inside}</w:body>"))

    with pytest.raises(InvalidParams, match="XML contains a tag or comment of more than 1048576 bytes"):
        read(IMPORTER, write(tmp_path / "a.docx", data), parser_cpu_s=10)


def test_repeated_slides_and_chapters_are_read_once(tmp_path: Path) -> None:
    presentation = '<p xmlns:r="urn:r"><sldIdLst>' + '<sldId r:id="a"/>' * 10_000 + "</sldIdLst></p>"
    parts = {"ppt/presentation.xml": presentation, "ppt/slides/slide1.xml": slide("first") + " " * 1_000_000}
    links = {"ppt/_rels/presentation.xml.rels": relations(a=("slide", "slides/slide1.xml"))}
    items = "".join(f'<item id="i{n}" href="text/two.xhtml" media-type="text/html"/>' for n in range(10_000))
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(10_000))

    slides_draft = read_draft(IMPORTER, write(tmp_path / "a.pptx", packed({**parts, **links})), parser_cpu_s=10)
    book_draft = read_draft(
        IMPORTER,
        write(tmp_path / "a.epub", book(**{"OEBPS/book.opf": f"<package>{items}{spine}</package>"})),
        parser_cpu_s=10,
    )

    assert slides_draft.content == "# Slide 1\n\nfirst\n\nmore"
    assert book_draft.content == "# Two\n\nHigh water."


def test_parser_crash_is_reported_with_its_signal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", one_page_pdf(b" " * (100 << 20)))

    with pytest.raises(InvalidParams, match=r"the parser crashed \(SIG[A-Z]+\): .+ more than 128 MiB of memory"):
        read(IMPORTER, path, parser_memory_max_bytes=128 << 20)


def test_parser_memory_is_limited(tmp_path: Path) -> None:
    path = write(tmp_path / "a.html", b"<html>" + b"x" * (9 << 20))

    assert len(read_draft(IMPORTER, path).content) == 9 << 20
    with pytest.raises(InvalidParams, match="more than 48 MiB of memory"):
        read(IMPORTER, path, parser_memory_max_bytes=48 << 20)


def test_document_may_use_its_cpu_time_on_a_busy_machine() -> None:
    """The process has a low priority, so that it can take ten times as long as the CPU time that it uses."""
    limits = import_limits(Settings())
    assert limits.parser_deadline_s > 10 * limits.parser_cpu_s
    assert LIMITS.parser_deadline_s > 10 * LIMITS.parser_cpu_s


@pytest.mark.slow("reads hostile documents")
def test_parser_time_is_limited(tmp_path: Path) -> None:
    path = write(tmp_path / "a.html", b"<html>" + b"<p>x" * 4_000_000)

    with pytest.raises(InvalidParams, match=r"parsing took longer than 0\.2 s"):
        read(IMPORTER, path, parser_deadline_s=0.2)
    with pytest.raises(InvalidParams, match="more than 1 s of CPU time"):
        read(IMPORTER, path, parser_cpu_s=1)


def test_parser_failure_is_reported_as_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "a.html", PAGE)

    with pytest.raises(InvalidParams, match="the document is damaged"):
        parse_in_subprocess(path, cast("DocumentKind", "of another kind"), LIMITS)


def test_changed_file_is_the_same_item(tmp_path: Path) -> None:
    path = write(tmp_path / "a.docx", word())
    before = read_draft(HERE, path)

    after = read_draft(HERE, write(path, word(FOOTNOTES)))

    assert (after.uuid, after.content) == (before.uuid, "A footnote.\n\nA footnote.")


@given(damaged_files({name: SAMPLES[name] for name in PARSERS}))
def test_damaged_document_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    name, data = sample
    with TemporaryDirectory() as folder, suppress(InvalidParams, TooLarge):
        assert isinstance(PARSERS[name](write(Path(folder, name), data), LIMITS), ParsedDocument)


@given(damaged_files({"word/document.xml": WORD.encode()}))
def test_damaged_xml_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    name, data = sample
    with TemporaryDirectory() as folder, suppress(InvalidParams, TooLarge):
        assert isinstance(parse_word(write(Path(folder, "a.docx"), packed({name: data})), LIMITS), ParsedDocument)


@pytest.mark.slow("parses every example in a process of its own")
@settings(max_examples=20)
@given(damaged_files({"a.pdf": SAMPLES["a.pdf"]}))
def test_damaged_pdf_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    read_or_reject(HERE, *sample)


@given(st.sampled_from(sorted(PARSERS)), st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(name: str, data: bytes) -> None:
    with TemporaryDirectory() as folder, suppress(InvalidParams, TooLarge):
        assert isinstance(PARSERS[name](write(Path(folder, name), data), LIMITS), ParsedDocument)


def test_word_document_with_another_main_part_is_read(tmp_path: Path) -> None:
    parts = {
        "[Content_Types].xml": "<Types/>",
        "_rels/.rels": relations(rId1=("officeDocument", "/word/document2.xml")),
        "word/document2.xml": WORD,
        "word/_rels/document2.xml.rels": relations(rId1=("footnotes", "notes7.xml")),
        "word/notes7.xml": FOOTNOTES,
    }
    path = write(tmp_path / "a.docx", packed(parts))
    assert importer_for(path) == "documents"
    content = read_draft(HERE, path).content
    assert content == read_draft(HERE, write(tmp_path / "b.docx", word())).content


ARTICLE = (
    "<h1>Tides</h1><p>" + "The sea rises and falls twice a day. " * 10 + "</p><ul><li><a href=x>Moon</a></li></ul>"
)
MENU = "".join(f"<li><a href='/{name}'>{name}</a></li>" for name in ("Home", "Products", "Contact"))


@each_case(
    "body",
    [
        f"<nav><ul>{MENU}</ul></nav>{ARTICLE}<footer>Imprint</footer>",
        f"<div class='site-nav'><a>Home</a></div>{ARTICLE}<div id='footer'>Imprint</div>",
        f"<ul>{MENU}</ul>{ARTICLE}",
        f"<div role='navigation'>Home</div><main><article>{ARTICLE}</article></main><aside>Products</aside>",
        f"<div>Home <a>Products</a></div><article>{ARTICLE}</article><div>Imprint</div>",
        f"<header><ul>{MENU}</ul></header>{ARTICLE}<div class='share-buttons'>Contact</div>",
    ],
)
def test_menus_are_removed_from_a_page(tmp_path: Path, body: str) -> None:
    content = read_draft(HERE, write(tmp_path / "a.html", f"<html><body>{body}</body></html>")).content
    assert content.startswith("# Tides\n\nThe sea rises")
    assert content.endswith("- Moon")
    assert not any(word in content for word in ("Home", "Products", "Contact", "Imprint"))


@each_case(
    "body",
    [
        f"<ul>{MENU}</ul>",
        f"<nav><ul>{MENU}</ul></nav><p>Hi.</p>",
        f"<main></main><ul>{MENU}</ul>",
        "<article>One</article><article>Two</article><p>Home Products Contact</p>",
        "<p>A list:</p><ul>" + MENU + "</ul>",
    ],
)
def test_page_that_is_mostly_links_keeps_them(tmp_path: Path, body: str) -> None:
    content = read_draft(HERE, write(tmp_path / "a.html", f"<html><body>{body}</body></html>")).content
    assert all(word in content for word in ("Home", "Products", "Contact"))
