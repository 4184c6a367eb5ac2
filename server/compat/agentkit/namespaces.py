"""The namespaces that conversations are grouped in: list, make, rename and delete them. The default one stays."""

import re
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from auth.context import RequestContext
from auth.principal import WRITE
from config.errors import InvalidParams
from server.compat.agentkit.conversations import LISTING_TOOLS, WRITING_TOOLS, conversation_operation
from server.rest.forms import FormSpec
from server.rest.operation import Operation
from server.runtime import Runtime
from sources.storage.contract import DEFAULT_NAMESPACE

# AgentKit's clients send a name as a form; few send anything beside it. The rest of the API takes JSON.
_FORM = FormSpec(files=frozenset(), parts_max=10, or_json=True)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

Name = Annotated[str, Meta(description="A namespace.")]
NewName = Annotated[str, Meta(description="1 to 64 letters, digits, underscores or hyphens.")]


class NamespacesRequest(Struct, frozen=True, kw_only=True):
    """There are few; they are answered all."""


class NamespaceRequest(Struct, frozen=True, kw_only=True):
    namespace_name: Name


class CreateNamespaceRequest(Struct, frozen=True, kw_only=True):
    name: NewName


class RenameNamespaceRequest(Struct, frozen=True, kw_only=True):
    old_name: Name
    new_name: NewName


class NamespaceShape(Struct, frozen=True, kw_only=True):
    """`document_count` is always 0: conversations have namespaces here, documents have not."""

    name: str
    document_count: int = 0
    conversation_count: int
    is_default: bool


class NamespaceList(Struct, frozen=True, kw_only=True):
    namespaces: tuple[NamespaceShape, ...]
    total: int


class NamespaceDone(Struct, frozen=True, kw_only=True):
    """`moved` is how many conversations are in the default namespace instead."""

    status: str = "success"
    message: str
    namespace: str
    moved: int | UnsetType = UNSET


def namespace_operations(runtime: Runtime) -> list[Operation]:
    return [_list(runtime), _create(runtime), _rename(runtime), _delete(runtime)]


def _list(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: NamespacesRequest) -> NamespaceList:
        async with runtime.libraries.library(context) as library:
            found = await library.chats.namespaces()
        rows = tuple(
            NamespaceShape(
                name=one.name, conversation_count=one.conversations, is_default=one.name == DEFAULT_NAMESPACE
            )
            for one in found
        )
        return NamespaceList(namespaces=rows, total=len(rows))

    return conversation_operation(
        id="list_namespaces",
        method="GET",
        path="/namespaces",
        summary="List namespaces",
        description="The namespaces there are, by name, and how many conversations each has.",
        input=NamespacesRequest,
        response=NamespaceList,
        handler=run,
        tools=LISTING_TOOLS,
    )


def _create(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: CreateNamespaceRequest) -> NamespaceDone:
        name = _checked("name", given.name)
        async with runtime.libraries.library(context) as library:
            await library.chats.create_namespace(name)
        return NamespaceDone(message=f"Namespace '{name}' created successfully", namespace=name)

    return conversation_operation(
        id="create_namespace",
        method="POST",
        path="/namespaces",
        summary="Make a namespace",
        description="Make a namespace that has no conversation yet. Naming one with a conversation makes it too.",
        input=CreateNamespaceRequest,
        form=_FORM,
        response=NamespaceDone,
        handler=run,
        tools=WRITING_TOOLS,
        scope=WRITE,
        error_statuses=frozenset((409,)),
    )


def _rename(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: RenameNamespaceRequest) -> NamespaceDone:
        new_name = _checked("new_name", given.new_name)
        async with runtime.libraries.library(context) as library:
            await library.chats.rename_namespace(given.old_name, new_name)
        return NamespaceDone(
            message=f"Namespace '{given.old_name}' renamed to '{new_name}' successfully", namespace=new_name
        )

    return conversation_operation(
        id="rename_namespace",
        method="PUT",
        path="/namespaces/{old_name}/rename",
        summary="Rename a namespace",
        description="Give a namespace another name; its conversations stay in it.",
        input=RenameNamespaceRequest,
        form=_FORM,
        response=NamespaceDone,
        handler=run,
        tools=WRITING_TOOLS,
        scope=WRITE,
        error_statuses=frozenset((404, 409)),
    )


def _delete(runtime: Runtime) -> Operation:
    async def run(context: RequestContext, given: NamespaceRequest) -> NamespaceDone:
        name = given.namespace_name
        async with runtime.libraries.library(context) as library:
            moved = await library.chats.delete_namespace(name)
        return NamespaceDone(message=f"Namespace '{name}' deleted successfully", namespace=name, moved=moved)

    return conversation_operation(
        id="delete_namespace",
        method="DELETE",
        path="/namespaces/{namespace_name}",
        summary="Delete a namespace",
        description="Delete a namespace. Its conversations are not deleted: they move to the default one.",
        input=NamespaceRequest,
        response=NamespaceDone,
        handler=run,
        tools=WRITING_TOOLS,
        scope=WRITE,
        error_statuses=frozenset((404,)),
    )


def _checked(field: str, name: str) -> str:
    if not _NAME.match(name):
        raise InvalidParams(f"{field}: got {name[:80]!r}, expected 1 to 64 letters, digits, underscores or hyphens")
    return name
