"""A page as a browser would take it apart."""

import html.parser


class Markup(html.parser.HTMLParser):
    """The elements of a page, its attributes, what it loads, where it links to inside itself, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()

    @property
    def targets(self) -> set[str]:
        return {link[1:] for link in self.links if link.startswith("#")}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= named.keys()
        self.ids |= {named["id"]} if "id" in named else set()
        self.loads += [named["src"]] if "src" in named else []
        if "href" in named:
            (self.loads if tag == "link" else self.links).append(named["href"])

    def handle_data(self, data: str) -> None:
        self.text += data
