"""Searches the caller's observations for a single concept."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from auth.context import RequestContext
from config.errors import NotFound
from config.settings import Settings
from server.compat.conversation_memory.arguments import MemoryQuery
from server.compat.conversation_memory.concept_queries import observation_query, query_notes
from server.compat.conversation_memory.conversation_paths import path_of
from server.compat.conversation_memory.meaning import NOT_SEARCHED, has_words, search_by_mode
from server.compat.conversation_memory.schemas import ObservationRow
from sources.records import Observation, SemanticStatus
from sources.search.snippets import Highlighter
from sources.storage.contract import Chats, Library
from sources.text.excerpts import first_sentence, shorten
from sources.text.text_work import run_text_work

# Rows are labels; layer 2 returns the whole texts.
_TITLE_MAX_CHARS = 160
_SUMMARY_MAX_CHARS = 160
_LABEL_MAX_CHARS = 60


class ObservationResults(Struct, frozen=True):
    """`total` is exact or None. `has_matching_words` if the rows were not found by their meaning alone."""

    rows: tuple[ObservationRow, ...]
    total: int | None
    notes: tuple[str, ...]
    semantic: SemanticStatus = NOT_SEARCHED
    has_matching_words: bool = False


async def search_observations(
    library: Library, context: RequestContext, settings: Settings, query: MemoryQuery
) -> ObservationResults:
    source_query = observation_query(query, context, settings)
    notes = query_notes(source_query)
    if source_query.search is None:
        return ObservationResults((), 0, notes)
    results = await search_by_mode(
        lambda search: library.observations.search(search, query.observation_filter), source_query.search
    )
    by_id = {row.id: row for row in await library.observations.get_many([str(hit.id) for hit in results.hits])}
    paths = await _conversation_paths(library.chats, by_id.values())
    highlighter = Highlighter(source_query.terms)

    def build() -> tuple[ObservationRow, ...]:
        return tuple(
            _row(
                observation,
                hit.score,
                path=paths.get(observation.conversation_id or "", ""),
                snippet=highlighter.snippet(hit.text, source_query.snippet_chars, hit.passage).text,
            )
            for hit in results.hits
            if (observation := by_id.get(str(hit.id)))
        )

    rows = await run_text_work(sum(len(hit.text) for hit in results.hits), build)
    has_matching_words = any(map(has_words, results.hits))
    return ObservationResults(rows, results.total, notes, results.semantic, has_matching_words)


async def _conversation_paths(chats: Chats, observations: Iterable[Observation]) -> Mapping[str, str]:
    """Returns the paths of the observations' conversations by id, without those that do not exist."""
    paths: dict[str, str] = {}
    for conversation_id in {row.conversation_id for row in observations if row.conversation_id}:
        try:
            paths[conversation_id] = path_of(await chats.get(conversation_id))
        except NotFound:
            continue
    return paths


def _row(observation: Observation, score: float, *, path: str, snippet: str) -> ObservationRow:
    return ObservationRow(
        id=observation.id,
        type=shorten(observation.type, _LABEL_MAX_CHARS),
        title=shorten(observation.title, _TITLE_MAX_CHARS),
        path=path,
        project=shorten(observation.project, _LABEL_MAX_CHARS),
        date=observation.created_at[:10],
        score=round(score, 2),
        summary=_summary(observation),
        snippet=snippet,
    )


def _summary(observation: Observation) -> str:
    """Returns the conclusion of an observation: its subtitle, or else the beginning of its text."""
    texts = (observation.subtitle, observation.narrative, *observation.facts, observation.title)
    return first_sentence(next(text for text in texts if text.strip()), _SUMMARY_MAX_CHARS)
