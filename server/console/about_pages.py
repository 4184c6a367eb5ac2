"""Pages about this deployment, for people and for directories: privacy, terms, support and documentation.

They need no sign-in. An operator replaces the text of a page by a file of Markdown in the data directory, for example
`pages/privacy.md`; it is read at each request.
"""

import asyncio
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from config.errors import NotFound
from config.paths import DataRoot
from server.console.markdown import render_markdown
from server.console.pages import render_page

ABOUT_PATH = "/about/{page}"
# In the order of the links.
ABOUT_PAGES = ("documentation", "support", "privacy", "terms")
_DEFAULTS = Path(__file__).with_name("about")
# A long privacy policy has 100 KiB. The rest of a longer file is left out.
_PAGE_MAX_BYTES = 512 * 1024
_HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


class AboutPages:
    def __init__(self, data_root: DataRoot) -> None:
        self._folder = data_root.root / "pages"

    async def show(self, request: Request) -> Response:
        page = request.path_params["page"]
        if page not in ABOUT_PAGES:
            raise NotFound("path", request.scope["path"][:200])
        # Rendering a page of the largest size takes a second, so that it has a thread of its own.
        return await asyncio.to_thread(self._render, page)

    def _render(self, page: str) -> Response:
        # A file that cannot be read must not show the text of another policy instead, so that only a missing one is
        # replaced by the default.
        try:
            file = (self._folder / f"{page}.md").open("rb")
        except (FileNotFoundError, NotADirectoryError):
            file = (_DEFAULTS / f"{page}.md").open("rb")
        with file:
            text = file.read(_PAGE_MAX_BYTES).decode(errors="replace")
        heading = _HEADING.search(text)
        # Written with an editor that wraps lines, unlike notes.
        html = render_markdown(text, keeps_line_breaks=False)
        return render_page("about.html", title=heading[1].strip() if heading else page.title(), html=html)
