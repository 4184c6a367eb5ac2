"""The text of a web page without its menus: navigation, side bars, footers, and buttons for sharing.

Three rules decide what belongs to the page itself, from the most to the least certain: the only `main` or `article`
element; everything outside elements that are marked as menus; everything. A rule that leaves too little is not used, so
that a page with unusual markup loses nothing.
"""

import re
from collections.abc import Mapping, Sequence

from sources.importers.parsers.parsed_document import TextBuilder

_MENU_ELEMENTS = frozenset(["nav", "aside", "footer", "menu"])
_MENU_ROLES = frozenset(["navigation", "banner", "contentinfo", "complementary", "search", "menu", "menubar"])
# Elements that contain the page are often named after what is next to the text, as in <body class="sidebar">.
_NEVER_A_MENU = frozenset(["html", "body", "main", "article", "h1", "h2", "h3", "p", "pre", "table"])
_MENU_NAME = re.compile(
    "(?:(?:main|site|top|side|page|global|primary|secondary|header|footer|mobile|user|sub)[-_]?)?"
    "(?:nav|navbar|navigation|menu|menubar|sidebar|sidenav|footer|breadcrumbs?|pagination)"
    "(?:[-_](?:bar|list|links?|menu|wrapper|container|items?|left|right|main|primary))?"
    "|(?:cookie|social|share)(?:[-_][a-z]{1,20}){0,3}|skip[-_]?(?:link|to-[a-z]{1,20})",
    re.IGNORECASE,
)
# Elements that change where text goes, apart from menus.
_STRUCTURE = frozenset(["main", "article", "ul", "ol", "a", "p"])
_NAMES_MAX_CHARS = 500
_CONTENT_MIN_CHARS = 200
_CONTENT_MIN_SHARE = 0.5
# A list in front of the text is a menu if it has this many links, and little else.
_LINKS_MIN = 3
_LINK_SHARE_MIN = 0.8


class ArticleText:
    """Collects the text of a page under each of the rules. It has the interface of `TextBuilder`."""

    def __init__(self, max_chars: int) -> None:
        self._all = TextBuilder(max_chars)
        self._without_menus = TextBuilder(max_chars)
        self._inside = {tag: TextBuilder(max_chars) for tag in ("main", "article")}
        self._counts = dict.fromkeys(self._inside, 0)
        self._depths = dict.fromkeys(self._inside, 0)
        self._menus = 0
        self._open: list[tuple[str, bool]] = []
        self._list = _LeadingList(max_chars)
        self._builders: Sequence[TextBuilder] = (self._all, self._without_menus)

    def start_element(self, tag: str, attributes: Mapping[str, str]) -> None:
        part = "main" if attributes.get("role", "").lower() == "main" else tag
        is_menu = _is_menu(tag, attributes)
        # A quotation or note in the text may have a footer.
        is_menu = is_menu and not (tag == "footer" and any(self._depths.values()))
        self._open.append((part, is_menu))
        if not is_menu and part not in _STRUCTURE:
            return
        self._menus += is_menu
        if part in self._depths:
            self._counts[part] += not self._menus and self._depths[part] == 0
            self._depths[part] += 1
        if not self._menus:
            self._list.start(tag)
        self._select_builders()

    def end_element(self) -> None:
        if not self._open:
            return
        part, is_menu = self._open.pop()
        if not is_menu and part not in _STRUCTURE:
            return
        self._menus -= is_menu
        if part in self._depths:
            self._depths[part] -= 1
        if not self._menus and self._list.is_open and self._list.end(part):
            self._without_menus.append(self._list.text)
        self._select_builders()

    def write(self, text: str) -> None:
        self._list.count(text)
        for builder in self._builders:
            builder.write(text)

    def write_verbatim(self, text: str) -> None:
        for builder in self._builders:
            builder.write_verbatim(text)

    def end_line(self) -> None:
        for builder in self._builders:
            builder.end_line()

    def end_paragraph(self, prefix: str = "") -> None:
        self._list.has_text_before |= prefix.startswith("#") and not self._menus
        for builder in self._builders:
            builder.end_paragraph(prefix)

    def build(self) -> str:
        full, content = self._all.build(), self._without_menus.build()
        part = next((tag for tag in self._inside if self._counts[tag]), None)
        if part is not None and self._counts[part] == 1 and _is_enough(inside := self._inside[part].build(), full):
            return inside
        return content if _is_enough(content, full) else full

    def _select_builders(self) -> None:
        if self._menus:
            self._builders = (self._all,)
            return
        inside = [builder for tag, builder in self._inside.items() if self._depths[tag]]
        self._builders = (self._all, self._list.text if self._list.is_open else self._without_menus, *inside)


class _LeadingList:
    """A list in front of the text of a page, which is held back until it is known to be a menu or not."""

    def __init__(self, max_chars: int) -> None:
        self.text = TextBuilder(max_chars)
        self.has_text_before = False
        self._max_chars = max_chars
        self._depth = 0
        self._link_depth = 0
        self._links = 0
        self._chars = 0
        self._link_chars = 0

    @property
    def is_open(self) -> bool:
        return self._depth > 0

    def start(self, tag: str) -> None:
        if tag == "p":
            self.has_text_before = True
        if tag in ("ul", "ol") and (self._depth or not self.has_text_before):
            if not self._depth:
                self.text = TextBuilder(self._max_chars)
                self._links = self._chars = self._link_chars = self._link_depth = 0
            self._depth += 1
        if tag == "a" and self._depth:
            self._link_depth += 1
            self._links += 1

    def end(self, tag: str) -> bool:
        """Returns whether this element ended the list, and the list is not a menu."""
        if tag == "a":
            self._link_depth = max(0, self._link_depth - 1)
        if tag not in ("ul", "ol"):
            return False
        self._depth -= 1
        is_menu = self._links >= _LINKS_MIN and self._link_chars >= _LINK_SHARE_MIN * self._chars
        return not self._depth and not is_menu

    def count(self, text: str) -> None:
        # The list mark "- " is written by the reader.
        if self._depth and text != "- ":
            chars = len(text.strip())
            self._chars += chars
            self._link_chars += chars if self._link_depth else 0


def _is_enough(content: str, full: str) -> bool:
    return len(content) >= min(_CONTENT_MIN_CHARS, _CONTENT_MIN_SHARE * len(full))


def _is_menu(tag: str, attributes: Mapping[str, str]) -> bool:
    if tag in _MENU_ELEMENTS:
        return True
    if not attributes or tag in _NEVER_A_MENU:
        return False
    if attributes.get("role", "").lower() in _MENU_ROLES:
        return True
    names = f"{attributes.get('class', '')} {attributes.get('id', '')}"[:_NAMES_MAX_CHARS].split()
    return any(_MENU_NAME.fullmatch(name) for name in names)
