"""Small documents of every kind, written by hand as the formats prescribe."""

from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo
from zlib import compress

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
_P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELS = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
_DC = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'
_PACKED_AT = (2024, 5, 1, 10, 30, 0)

CORE = f"""<?xml version="1.0"?><cp:coreProperties xmlns:cp="urn:cp" {_DC} xmlns:dcterms="http://purl.org/dc/terms/">
<dc:title>The shore</dc:title><dc:creator>Mara Field</dc:creator><cp:keywords>sea, tide</cp:keywords>
<dcterms:created>2024-05-01T10:30:00Z</dcterms:created></cp:coreProperties>"""

WORD = f"""<?xml version="1.0"?><w:document {_W} xmlns:mc="urn:mc"><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading2"/><w:numPr/><w:rPr><w:b/></w:rPr></w:pPr><w:r><w:t>Low water</w:t></w:r></w:p>
<w:p><w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr><w:r><w:t xml:space="preserve">The rocks </w:t></w:r>
<w:r><w:t>show.</w:t><w:br/><w:t>Second line.</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>
<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/></w:numPr></w:pPr><w:r><w:t>crab</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr>
<w:tr><w:tc><w:p><w:r><w:t>c</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
<w:p><w:r><mc:AlternateContent><mc:Choice><w:t>box</w:t></mc:Choice><mc:Fallback><w:t>box</w:t></mc:Fallback>
</mc:AlternateContent></w:r></w:p></w:body></w:document>"""
FOOTNOTES = f"<w:footnotes {_W}><w:footnote><w:p><w:r><w:t>A footnote.</w:t></w:r></w:p></w:footnote></w:footnotes>"


def packed(entries: Mapping[str, str | bytes], stored: str = "") -> bytes:
    """Returns a zip. The entry `stored` is not compressed."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            # The same bytes every time.
            entry = ZipInfo(name, _PACKED_AT)
            entry.compress_type = ZIP_STORED if name == stored else ZIP_DEFLATED
            archive.writestr(entry, data)
    return file.getvalue()


def word(document: str = WORD, **others: str) -> bytes:
    parts = {"[Content_Types].xml": "<Types/>", "word/document.xml": document, "word/footnotes.xml": FOOTNOTES}
    return packed({**parts, "docProps/core.xml": CORE, **others})


def slide(text: str) -> str:
    number = '<a:fld type="slidenum"><a:t>7</a:t></a:fld>'
    return (
        f"<p:sld {_P} {_A}><a:p><a:r><a:t>{text}</a:t></a:r>{number}</a:p><a:p><a:r><a:t>more</a:t></a:r></a:p></p:sld>"
    )


def relations(**targets: tuple[str, str]) -> str:
    listed = (f'<Relationship Id="{name}" Type="{_R}/{kind}" Target="{to}"/>' for name, (kind, to) in targets.items())
    return f"<Relationships {_RELS}>{''.join(listed)}</Relationships>"


def slides() -> bytes:
    listed = f'<p:presentation {_P} xmlns:r="{_R}"><p:sldIdLst>%s</p:sldIdLst></p:presentation>'
    order = '<p:sldId id="256" r:id="rId2"/><p:sldId id="257" r:id="rId1"/>'
    return packed(
        {
            "[Content_Types].xml": "<Types/>",
            "ppt/presentation.xml": listed % order,
            "ppt/_rels/presentation.xml.rels": relations(
                rId1=("slide", "slides/slide1.xml"), rId2=("slide", "slides/slide2.xml"), rId3=("theme", "theme.xml")
            ),
            "ppt/slides/slide1.xml": slide("last"),
            "ppt/slides/slide2.xml": slide("first"),
            "ppt/slides/_rels/slide1.xml.rels": relations(rId1=("notesSlide", "../notesSlides/notesSlide1.xml")),
            "ppt/notesSlides/notesSlide1.xml": slide("say this"),
            "docProps/core.xml": CORE,
        }
    )


OPF = f"""<?xml version="1.0"?><!DOCTYPE package PUBLIC "x" "http://example.invalid/oeb.dtd">
<package xmlns="http://www.idpf.org/2007/opf"><metadata {_DC}><dc:title>The Shore</dc:title>
<dc:creator>Mara Field</dc:creator><dc:creator>Ben Ash</dc:creator><dc:language>en</dc:language>
<dc:date>2019</dc:date><dc:identifier>urn:isbn:1</dc:identifier><dc:subject>sea</dc:subject></metadata>
<manifest><item id="two" href="text/two.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="text/ch%20one.xhtml" media-type="application/xhtml+xml"/>
<item id="gone" href="gone.xhtml" media-type="application/xhtml+xml"/>
<item id="css" href="a.css" media-type="text/css"/></manifest>
<spine><itemref idref="one"/><itemref idref="two"/><itemref idref="gone"/><itemref idref="css"/></spine></package>"""
CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
ENCRYPTION = """<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData>
<CipherReference URI="OEBPS/text/two.xhtml"/></EncryptedData></encryption>"""


def book(**others: str) -> bytes:
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": OPF,
        "OEBPS/text/ch one.xhtml": "<!DOCTYPE html><html><head><title>x</title></head><h1>One</h1><p>Low.</p></html>",
        "OEBPS/text/two.xhtml": "<html><body><h1>Two</h1><p>High&nbsp;water.</p></body></html>",
    }
    return packed({**parts, **others})


PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tide &amp; pools</title>
<meta name="author" content="Mara Field"><meta name="keywords" content="sea, tide">
<meta property="article:published_time" content="2024-05-01T12:30:00+02:00">
<link rel="canonical" href="https://example.org/tide"><style>p { color: red }</style></head>
<body><h1>Tide  pools</h1><p>At low <b>wat</b>er the
rocks show.<ul><li>crab<li>star<br>fish</ul><pre>a  b
  c</pre><table><tr><td>1<td>2</tr></table><script>alert("<p>no</p>")</script><template>hidden</template></body></html>"""


PDF_CATALOGUE = "<< /Type /Catalog /Pages 2 0 R >>"


def pdf(*pages: str) -> bytes:
    """Uses Helvetica, which every reader has."""
    kids = " ".join(f"{4 + 2 * place} 0 R" for place in range(len(pages)))
    objects = [
        PDF_CATALOGUE,
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for place, text in enumerate(pages):
        drawing = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else ""
        font = "<< /Font << /F1 3 0 R >> >>"
        contents = f"/Contents {5 + 2 * place} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources {font} {contents} >>")
        objects.append(f"<< /Length {len(drawing)} >>\nstream\n{drawing}\nendstream")
    return pdf_of(*objects, "<< /Title (The shore) /Author (Mara Field) /CreationDate (D:20240501123000+02'00') >>")


def pdf_of(*objects: str | bytes, trailer: str = "") -> bytes:
    """Builds a file from complete objects; the first is the catalogue, the last the document information."""
    parts, places = [b"%PDF-1.7\n"], [0]
    for number, one in enumerate(objects, 1):
        places.append(places[-1] + len(parts[-1]))
        parts.append(b"%d 0 obj\n%b\nendobj\n" % (number, one.encode("latin-1") if isinstance(one, str) else one))
    table = "".join(f"{place:010} 00000 n \n" for place in places[1:])
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R /Info {len(objects)} 0 R"
    start = places[-1] + len(parts[-1])
    return b"".join(parts) + f"{end} {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()


def pdf_stream(content: bytes) -> bytes:
    packed_content = compress(content, 9)
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(packed_content), packed_content)


# As a typesetter writes it: compressed streams, hyphenated and kerned words, a ligature and a character beyond the
# Basic Multilingual Plane that are defined only in a font table, page numbers, and a title in UTF-16.
_GLYPHS = b"""begincmap 1 begincodespacerange <00> <FF> endcodespacerange
2 beginbfchar <01> <00660069> <02> <D835DC65> endbfchar endcmap"""
_FIRST_PAGE = b"""BT /F2 18 Tf 72 720 Td (Of the Shore) Tj ET
BT /F1 11 Tf 14 TL 72 690 Td [(The ) -20 (\\001rst) -320 (tide)] TJ T* (comes in slow-) Tj T* (ly, as the Anglo-) Tj
T* (Saxon word has it, at 5.30.) Tj T* (Let \\002 be its height.) Tj 200 -600 Td (1) Tj ET"""
_SECOND_PAGE = b"BT /F1 11 Tf 72 720 Td (It goes at noon \\226 or later.) Tj 200 -674 Td (2) Tj ET"


def printed_pdf() -> bytes:
    page = "<< /Type /Page /Parent 2 0 R /Contents %d 0 R >>"
    fonts = "/Resources << /Font << /F1 7 0 R /F2 8 0 R >> >>"
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Times-%s /Encoding /WinAnsiEncoding %s >>"
    title = ("\ufeff" + "Über die Küste").encode("utf-16-be").hex()
    return pdf_of(
        PDF_CATALOGUE,
        f"<< /Type /Pages /Kids [3 0 R 4 0 R] /Count 2 /MediaBox [0 0 595 842] {fonts} >>",
        page % 5,
        page % 6,
        pdf_stream(_FIRST_PAGE),
        pdf_stream(_SECOND_PAGE),
        font % ("Roman", "/ToUnicode 9 0 R"),
        font % ("Bold", ""),
        pdf_stream(_GLYPHS),
        f"<< /Title <{title}> /Author (Mara Field) /Keywords (sea, tide) /CreationDate (D:20240501) >>",
    )


def one_page_pdf(content: bytes) -> bytes:
    return pdf_of(
        PDF_CATALOGUE,
        "<< /Type /Pages /Kids [3 0 R] /Count 1 /MediaBox [0 0 595 842] >>",
        "<< /Type /Page /Parent 2 0 R /Contents 4 0 R >>",
        pdf_stream(content),
        "<< >>",
    )
