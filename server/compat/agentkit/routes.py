"""The operations of the conversations API, in the order in which they are documented."""

# About this package: AgentKit had a single user. Here every operation works on the caller's own library only; another
# user's conversation is reported as not found. `routes.py` lists the operations, and `recording.build_agentkit`
# constructs the services behind them: `conversations.py` (read, change, export, namespaces, changes), `recording.py`
# (write, one at a time or a whole archive) and the package `chat`.

from typing import Any

from auth.context import WRITE
from config.settings import Settings
from server.compat.agentkit import responses, schemas
from server.compat.agentkit.chat.routes import chat_operations
from server.compat.agentkit.conversations import DOWNLOAD_TYPES
from server.compat.agentkit.recording import ZIP, AgentKit
from server.import_jobs import IMPORT_DEADLINE_S
from server.operations.operation import Operation, Upload
from server.rest.forms import FormSpec
from sources.importers.formats.conversation_archive.archive_import import ArchiveImportResult

_IDEMPOTENCY = {"idempotency_key": "Idempotency-Key"}
# AgentKit's clients send namespaces as a form; the rest of the API takes JSON.
_NAMESPACE_FORM = FormSpec(files=frozenset(), parts_max=10, accepts_json=True)


def agentkit_operations(agentkit: AgentKit, settings: Settings) -> list[Operation]:
    return [
        responses.agentkit_operation(
            id="list_conversations",
            method="GET",
            path="/conversations",
            summary="List conversations",
            description="The user's conversations without their messages, most recently changed first.",
            input=schemas.ListConversationsRequest,
            response=schemas.ConversationList,
            handler=agentkit.conversations.list,
            tools=responses.LISTING_TOOLS,
        ),
        responses.agentkit_operation(
            id="search_messages",
            method="GET",
            path="/conversations/search/messages",
            summary="Search messages",
            description=(
                "Messages that contain a text, ignoring case, newest first. To rank messages by relevance, use "
                "search_knowledge."
            ),
            input=schemas.SearchMessagesRequest,
            response=schemas.MessageSearchResults,
            handler=agentkit.conversations.search_messages,
            tools=responses.SEARCHING_TOOLS,
        ),
        responses.agentkit_operation(
            id="read_conversation",
            method="GET",
            path="/conversations/{conversation_id}",
            summary="Read a conversation",
            description=(
                "A conversation with all of its messages in order, including alternate branches. For a very long "
                "conversation, the first messages and next_messages_offset, which requests the next part."
            ),
            input=schemas.ReadConversationRequest,
            response=responses.ConversationDetail,
            handler=agentkit.conversations.read,
            tools=responses.READING_TOOLS,
            error_statuses=frozenset((404,)),
        ),
        responses.agentkit_operation(
            id="export_conversation",
            method="POST",
            path="/conversations/{conversation_id}/export",
            summary="Export a conversation",
            description="Streams a whole conversation: as JSON, or as text or Markdown in the field content.",
            input=schemas.ExportConversationRequest,
            response=schemas.ConversationExport,
            handler=agentkit.conversations.export,
            tools=responses.READING_TOOLS,
            query=frozenset(("format",)),
            error_statuses=frozenset((404,)),
        ),
        responses.agentkit_operation(
            id="download_conversation",
            method="GET",
            path="/conversations/{conversation_id}/download",
            summary="Download a conversation",
            description="A whole conversation as a file, which browsers save as conversation-{id}.json, .txt or .md.",
            input=schemas.DownloadConversationRequest,
            response=tuple(DOWNLOAD_TYPES.values()),
            handler=agentkit.conversations.download,
            tools=responses.READING_TOOLS,
            error_statuses=frozenset((404,)),
        ),
        responses.agentkit_operation(
            id="follow_conversations",
            method="GET",
            path="/api/v1/conversations/events",
            summary="Follow the conversations",
            description=(
                "Server-sent events: `open` at once, and `changed` whenever a conversation or message may have "
                "changed. The events say no more: request again what you show. The stream ends after "
                "conversation_events_max_s; browsers reconnect."
            ),
            input=schemas.FollowConversationsRequest,
            response="text/event-stream",
            handler=agentkit.changes.follow,
            tools=responses.LISTING_TOOLS,
            headers={"last_event_id": "Last-Event-ID"},
        ),
        responses.agentkit_operation(
            id="update_conversation",
            method="PATCH",
            path="/conversations/{conversation_id}",
            summary="Update a conversation",
            description=(
                "Renames a conversation, moves it to a namespace, pins or archives it. Pinning and archiving do not "
                "change its modification time. Searches find archived conversations too."
            ),
            input=schemas.UpdateConversationRequest,
            response=responses.ConversationSummary,
            handler=agentkit.conversations.update,
            tools=responses.WRITING_TOOLS,
            scope=WRITE,
            error_statuses=frozenset((404,)),
        ),
        _write_operation(
            id="rename_conversation",
            method="PUT",
            path="/conversations/{conversation_id}",
            summary="Rename a conversation",
            description="Sets a conversation's title. Without a title, only its modification time changes.",
            input=schemas.RenameConversationRequest,
            response=schemas.ConversationChanged,
            handler=agentkit.conversations.rename,
            query=frozenset(("title",)),
            error_statuses=frozenset((404,)),
        ),
        _write_operation(
            id="delete_conversation",
            method="DELETE",
            path="/conversations/{conversation_id}",
            summary="Delete a conversation",
            description="Deletes a conversation and its messages: they no longer appear in any list, search or tool.",
            input=schemas.DeleteConversationRequest,
            response=schemas.ConversationChanged,
            handler=agentkit.conversations.delete,
            # A conversation can be as large as an import allows.
            deadline_ms=round(IMPORT_DEADLINE_S * 1000),
            error_statuses=frozenset((404,)),
        ),
        _write_operation(
            id="create_conversation",
            method="POST",
            path="/conversations",
            summary="Create a conversation",
            description="Stores a new conversation with the messages it has so far. More can be added later.",
            input=schemas.CreateConversationRequest,
            response=responses.ConversationSummary,
            handler=agentkit.recording.create,
            status=201,
            headers=_IDEMPOTENCY,
            error_statuses=frozenset((409,)),
        ),
        responses.agentkit_operation(
            id="add_message",
            method="POST",
            path="/conversations/{conversation_id}/messages",
            summary="Add a message",
            description=(
                "Appends a message to a conversation. If it has no title, the first message that is not human-only "
                "becomes its title."
            ),
            input=schemas.AddMessageRequest,
            response=responses.ConversationMessage,
            handler=agentkit.recording.add_message,
            tools=responses.WRITING_TOOLS,
            scope=WRITE,
            status=201,
            headers=_IDEMPOTENCY,
            error_statuses=frozenset((404, 409)),
        ),
        _write_operation(
            id="add_messages",
            method="POST",
            path="/conversations/{conversation_id}/messages/bulk",
            summary="Add many messages",
            description="Appends messages to a conversation: all of them or none.",
            input=schemas.AddMessagesRequest,
            response=schemas.AddedMessages,
            handler=agentkit.recording.add_messages,
            status=201,
            headers=_IDEMPOTENCY,
            error_statuses=frozenset((404, 409)),
        ),
        responses.agentkit_operation(
            id="export_conversations",
            method="GET",
            path="/conversations/export",
            summary="Export all conversations",
            description=(
                "Streams all of the user's conversations as a zip: one JSON file each, and a manifest. Unchanged "
                "conversations produce the same bytes."
            ),
            input=schemas.ExportArchiveRequest,
            response=ZIP,
            handler=agentkit.archives.export_all,
            tools=responses.LISTING_TOOLS,
        ),
        responses.agentkit_operation(
            id="import_conversations",
            method="POST",
            path="/conversations/import",
            summary="Import conversations",
            description=(
                "Imports an archive from export_conversations, of this or another server. Existing conversations are "
                "not changed; repeating an interrupted import completes it."
            ),
            input=schemas.ImportArchiveRequest,
            response=ArchiveImportResult,
            handler=agentkit.archives.import_all,
            tools=responses.WRITING_TOOLS,
            scope=WRITE,
            upload=Upload(ZIP),
            deadline_ms=round(IMPORT_DEADLINE_S * 1000),
        ),
        *chat_operations(agentkit.chat, agentkit.completions, settings),
        responses.agentkit_operation(
            id="list_namespaces",
            method="GET",
            path="/namespaces",
            summary="List namespaces",
            description="All namespaces by name, each with the number of its conversations.",
            input=schemas.ListNamespacesRequest,
            response=schemas.NamespaceList,
            handler=agentkit.namespaces.list,
            tools=responses.LISTING_TOOLS,
        ),
        _write_operation(
            id="create_namespace",
            method="POST",
            path="/namespaces",
            summary="Create a namespace",
            description=("Creates an empty namespace. A conversation in a new namespace creates it as well."),
            input=schemas.CreateNamespaceRequest,
            form=_NAMESPACE_FORM,
            response=schemas.NamespaceChanged,
            handler=agentkit.namespaces.create,
            error_statuses=frozenset((409,)),
        ),
        _write_operation(
            id="rename_namespace",
            method="PUT",
            path="/namespaces/{old_name}/rename",
            summary="Rename a namespace",
            description="Renames a namespace; its conversations stay in it.",
            input=schemas.RenameNamespaceRequest,
            form=_NAMESPACE_FORM,
            response=schemas.NamespaceChanged,
            handler=agentkit.namespaces.rename,
            error_statuses=frozenset((404, 409)),
        ),
        _write_operation(
            id="delete_namespace",
            method="DELETE",
            path="/namespaces/{namespace_name}",
            summary="Delete a namespace",
            description="Deletes a namespace. Its conversations are moved to the default namespace.",
            input=schemas.DeleteNamespaceRequest,
            response=schemas.NamespaceChanged,
            handler=agentkit.namespaces.delete,
            error_statuses=frozenset((404,)),
        ),
    ]


def _write_operation(**fields: Any) -> Operation:
    return responses.agentkit_operation(tools=responses.WRITING_TOOLS, scope=WRITE, **fields)
