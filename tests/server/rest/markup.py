"""Parses an HTML page for assertions about its elements."""

import html.parser


class Markup(html.parser.HTMLParser):
    """The tags, attributes, links, loaded URLs, ids, values of fields and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.values: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()

    @property
    def targets(self) -> set[str]:
        """The ids that the page links to."""
        return {link[1:] for link in self.links if link.startswith("#")}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= attributes.keys()
        self.ids |= {attributes["id"]} if "id" in attributes else set()
        self.values |= {attributes["value"]} if "value" in attributes else set()
        self.loads += [attributes["src"]] if "src" in attributes else []
        if "href" in attributes:
            (self.loads if tag == "link" else self.links).append(attributes["href"])

    def handle_data(self, data: str) -> None:
        self.text += data
