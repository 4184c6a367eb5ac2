"""Renders the results of the memory tools as Markdown, in conversation-memory's formats."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from posixpath import basename
from typing import Any
from urllib.parse import unquote

from msgspec import UNSET, Struct

from config.errors import NotFound
from server.compat.conversation_memory import arguments
from server.compat.conversation_memory.arguments import NO_CONVERSATIONS, NO_OBSERVATIONS, ObservationRow, memory_error
from sources.importers.engine.events import archived_conversation_id
from sources.items import semantic_note, uri_of
from sources.reading.exchanges import LineRange, group_turns, has_stored_lines, message_lines, number_messages
from sources.reading.retrieval import RetrievalPlan
from sources.records import ALTERNATE_BRANCH_LABEL, Conversation, Message, Observation
from sources.storage.collections.chats import Chats
from sources.text.chunking import run_text_work, shorten
from sources.text.segmentation import word_boundary_before
from sources.text.token_estimates import TokenScale

# -- conversation paths ------------------------------------------------------------------------------------------------
# The paths by which clients name conversations: opaque keys inside the caller's own library, never file system paths.
#
# A conversation imported from a session file has the path it had in its archive, `project/session.jsonl`. Every other
# conversation has its URI; one that another memory server archived can also be found by that archive's path.

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
        with suppress(NotFound):
            conversation = await chats.get_by_session(_session_id(path) or "")
            # Two archives can have sessions of the same name in different projects.
            if conversation.metadata.get("path") == path:
                return conversation
        return await chats.get(archived_conversation_id(path) if path.isprintable() else "")
    except NotFound:
        raise memory_error("File not found", path) from None


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


# -- transcript --------------------------------------------------------------------------------------------------------
# Layer 3: reads a conversation, or some of its lines, within a token budget. What does not fit is reported, with the
# line to continue from.

_NAME_MAX_CHARS = 120
# The longest texts that are rendered around a message and after the last one. Their cost is reserved in the budget.
_LABEL = f"## Exchange 1000\n\n**Assistant{ALTERNATE_BRANCH_LABEL}:**"
_FRAME = f"\n\n---\n\n{_LABEL}\n*[1000000 more characters at line 1000000 omitted]*"
_CLOSING = "\n\n---\n\n*The conversation continues. Read on with startLine 1000000.*\n# Lines: 1000000-1000000"


class TranscriptMessage(Struct, frozen=True):
    role: str
    lines: LineRange
    text: str
    omitted_chars: int = 0  # those that did not fit
    branch_label: str = ""  # empty on the main branch


class ConversationTranscript(Struct, frozen=True, kw_only=True):
    conversation: Conversation
    messages: tuple[TranscriptMessage, ...]
    next_line: int | None  # where to continue if the budget was exhausted
    is_whole: bool  # nothing is missing


async def read_transcript(
    chats: Chats, path: str, lines: LineRange, plan: RetrievalPlan, page_size: int
) -> ConversationTranscript:
    conversation = await find_conversation(chats, path)
    frame = plan.scale.weigh(transcript_heading(conversation) + _CLOSING)
    builder = _TranscriptBuilder(lines, plan.scale, plan.budget - frame)
    # The position to read from. With line numbers of a session file, that is the start of the conversation.
    first = await chats.messages_around(conversation.id, 0, 0, 1)
    position = 0 if not first or has_stored_lines(first[0]) else lines.start - 1
    while not builder.is_done and (messages := await chats.messages_around(conversation.id, position, 0, page_size)):
        await run_text_work(sum(len(message.content) for message in messages), builder.add, messages)
        position = messages[-1].position + 1
    if not builder.messages and lines.start > 1:
        # The error says where the conversation ends, which need not have been read.
        page = await chats.messages(conversation.id, 1, max(0, conversation.message_count - 1))
        last_line = max(builder.last_lines.end, message_lines(page.rows[-1]).end if page.rows else 0)
        raise memory_error(
            arguments.BAD_LINES, f"startLine is {lines.start}, but the conversation ends at line {last_line}"
        )
    return ConversationTranscript(
        conversation=conversation,
        messages=tuple(builder.messages),
        next_line=builder.next_line,
        is_whole=lines.start == 1 and not builder.is_done,
    )


def transcript_heading(conversation: Conversation) -> str:
    name = shorten(name_of(conversation), _NAME_MAX_CHARS)
    project = shorten(project_of(conversation), _NAME_MAX_CHARS)
    return f"# Conversation: {name}\n# Project: {project}\n# Date: {conversation.created_at[:10]}"


class _TranscriptBuilder:
    """Collects the messages on some lines until the budget is exhausted."""

    def __init__(self, lines: LineRange, scale: TokenScale, room: int) -> None:
        self.messages: list[TranscriptMessage] = []
        self.next_line: int | None = None
        self.is_done = False
        self._lines = lines
        self._scale = scale
        self._frame = scale.weigh(_FRAME)
        self._room = room  # how much text fits, in the units of the scale
        self.last_lines = LineRange(0, 0)

    def add(self, messages: Sequence[Message]) -> None:
        for placed in number_messages(messages, self.last_lines):
            self.last_lines, message = placed.lines, placed.message
            if placed.lines.start > self._lines.end:
                self.is_done = True
                return
            if placed.lines.end < self._lines.start:
                continue
            room = max(0, self._room - self._frame)
            fitting_chars = self._scale.count_fitting(message.content, room)
            # The first one is truncated if it does not fit, because continuing there would return it again.
            if fitting_chars < len(message.content) and self.messages and placed.lines.start > self._lines.start:
                self.is_done, self.next_line = True, placed.lines.start
                return
            text = message.content[: word_boundary_before(message.content, fitting_chars)]
            self._room = room - self._scale.weigh(text)
            omitted_chars = len(message.content) - len(text)
            self.messages.append(
                TranscriptMessage(message.role, placed.lines, text, omitted_chars, message.branch_label)
            )


_RULE = "\n\n---\n\n"
_ROLE_LABELS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


# Layer 1


def render_results(results: arguments.MemoryResults) -> str:
    notes = [results.note] if results.note is not UNSET else []
    meaning = semantic_note(results.semantic) if results.semantic is not UNSET else None
    meaning_notes = [f"*{meaning}*"] if meaning else []
    if not results.results:
        nothing = NO_OBSERVATIONS
        if results.kind == "conversations":
            concepts = results.concepts if results.concepts is not UNSET else ()
            nothing = f"{NO_CONVERSATIONS} matching all concepts: {', '.join(concepts)}"
        elif results.kind == "exchanges":
            nothing = f"{NO_OBSERVATIONS} {NO_CONVERSATIONS} either."
        return "\n\n".join([nothing, *notes, *meaning_notes])
    heading = f"## Search Results ({_count(results.count, results.kind.removesuffix('s'))})"
    rows = []
    for number, row in enumerate(results.results, 1):
        lines = [f"### {number}. [{row.project}] - {row.date}"]
        if isinstance(row, ObservationRow):
            # Without labels, which would cost as many tokens as the values: a row has to be cheap.
            lines.append(f"{row.id} {row.type} {row.score:.2f}: {row.title}")
        else:
            lines += [f"**Path:** `{row.path}`", f"**Lines:** {row.line_start}-{row.line_end}"]
            lines += [f"**Score:** {row.score:.2f}", "", f"Summary: {row.summary}"]
            lines += ["", f"> {row.snippet}"] if row.snippet != row.summary else []
        rows.append("\n".join(lines))
    # Rows of observations are short enough to be told apart without a rule, which would cost tokens for each.
    separator = "\n\n" if results.kind == "observations" else _RULE
    return "\n\n".join([*notes, heading, separator.join(rows), *meaning_notes])


# Layer 2


def render_observations(observations: Sequence[Observation], plan: RetrievalPlan) -> str:
    """Gives each observation an equal share of the budget; longer ones are truncated, with a notice."""
    heading = f"Retrieved {_count(len(observations), 'observation')}:\n\n"
    room = plan.budget - plan.scale.weigh(heading)
    share = room // max(1, len(observations)) - plan.scale.weigh(_RULE + _omission(10**6))
    rendered = []
    for observation in observations:
        files = dict.fromkeys((*observation.files_modified, *observation.files_read))
        time = f"{observation.created_at[:10]} {observation.created_at[11:16]}"
        # Who recorded the observation, and the conversation it comes from.
        source: str = observation.origin
        if observation.conversation_id is not None:
            source += f" from `{uri_of('chats', observation.conversation_id)}`"
            if observation.line_start:
                source += f", lines {observation.line_start}-{observation.line_end or observation.line_start}"
        parts = [
            f"## [{observation.project}, {time}] - {observation.type}: {observation.title}",
            f"**{observation.subtitle}**" if observation.subtitle else "",
            observation.narrative,
            "**Facts:**\n" + "\n".join(f"- {fact}" for fact in observation.facts) if observation.facts else "",
            f"**Concepts:** {_code_spans(observation.concepts)}" if observation.concepts else "",
            f"**Files:** {_code_spans(files)}" if files else "",
            f"**Source:** {source}",
        ]
        text = "\n\n".join(part for part in parts if part)
        beginning = text[: word_boundary_before(text, plan.scale.count_fitting(text, max(0, share)))]
        omitted_chars = len(text) - len(beginning)
        rendered.append(f"{beginning}{_omission(omitted_chars)}" if omitted_chars else text)
    return heading + _RULE.join(rendered)


def _omission(chars: int) -> str:
    return f"\n\n*[{chars} more characters omitted: request fewer observations]*"


def _code_spans(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


# Layer 3


def render_transcript(transcript: ConversationTranscript) -> str:
    heading, messages = transcript_heading(transcript.conversation), transcript.messages
    if messages and not transcript.is_whole:
        heading += f"\n# Lines: {messages[0].lines.start}-{messages[-1].lines.end}"

    def label(message: TranscriptMessage) -> str:
        return _ROLE_LABELS.get(message.role, message.role or "Unknown") + message.branch_label

    def text_of(message: TranscriptMessage) -> str:
        omission = f"*[{message.omitted_chars} more characters at line {message.lines.start} omitted]*"
        return "\n".join(filter(None, (message.text, omission if message.omitted_chars else "")))

    exchanges = []
    for number, exchange in enumerate(group_turns(messages, lambda message: message.role == "user"), 1):
        # Consecutive messages of a role have one label, separately for the main and alternate branches.
        turns = [
            f"**{speaker}:**\n" + "\n\n".join(map(text_of, group)) for speaker, group in groupby(exchange, key=label)
        ]
        exchanges.append("\n\n".join([f"## Exchange {number}", *turns]))
    parts = [heading, _RULE.join(exchanges) or "This conversation has no messages."]
    if transcript.next_line is not None:
        parts.append(f"---\n\n*The conversation continues. Read on with startLine {transcript.next_line}.*")
    return "\n\n".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
