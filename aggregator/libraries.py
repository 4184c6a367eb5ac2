"""Libraries of others, at the border of the server: how their items are named, and how a call enters one of them.

An item of the caller's own library has the URI that its source gives it. One of another library has the same URI
followed by `?library=HANDLE`. Only `with_library` adds that, and only `split_library` removes it, so that sources and
the storage never see it. A handle that is unknown, or that the caller may not use any more, is an absent item.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote

from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from auth.context import READ, LibraryAccess, Principal, RequestContext, build_context
from config.errors import FlorilegiumError, InvalidParams, NotFound
from config.paths import DataRoot
from sources.installed import ITEM_KINDS
from sources.library_source import LibrarySource
from sources.search.arguments import OWN_LIBRARY
from sources.source import Source, numeric_id, whole_item_id
from sources.storage.contract import Libraries
from sources.storage.shared_part import permitted_sources

_MARK = "?library="
T = TypeVar("T")


# The argument `library` of everything that can be done in a library of someone else. A handler never sees it: its
# context leads to that library already.
LibraryName = Annotated[str | None, Meta(description="Name or handle of a library; default: the user's own.")]


class ReadOnlyLibrary(FlorilegiumError, status=403):
    """The caller may read the library, but not write to it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"you can read the library {name[:60]!r}, but not write to it")


def with_library(uri: str, handle: str | None) -> str:
    return uri if handle is None else f"{uri}{_MARK}{handle}"


def split_library(uri: str) -> tuple[str, str | None]:
    """Returns the URI in its library, and the handle of that library unless it is the caller's own."""
    plain, mark, handle = uri.partition(_MARK)
    return plain, handle if mark else None


def enter(
    context: RequestContext, name: str, uri: str | None = None, source: Source | None = None, scope: str = READ
) -> RequestContext:
    """Returns the context of the call in the library of that handle or name. If the caller may not use it, that is the
    same error as for an item of the caller that does not exist. Third-party code gets no library but the caller's."""
    if name.casefold() == OWN_LIBRARY:
        return context
    found = context.principal.find_libraries(name)
    if not found or not isinstance(source, LibrarySource | None):
        raise _absent(name, uri)
    if len(found) > 1:
        handles = ", ".join(access.handle for access in found)
        raise InvalidParams(f"library: expected one of the handles {handles}, got a name that several libraries have")
    inner = context.within(found[0])
    permitted = permitted_sources(inner)
    if uri is not None and permitted is not None and uri.partition("://")[0] not in permitted:
        raise _absent(name, uri)
    if scope not in inner.scopes:
        raise ReadOnlyLibrary(found[0].name)
    return inner


def _absent(name: str, uri: str | None) -> NotFound:
    source, _, path = (uri or "").partition("://")
    kind = ITEM_KINDS.get(source)
    return NotFound("library", name[:60]) if kind is None else NotFound(kind.name, unquote(path.partition("/")[0]))


def take_library(request: T) -> tuple[T, str | None]:
    """Removes the library from the arguments `library` and `uri` of a request, and returns its handle or name."""
    name: str | None = getattr(request, "library", None)
    uri: str | None = getattr(request, "uri", None)
    changes: dict[str, Any] = {} if name is None else {"library": None}
    if uri is not None and _MARK in uri:
        changes["uri"], handle = split_library(uri)
        if name not in (None, handle):
            raise InvalidParams(f"library: expected {handle!r}, the value in uri, got {str(name)[:60]!r}")
        name = handle
    return (replace(request, **changes) if changes else request), name  # type: ignore[type-var]  # a Struct


def label(result: T, access: LibraryAccess | None) -> T:
    """Adds the library to all URIs of a response from a library of someone else, and its name where hits have one."""
    if access is None:
        return result
    return cast("T", _label(result, access))


def _label(value: Any, access: LibraryAccess) -> Any:
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple([_label(part, access) for part in value])
    if not isinstance(value, Struct):
        return value
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if name == "uri" and isinstance(field, str):
            changes[name] = with_library(field, access.handle)
        elif name == "library" and field is UNSET:
            changes[name] = access.name
        elif (changed := _label(field, access)) is not field and changed != field:
            changes[name] = changed
    return replace(value, **changes) if changes else value


def choose_libraries(principal: Principal, named: Sequence[str], written: Sequence[str]) -> list[LibraryAccess | None]:
    """Returns the libraries that a search covers, None for the caller's own: those that the argument `libraries` names
    and the filter `library:` allows. Raises InvalidParams for an unknown argument; an unknown filter allows none."""
    for name in named:
        if name.casefold() != OWN_LIBRARY and not principal.find_libraries(name):
            known = ", ".join([OWN_LIBRARY, *(access.name for access in principal.libraries)])
            raise InvalidParams(f"libraries: expected any of {known}, got {name[:40]!r}")
    libraries: list[LibraryAccess | None] = [None, *principal.libraries]
    for names in (named, written):
        if names:
            chosen: list[LibraryAccess | None] = [None] if OWN_LIBRARY in map(str.casefold, names) else []
            chosen += [access for name in names for access in principal.find_libraries(name)]
            libraries = [library for library in libraries if library in chosen]
    return libraries


def own_only(context: RequestContext) -> RequestContext:
    """The context without the libraries of others, for APIs of other systems, which know of one library."""
    if not context.principal.libraries:
        return context
    return replace(context, principal=replace(context.principal, libraries=()))


async def can_read(
    libraries: Libraries, data_root: DataRoot, principal: Principal, access: LibraryAccess, uri: str
) -> bool:
    """Whether a caller can read an item of a library of someone else. The item is read: its rule compares that."""
    source = uri.partition("://")[0]
    try:
        item_id = whole_item_id(source, "uri", None, uri)
        key = numeric_id(item_id) if ITEM_KINDS[source].key == "id" else item_id
        context = build_context(principal, data_root, "subscription").within(access)
        async with libraries.library(context) as library:
            await library.collection(source).get(key)
    except FlorilegiumError:
        return False
    return True
