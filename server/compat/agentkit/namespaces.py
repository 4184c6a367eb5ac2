"""Lists, creates, renames and deletes the namespaces that group conversations. The default one cannot be deleted."""

import re

from auth.context import RequestContext
from config.errors import InvalidParams
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
        _require_valid_name("name", request.name)
        async with self._libraries.library(context) as library:
            await library.chats.create_namespace(request.name)
        return NamespaceChanged(message=f"Namespace '{request.name}' created successfully", namespace=request.name)

    async def rename(self, context: RequestContext, request: RenameNamespaceRequest) -> NamespaceChanged:
        _require_valid_name("new_name", request.new_name)
        async with self._libraries.library(context) as library:
            await library.chats.rename_namespace(request.old_name, request.new_name)
        message = f"Namespace '{request.old_name}' renamed to '{request.new_name}' successfully"
        return NamespaceChanged(message=message, namespace=request.new_name)

    async def delete(self, context: RequestContext, request: DeleteNamespaceRequest) -> NamespaceChanged:
        name = request.namespace_name
        async with self._libraries.library(context) as library:
            moved = await library.chats.delete_namespace(name)
        return NamespaceChanged(message=f"Namespace '{name}' deleted successfully", namespace=name, moved=moved)


def _require_valid_name(field: str, name: str) -> None:
    if not _NAME.match(name):
        raise InvalidParams(f"{field}: expected 1 to 64 letters, digits, underscores or hyphens, got {name[:80]!r}")
