"""What the page of an item makes of its text: Markdown, wikilinks, marks and times."""

import re
from html import escape

from hypothesis import given
from hypothesis import strategies as st

from server.console.item_page import linked_media
from server.console.markdown import TextRange, render_markdown
from server.version import address_at_time
from sources.records import Segment
from tests.cases import each_case
from tests.server.console.signed_in import HTML, page_text
from tests.server.rest.markup import Markup
from tests.server.rest.rest_client import RestClient
from tests.sources.source_fixture import LibraryUser

# Every table is followed by an empty line. Rows of one cell are filled up to the columns of the heading.
HOSTILE_TABLE = "a|" * 300 + "\n" + "-|" * 300 + "\n" + "|\n" * 217 + "\n"


@each_case("line_break", ["\n", "\r\n", "\r"])
@each_case("prefix", ["", "> "])
def test_cells_that_rows_lack_are_limited_by_the_length_of_the_text(prefix: str, line_break: str) -> None:
    text = "".join(prefix + line for line in HOSTILE_TABLE.splitlines(keepends=True)).replace("\n", line_break)

    html = render_markdown(text * 2)

    assert html.count("<t") < len(text)
    assert "a|a|a|" in html


@each_case("heading", ["|" * 301, "| " * 300 + "|"])
def test_columns_without_a_heading_count(heading: str) -> None:
    text = f"{heading}\n{'|-' * 300}|\n" + "a\n" * 217

    assert render_markdown(text).count("<t") < len(text)


def test_rows_of_empty_cells_lack_none() -> None:
    html = render_markdown(f"{'|a' * 20}|\n{'|-' * 20}|\n" + f"{'|' * 21}\n" * 100)

    assert html.count("<td></td>") == 2000


def test_short_rows_of_a_usual_table_are_filled() -> None:
    rows = "".join(f"| {number} | name |\n" for number in range(500))

    html = render_markdown(f"| number | name | note |\n|---|---|---|\n{rows}\nEnd.")

    assert html.count("<td>") == 1500
    assert html.count("<td></td>") == 500


async def test_wikilinks_lead_to_notes_of_the_same_user_and_back(
    api: RestClient, ada: LibraryUser, ben: LibraryUser
) -> None:
    target = await ada.add_note("North Sea", "Cold.")
    source = await ada.add_note("Voyage", "From the [[north sea]] via [[maps/North Sea|the water]] to [[Harbour]].")
    await ada.add_note("Other", "The North Sea is cold, without a link.")
    await ben.add_note("Harbour", "See [[Voyage]].")

    page, linked = [await page_text(api, f"/items/notes/{one}") for one in (source, target)]

    assert f'<a href="/items/notes/{target}" rel="noopener noreferrer nofollow">north sea</a>' in page
    assert f'<a href="/items/notes/{target}" rel="noopener noreferrer nofollow">the water</a>' in page
    assert "[[Harbour]]" in page
    assert re.findall(r'<li><a href="/items/notes/([^"]+)">Voyage</a></li>', linked) == [source]
    assert "Other" not in linked


async def test_note_shows_the_notes_around_it(api: RestClient, ada: LibraryUser, ben: LibraryUser) -> None:
    note = await ada.add_note("Voyage", "To [[Harbour]] and [[Map]].")
    others = {
        title: await ada.add_note(title, text)
        for title, text in (("Harbour", "See [[Map]]."), ("Map", "Of the [[voyage]]."), ("<b>Log</b>", "[[Voyage]]"))
    }
    await ben.add_note("Foreign", "[[Voyage]]")
    lonely = await ada.add_note("Lonely", "Nothing.")

    page = await page_text(api, f"/items/notes/{note}")

    nodes = dict(re.findall(r'<a href="([^"]+)" tabindex="-1"><title>(.*?)</title>', page))
    assert nodes == {f"/items/notes/{uri}": escape(title) for title, uri in others.items()}
    lines = re.findall(r'<line class="(\w+)"', page)
    assert sorted(lines) == ["between", "both", "in", "out"]
    links = (await api.get(f"/api/v1/items/links?uri=notes://{note}")).json()
    assert links["between"] == [{"source": f"notes://{others['Harbour']}", "target": f"notes://{others['Map']}"}]
    assert '<svg class="chart' not in await page_text(api, f"/items/notes/{lonely}")


async def test_transcript_links_to_the_original_at_each_time(api: RestClient, ada: LibraryUser) -> None:
    words = "and more words " * 60
    segments = [Segment(text=f"Line {n} {words}", start_ms=n * 60_000, end_ms=(n + 1) * 60_000) for n in range(80)]
    media = await ada.add_media("Lecture", segments=segments, url="https://youtu.be/abc?x=1")

    page = await page_text(api, f"/items/media/{media}")

    assert 'href="https://youtu.be/abc?x=1&amp;t=0s"' in page
    assert "Line 1 " in page
    assert "Line 79 " not in page
    more = re.search(r'<a href="([^"]+)#passage" rel="next">', page)
    assert more is not None
    assert "<mark" not in page
    rest = await page_text(api, more[1])
    assert '<mark id="passage">' in rest
    assert "This is a part of the item." in rest


@each_case(
    ("address", "expected"),
    [
        ("https://www.youtube.com/watch?v=a", "https://www.youtube.com/watch?v=a&t=90s"),
        ("https://example.com/a.mp3", "https://example.com/a.mp3#t=90"),
    ],
)
def test_address_of_a_time(address: str, expected: str) -> None:
    assert address_at_time(address, 90) == expected


@each_case(
    ("text", "html"),
    [
        ("A *galleon*", "<p>A <em>galleon</em></p>\n"),
        ("![mast](https://x.example/a.png)", "[image: mast]"),
        ("A ![[ships/mast.png|300]] here", "A [image: ships/mast.png] here"),
        ("<b>bold</b>", "&lt;b&gt;bold&lt;/b&gt;"),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "<td>1</td>"),
    ],
)
def test_markdown_is_rendered_without_html_and_images(text: str, html: str) -> None:
    rendered = render_markdown(text)

    assert html in rendered
    assert "<img" not in rendered


def test_marked_passage_can_cross_elements() -> None:
    text = "Before.\n\n- The *galleon* left\n- in fog\n\nAfter."
    start, end = text.index("- The"), text.index("\n\nAfter")

    html = render_markdown(text, [TextRange(start, end, is_passage=True)])

    assert html.count('id="passage"') == 1
    assert '<li><mark id="passage">The </mark><em><mark>galleon</mark></em><mark> left</mark></li>' in html
    assert "<li><mark>in fog</mark></li>" in html


def test_passage_inside_an_address_is_still_marked() -> None:
    text = "See [the map](https://example.com/galleon) now."
    start = text.index("galleon")

    html = render_markdown(text, [TextRange(start, start + 7, is_passage=True)])

    assert '<mark id="passage">galleon</mark>' in html


@given(st.text(max_size=200), st.integers(0, 200), st.integers(0, 200))
def test_marks_never_break_the_page(text: str, first: int, second: int) -> None:
    start, end = sorted((min(first, len(text)), min(second, len(text))))
    marks = [TextRange(start, end, is_passage=True)] if start < end and text[start:end].strip() else []

    page = Markup(render_markdown(text, marks))

    assert page.tags.isdisjoint({"script", "img", "iframe", "style", "svg"})
    assert ("passage" in page.ids) == bool(marks) or text[start:end].isspace() or not any(map(str.isalnum, text))


async def test_original_on_another_server_is_named_and_permitted_only_after_a_click(
    api: RestClient, ada: LibraryUser
) -> None:
    address = "https://media.example:8443/talk.mp4?a=1"
    item = await ada.add_media("Talk", "x", url=address)

    before = await api.get(f"/items/media/{item}", accept=HTML)
    after = await api.get(f"/items/media/{item}?play=true", accept=HTML)

    assert "media.example" not in (before.header("content-security-policy") or "")
    assert "<video" not in before.body.decode()
    assert f'href="/items/media/{item}?play=true"' in before.body.decode()
    assert "Play from media.example:8443" in before.body.decode()
    policy = after.header("content-security-policy") or ""
    assert "media-src blob: https://media.example:8443;" in policy
    assert "script-src 'self';" in policy
    assert f'src="{address}"' in after.body.decode()


def test_only_addresses_of_media_files_with_a_plain_host_can_be_played() -> None:
    played = {
        "https://a.example/x.MP3": ("audio", "https://a.example"),
        "http://127.0.0.1:8080/x.webm": ("video", "http://127.0.0.1:8080"),
        "https://user:secret@a.example/x.png#t=5": ("image", "https://a.example"),
        "https://bücher.example/x.mp4": ("video", "https://xn--bcher-kva.example"),
    }
    for url, expected in played.items():
        media = linked_media(url, "/items/media/1?t=5", is_open=True)
        assert media is not None
        assert (media.kind, media.origin, media.play_address) == (*expected, "/items/media/1?t=5&play=true")
        assert media.address.startswith(f"{media.origin}/")
    refused = (
        *("", "x.mp3", "javascript:alert(1)//x.mp3", "data:audio/mp3,x.mp3", "file:///etc/x.mp3", "//a.example/x.mp3"),
        *("https://a.example/x.svg", "https://a.example/x.html", "https://a.example/", "https://a.example:99999/x.mp3"),
        *("https://a.example;script-src */x.mp3", "https://a.example x/x.mp3", "https://*/x.mp3", "https://[::1/x.mp3"),
        f"https://{'a' * 300}/x.mp3",
    )
    for url in refused:
        assert linked_media(url, "/items/media/1", is_open=True) is None, url
