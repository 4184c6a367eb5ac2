"""The paths of conversations: opaque keys inside the caller's own archive. Nothing here is ever a path of a file
system, so what looks like one leads nowhere.

A conversation that came from a session's file goes by the name it had in its archive, `project/session.jsonl`; any
other by its URI, and one that another memory archived also by the path that it was archived under.
"""

from collections.abc import Mapping
from posixpath import basename
from typing import Any
from urllib.parse import unquote

from config.errors import NotFound
from server.compat.conversation_memory.errors import file_not_found
from sources.importers.engine.ids import archived_id
from sources.items import uri_of
from sources.records import Conversation
from sources.storage.contract import Chats

_SCHEME = "chats://"
_SUFFIX = ".jsonl"
_NAME_MAX_CHARS = 500
# Signs of a home, of a drive and of a folder on other systems; and what ends the quotation in which a name is shown.
_NEVER_IN_A_NAME = frozenset("~:\\`")


def path_of(conversation: Conversation) -> str:
    """What `find_conversation` finds it by."""
    name = conversation.metadata.get("path")
    is_usable = isinstance(name, str) and bool(conversation.session_id) and _session_in(name) == conversation.session_id
    return str(name) if is_usable else uri_of("chats", conversation.id)


def project_of(conversation: Conversation) -> str:
    """The project of the session it was; else the namespace it is in."""
    return _text(conversation.metadata, "project") or conversation.namespace


def summary_of(conversation: Conversation) -> str:
    """What its own archive says of it; else what it is called."""
    return _text(conversation.metadata, "summary") or conversation.title


async def find_conversation(chats: Chats, path: str) -> Conversation:
    """Absent, somebody else's and never a name of ours: the same answer."""
    try:
        if path.startswith(_SCHEME):
            return await chats.get(unquote(path.removeprefix(_SCHEME)))
        named = await _by_name(chats, path)
        return named or await chats.get(archived_id(path) if path.isprintable() else "")
    except NotFound:
        raise file_not_found(path) from None


async def _by_name(chats: Chats, path: str) -> Conversation | None:
    try:
        found = await chats.get_by_session(_session_in(path) or "")
    except NotFound:
        return None
    return found if found.metadata.get("path") == path else None


def _session_in(name: str) -> str | None:
    """The session that a name in an archive is made of; nothing for what is no such name."""
    is_plain = name.isprintable() and not _NEVER_IN_A_NAME & set(name)
    is_name = len(name) <= _NAME_MAX_CHARS and name.endswith(_SUFFIX) and is_plain
    if not is_name or any(part in ("", ".", "..") for part in name.split("/")):
        return None
    return basename(name).removesuffix(_SUFFIX) or None


def _text(metadata: Mapping[str, Any], name: str) -> str:
    value = metadata.get(name)
    return " ".join(value.split()) if isinstance(value, str) else ""
