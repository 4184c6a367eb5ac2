"""`florilegium add`, `list`, `edit`, `rm` and `tag`: the items of a library on this machine.

The commands write what the tools `items_create`, `items_update`, `items_delete` and `items_tag` write.
"""

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from config.errors import InvalidParams
from server.cli.caller import library_caller
from server.cli.lazy_group import SettingsCommand, SettingsOverrides
from server.cli.options import library_options
from server.cli.output import confirm, echo, pluralize, print_json, print_result, print_table, strip_control_characters
from sources.installed import ITEM_KINDS

if TYPE_CHECKING:
    from server.operations.items import DeleteResult, EditableItem, WriteResult
    from server.operations.library import LibraryItem, LibraryItems

# `add note` reads better than `add notes`, which is the name of the source.
_SINGULARS = {**{kind.name: source for source, kind in ITEM_KINDS.items()}, "chat": "chats"}
_STDIN = "-"


class KindName(click.Choice[str]):
    """The name of a source, in the singular or plural."""

    def __init__(self) -> None:
        super().__init__(tuple(ITEM_KINDS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(_SINGULARS.get(value, value), param, ctx)


class FieldValue(click.ParamType[tuple[str, Any]]):
    """NAME=VALUE. A value that is a JSON list, object or number is read as such."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        if isinstance(value, tuple):
            return value
        name, separator, text = str(value).partition("=")
        if not name or not separator:
            self.fail(f"expected NAME=VALUE, got {str(value)[:40]!r}", param, ctx)
        # Anything else is text. A number in a text field would otherwise have to be quoted for the shell and for JSON.
        if not text.startswith(("[", "{")):
            return name, text
        try:
            return name, msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            self.fail(f"{name}: {error}", param, ctx)


_field_option = click.option(
    "--field", "fields", type=FieldValue(), multiple=True, help="Another field, such as author=Ada; can be repeated."
)


@click.command(cls=SettingsCommand)
@click.argument("kind", type=KindName())
@click.argument("content", required=False)
@click.option("--title", default="", help="Title, or name of a character or prompt.")
@click.option("--tag", "tags", multiple=True, help="Tag; can be repeated.")
@_field_option
@library_options
def add(
    overrides: SettingsOverrides,
    kind: str,
    content: str | None,
    title: str,
    tags: tuple[str, ...],
    fields: tuple[tuple[str, Any], ...],
    user: str | None,
    as_json: bool,
) -> None:
    """Add an item to a library.

    KIND is notes, media, chats, characters or prompts. CONTENT is its text, for chats the first message; - reads it
    from stdin.
    """
    from server.operations.items import ItemsCreate, create_item  # noqa: PLC0415 - not for `--help`
    from server.protocol.schema import read_arguments  # noqa: PLC0415 - not for `--help`

    values = {"source": kind, "title": title, "content": _read(content), "tags": tags, "fields": dict(fields)}
    with library_caller(overrides.load().settings, user, creates=True, writes=True) as call:
        result: WriteResult = call(create_item, read_arguments(values, ItemsCreate))
    _print_result("Added", result, as_json)


@click.command("list", cls=SettingsCommand)
@click.argument("kind", type=KindName(), required=False)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Items to show.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Items to skip.")
@library_options
def list_(
    overrides: SettingsOverrides, kind: str | None, limit: int, offset: int, user: str | None, as_json: bool
) -> None:
    """List items of a library, most recently changed first.

    KIND is notes, media, chats, characters or prompts. Default: all.
    """
    from server.operations.library import LibraryItemsRequest, list_items  # noqa: PLC0415 - not for `--help`

    items: list[LibraryItem] = []
    with library_caller(overrides.load().settings, user) as call:
        while True:
            request = LibraryItemsRequest(source=kind, limit=limit - len(items), offset=offset + len(items))
            page: LibraryItems = call(list_items, request)
            items += page.items
            if len(items) >= limit or page.next_offset is None:
                break
    if as_json:
        ids = [item.uri.partition("://")[2] for item in items]
        with_ids = [
            {"id": int(id_) if id_.isdecimal() else id_, **msgspec.to_builtins(item)}
            for id_, item in zip(ids, items, strict=True)
        ]
        print_json({"items": with_ids, "total": page.total})
        return
    rows = [(item.uri, item.last_modified[:10], strip_control_characters(item.title or "")) for item in items]
    if rows:
        print_table(("URI", "CHANGED", "TITLE"), rows)
    shown = offset + len(rows)
    more = f"; more: --offset {shown}" if shown < page.total else ""
    echo(f"{len(rows):,} of {page.total:,} {kind or 'items'}{more}", err=True)


@click.command(cls=SettingsCommand)
@click.argument("uri")
@click.argument("stdin", metavar="[-]", required=False, type=click.Choice((_STDIN,)))
@click.option("--content", help="The complete new text. Default: edit the current text in $EDITOR.")
@click.option("--title", help="New title or name.")
@_field_option
@library_options
def edit(
    overrides: SettingsOverrides,
    uri: str,
    stdin: str | None,
    content: str | None,
    title: str | None,
    fields: tuple[tuple[str, Any], ...],
    user: str | None,
    as_json: bool,
) -> None:
    """Change an item or a message of a library.

    Without other options, the text is opened in $EDITOR; - reads the new text from stdin.
    """
    if stdin and content is not None:
        raise click.UsageError("- and --content cannot be combined")
    changes: dict[str, Any] = {"uri": uri, "title": title, "content": _read(stdin) if stdin else content}
    if fields:
        changes["fields"] = dict(fields)
    from server.operations import items  # noqa: PLC0415 - not for `--help`
    from server.protocol.schema import read_arguments  # noqa: PLC0415 - not for `--help`

    settings = overrides.load().settings
    if all(value is None for name, value in changes.items() if name != "uri"):
        kind = items.parse_item_uri(uri).kind
        if kind.content is None:
            raise InvalidParams(f"content: {kind.content_hint}")
        # The library is closed while the editor is open, so that its lock does not keep others from writing.
        with library_caller(settings, user, writes=True) as call:
            current: EditableItem = call(items.read_editable_item, items.EditableItemRequest(uri=uri))
        edited: str | None = click.edit(current.content, extension=".md")
        # Editors end a file with a newline.
        if edited is not None and not current.content.endswith("\n"):
            edited = edited.removesuffix("\n")
        if edited is None or edited == current.content:
            click.echo("Unchanged.", err=True)
            return
        # Fails instead of overwriting a change that was made while the editor was open.
        changes |= {"content": edited, "expected_version": current.version}
    with library_caller(settings, user, writes=True) as call:
        result: WriteResult = call(items.update_item_by_uri, read_arguments(changes, items.ItemsUpdate))
    _print_result("Changed", result, as_json)


@click.command(cls=SettingsCommand)
@click.argument("uris", metavar="URI...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@library_options
def rm(overrides: SettingsOverrides, uris: tuple[str, ...], yes: bool, user: str | None, as_json: bool) -> None:
    """Delete items or messages of a library.

    chats://CONVERSATION/MESSAGE deletes one message. Deleted items are not erased from the database.
    """
    if not yes:
        confirm(f"Delete {pluralize(len(uris), 'items')}?")
    from server.operations.items import ItemsDelete, delete_item_by_uri  # noqa: PLC0415 - not for `--help`

    with library_caller(overrides.load().settings, user, writes=True) as call:
        results: list[DeleteResult] = [call(delete_item_by_uri, ItemsDelete(uri=uri)) for uri in uris]
    print_result(results, "\n".join(f"Deleted {result.uri}." for result in results), as_json=as_json)


# Without -h, which would be read as the start of "-home".
@click.command(cls=SettingsCommand, context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
@click.argument("uri")
@click.argument("tags", metavar="[+TAG|-TAG]...", nargs=-1, type=click.UNPROCESSED)
@click.option("--add", multiple=True, help="Tag to add, like +TAG; can be repeated.")
@click.option("--remove", multiple=True, help="Tag to remove, like -TAG; can be repeated.")
@library_options
def tag(
    overrides: SettingsOverrides,
    uri: str,
    tags: tuple[str, ...],
    add: tuple[str, ...],
    remove: tuple[str, ...],
    user: str | None,
    as_json: bool,
) -> None:
    """Add tags to an item of a library, or remove tags.

    `florilegium tag notes://6f1c +work -inbox` adds work and removes inbox.
    """
    # `-inbox` looks like an option, so that click passes on what it does not know, and it is checked here.
    for text in tags:
        if len(text) < 2 or text[0] not in "+-":
            raise click.UsageError(f"expected +TAG or -TAG, got {text[:40]!r}")
    from server.operations.items import ItemsTag, tag_item_by_uri  # noqa: PLC0415 - not for `--help`

    request = ItemsTag(
        uri=uri,
        add=(*add, *(text[1:] for text in tags if text[0] == "+")),
        remove=(*remove, *(text[1:] for text in tags if text[0] == "-")),
    )
    with library_caller(overrides.load().settings, user, writes=True) as call:
        result: WriteResult = call(tag_item_by_uri, request)
    print_result(
        result, f"{result.uri}: {strip_control_characters(', '.join(result.tags)) or 'no tags'}", as_json=as_json
    )


def _read(content: str | None) -> str | None:
    """Returns the text; - reads it from stdin, without its last newline."""
    return sys.stdin.read().removesuffix("\n") if content == _STDIN else content


def _print_result(verb: str, result: "WriteResult", as_json: bool) -> None:
    title = f": {strip_control_characters(result.title)}" if result.title else ""
    print_result(result, f"{verb} {result.uri}{title}", as_json=as_json)
