"""Small exports of highlights, bookmarks, saved articles and references, with invented content."""

import json

from tests.sources.importers.office_files import packed

CLIPPINGS = """\ufeffThe Shore (Mara Field)
- Your Highlight on page 12 | Location 170-172 | Added on Friday, January 5, 2024 10:30:00 AM

Pools show
at low water.
==========
The Shore (Mara Field)
- Your Note on page 12 | Location 172 | Added on Saturday, January 6, 2024 10:30:00 AM

Go there.
==========
The Shore (Mara Field)
- Your Bookmark on page 14 | Location 190 | Added on Saturday, January 6, 2024 10:31:00 AM


==========
Ebbe und Flut
- Ihre Markierung bei Position 5-6 | Hinzugefügt am Freitag, 5. Januar 2024 10:30:00

Das Meer.
==========
"""
READWISE = """Highlight,Book Title,Book Author,Note,Color,Tags,Location Type,Location,Highlighted at,Document tags
"Pools show, at low water.",The Shore,Mara Field,Go there.,yellow,"sea, tide",page,12,2024-01-05 10:30:00+00:00,books
Second,The Shore,Mara Field,,,,location,190,2024-01-06 10:30:00+00:00,books
,The Shore,Mara Field,,,,,,,
Other text,Ebb,,,,,,,,
"""
BOOKMARKS = """<!DOCTYPE NETSCAPE-Bookmark-file-1>
<META HTTP-EQUIV="Content-Type" CONTENT="text/html; charset=UTF-8">
<TITLE>Bookmarks</TITLE><H1>Bookmarks</H1>
<DL><p>
    <DT><H3 ADD_DATE="1704450600">Sea</H3>
    <DL><p>
        <DT><A HREF="https://example.org/tide?a=1&amp;b=2" ADD_DATE="1704450600" TAGS="water,pools">Tide &amp; pools</A>
        <DD>All about tides.
        <DT><H3>Deep</H3>
        <DL><p><DT><A HREF="https://example.org/deep">Deep sea</A></DL><p>
    </DL><p>
    <DT><A HREF="javascript:alert(1)">Script</A>
    <DT><A HREF="https://example.org/top">Top</A>
</DL><p>
"""
CHROME = {
    "checksum": "00",
    "roots": {
        "bookmark_bar": {
            "name": "Bar",
            "type": "folder",
            "children": [
                {"name": "Tide", "type": "url", "url": "https://example.org/t", "date_added": "13348924200000000"},
                {"name": "Sea", "type": "folder", "children": [{"name": "D", "url": "https://example.org/d"}]},
            ],
        },
        "sync_transaction_version": "1",
    },
    "version": 1,
}
FIREFOX = {
    "guid": "root________",
    "title": "",
    "type": "text/x-moz-place-container",
    "children": [
        {
            "title": "Sea",
            "type": "text/x-moz-place-container",
            "children": [
                {
                    "title": "Tide",
                    "type": "text/x-moz-place",
                    "uri": "https://example.org/f",
                    "dateAdded": 1704450600000000,
                    "tags": "water,pools",
                }
            ],
        }
    ],
}
POCKET_CSV = """title,url,time_added,tags,status
Tide,https://example.org/p,1704450600,water|rock pools,unread
Again,https://example.org/p,1704450600,,archive
"""
POCKET_HTML = """<!DOCTYPE html><html><head><title>Pocket Export</title></head><body><h1>Unread</h1>
<ul><li><a href="https://example.org/h" time_added="1704450600" tags="water,pools">Tide</a></li></ul>
<h1>Read Archive</h1><ul><li><a href="https://example.org/r" time_added="1704450600" tags="">Old</a></li></ul>
</body></html>"""
KARAKEEP = {
    "bookmarks": [
        {
            "createdAt": 1704450600,
            "title": "Tide",
            "tags": ["water"],
            "content": {"type": "link", "url": "https://example.org/k"},
            "note": "Read this.",
        },
        {"createdAt": 1704450601, "title": None, "tags": [], "content": {"type": "text", "text": "Low water."}},
        {"createdAt": 1704450602, "title": "Scan", "tags": [], "content": None},
    ]
}
OMNIVORE_ID = "0f2c1e52-93b4-4f6a-8c1d-2b3a4d5e6f70"
OMNIVORE = {
    "metadata_0_to_20.json": json.dumps(
        [
            {
                "id": OMNIVORE_ID,
                "slug": "tide-1",
                "title": "Tide",
                "description": "On tides",
                "author": "Mara Field",
                "url": "https://example.org/o",
                "state": "Archived",
                "readingProgress": 40,
                "labels": ["water"],
                "savedAt": "2024-01-05T10:30:00.000Z",
                "publishedAt": "2023-01-01T00:00:00.000Z",
            },
            {"slug": "no-content", "title": "Bare", "url": "https://example.org/b", "description": "Only this."},
        ]
    ),
    "content/tide-1.html": "<html><body><h1>Tide</h1><p>It moves.</p></body></html>",
    "highlights/tide-1.md": "> It moves.\n",
}
CSL = [
    {
        "id": "http://zotero.org/users/1/items/ABCD",
        "type": "article-journal",
        "title": "On tides",
        "author": [{"family": "Field", "given": "Mara"}, {"literal": "Tide Office"}],
        "issued": {"date-parts": [[2019, 3]]},
        "container-title": "Shore Letters",
        "abstract": "Water moves.",
        "DOI": "10.1000/tide",
        "keyword": "sea, rock pools",
        "note": "Read twice.",
        "volume": "7",
        "page": "1-9",
    },
    {"id": "x", "type": "book"},
]
RDF = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:z="http://www.zotero.org/namespaces/export#"
 xmlns:dcterms="http://purl.org/dc/terms/" xmlns:bib="http://purl.org/net/biblio#"
 xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:foaf="http://xmlns.com/foaf/0.1/">
<bib:Article rdf:about="http://zotero.org/users/1/items/ABCD"><z:itemType>journalArticle</z:itemType>
<dcterms:isPartOf rdf:resource="urn:issn:0000-0000"/><bib:authors><rdf:Seq><rdf:li><foaf:Person>
<foaf:surname>Field</foaf:surname><foaf:givenName>Mara</foaf:givenName></foaf:Person></rdf:li></rdf:Seq></bib:authors>
<dcterms:isReferencedBy rdf:resource="#item_2"/><dc:subject>sea</dc:subject>
<dc:subject><z:AutomaticTag><rdf:value>tides</rdf:value></z:AutomaticTag></dc:subject>
<dc:title>On tides</dc:title><dcterms:abstract>Water moves.</dcterms:abstract><dc:date>2019-03-01</dc:date>
<dc:identifier><dcterms:URI><rdf:value>https://example.org/z</rdf:value></dcterms:URI></dc:identifier>
<bib:pages>1-9</bib:pages></bib:Article>
<bib:Journal rdf:about="urn:issn:0000-0000"><dc:title>Shore Letters</dc:title>
<dc:identifier>DOI 10.1000/tide</dc:identifier></bib:Journal>
<bib:Memo rdf:about="#item_2"><rdf:value>&lt;p&gt;Read &lt;b&gt;twice&lt;/b&gt;.&lt;/p&gt;</rdf:value></bib:Memo>
<z:Collection rdf:about="#collection_1"><dc:title>Sea</dc:title>
<dcterms:hasPart rdf:resource="http://zotero.org/users/1/items/ABCD"/></z:Collection></rdf:RDF>"""

READING_SAMPLES: dict[str, tuple[str, bytes]] = {
    "My Clippings.txt": ("kindle", CLIPPINGS.encode()),
    "readwise.csv": ("readwise", READWISE.encode()),
    "bookmarks.html": ("bookmarks", BOOKMARKS.encode()),
    "chrome.json": ("bookmarks", json.dumps(CHROME).encode()),
    "firefox.json": ("bookmarks", json.dumps(FIREFOX).encode()),
    "part_000000.csv": ("pocket", POCKET_CSV.encode()),
    "ril_export.html": ("pocket", POCKET_HTML.encode()),
    "karakeep.json": ("karakeep", json.dumps(KARAKEEP).encode()),
    "omnivore.zip": ("omnivore", packed(OMNIVORE)),
    "library.json": ("zotero", json.dumps(CSL[:1]).encode()),
    "library.rdf": ("zotero", RDF.replace("items/ABCD", "items/EFGH").encode()),
}
