"""The paths by which clients name conversations: opaque keys inside the caller's own library, never file system paths.

A conversation imported from a session file has the path it had in its archive, `project/session.jsonl`. Every other
conversation has its URI; one that another memory server archived can also be found by that archive's path.
"""

from collections.abc import Mapping
from posixpath import basename
from typing import Any
from urllib.parse import unquote

from config.errors import NotFound
from server.compat.conversation_memory.errors import file_not_found
from sources.importers.engine.ids import archived_conversation_id
from sources.items import uri_of
from sources.records import Conversation
from sources.storage.contract import Chats

_SCHEME = "chats://"
_SUFFIX = ".jsonl"
_PATH_MAX_CHARS = 500
# Marks of home directories, drives and folders on other systems, and of the code span in which paths are shown.
_FORBIDDEN_CHARS = frozenset("~:\\`")


def path_of(conversation: Conversation) -> str:
    """Returns the path by which `find_conversation` finds it."""
    path = conversation.metadata.get("path")
    is_valid = isinstance(path, str) and bool(conversation.session_id) and _session_id(path) == conversation.session_id
    return str(path) if is_valid else uri_of("chats", conversation.id)


def name_of(conversation: Conversation) -> str:
    """Returns the name of the session, or else the conversation's title or id."""
    session = conversation.session_id or _metadata_text(conversation.metadata, "session")
    return session or conversation.title.strip() or conversation.id


def project_of(conversation: Conversation) -> str:
    """Returns the session's project, or else the conversation's namespace."""
    return _metadata_text(conversation.metadata, "project") or conversation.namespace


def summary_of(conversation: Conversation) -> str:
    """Returns the summary from the conversation's archive, or else its title."""
    return _metadata_text(conversation.metadata, "summary") or conversation.title


async def find_conversation(chats: Chats, path: str) -> Conversation:
    """Raises the same error for a missing conversation, one of another user, and an invalid path."""
    try:
        if path.startswith(_SCHEME):
            return await chats.get(unquote(path.removeprefix(_SCHEME)))
        conversation = await _find_by_session(chats, path)
        return conversation or await chats.get(archived_conversation_id(path) if path.isprintable() else "")
    except NotFound:
        raise file_not_found(path) from None


async def _find_by_session(chats: Chats, path: str) -> Conversation | None:
    try:
        conversation = await chats.get_by_session(_session_id(path) or "")
    except NotFound:
        return None
    return conversation if conversation.metadata.get("path") == path else None


def _session_id(path: str) -> str | None:
    """Returns the session id in an archive path, or None if it is not a valid one."""
    has_valid_chars = path.isprintable() and not _FORBIDDEN_CHARS & set(path)
    is_archive_path = len(path) <= _PATH_MAX_CHARS and path.endswith(_SUFFIX) and has_valid_chars
    if not is_archive_path or any(part in ("", ".", "..") for part in path.split("/")):
        return None
    return basename(path).removesuffix(_SUFFIX) or None


def _metadata_text(metadata: Mapping[str, Any], name: str) -> str:
    value = metadata.get(name)
    return " ".join(value.split()) if isinstance(value, str) else ""
