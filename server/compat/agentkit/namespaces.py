"""Lists, creates, renames and deletes the namespaces that group conversations. The default one cannot be deleted."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from auth.context import RequestContext
from config.errors import Conflict, InvalidParams
from server.compat.agentkit.schemas import (
    CreateNamespaceRequest,
    DeleteNamespaceRequest,
    ListNamespacesRequest,
    NamespaceChanged,
    NamespaceList,
    NamespaceSummary,
    RenameNamespaceRequest,
)
from sources.storage.contract import DEFAULT_NAMESPACE, Libraries

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class NamespaceService:
    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries

    async def list(self, context: RequestContext, _request: ListNamespacesRequest) -> NamespaceList:
        async with self._libraries.library(context) as library:
            namespaces = await library.chats.namespaces()
        summaries = tuple(
            NamespaceSummary(
                name=namespace.name,
                conversation_count=namespace.conversations,
                is_default=namespace.name == DEFAULT_NAMESPACE,
            )
            for namespace in namespaces
        )
        return NamespaceList(namespaces=summaries, total=len(summaries))

    async def create(self, context: RequestContext, request: CreateNamespaceRequest) -> NamespaceChanged:
        name = _valid_name("name", request.name)
        with _agentkit_wording(name):
            async with self._libraries.library(context) as library:
                await library.chats.create_namespace(name)
        return NamespaceChanged(message=f"Namespace '{name}' created successfully", namespace=name)

    async def rename(self, context: RequestContext, request: RenameNamespaceRequest) -> NamespaceChanged:
        old_name, new_name = request.old_name, _valid_name("new_name", request.new_name)
        if old_name == DEFAULT_NAMESPACE:
            raise InvalidParams("Cannot rename the default namespace")
        with _agentkit_wording(new_name):
            async with self._libraries.library(context) as library:
                await library.chats.rename_namespace(old_name, new_name)
        message = f"Namespace '{old_name}' renamed to '{new_name}' successfully"
        return NamespaceChanged(message=message, namespace=new_name, old_name=old_name, new_name=new_name)

    async def delete(self, context: RequestContext, request: DeleteNamespaceRequest) -> NamespaceChanged:
        name = request.namespace_name
        if name == DEFAULT_NAMESPACE:
            raise InvalidParams("Cannot delete the default namespace")
        async with self._libraries.library(context) as library:
            moved = await library.chats.delete_namespace(name)
        return NamespaceChanged(message=f"Namespace '{name}' deleted successfully", namespace=name, moved=moved)


def _valid_name(field: str, name: str) -> str:
    """Returns the name without surrounding spaces."""
    stripped = name.strip()
    if not _NAME.match(stripped):
        raise InvalidParams(f"{field}: expected 1 to 64 letters, digits, underscores or hyphens, got {name[:80]!r}")
    return stripped


@contextmanager
def _agentkit_wording(name: str) -> Iterator[None]:
    """Clients compare the message of a conflict."""
    try:
        yield
    except Conflict as error:
        raise Conflict(f"Namespace '{name}' already exists") from error
