"""Renders the Markdown of items as HTML that cannot run or load anything.

Raw HTML is shown as text, images of other hosts become links to them, and the result is sanitised once more. A passage
is marked by two characters that survive rendering; they are replaced by `<mark>` in the text between the tags of the
result, so that a passage can cross paragraphs, lists and emphasis.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec import Struct

from server.operations.library import WIKILINK
from server.tools.research import PASSAGE

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# Characters for private use, which texts rarely contain. Those of the text itself are replaced.
_OPEN, _CLOSE = "\ue000", "\ue001"
_SENTINELS = re.compile(f"[{_OPEN}{_CLOSE}]")
_SENTINEL_PARTS = re.compile(f"([{_OPEN}{_CLOSE}])")
_HTML_TAG = re.compile(r'(<(?:"[^"]*"|[^"<>])*>)')
# What stands before the text of a line in Markdown: headings, list items, quotations, table cells.
_LINE_MARKUP = re.compile(r"[\s>#*+\-|`~_=]*(?:\d{1,9}[.)]\s+)?")
# In this order. A snippet can begin or end anywhere, so marks without their counterpart are removed, too.
_INLINE_MARKUP = (
    (re.compile(r"!?\[\[(?:[^\[\]|]{0,200}\|)?([^\[\]|]{1,200})\]\]"), r"\1"),  # [[note|text]]
    (re.compile(r"!?\[([^\[\]]{0,200})\]\([^()\s]{0,500}\)"), r"\1"),  # [text](address)
    (re.compile(r"(?m)^\s*(?:#{1,6}|>|[-*+])\s+|^\s*[-*_]{3,}\s*$|^[\s|:-]{3,}$"), ""),  # lines
    (re.compile(r"(?:^|\s)\|(?:[\s:-]*\|)*(?=\s|$)"), " ·"),  # cells of a table
    (re.compile(r"(?<!\s)\*{1,3}|\*{1,3}(?!\s)|~~|`{1,3}"), ""),
    (re.compile(r"(?:(?<=[.:;!?)…]\s)|(?<=…)|^)(?:#{1,6}|[-+>])\s+"), ""),  # where a snippet has joined lines
)
# What CommonMark and the two extensions below produce. There are no styles, scripts, frames or forms.
_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code"),
    *("em", "strong", "s", "a", "img", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "loading"}, "ol": {"start"}}
_SCHEMES = {"http", "https", "mailto"}
# How many cells the rows of all tables may lack, in addition to one for every two characters of the text.
_MISSING_CELLS_FREE = 200
_TABLES = "tables"
_DASHES = re.compile("-+")
_LINKS = "wikilinks"
_IMAGES = "images"
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".bmp", ".svg", ".heic")
# The page that a link leads to learns nothing about this one, and cannot change it.
_REL = "noopener noreferrer nofollow"


class TextRange(Struct, frozen=True):
    """A part of a text to mark."""

    start: int
    end: int
    is_passage: bool = False  # links can point at it


def render_markdown(
    text: str,
    marks: Sequence[TextRange] = (),
    links: Mapping[str, str] | None = None,
    images: Mapping[str, str] | None = None,
    *,
    keeps_line_breaks: bool = True,
) -> str:
    """Returns HTML. The marks are in order and do not overlap. `links` are the addresses of wikilinks by target, and
    `images` the addresses of images that this server has, by the name in the text."""
    import nh3  # noqa: PLC0415 - only pages need it, not MCP

    text = _SENTINELS.sub("\ufffd", text)
    passage = next((index for index, mark in enumerate(marks) if mark.is_passage), None)
    env = {_LINKS: links or {}, _IMAGES: images or {}}
    parts, position = [], 0
    for one in marks:
        # A sentinel before the markup of a line would turn it into text, so it comes after that.
        is_line_start = one.start == 0 or text[one.start - 1] == "\n" or text[one.start] in "\r\n"
        match = _LINE_MARKUP.match(text, one.start, one.end) if is_line_start else None
        start = match.end() if match is not None and match.end() < one.end else one.start
        parts += [text[position:start], _OPEN, text[start : one.end].rstrip(), _CLOSE]
        position = start + len(text[start : one.end].rstrip())
    html = _parser(keeps_line_breaks).render("".join([*parts, text[position:]]), env)
    # The parser lets no HTML of the text through. If it ever did, this would remove it.
    html = nh3.clean(html, tags=_TAGS, attributes=_ATTRIBUTES, url_schemes=_SCHEMES, link_rel=_REL)
    html = _with_marks(html, passage)
    # A mark inside the address of a link does not survive.
    is_complete = "<mark" in html if passage is None else f'id="{PASSAGE}"' in html
    return html if is_complete or not marks else render_plain(text, marks)


def without_markup(text: str) -> str:
    """Returns a snippet without the marks of Markdown, for a line of plain text. Words stay as they are."""
    for pattern, replacement in _INLINE_MARKUP:
        text = pattern.sub(replacement, text)
    return " ".join(text.split()).strip("· ")


def render_plain(text: str, marks: Sequence[TextRange] = ()) -> str:
    """Returns the text as it is, escaped, with its line breaks."""
    html, position = "", 0
    for mark in marks:
        attribute = f' id="{PASSAGE}"' if mark.is_passage else ""
        html += f"{escape(text[position : mark.start])}<mark{attribute}>{escape(text[mark.start : mark.end])}</mark>"
        position = mark.end
    return f'<div class="plain">{html}{escape(text[position:])}</div>'


def _with_marks(html: str, passage: int | None) -> str:
    """Puts `<mark>` around the text between two sentinels, once in each element. The one with the index `passage` gets
    the id that links point at."""
    is_open, index, has_id, result = False, -1, False, []
    for part in _HTML_TAG.split(html):
        if part.startswith("<"):
            result.append(_SENTINELS.sub("", part))
            continue
        for piece in _SENTINEL_PARTS.split(part):
            if piece in (_OPEN, _CLOSE):
                is_open, index = piece == _OPEN, index + (piece == _OPEN)
            elif is_open and piece and not piece.isspace():
                needs_id = index == passage and not has_id
                has_id = has_id or needs_id
                result.append(f'<mark id="{PASSAGE}">{piece}</mark>' if needs_id else f"<mark>{piece}</mark>")
            else:
                result.append(piece)
    return "".join(result)


def _count_cells(line: str) -> int:
    row = line.strip(" \t")
    return max(0, row.count("|") + 1 - row.startswith("|") - row.endswith("|"))


class _TableBudget:
    """Limits the cells that rows lack. They are added as empty ones, 65,536 to each table, and each takes 35 us: 1,600
    characters took two seconds and 90 MB. With a limit by the length of the text, the work stays proportional to it."""

    def __init__(self, text: str) -> None:
        self._left = _MISSING_CELLS_FREE + len(text) // 2
        # Of each line: the cells that it and the lines before it write, and where the next empty line is.
        lines = self._lines = text.split("\n")
        self._cells = [0, *accumulate(map(_count_cells, lines))]
        self._ends = [len(lines)] * (len(lines) + 1)
        for number in range(len(lines) - 1, -1, -1):
            self._ends[number] = self._ends[number + 1] if lines[number].strip(" \t") else number

    def take(self, line: int) -> bool:
        """Counts what the rows of a table that begins at that line may lack. Returns whether that is permitted."""
        end = self._ends[line]
        # The line below the heading has dashes in every column.
        columns = len(_DASHES.findall(self._lines[line + 1]))
        missing = max(0, columns * (end - line) - (self._cells[end] - self._cells[line]))
        if missing > self._left:
            return False
        self._left -= missing
        return True


@cache
def _parser(keeps_line_breaks: bool) -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only pages need it, not MCP

    parser = MarkdownIt("commonmark", {"html": False, "breaks": keeps_line_breaks}).enable(["table", "strikethrough"])
    parser.block.ruler.at("table", _read_table, {"alt": ["paragraph", "reference"]})
    parser.add_render_rule("image", _image_link)
    parser.inline.ruler.before("link", "wikilink", _read_wikilink)
    parser.inline.ruler.before("wikilink", "image_embed", _read_image_embed)
    return parser


def _read_table(state: Any, start: int, end: int, silent: bool) -> bool:
    """Reads a table, unless its rows lack too many cells. Such a table is shown as text."""
    from markdown_it.rules_block import table  # noqa: PLC0415 - see `_parser`

    if not table(state, start, end, True):
        return False
    if silent:
        return True
    budget = state.env.get(_TABLES)
    if budget is None:
        budget = state.env[_TABLES] = _TableBudget(state.src)
    return budget.take(start) and table(state, start, end, False)


def _read_image_embed(state: Any, silent: bool) -> bool:
    """Reads `![[picture.png]]` and `![[picture.png|300]]`, which Obsidian writes for images of the vault."""
    match = WIKILINK.match(state.src, state.pos + 1) if state.src[state.pos] == "!" else None
    name = _SENTINELS.sub("", match[1]).strip() if match is not None else ""
    if match is None or not name.lower().endswith(_IMAGE_SUFFIXES):
        return False
    address = state.env[_IMAGES].get(name)
    if not silent and address is not None:
        token = state.push("html_inline", "", 0)
        token.content = _image(address, name)
    elif not silent:
        state.push("text", "", 0).content = f"[image: {name}]"
    state.pos = match.end()
    return True


def _image(address: str, label: str) -> str:
    return f'<img src="{escape(address)}" alt="{escape(label)}" loading="lazy">'


def _read_wikilink(state: Any, silent: bool) -> bool:
    """Reads `[[Title]]` and `[[Title|label]]`. A link to a note that does not exist stays text."""
    match = WIKILINK.match(state.src, state.pos)
    address = state.env[_LINKS].get(_SENTINELS.sub("", match[1]).strip()) if match is not None else None
    if match is None or address is None:
        return False
    if not silent:
        state.push("link_open", "a", 1).attrs = {"href": address}
        state.push("text", "", 0).content = match[2] or match[1]
        state.push("link_close", "a", -1)
    state.pos = match.end()
    return True


def _image_link(_self: Any, tokens: Sequence[Any], index: int, _options: Mapping[str, Any], env: Any) -> str:
    """An image of another host would tell it who reads the item, and when. Those of this server are shown."""
    token = tokens[index]
    address = str(token.attrs.get("src", ""))
    if (own := env[_IMAGES].get(unquote(address))) is not None:
        return _image(own, token.content)
    label = token.content or address
    return f'<a href="{escape(address)}">{escape(f"[image: {label}]")}</a>'
