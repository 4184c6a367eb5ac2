"""The page of an item. Its address is the item's permalink, where programs get the JSON of `read_item`.

It shows only what the caller may read. Another user's item and a missing one get the same response.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from msgspec import UNSET, Meta, Struct, structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from aggregator.libraries import split_library, with_library
from config.errors import FlorilegiumError, InvalidParams, NotFound
from server.admission import IncomingRequest
from server.console.browser import BrowserGuard, SignInRequired, see_other
from server.console.charts import LinkGraph, link_graph
from server.console.markdown import TextRange, render_markdown, render_plain
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import N_, clock_time, use_preferences
from server.console.search_page import SearchForm
from server.error_responses import PRIVATE_HEADERS, json_error
from server.following.locations import followed_file
from server.operations.knowledge import ItemRequest, read_item
from server.operations.library import ItemLinks, ItemLinksRequest, LibraryItem, find_item, get_item_links
from server.rest.handler import build_response, check_method, html_error, rest_context, run_operation
from server.rest.requests import read_input
from server.runtime import Runtime
from server.tools.research import PASSAGE, Permalinks, title_of
from server.version import is_web_address
from sources.importers.engine.confined_files import reading_confined_to
from sources.importers.engine.limits import import_limits
from sources.importers.parsers.parsed_document import PdfPage, pdf_page
from sources.installed import ITEM_KINDS, TABLE_KINDS
from sources.items import GetResponse, Loc, Mode
from sources.query import Term
from sources.reading.retrieval import WINDOW_MAX
from sources.records import ALTERNATE_BRANCH_LABEL
from sources.search.arguments import read_query
from sources.search.snippets import Highlighter
from sources.source import numeric_id
from sources.text.chunking import run_text_work, split_into_chunks

# -- item sections -----------------------------------------------------------------------------------------------------
# Splits an item into the parts that its page shows: messages, timed passages, or one text.

# The size of the marked passage of a message: one or two sentences.
_PASSAGE_CHARS = 160
_MATCHES_MAX = 500

# The sources whose items are texts with a title.
_TITLED = frozenset(kind.source for kind in TABLE_KINDS if kind.layout != "text")

Attachment = Mapping[str, Any]


class ItemSection(Struct, frozen=True, kw_only=True):
    """A part of an item's text as HTML."""

    html: str
    kind: str = "text"
    fragment: str = ""  # what a link can point at
    speaker: str = ""
    role: str = ""
    time: str = ""
    seconds: int | None = None
    model: str = ""
    tool: str = ""
    is_alternate: bool = False
    is_human_only: bool = False
    number: int | None = None


class PassageMarks(Struct, frozen=True, kw_only=True):
    """What to mark on a page: the passage that a link points at, or else the words of a query."""

    text: str = ""
    offset: int | None = None
    terms: tuple[Term, ...] = ()
    links: Mapping[str, str] = {}  # the addresses of wikilinks by target
    images: Mapping[str, str] = {}  # the addresses of the item's own images by name


def sections_of(item: GetResponse, marks: PassageMarks) -> list[ItemSection]:
    """Splits the text by message or timed passage if the item has attachments for them."""
    # Removes the heading with which the text of a character or prompt begins, because the page has it already.
    heading = f"# {item.meta.title}\n"
    is_repeated = item.meta.source in _TITLED and not item.attachments and item.content.startswith(heading)
    item = structs.replace(item, content=item.content.removeprefix(heading).lstrip("\n")) if is_repeated else item
    spans = [attachment for attachment in item.attachments or () if _fragment(attachment)]
    passage = _find_passage(item, marks.text)
    if not spans:
        ranges = _marks(item.content, passage, marks)
        return [ItemSection(html=render_markdown(item.content, ranges, marks.links, marks.images))]
    return [_span_section(item.content, span, passage, marks) for span in spans]


def _span_section(content: str, span: Attachment, passage: TextRange | None, marks: PassageMarks) -> ItemSection:
    is_message = "message_id" in span
    speaker = str(span.get("sender") or span.get("role") or span.get("speaker") or "")
    is_alternate = not span.get("is_canonical", True)
    text = content[span["start"] : span["end"]]
    if is_message:
        label = speaker + (ALTERNATE_BRANCH_LABEL if is_alternate else "")
        text = text.removeprefix(f"{label}: ")
    is_marked = passage is not None and passage.start == span["start"]
    own_passage = TextRange(0, len(text)) if is_marked else None
    if is_marked and marks.offset is not None:
        # The sentences around the offset.
        for chunk in split_into_chunks(text, _PASSAGE_CHARS, 0):
            if chunk.start <= marks.offset < chunk.end:
                own_passage = TextRange(chunk.start, chunk.end)
    render = render_markdown if is_message else render_plain
    start_ms = span.get("start_ms")
    return ItemSection(
        html=render(text, _marks(text, own_passage, marks)),
        kind="message" if is_message else "line",
        fragment=_fragment(span),
        speaker=speaker,
        role=str(span.get("role") or ""),
        time=clock_time(start_ms) if start_ms is not None else str(span.get("created_at") or ""),
        seconds=start_ms // 1000 if start_ms is not None else None,
        model=str(span.get("model") or ""),
        tool=str(span.get("tool") or ""),
        is_alternate=is_alternate,
        is_human_only=bool(span.get("human_only")),
        number=span.get("message_index"),
    )


def _marks(text: str, passage: TextRange | None, marks: PassageMarks) -> list[TextRange]:
    """Returns the words to mark; of those in the passage, the first one. Without such words, the passage is
    marked as a whole."""
    ranges = Highlighter(marks.terms).ranges(text)[:_MATCHES_MAX] if marks.terms else []
    if passage is None:
        return [TextRange(*one) for one in ranges]
    inside = next((one for one in ranges if passage.start <= one[0] < passage.end), None)
    if inside is not None:
        return [TextRange(*one, is_passage=one == inside) for one in ranges]
    outside = [TextRange(*one) for one in ranges if one[1] <= passage.start or one[0] >= passage.end]
    return sorted([*outside, TextRange(passage.start, passage.end, is_passage=True)], key=lambda one: one.start)


def _find_passage(item: GetResponse, passage: str) -> TextRange | None:
    """Returns the range of the passage in the content, or None if the page was not opened for a passage."""
    if item.anchor not in ("loc", "query"):
        return None
    loc = item.meta.loc or Loc()
    for span in item.attachments or ():
        if (span.get("message_index"), span.get("chunk_index")) == (loc.message_index, loc.chunk_index):
            return TextRange(span["start"], span["end"])
    text = passage.strip()
    start = item.content.find(text) if text else -1
    return TextRange(start, start + len(text)) if start >= 0 else None


def _fragment(attachment: Attachment) -> str:
    if "message_id" in attachment:
        return str(attachment["message_id"])
    return f"t{attachment['start_ms'] // 1000}" if attachment.get("start_ms") is not None else ""


PERMALINK = "/items/{source}/{id:path}"
NOTE_IMAGE = "/note-images/{id}/{name:path}"
# A browser that opens the image as a page runs and loads nothing.
_IMAGE_HEADERS = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}
# The size of the marked passage in an item that is one text: one or two sentences.
_PASSAGE_TOKENS = 40
_FIND_MAX_CHARS = 1000
_LINKS = Permalinks("")
_MODES: tuple[Mode, ...] = ("snippet", "chunk", "chunk_with_siblings", "full")


# The originals of items that a browser can show, by the suffix of their address. SVG is a document that runs scripts.
_LINKED_MEDIA = {
    "audio": (".mp3", ".m4a", ".aac", ".ogg", ".oga", ".opus", ".wav", ".flac"),
    "video": (".mp4", ".m4v", ".webm", ".mov", ".ogv"),
    "image": (".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif"),
}
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,252}[a-z0-9])?")


class LinkedMedia(Struct, frozen=True, kw_only=True):
    """The original of an item on another server. It is requested only after the person has chosen so on a page that
    names the server, and then the policy of the page permits that server and no other."""

    kind: str
    address: str
    origin: str
    host: str
    play_address: str
    is_open: bool


def linked_media(url: str, page_address: str, *, is_open: bool) -> LinkedMedia | None:
    """Returns None for an address that a browser cannot play, or whose host could be more than a host in a policy."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # UnicodeError is one
        return None
    kinds = (kind for kind, suffixes in _LINKED_MEDIA.items() if parts.path.lower().endswith(suffixes))
    kind = next(kinds, None)
    if kind is None or parts.scheme not in ("http", "https") or not _HOST.fullmatch(host):
        return None
    origin = f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")
    path, _, query = page_address.partition("?")
    return LinkedMedia(
        kind=kind,
        address=urlunsplit(parts._replace(netloc=origin.partition("://")[2], fragment="")),
        origin=origin,
        host=origin.partition("://")[2],
        play_address=f"{path}?{query}&play=true" if query else f"{path}?play=true",
        is_open=is_open,
    )


# A PDF in a followed folder is shown as images of its pages, drawn in the sandboxed process that also parses imports. A
# browser's own viewer would need less code, but Chrome for Android has none, and others refuse to run in a sandboxed
# frame: a hostile file would get a page of this server.
PDF_PAGE = "/pdf-pages/{id}/{page:int}"
# Pages that are drawn or looked for at a time, by all users; others wait. A page takes a tenth of a second of CPU time.
_PDF_PROCESSES_MAX = 2
_PDF_CPU_S = 5
_PDF_DEADLINE_S = 30.0
# Enough of a passage to recognize it.
_PDF_PASSAGE_CHARS = 120


class PdfPreview(Struct, frozen=True, kw_only=True):
    """A page of a PDF. Addresses are empty before the first and after the last page."""

    number: int
    count: int
    image: str
    previous: str
    next: str


class PermalinkRequest(ItemRequest, frozen=True, kw_only=True):
    """The short parameters of a link, in addition to those of `read_item`."""

    t: Annotated[float | None, Meta(description="Seconds from the beginning of a recording.")] = None
    message: Annotated[str | None, Meta(description="Id of a message of the conversation.")] = None
    at: Annotated[int | None, Meta(description="Character offset in the text, in `field` if it is set.")] = None
    assistant: Annotated[bool, Meta(description="Show what an assistant gets, in each mode.")] = False
    page: Annotated[int | None, Meta(description="Show this page of a PDF.")] = None
    play: Annotated[bool, Meta(description="Play or show the original from its own server.")] = False
    done: Annotated[str, Meta(description="What was done to the item just now.")] = ""
    find: Annotated[str | None, Meta(description="Words to mark on the page.")] = None
    back: Annotated[str, Meta(description="Query string of the search page that the link is on.")] = ""
    result: Annotated[int | None, Meta(description="Number of the result that was opened.")] = None

    @property
    def is_plain(self) -> bool:
        """Whether the link asks for the item as a whole."""
        return not self.has_position and self.cursor is None and self.mode is None

    def resolved(self) -> "PermalinkRequest":
        """Returns the request with the short parameters under their long names."""
        return structs.replace(
            self,
            seconds=self.t if self.seconds is None else self.seconds,
            message_id=self.message_id or self.message,
            approx_offset=self.at if self.approx_offset is None else self.approx_offset,
        )

    def for_page(self) -> "PermalinkRequest":
        """Returns the request with a default mode: the whole item, or what surrounds the passage that the link points
        to."""
        if not (self.has_position or "/" in self.id):
            return structs.replace(self, mode=self.mode or "full", attachments=True)
        window = WINDOW_MAX if self.sibling_window is None else self.sibling_window
        return structs.replace(self, mode=self.mode or "chunk_with_siblings", sibling_window=window, attachments=True)

    def for_whole_item(self) -> "PermalinkRequest":
        return PermalinkRequest(source=self.source, id=self.id, library=self.library, mode="full", attachments=True)


class ItemPage(LibraryPage):
    """The ASGI application of permalinks."""

    done_sentences: ClassVar = {
        "created": N_("The item is created."),
        "saved": N_("Your changes are saved."),
        "tagged": N_("The tags are changed."),
        "deleted": N_("The message is deleted."),
        "restored": N_("The item is restored."),
    }

    def __init__(self, runtime: Runtime, browser: BrowserGuard) -> None:
        super().__init__(runtime, browser)
        self._operation = structs.replace(read_item.at(runtime), path=PERMALINK, input=PermalinkRequest)
        self._pdf_processes = asyncio.Semaphore(_PDF_PROCESSES_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        use_preferences(scope)
        request = Request(scope, receive)
        # Browsers ask for HTML; clients that ask for neither, such as curl, get HTML too.
        accept = request.headers.get("accept", "").lower()
        wants_json = "application/json" in accept and "text/html" not in accept
        try:
            check_method(request.method, ("GET",))
            if wants_json:
                incoming = IncomingRequest.from_scope(scope)
                admission = self._runtime.admission
                admitted = await admission.admit_operation(incoming, incoming.headers.authorization(), self._operation)
                context, args = rest_context(self._runtime, admitted), await self._args(request, incoming)
                item = await run_operation(self._runtime, self._operation, context, args)
                response = build_response(self._operation, item, incoming.headers)
            else:
                response = await self._page(request)
        except SignInRequired as error:
            response = see_other(error.location)
        except FlorilegiumError as error:
            settings = self._runtime.settings
            response = json_error(settings, error) if wants_json else html_error(settings, error)
        # Caches must not give the page to a program.
        response.headers["Vary"] = "Accept"
        await response(scope, receive, send)

    async def _page(self, request: Request) -> Response:
        viewer = await self.admit(request, self._operation)
        args = await self._args(request, IncomingRequest.from_scope(request.scope))
        item, marks = await self._read(viewer, args)
        links: ItemLinks | None = None
        is_own = item.meta.library is UNSET
        if item.meta.source == "notes":
            found: ItemLinks = await self.run(viewer, get_item_links, ItemLinksRequest(uri=item.meta.uri))
            links = found
            names: Sequence[str] = ()
            if is_own:  # the addresses of images lead to the own library
                async with self._runtime.libraries.library(viewer.context) as library:
                    names = await library.notes.image_names(str(item.meta.id))
            marks = structs.replace(
                marks,
                links={link.target: _LINKS.of(link.uri) for link in found.links},
                images={name: f"/note-images/{quote(str(item.meta.id), safe='')}/{quote(name)}" for name in names},
            )
        page_address = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        media = linked_media(item.meta.url or "", page_address, is_open=args.play)
        record: LibraryItem | None = None
        if is_own and item.meta.source in ITEM_KINDS and viewer.can_write:
            with suppress(NotFound):
                record = await find_item(viewer.context, self._runtime, item.meta.uri)
        # Off the event loop if the text is long.
        sections = await run_text_work(len(item.content), sections_of, item, marks)
        values = page_values(item, sections)
        if values["is_partial"] and args.has_position:
            # What surrounds the passage may be all there is.
            whole: GetResponse = await self.run(viewer, self._operation, args.for_whole_item())
            values["is_partial"] = whole.truncated or whole.content.strip() != item.content.strip()
        pdf: PdfPreview | None = None
        if is_own and item.meta.media_type == "pdf":
            # From the mark that the browser scrolls to.
            passage = _find_passage(item, marks.text)
            marked = await run_text_work(len(item.content), _marks, item.content, passage, marks)
            start = next((one.start for one in marked if one.is_passage), None)
            text = "" if start is None else item.content[start : start + _PDF_PASSAGE_CHARS]
            pdf = await self._pdf_preview(viewer, args, str(item.meta.id), text)
        # What an assistant gets of the item in each mode.
        modes = _MODES if args.assistant else ()
        readings = [
            await self.run(
                viewer,
                self._operation,
                PermalinkRequest(source=args.source, id=args.id, library=args.library, mode=mode),
            )
            for mode in modes
        ]
        return await self.render(
            viewer,
            "item.html",
            **values,
            readings=readings,
            record=record,
            library=item.meta.library or "",
            media=media,
            pdf=pdf,
            start_seconds=int(args.seconds or (item.meta.loc.seconds if item.meta.loc else 0) or 0),
            media_origin=media.origin if media is not None and media.is_open else "",
            results=SearchForm.of_query(args.back) if args.back else None,
            result_number=args.result,
            links=links.links if links is not None else (),
            backlinks=links.backlinks if links is not None else (),
            graph=_link_graph(links) if links is not None else None,
            section="item",
        )

    async def show_image(self, request: Request) -> Response:
        """Returns an image of a note. It was checked to be one when it was imported, and is never anything else."""
        viewer = await self.admit(request, self._operation)
        note, name = request.path_params["id"], request.path_params["name"]
        async with self._runtime.libraries.library(viewer.context) as library:
            image = await library.notes.image(note, name)
        return Response(image.data, headers={**PRIVATE_HEADERS, **_IMAGE_HEADERS}, media_type=image.media_type)

    async def show_pdf_page(self, request: Request) -> Response:
        """Returns an image of a page."""
        viewer = await self.admit(request, self._operation)
        item_id, page = request.path_params["id"], request.path_params["page"]
        # Raises if the viewer may not read the item, or media at all.
        await self.run(viewer, self._operation, PermalinkRequest(source="media", id=item_id, mode="snippet"))
        file, count = await self._pdf_file(viewer, item_id)
        if file is None or not 1 <= page <= count:
            raise NotFound("page", item_id[:60])
        drawn = await self._pdf_page(file, page)
        return Response(drawn.png, headers={**PRIVATE_HEADERS, **_IMAGE_HEADERS}, media_type="image/png")

    async def _pdf_preview(
        self, viewer: Viewer, args: PermalinkRequest, item_id: str, passage: str
    ) -> PdfPreview | None:
        """Returns the page that was chosen, or else the one with the passage that the link points at."""
        file, count = await self._pdf_file(viewer, item_id)
        if file is None:
            return None
        number = args.page or 1
        if args.page is None and passage.strip():
            with suppress(InvalidParams):  # it cannot be read now
                number = (await self._pdf_page(file, passage)).number
        number = max(1, min(number, count))
        kept = [(name, value) for name, value in viewer.request.query_params.multi_items() if name != "page"]

        def address(page: int) -> str:
            query = urlencode([*kept, ("page", page)])
            return f"{viewer.request.url.path}?{query}#pages" if 1 <= page <= count else ""

        return PdfPreview(
            number=number,
            count=count,
            image=f"/pdf-pages/{quote(item_id, safe='')}/{number}",
            previous=address(number - 1),
            next=address(number + 1),
        )

    async def _pdf_file(self, viewer: Viewer, item_id: str) -> tuple[Path | None, int]:
        """Returns the file of an item and the number of its pages, if the file is a PDF in a followed folder."""
        number, user_id = numeric_id(item_id), viewer.context.user_id
        async with self._runtime.libraries.library(viewer.context) as library:
            found = await (library.media.get_by_uuid(item_id) if number is None else library.media.get(number))
            file = await followed_file(self._runtime, library, user_id, "media", found.uuid)
        count = found.metadata.get("pages")
        if file is None or file.suffix.lower() != ".pdf" or not isinstance(count, int) or count < 1:
            return None, 0
        return file, count

    async def _pdf_page(self, file: Path, page: int | str) -> PdfPage:
        limits = import_limits(self.settings)
        limits = structs.replace(limits, parser_cpu_s=_PDF_CPU_S, parser_deadline_s=_PDF_DEADLINE_S)

        def read() -> PdfPage:
            try:
                with reading_confined_to([file.parent]):
                    return pdf_page(file, page, limits)
            except OSError:
                raise InvalidParams("the file cannot be read") from None

        async with self._pdf_processes:
            return await asyncio.to_thread(read)

    async def _transcript(self, viewer: Viewer, args: PermalinkRequest) -> GetResponse | None:
        """Returns the beginning of a recording with the times of its passages, or None if it has none."""
        request = structs.replace(args, chunk_index=0).for_page()
        try:
            item: GetResponse = await self.run(viewer, self._operation, request)
        except InvalidParams:
            return None
        is_timed = any(attachment.get("start_ms") is not None for attachment in item.attachments or ())
        if not is_timed:
            return None
        has_more, next_index = True, _chunk_indexes(item)[-1] + 1
        try:
            following = PermalinkRequest(
                source=args.source, id=args.id, library=args.library, chunk_index=next_index, mode="snippet"
            )
            await self.run(viewer, self._operation, following)
        except (InvalidParams, NotFound):
            has_more = False
        return structs.replace(item, anchor="beginning", mode="full", truncated=has_more)

    async def _args(self, request: Request, incoming: IncomingRequest) -> PermalinkRequest:
        limit = self._runtime.settings.body_max_bytes
        args: PermalinkRequest = await read_input(self._operation, request, incoming.headers, limit)
        return args.resolved()

    async def _read(self, viewer: Viewer, args: PermalinkRequest) -> tuple[GetResponse, PassageMarks]:
        """Returns what the page shows of an item, and what to mark. A message or chunk is marked by its attachment; in
        an item that is one text, the passage to mark is read separately. If the item was changed and the position no
        longer exists, the page shows the whole item."""
        find = (args.find or "")[:_FIND_MAX_CHARS]
        marks = PassageMarks(offset=args.approx_offset, terms=read_query(find, self._runtime.settings).terms)
        if (
            args.source == "media"
            and args.is_plain
            and (transcript := await self._transcript(viewer, args)) is not None
        ):
            return transcript, marks
        try:
            item: GetResponse = await self.run(viewer, self._operation, args.for_page())
        except InvalidParams:
            if not args.has_position:
                raise
            return await self.run(viewer, self._operation, args.for_whole_item()), marks
        if item.anchor not in ("loc", "query") or item.attachments is not None:
            return item, marks
        # The few sentences that the link points to.
        few = structs.replace(
            args, mode="chunk", chunk_size_tokens=_PASSAGE_TOKENS, chunk_overlap_tokens=0, max_tokens=None, cursor=None
        )
        passage: GetResponse = await self.run(viewer, self._operation, few)
        return item, structs.replace(marks, text=passage.content)


def _link_graph(links: ItemLinks) -> LinkGraph | None:
    out, back = (
        {note.uri: (note.title, _LINKS.of(note.uri)) for note in notes} for notes in (links.links, links.backlinks)
    )
    if not (out or back):
        return None
    return link_graph(out, back, [(link.source, link.target) for link in links.between])


def page_values(item: GetResponse, sections: list[ItemSection]) -> dict[str, Any]:
    meta, (uri, library) = item.meta, split_library(item.meta.uri)
    address, in_library = _LINKS.of(uri), {} if library is None else {"library": library}
    base = _LINKS.of(f"{meta.source}://{meta.conversation_id or meta.id}") if meta.source == "chats" else address
    base, more_address = base.partition("#")[0], ""
    chunks = _chunk_indexes(item)
    if chunks and item.truncated and item.anchor == "beginning":
        # A transcript is continued at the next chunk, so that its times are shown too.
        more_address = f"{base}?{urlencode({'chunk_index': chunks[-1] + 1, **in_library})}#{PASSAGE}"
    elif item.next_cursor is not None:
        more_address = f"{base}?{urlencode({'cursor': item.next_cursor, **in_library})}"
    return {
        "item": item,
        "meta": meta,
        "title": title_of(meta, item.content),
        "sections": sections,
        "path": base.removeprefix("/items"),
        "prompt_name": with_library(f"{meta.source.removesuffix('s')}_{meta.id}", library)
        if meta.source in ("prompts", "characters")
        else "",
        "assistant_address": f"{base}?{urlencode({'assistant': 'true', **in_library})}#assistant",
        "more_address": more_address,
        "is_partial": item.mode != "full" or item.anchor == "cursor",
        # Without the library, it would be another item of the viewer that has the same number.
        "item_address": f"{base}?{urlencode(in_library)}" if in_library else base,
        "web_address": meta.url if meta.url and is_web_address(meta.url) else "",
        "tag_links": [(tag, SearchForm(tag=tag).address()) for tag in meta.tags or ()],
        "similar": SearchForm(similar=meta.uri).address(),
    }


def _chunk_indexes(item: GetResponse) -> list[int]:
    return [attachment["chunk_index"] for attachment in item.attachments or () if "chunk_index" in attachment]
