"""The text of a search result that a model reads: Markdown, with about two thirds of the tokens of the same JSON.

Programs read the structured content. One that parses the text instead gets JSON: if its protocol version has no
structured content, or if it says so in its config (`result_text`), as tldw's addresses do for their clients.
"""

from collections.abc import Iterator

from aggregator.defaults import ResultText, SearchDefaults
from aggregator.responses import FurtherPassage, KnowledgeItem, KnowledgeResponse
from config.times import format_clock
from server.compat.meaning_note import meaning_note
from server.protocol.call import Call

# The first version with structured content.
_STRUCTURED_SINCE = "2025-06-18"
_REASONS = {"context": "matches by the messages before it", "meaning": "similar in meaning"}


def text_format(call: Call, defaults: SearchDefaults) -> ResultText:
    if defaults.result_text is not None:
        return defaults.result_text
    return "markdown" if call.version >= _STRUCTURED_SINCE else "json"


def search_text(response: KnowledgeResponse) -> str:
    """`response` has all fields of its results, because the order of passages depends on their positions."""
    results = [_result(number, item) for number, item in enumerate(response.results, 1)]
    notes = "\n".join(_notes(response))
    return "\n\n".join([*(results or ["No results."]), notes])


def _result(number: int, item: KnowledgeItem) -> str:
    """A title, what a model needs to read on, and the passages in the order of the item, one line each."""
    title = f"{number}. **{item.title}**" if item.title else f"{number}."
    lead = FurtherPassage(snippet=item.snippet or "", loc=item.loc, sender=item.sender)
    passages = sorted([lead, *(item.passages or ())], key=_message_index)
    return "\n".join([title, " · ".join([item.uri, *_about(item)]), *map(_quote, passages)])


def _quote(passage: FurtherPassage) -> str:
    """One line, whatever a sender is called: another line could look like a result."""
    text = f"{passage.sender}: {passage.snippet}" if passage.sender else passage.snippet
    return f"> {' '.join(text.split())}"


def _message_index(passage: FurtherPassage) -> int:
    return (passage.loc.message_index if passage.loc is not None else None) or 0


def _about(item: KnowledgeItem) -> Iterator[str]:
    if item.loc is not None and item.loc.seconds is not None:
        yield format_clock(item.loc.seconds)
    if date := item.created_at or item.last_modified:
        yield date[: len("2026-01-10")]
    # Otherwise the item is not much longer than its passage.
    if item.cost_tokens and item.cost_tokens > len(item.snippet or ""):
        yield f"{item.cost_tokens} tokens"
    if item.more_in_item:
        yield f"{item.more_in_item} more passage{'s' if item.more_in_item > 1 else ''}"
    if item.also_in:
        yield f"also {' '.join(item.also_in)}"
    if item.via:
        yield _REASONS[item.via]


def _notes(response: KnowledgeResponse) -> Iterator[str]:
    """What is not as expected, and how to go on."""
    if response.results and all(item.via == "meaning" for item in response.results):
        yield "No result contains the words of the query. These are the nearest in meaning, and may be unrelated."
    if response.read_as:
        yield f"Query interpretation: {response.read_as}"
    for name, report in response.sources.items():
        if report.status != "ok":
            yield f"{name} was not searched: {report.error or report.status}"
    if response.semantic:
        if response.semantic.status in ("partial", "unavailable"):
            yield meaning_note(response.semantic) or ""
        elif response.semantic.reason:
            yield response.semantic.reason
    if response.not_reranked:
        yield f"Not reranked: {response.not_reranked}"
    if response.session_error:
        yield f"Results may repeat: {response.session_error}"
    if response.exhausted:
        yield "All results were shown in this session before; try other words."
    elif response.suppressed:
        yield f"{response.suppressed} results are left out because this session has seen them."
    if response.next_offset is not None:
        yield f"More results: offset {response.next_offset}"
    yield f"session: {response.session}"
