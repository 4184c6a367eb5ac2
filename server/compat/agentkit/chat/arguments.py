"""Validates a `POST /chat` request: lengths, the history's JSON and the text of attached files."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from config.errors import InvalidParams
from config.settings import Settings
from config.text import replace_unstorable
from server.compat.agentkit.chat.schemas import MODEL_MAX_CHARS, NAMESPACE_PATTERN, SESSION_MAX_CHARS, ChatRequest
from server.compat.agentkit.chat.wording import AttachedText
from server.rest.errors import Unprocessable
from server.rest.forms import FormFile

_NAMESPACE = re.compile(NAMESPACE_PATTERN.removesuffix("$") + r"\Z")
_ROLES = ("user", "assistant", "system")
_FILENAME_MAX_CHARS = 200


class ParsedChatRequest(Struct, frozen=True):
    """A valid request, with its history decoded and its files as text."""

    request: ChatRequest
    history: Sequence[Mapping[str, str]]
    files: Sequence[AttachedText]


def parse_chat_request(request: ChatRequest, settings: Settings) -> ParsedChatRequest:
    _require_length("message", request.message, settings.chat_message_max_chars)
    _require_length("model", request.model, MODEL_MAX_CHARS)
    _require_length("session_id", request.session_id, SESSION_MAX_CHARS)
    if not _NAMESPACE.match(request.namespace):
        raise _invalid("namespace", "1 to 64 letters, digits, underscores or hyphens", repr(request.namespace[:80]))
    if len(request.files) > settings.chat_files_max:
        raise _invalid("files", f"at most {settings.chat_files_max} files", str(len(request.files)))
    return ParsedChatRequest(
        request,
        _parse_history(request.history, settings.chat_history_max_chars),
        [_decode_file(file, settings.chat_file_max_chars) for file in request.files],
    )


def _require_length(name: str, value: str, max_chars: int) -> None:
    if not 1 <= len(value) <= max_chars:
        raise _invalid(name, f"1 to {max_chars} characters", str(len(value)))


def _parse_history(history: str, max_chars: int) -> list[Mapping[str, str]]:
    if len(history) > max_chars:
        raise _invalid("history", f"at most {max_chars} characters", str(len(history)))
    try:
        turns = msgspec.json.decode(history or "[]")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _invalid("history", "a JSON array", "invalid JSON") from None
    if not isinstance(turns, list):
        raise _invalid("history", "a JSON array", "another JSON value")
    return [_parse_history_turn(index, turn) for index, turn in enumerate(turns)]


def _parse_history_turn(index: int, turn: Any) -> Mapping[str, str]:
    role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
    if role not in _ROLES or not isinstance(content, str):
        raise _invalid(
            "history",
            f"objects with a role ({', '.join(_ROLES)}) and a string content",
            f"another value at index {index}",
        )
    return {"role": role, "content": content}


def _decode_file(file: FormFile, max_chars: int) -> AttachedText:
    name = replace_unstorable(file.filename)[:_FILENAME_MAX_CHARS]
    try:
        text = file.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidParams(f"files: expected text files in UTF-8, got {name!r}")
    return AttachedText(name, text[:max_chars], len(text) > max_chars)


def _invalid(name: str, expected: str, got: str) -> Unprocessable:
    return Unprocessable(f"{name}: expected {expected}, got {got}", {"loc": ["body", name]})
