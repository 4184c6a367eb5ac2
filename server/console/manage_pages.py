"""The pages that change many items: the actions of the library list, the tags, and undoing what was done."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from config.errors import Conflict, InvalidParams
from server.console.browser import see_other
from server.console.edit_page import find_change, split_tags
from server.console.page_handler import LibraryPage, Viewer
from server.console.pages import PageForm
from server.console.search_page import LibraryForm
from server.operations import duplicates, manage, own_data
from server.operations.library import LibraryFilter
from server.operations.manage import LibraryChange, SelectedItem
from server.operations.operation import NoArguments, Operation
from server.rest.requests import stream
from sources.storage.tables.validation import fold_tag

_ROWS = 200
# Groups of duplicates on a page, and the words of each text whose differences are marked: comparing takes the square.
_GROUPS = 10
_WORDS_MAX = 400
_WORDS = re.compile(r"\S+\s*")


class TagsForm(PageForm, frozen=True, kw_only=True):
    """The choices in the address of the page. `tag` is the one that is being changed."""

    path: ClassVar[str] = "/tags"
    field_max_chars: ClassVar[int] = 200

    q: str = ""
    sort: str = ""
    tag: str = ""


class DuplicatesForm(PageForm, frozen=True, kw_only=True):
    path: ClassVar[str] = "/duplicates"
    field_max_chars: ClassVar[int] = 20


class ManagePages(LibraryPage):
    async def show_tags(self, request: Request) -> Response:
        viewer = await self.admit(request, manage.list_tags)
        return await self._tags_page(viewer, TagsForm.of(request))

    async def _tags_page(self, viewer: Viewer, form: TagsForm, **shown: Any) -> Response:
        listed: manage.TagList = await self.run(viewer, manage.list_tags, NoArguments())
        found = [one for one in listed.tags if fold_tag(form.q) in fold_tag(one.tag)]
        if form.sort == "name":
            found.sort(key=lambda one: fold_tag(one.tag))
        more = form.position + _ROWS
        return await self.render(
            viewer,
            "tags.html",
            form=form,
            rows=found[form.position : more],
            total=len(found),
            current=next((one for one in listed.tags if fold_tag(one.tag) == fold_tag(form.tag) and form.tag), None),
            change=await find_change(self, viewer),
            section="tags",
            **form.paging(more if more < len(found) else None),
            **{"new_tag": "", "merge_items": 0, **shown},
        )

    async def rename_tag(self, request: Request) -> Response:
        """Renames a tag. If the new one exists, the page asks before both become one."""
        viewer, values = await self.admit_form(request, manage.rename_tag)
        tag, new = values.get("tag", ""), values.get("new_tag", "")
        rename = manage.TagRename(tag=tag, new_tag=new, merge=values.get("merge") == "yes")
        try:
            change: LibraryChange = await self.run(viewer, manage.rename_tag, rename)
        except Conflict as error:
            shown = {"new_tag": new, "merge_items": (error.data or {}).get("items", 0), "status": error.status}
            if not shown["merge_items"]:
                raise
            return await self._tags_page(viewer, TagsForm(tag=tag), **shown)
        except InvalidParams as error:
            return await self._tags_page(viewer, TagsForm(tag=tag), new_tag=new, error=error)
        return see_other(with_change("/tags", change))

    async def delete_tag(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, manage.delete_tag)
        change = await self.run(viewer, manage.delete_tag, manage.TagDeletion(tag=values.get("tag", "")))
        return see_other(with_change("/tags", change))

    # -- duplicates ----------------------------------------------------------------------------------------------------

    async def show_duplicates(self, request: Request) -> Response:
        form = DuplicatesForm.of(request)
        viewer = await self.admit(request, duplicates.list_duplicates)
        asked = duplicates.DuplicatesRequest(limit=_GROUPS, offset=form.position)
        found: duplicates.DuplicateList = await self.run(viewer, duplicates.list_duplicates, asked)
        return await self.render(
            viewer,
            "duplicates.html",
            form=form,
            search=found.search,
            groups=await asyncio.to_thread(_compared, found.groups),
            change=await find_change(self, viewer),
            section="duplicates",
            **form.paging(found.next_offset),
        )

    async def find_duplicates(self, request: Request) -> Response:
        viewer, _ = await self.admit_form(request, duplicates.find_duplicates)
        await self.run(viewer, duplicates.find_duplicates, NoArguments())
        return see_other("/duplicates")

    async def merge(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, duplicates.merge_items)
        items = [value.split(" ", 1) for name, value in values.items() if name.startswith("item-")]
        merge = duplicates.MergeRequest(
            uris=tuple(uri for _, uri in items),
            versions=tuple(int(version) if version.isdecimal() else 0 for version, _ in items),
            keep=values.get("keep") or None,
            text="both" if values.get("text") == "both" else "kept",
        )
        change: LibraryChange = await self.run(viewer, duplicates.merge_items, merge)
        return see_other(with_change("/duplicates", change))

    # -- selections ----------------------------------------------------------------------------------------------------

    async def bulk(self, request: Request) -> Response:
        """Changes or exports the items that are selected on the library page, or all that match its filters."""
        values = await self._browser.check_form(request, self._runtime.settings.body_max_bytes)
        back = own_path(values.get("back", ""))
        selection = _selection(values, back)
        tags = split_tags(values.get("tag", ""))
        operation: Operation
        more: dict[str, Any]
        match values.get("action"):
            case "delete":
                operation, more = manage.delete_items, {}
            case "export":
                operation, more = own_data.export_items, {}
            case "pin" | "unpin" as action:
                operation, more = manage.update_items, {"pinned": action == "pin"}
            case "move":
                operation, more = manage.update_items, {"namespace": values.get("namespace", "").strip() or "default"}
            case action:
                operation, more = manage.tag_items, {"remove" if action == "untag" else "add": tags}
        viewer = await self.admit(request, operation)
        if not selection or (operation is manage.tag_items and not tags):
            return see_other(back)
        result = await self.run(viewer, operation, operation.input(**selection, **more))
        if operation is own_data.export_items:
            streams = self._runtime.open_streams
            return await stream(streams, viewer.context, result.chunks, result.media_type, result.headers)
        return see_other(with_change(back, result))

    async def pin(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, manage.update_items)
        items = (SelectedItem(uri=values.get("uri", "")),)
        await self.run(
            viewer, manage.update_items, manage.SelectionUpdate(items=items, pinned=values.get("pinned") == "yes")
        )
        return see_other(own_path(values.get("back", "")))

    async def undo(self, request: Request) -> Response:
        viewer, values = await self.admit_form(request, manage.undo_change)
        change = await self.run(viewer, manage.undo_change, manage.UndoRequest(undo=values.get("undo", "")))
        return see_other(with_change(own_path(values.get("back", "")), change))


def _compared(groups: Sequence[duplicates.DuplicateGroup]) -> list[tuple[duplicates.DuplicateGroup, list[Any]]]:
    """Returns each group with its texts in parts, and says of each part whether it differs from the oldest text."""
    return [(group, [_differences(group.items[0].text, one.text) for one in group.items]) for group in groups]


def _differences(old: str, new: str) -> list[tuple[str, bool]]:
    before, after = (_WORDS.findall(text)[:_WORDS_MAX] for text in (old, new))
    changes = SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes()
    return [("".join(after[start:end]), tag != "equal") for tag, _, _, start, end in changes if end > start]


def _selection(values: Mapping[str, str], back: str) -> dict[str, Any]:
    """Returns the arguments of the selection; none if nothing is selected. A row has the version that the page showed,
    so that what was changed in another tab since is skipped and reported."""
    if values.get("all") == "yes":
        chosen = dict(parse_qsl(urlsplit(back).query))
        if chosen.get("library"):
            raise InvalidParams("only items of your own library can be changed together")
        request = LibraryForm(**{name: chosen.get(name, "") for name in LibraryForm.__struct_fields__}).request()
        where = LibraryFilter(**{name: getattr(request, name) for name in LibraryFilter.__struct_fields__})
        total = values.get("total", "")
        return {"where": where, "expected_total": int(total) if total.isdecimal() else None}
    items = []
    for name, value in values.items():
        if name.startswith("item-"):
            version, _, uri = value.rpartition(" ")
            items.append(SelectedItem(uri=uri, version=int(version) if version.isdecimal() else None))
    return {"items": tuple(items)} if items else {}


def own_path(text: str) -> str:
    """Returns the address of the page that a form is on, or that of the library if it is none of these pages."""
    parts = urlsplit(text)
    is_known = parts.path in ("/library", "/tags", "/duplicates") or parts.path.startswith("/items/")
    return text if is_known and not parts.scheme and not parts.netloc else "/library"


def with_change(address: str, change: LibraryChange) -> str:
    """Adds a change to the address of a page, which then shows what was done."""
    path, _, query = address.partition("?")
    values = {**dict(parse_qsl(query)), "change": change.id}
    return f"{path}?{urlencode({name: value for name, value in values.items() if name != 'offset'})}"
