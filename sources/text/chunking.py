"""Splits a text into overlapping chunks of whole sentences, with exact offsets.

Never changes the text, never splits a grapheme, and takes linear time for a text of any size and content.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ParamSpec, TypeVar

from msgspec import Struct

from config.errors import InvalidParams
from config.numbers import clamp
from sources.drafts import MessageDraft
from sources.records import SavedPrompt, SavedPromptArgument, is_human_only
from sources.text.folding import grapheme_boundary_after, grapheme_boundary_before, is_grapheme_boundary
from sources.text.segmentation import word_boundary_before


class TextChunk(Struct, frozen=True):
    """The characters of a text from `start` up to, not including, `end`."""

    index: int
    start: int
    end: int


def split_into_chunks(text: str, size_chars: int, overlap_chars: int) -> list[TextChunk]:
    """Returns chunks of at most `size_chars`, each starting with up to `overlap_chars` of the previous one.

    Together they cover the text. A heading starts a new chunk, and no text from before it is repeated there. The
    overlap is never more than half a chunk, so that the number of chunks stays proportional to the length of the text.
    """
    size = max(1, size_chars)
    packer = _SentencePacker(text, size, clamp(overlap_chars, 0, size // 2))
    return [TextChunk(index, start, end) for index, (start, end) in enumerate(packer.spans())]


class Sentence(Struct, frozen=True):
    """A sentence with the white space after it, or a heading. Consecutive sentences have no gap between them."""

    start: int
    end: int
    is_heading: bool


class _SentencePacker:
    """Packs as many sentences as fit into a chunk, then starts the next with the last ones of the previous."""

    def __init__(self, text: str, size: int, overlap: int) -> None:
        self._text = text
        self._size = size
        self._overlap = overlap

    def spans(self) -> Iterator[tuple[int, int]]:
        start = 0
        packed: list[Sentence] = []
        for sentence in self._split_after_headings(self._split_long_sentences()):
            begins_section = sentence.is_heading and not (packed and packed[-1].is_heading)
            if packed and (begins_section or sentence.end - start > self._size):
                yield start, sentence.start
                start = sentence.start if sentence.is_heading else self._next_start(start, packed, sentence)
                packed = []
            packed.append(sentence)
        if packed:
            yield start, packed[-1].end

    def _split_long_sentences(self) -> Iterator[Sentence]:
        """Yields all sentences, splitting those longer than a chunk into pieces that leave room for the overlap."""
        for sentence in sentences(self._text):
            start, is_heading = sentence.start, sentence.is_heading
            while sentence.end - start > self._size:
                end = self._break_position(start, start + self._size - self._overlap)
                yield Sentence(start, end, is_heading)
                start, is_heading = end, False
            if start < sentence.end:
                yield Sentence(start, sentence.end, is_heading)

    def _split_after_headings(self, pieces: Iterable[Sentence]) -> Iterator[Sentence]:
        """Splits a piece that follows a heading where the heading's chunk is full, so that no heading is left alone."""
        section_start: int | None = None
        for piece in pieces:
            if piece.is_heading:
                section_start = piece.start if section_start is None else section_start
                yield piece
                continue
            room = self._size if section_start is None else section_start + self._size - piece.start
            cut = (
                self._break_position(piece.start, piece.start + room)
                if 1 < room < piece.end - piece.start
                else piece.end
            )
            yield Sentence(piece.start, cut, is_heading=False)
            if cut < piece.end:
                yield Sentence(cut, piece.end, is_heading=False)
            section_start = None

    def _break_position(self, start: int, end: int) -> int:
        """Returns the position after the last line or word in the second half of the range, else after a grapheme."""
        middle = (start + end) // 2
        for mark in ("\n", " "):
            position = self._text.rfind(mark, middle, end) + 1
            if position and is_grapheme_boundary(self._text, position):
                return position
        position = grapheme_boundary_before(self._text, end)
        return position if position > start else grapheme_boundary_after(self._text, end)

    def _next_start(self, start: int, packed: list[Sentence], following: Sentence) -> int:
        """Returns where the next chunk starts: at a sentence of the previous one if it fits, else at a word or
        letter."""
        room = min(self._overlap, self._size - (following.end - following.start))
        earliest = max(following.start - room, start + 1)
        if earliest >= following.start:
            return following.start
        sentence_start = next((sentence.start for sentence in packed if sentence.start >= earliest), None)
        if sentence_start is not None:
            return sentence_start
        word_start = self._text.find(" ", earliest - 1, following.start) + 1
        if word_start and is_grapheme_boundary(self._text, word_start):
            return word_start
        return min(grapheme_boundary_after(self._text, earliest), following.start)


# -- sentences ---------------------------------------------------------------------------------------------------------

# Each alternative starts with a lookbehind and uses possessive quantifiers, so that a megabyte of full stops is scanned
# once and not once per full stop.
_SENTENCE_END = re.compile(
    r"""
      (?<![.!?…]) (?P<western> [.!?…]++ ) ["'”’»)\]]*+ \s++
    | (?<![。！？｡]) [。！？｡]++ [」』）】〉》”’"')]*+ \s*+
    | (?<![।॥؟۔։።။།។៕]) [।॥؟۔։።။།។៕]++ ["'”’»)\]]*+ \s*+
    | \n [^\S\n]*+ \n \s*+
    | \n (?= [^\S\n]{0,8} (?: [-*+•] | \d{1,3} [.)] ) [^\S\n] )
    """,
    re.VERBOSE,
)
# Text before a full stop that does not end a sentence: a title, an initial, U.S, e.g; the number of a list item.
_ABBREVIATED = re.compile(
    r"""
    (?: (?<![^\W_]) (?:
        [^\W\d_]
      | dr | mr | mrs | ms | prof | st | jr | sr | vs | etc | cf | al | approx | dept | inc | ltd | co | corp | gen
      | col | sgt | capt | lt | rev | hon | gov | sen | rep | mt | ft | ca | ph\.d
      | jan | feb | apr | jun | jul | aug | sep | sept | oct | nov | dec
      | bzw | usw | ggf | evtl | inkl | zzgl | sog | mme | mlle
    ) | (?: ^ | \n ) [^\S\n]*+ \d{1,3} ) \Z
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ABBREVIATED_BEFORE_NUMBER = re.compile(r"(?<![^\W_])(?:nos?|nr|figs?|eqs?|sec|ch|vol|pp|art|cap)\Z", re.IGNORECASE)
_ABBREVIATION_MAX_CHARS = 12

_MARKDOWN_LINE = re.compile(
    r"""
    ^ [ ]{0,3} (?:
        (?P<fence> `{3,} | ~{3,} )
      | (?P<heading> \#{1,6} [^\S\n]+ \S [^\n]*+ | \S [^\n]{0,200} \n [ ]{0,3} (?: ={3,} | -{3,} ) [^\S\n]*+ $ )
        (?> (?: \n [^\S\n]*+ (?= \n ) )* ) \n?
    )
    """,
    re.VERBOSE | re.MULTILINE,
)


def sentences(text: str) -> Iterator[Sentence]:
    start = 0
    for heading_start, end in _headings(text):
        # White space before a heading belongs to the heading.
        section_start = start if text[start:heading_start].isspace() else heading_start
        yield from _plain_sentences(text, start, section_start)
        yield Sentence(section_start, end, is_heading=True)
        start = end
    yield from _plain_sentences(text, start, len(text))


def _headings(text: str) -> Iterator[tuple[int, int]]:
    """Yields Markdown headings, underlined ones included, but no comments in fenced code blocks."""
    fence = ""
    for match in _MARKDOWN_LINE.finditer(text):
        mark = match["fence"]
        if mark and not fence:
            fence = mark
        elif mark and mark.startswith(fence):
            fence = ""
        elif not mark and not fence and is_grapheme_boundary(text, match.end()):
            yield match.start(), match.end()


def _plain_sentences(text: str, start: int, end: int) -> Iterator[Sentence]:
    for match in _SENTENCE_END.finditer(text, start, end):
        if match.end() < end and _ends_sentence(text, match) and is_grapheme_boundary(text, match.end()):
            yield Sentence(start, match.end(), is_heading=False)
            start = match.end()
    if start < end:
        yield Sentence(start, end, is_heading=False)


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    if match["western"] is None or "\n\n" in match[0]:
        return True
    following = text[match.end()]
    if following.islower():
        return False
    if match["western"] != ".":
        return True
    before = text[max(0, match.start() - _ABBREVIATION_MAX_CHARS) : match.start()]
    if following.isdigit() and _ABBREVIATED_BEFORE_NUMBER.search(before):
        return False
    return not _ABBREVIATED.search(before)


# -- excerpts ----------------------------------------------------------------------------------------------------------
# Short excerpts from the beginning of a text, quoted literally on one line.

# A sentence ends at a mark followed by white space; ideographic marks need none.
_FIRST_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++(?=\s)|[。！？]")


def first_sentence(text: str, limit_chars: int) -> str:
    """Returns the first sentence of the first line that is not blank, shortened to the limit."""
    line = _first_non_blank_line(text)
    end = _FIRST_SENTENCE_END.search(line)
    return shorten(line[: end.end()] if end else line, limit_chars)


def first_line(text: str, limit_chars: int) -> str:
    """Returns the first line that is not blank, shortened to the limit."""
    return shorten(_first_non_blank_line(text), limit_chars)


def shorten(text: str, limit_chars: int) -> str:
    """Returns the text on one line. If it is over the limit, it is cut between words and ends with `…`."""
    line = " ".join(text.split())
    return line if len(line) <= limit_chars else line[: word_boundary_before(line, limit_chars - 1)].rstrip() + "…"


def _first_non_blank_line(text: str) -> str:
    return next((stripped for line in text.splitlines() if (stripped := line.strip())), "")


# -- text work ---------------------------------------------------------------------------------------------------------
# Work whose time grows with a text does not run on the event loop: every other call would wait for it.

P = ParamSpec("P")
T = TypeVar("T")

# A few milliseconds of chunking, the most expensive work on a text. Below that, a thread would cost more than it saves.
SHORT_CHARS = 10_000


async def run_text_work(chars: int, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Runs a function on texts of `chars` characters in total: at once if they are short, otherwise on a thread."""
    if chars <= SHORT_CHARS:
        return function(*args, **options)
    return await asyncio.to_thread(function, *args, **options)


# -- titles ------------------------------------------------------------------------------------------------------------
# Default titles for conversations without one.

_TITLE_CHARS = 50


def title_from_text(text: str) -> str:
    """Returns the beginning of a text, followed by `...` if it is cut."""
    return text if len(text) <= _TITLE_CHARS else f"{text[:_TITLE_CHARS]}..."


def title_from_messages(messages: Iterable[MessageDraft]) -> str:
    """Returns a title from the user's first message, or from the first message if the user wrote none. Agents read
    titles, so human-only messages are left out."""
    texts = [
        (message.role, message.content)
        for message in messages
        if isinstance(message.content, str)
        and not (isinstance(message.metadata, Mapping) and is_human_only(message.metadata))
    ]
    user_texts = [content for role, content in texts if role == "user"]
    return title_from_text((user_texts or [content for _, content in texts] or [""])[0])


# -- templates ---------------------------------------------------------------------------------------------------------
# Placeholders in prompt texts: `{{name}}`, and `{name}` as many prompts write it.
#
# Texts may contain braces that mean something else (code, formulas), so placeholders without a value stay as they are.

_PLACEHOLDER = re.compile(r"\{\{\s*([^\W\d]\w{0,63})\s*\}\}|\{([^\W\d]\w{0,63})\}")


def prompt_arguments(prompt: SavedPrompt) -> tuple[SavedPromptArgument, ...]:
    """Returns the arguments that a prompt declares, or else those that its placeholders name.

    Names in double braces are required. Names in single braces are optional, because these may be part of the text.
    """
    if prompt.arguments:
        return prompt.arguments
    required: dict[str, bool] = {}
    for placeholder in _PLACEHOLDER.finditer(f"{prompt.system_prompt}\n{prompt.user_prompt}"):
        name = placeholder[1] or placeholder[2]
        required[name] = required.get(name, False) or placeholder[1] is not None
    return tuple(SavedPromptArgument(name=name, required=is_required) for name, is_required in required.items())


def fill_placeholders(text: str, values: Mapping[str, str], max_chars: int) -> str:
    """Returns the text with its placeholders replaced. Values are inserted literally, placeholders in them included."""

    def value_for(placeholder: re.Match[str]) -> str:
        return values.get(placeholder[1] or placeholder[2], placeholder[0])

    size = len(text) + sum(len(value_for(match)) - len(match[0]) for match in _PLACEHOLDER.finditer(text))
    if size > max_chars:
        raise InvalidParams(f"arguments: expected at most {max_chars} characters in the filled prompt, got {size}")
    return _PLACEHOLDER.sub(value_for, text)


def join_paragraphs(parts: Iterable[str]) -> str:
    """Joins the parts that are not blank, separated by empty lines."""
    return "\n\n".join(part.strip() for part in parts if part.strip())
