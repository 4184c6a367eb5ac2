"""The pages that create and change items, and the forms that tag, delete and restore them."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import structs, to_builtins
from starlette.requests import Request
from starlette.responses import Response

from config.errors import Conflict, FlorilegiumError, InvalidParams
from server.console.browser import SignInRequired, read_fields, see_other
from server.console.markdown import render_markdown
from server.console.page_handler import LibraryPage, PageHandler, Viewer
from server.console.pages import render_page
from server.operations import items, manage
from server.operations.items import EditableItem
from server.operations.operation import NoArguments, Operation
from server.tools.research import Permalinks
from server.version import is_web_address
from sources.installed import ITEM_KINDS
from sources.items import uri_of
from sources.kinds import FieldShape, Kind
from sources.records import MESSAGE
from sources.text.chunking import run_text_work

_LINKS = Permalinks("")
_DIGITS_MAX = 15
_TITLE_MAX_CHARS = 1000


# The order of the fields of a form by what they hold: long texts first.
_SHAPES: tuple[FieldShape, ...] = ("text", "list", "objects", "choice", "number", "flag", "line")
# The number of a part of a list in the name of its field, such as alternate_greetings.2 and arguments.0.name.
_PART = re.compile(r"(\w+)\.(\d{1,4})(?:\.(\w+))?\Z")


SHARE_PATH = "/share"
REVIEW_PATH = "/share/review"
# A shared text: the bookmarklet sends at most 200,000 characters, which are 9 bytes each at most in a form.
_SHARED_MAX_BYTES = 2 * 1024 * 1024
_SHARED_FIELDS = ("title", "text", "url")


# The bookmark for pages of other sites. It sends the selected text, or the longest article of the page, in a form: a
# form needs no permission of this server (CORS), and its page opens in a new tab.
_BOOKMARKLET = """
(() => {
  const parts = [...document.querySelectorAll("article, main, [role=main]")];
  const longest = parts.sort((a, b) => b.innerText.length - a.innerText.length)[0] ?? document.body;
  const text = (String(getSelection()) || longest.innerText).slice(0, 200000);
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action: ADDRESS, target: "_blank", acceptCharset: "utf-8", hidden: true });
  for (const [name, value] of Object.entries({ title: document.title, url: location.href, text })) {
    const field = Object.assign(document.createElement("textarea"), { name, value });
    form.append(field);
  }
  document.documentElement.append(form);
  HTMLFormElement.prototype.submit.call(form);
  form.remove();
})()
"""


def bookmarklet(origin: str) -> str:
    code = " ".join(line.strip() for line in _BOOKMARKLET.strip().splitlines())
    return "javascript:" + quote(code.replace("ADDRESS", json.dumps(origin + SHARE_PATH)))


class ShareHandler(PageHandler):
    """Serves the page that other apps and sites send texts to. Everyone may send one: the page reads no cookie, shows
    nothing but the text itself, and leads to a form that is saved only if the person says so."""

    def check_sender(self, request: Request) -> None:
        if request.method == "POST":
            self._browser.check_host(request)
        else:
            super().check_sender(request)


class EditPages(LibraryPage):
    async def show_new(self, request: Request) -> Response:
        viewer = await self.admit(request, items.create_item)
        source = request.query_params.get("source", "notes")
        item = _empty_item(source if source in items.SOURCE_NAMES else "notes")
        return await self._form(viewer, item, is_new=True)

    async def show_shared(self, request: Request) -> Response:
        """Shows the form of a new note with the text of the address. A link of another site leads here too."""
        viewer = await self.admit(request, items.create_item)
        return await self._shared_form(viewer, request.query_params)

    async def receive_shared(self, request: Request) -> Response:
        """Shows what an app or the bookmarklet sends. The browser sends no session with a form of another site
        (SameSite), so the page sends the text again as a form of this server."""
        values = await read_fields(request, _SHARED_MAX_BYTES)
        return _shared_page({name: values.get(name, "") for name in _SHARED_FIELDS}, is_signed_out=False)

    async def review_shared(self, request: Request) -> Response:
        """Shows the form of a new note. It has the token of the session, which the page before cannot have."""
        self._browser.check_sender(request)
        values = await read_fields(request, _SHARED_MAX_BYTES)
        try:
            viewer = await self.admit(request, items.create_item)
        except SignInRequired:
            # The text stays on the page while the person signs in.
            return _shared_page({name: values.get(name, "") for name in _SHARED_FIELDS}, is_signed_out=True)
        return await self._shared_form(viewer, values)

    async def _shared_form(self, viewer: Viewer, values: Mapping[str, str]) -> Response:
        title, text, url = (values.get(name, "").replace("\r\n", "\n").strip() for name in _SHARED_FIELDS)
        if not url and is_web_address(text) and len(text.split()) == 1:
            text, url = "", text  # most apps of Android share an address as the text
        lines = [line for line in (text, f"<{url}>" if is_web_address(url) else url) if line]
        item = structs.replace(_empty_item("notes"), title=title[:_TITLE_MAX_CHARS], content="\n\n".join(lines))
        return await self._form(viewer, item, is_new=True, action="/new", is_shared=True)

    async def create(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, items.create_item)
        source = values.get("source", "notes")
        item = _entered_item(values, _empty_item(source if source in items.SOURCE_NAMES else "notes"))
        if values.get("action") == "preview":
            return await self._form(viewer, item, is_new=True, preview=await _preview(item))
        names = {field.name for field in ITEM_KINDS[item.source].editable}
        try:
            created: items.WriteResult = await self.run(
                viewer,
                items.create_item,
                items.ItemsCreate(
                    source=item.source,
                    title=item.title,
                    content=item.content,
                    tags=item.tags,
                    fields={name: value for name, value in item.fields.items() if value and name in names},
                ),
            )
        except (InvalidParams, Conflict) as error:
            return await self._form(viewer, item, is_new=True, error=error)
        return see_other(_done(created.uri, "created"))

    async def show_edit(self, request: Request) -> Response:
        viewer = await self.admit(request, items.read_editable_item)
        item: EditableItem = await self.run(
            viewer, items.read_editable_item, items.EditableItemRequest(uri=_uri(request))
        )
        return await self._form(viewer, item)

    async def edit(self, request: Request) -> Response:
        """Saves the form. If the item was changed since it was opened, the form shows what was entered next to what is
        stored now, and saving it again replaces that."""
        viewer, values = await self.admit_form(request, items.update_item_by_uri)
        uri = _uri(request)
        stored: EditableItem = await self.run(viewer, items.read_editable_item, items.EditableItemRequest(uri=uri))
        entered = _entered_item(values, stored)
        version = values.get("version", "")
        if values.get("action") == "preview":
            shown = structs.replace(entered, version=int(version)) if version.isdecimal() else entered
            return await self._form(viewer, shown, preview=await _preview(entered))
        try:
            changes = _changes(entered, stored)
            if changes:
                expected = int(version) if version.isdecimal() else None
                await self.run(
                    viewer, items.update_item_by_uri, items.ItemsUpdate(uri=uri, expected_version=expected, **changes)
                )
        except Conflict as error:
            return await self._form(viewer, entered, conflict=stored, status=error.status)
        except InvalidParams as error:
            return await self._form(viewer, entered, error=error)
        return see_other(_done(uri, "saved"))

    async def tag(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, items.tag_item_by_uri)
        uri = _uri(request)
        add, remove = split_tags(values.get("add", "")), split_tags(values.get("remove", ""))
        if add or remove:
            await self.run(viewer, items.tag_item_by_uri, items.ItemsTag(uri=uri, add=add, remove=remove))
        return see_other(_done(uri, "tagged"))

    async def delete(self, request: Request) -> Response:
        viewer, _ = await self.admit_form(request, items.delete_item_by_uri)
        uri = _uri(request)
        await self.run(viewer, items.delete_item_by_uri, items.ItemsDelete(uri=uri))
        if items.parse_item_uri(uri).message_id is not None:
            return see_other(_done(uri.rpartition("/")[0], "deleted"))
        return see_other(f"/library?{urlencode({'deleted': uri})}")

    async def restore(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, items.restore_item)
        uris = [uri for uri in values.get("uris", "").split() if uri]
        for uri in uris:
            await self.run(viewer, items.restore_item, items.ItemsRestore(uri=uri))
        return see_other(_done(uris[0], "restored") if len(uris) == 1 else "/library?done=restored")

    async def admit_form(self, request: Request, operation: Operation) -> tuple[Viewer, Mapping[str, str]]:
        """Admits a form. Browsers send line breaks as CRLF, which texts do not have."""
        viewer = await self.admit(request, operation)
        values = await self._browser.check_form(request, self._runtime.settings.body_max_bytes)
        return viewer, {name: value.replace("\r\n", "\n") for name, value in values.items()}

    async def _form(
        self,
        viewer: Viewer,
        item: EditableItem,
        *,
        is_new: bool = False,
        conflict: EditableItem | None = None,
        action: str = "",
        is_shared: bool = False,
        **shown: Any,
    ) -> Response:
        kind = _kind(item)
        labels = {field.name: field.declared.label for field in kind.fields}
        # The label of the text; empty if the form has none. A conversation has one only when it begins.
        content_label = labels.get(kind.content or "", "Text")
        if kind.content_label:
            content_label = kind.content_label if is_new else ""
        return await self.render(
            viewer,
            "edit.html",
            **{"preview": None, **shown},
            item=item,
            noun=kind.noun,
            title_label=labels[kind.title] if kind.title else "",
            content_label=content_label,
            fields=sorted(kind.editable, key=lambda field: _SHAPES.index(field.shape)),
            kinds=ITEM_KINDS,
            is_new=is_new,
            conflict=conflict,
            version=(conflict or item).version,
            back=_LINKS.of(item.uri).partition("#")[0] if not is_new else "/library",
            action=action or viewer.request.url.path,
            is_shared=is_shared,
            section="new" if is_new else "",
        )


def _shared_page(values: Mapping[str, str], *, is_signed_out: bool) -> Response:
    return render_page("share.html", values=values, is_signed_out=is_signed_out, review_path=REVIEW_PATH)


async def _preview(item: EditableItem) -> str:
    """Returns the text as its page shows it. The images of a note have addresses on its page only."""
    return await run_text_work(len(item.content), render_markdown, item.content)


def _uri(request: Request) -> str:
    """Returns the URI of the item that the path of a page names."""
    return uri_of(request.path_params["source"], *request.path_params["id"].split("/"))


def _kind(item: EditableItem) -> Kind:
    return MESSAGE if "/" in item.uri.partition("://")[2] else ITEM_KINDS[item.source]


def _empty_item(source: str) -> EditableItem:
    fields: dict[str, Any] = {
        field.name: [] if field.shape in ("list", "objects") else "" for field in ITEM_KINDS[source].editable
    }
    return EditableItem(uri=f"{source}://", source=source, title="", content="", tags=(), fields=fields, version=0)


def _entered_item(values: Mapping[str, str], stored: EditableItem) -> EditableItem:
    """Returns the item as it was entered. Fields that the form does not have keep their values."""
    shapes: dict[str, FieldShape] = {field.name: field.shape for field in _kind(stored).editable}
    fields: dict[str, Any] = {}
    for name, value in stored.fields.items():
        if parts := _parts(values, name):
            is_list = shapes[name] == "list"
            fields[name] = [text for text in parts.values() if text.strip()] if is_list else _arguments(parts)
        elif shapes[name] == "flag" and values:
            fields[name] = name in values
        elif shapes[name] == "number" and name in values:
            text = values[name].strip()
            fields[name] = int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else text or None
        else:
            fields[name] = values.get(name, value)
    return EditableItem(
        uri=stored.uri,
        source=stored.source,
        title=values.get("title", stored.title),
        content=values.get("content", stored.content),
        tags=split_tags(values["tags"]) if "tags" in values else stored.tags,
        fields=fields,
        version=stored.version,
    )


def _parts(values: Mapping[str, str], name: str) -> dict[tuple[int, str], str]:
    """Returns the fields of a list by number and name of the part, in order. A form has at least one for each list."""
    matches = ((_PART.match(field), value) for field, value in values.items())
    parts = {(int(match[2]), match[3] or ""): value for match, value in matches if match and match[1] == name}
    return dict(sorted(parts.items()))


def _arguments(parts: Mapping[tuple[int, str], str]) -> list[dict[str, Any]]:
    """Returns the arguments that have a name."""
    numbers = dict.fromkeys(number for number, _ in parts)
    return [
        {
            "name": parts[number, "name"].strip(),
            "description": parts.get((number, "description"), "").strip(),
            "required": (number, "required") in parts,
        }
        for number in numbers
        if parts.get((number, "name"), "").strip()
    ]


def _changes(entered: EditableItem, stored: EditableItem) -> dict[str, Any]:
    """Returns the arguments of the update: the values that differ."""
    changes: dict[str, Any] = {
        name: getattr(entered, name)
        for name in ("title", "content", "tags")
        if getattr(entered, name) != getattr(stored, name)
    }
    known = to_builtins(stored.fields)
    fields = {
        name: value for name, value in entered.fields.items() if (to_builtins(value) or None) != (known[name] or None)
    }
    return {**changes, "fields": fields} if fields else changes


def split_tags(text: str) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in text.split(",") if tag.strip())


def _done(uri: str, word: str) -> str:
    return f"{_LINKS.of(uri).partition('#')[0]}?done={word}"


async def find_change(page: LibraryPage, viewer: Viewer) -> manage.LibraryChange | None:
    """Returns the change that the address of a page names, if it is one of the last."""
    wanted = viewer.request.query_params.get("change", "")
    if not wanted or not viewer.can_write:
        return None
    try:
        changes: manage.ChangeList = await page.run(viewer, manage.list_changes, NoArguments())
    except FlorilegiumError:
        return None  # the page shows more than this
    return next((one for one in changes.changes if one.id == wanted), None)
