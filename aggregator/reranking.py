"""The first hits of a ranking in the order of a reranker.

A page is cut from the reranked ranking, so a position denotes the same hit on every page. Scores do not change: those
of a reranker are comparable within one answer only.
"""

from collections import deque
from collections.abc import Sequence

from loguru import logger
from msgspec.structs import replace

from aggregator.fanout import Fanout
from aggregator.merge import sort_by_score
from aggregator.ranking import MergedRanking
from sources.query import Term
from sources.semantic.model import SemanticUnavailable
from sources.semantic.reranker import Reranker
from sources.source import RankedHit


class RerankedRanking:
    """Reads like a MergedRanking. `problem` says why the reranker could not order the first hits."""

    def __init__(
        self, ranking: MergedRanking, reranker: Reranker, fanout: Fanout, query: str, topic: Sequence[Term]
    ) -> None:
        self._ranking = ranking
        self._reranker = reranker
        self._fanout = fanout
        self._query = query
        self._topic = topic
        self._ready: deque[RankedHit] = deque()
        self._reranked: frozenset[str] = frozenset()
        self.problem: str | None = None

    @property
    def description(self) -> str:
        if self.problem is not None:
            return f"hits were not reranked: {self.problem}"
        return f"the first {self._reranker.hits_max} hits are in the order of the reranker"

    @property
    def position(self) -> int:
        return self._ready[0].position if self._ready else self._ranking.position

    @property
    def is_finished(self) -> bool:
        return not self._ready and self._ranking.is_finished

    @property
    def total(self) -> int | None:
        return self._ranking.total

    @property
    def source_totals(self) -> dict[str, int]:
        return self._ranking.source_totals

    async def skip_to(self, offset: int) -> None:
        if offset < self._reranker.hits_max:
            self._ready.extend(hit for hit in await self._read_first() if hit.position >= offset)
        if not self._ready:
            await self._ranking.skip_to(offset)

    async def next(self) -> RankedHit | None:
        return self._ready.popleft() if self._ready else await self._ranking.next()

    def sort(self, hits: Sequence[RankedHit]) -> list[RankedHit]:
        """Sorts the hits of a page: those that were reranked by position, then the others by score."""
        first = [hit for hit in hits if hit.uri in self._reranked]
        rest = [hit for hit in hits if hit.uri not in self._reranked]
        return [*sorted(first, key=lambda hit: hit.position), *sort_by_score(rest)]

    async def _read_first(self) -> list[RankedHit]:
        hits: list[RankedHit] = []
        while self._ranking.position < self._reranker.hits_max and (hit := await self._ranking.next()) is not None:
            hits.append(hit)
        try:
            order = await self._order(hits)
        except SemanticUnavailable as error:
            logger.warning("hits were not reranked: {}", error.reason)
            self.problem = error.reason
            return hits
        self._reranked = frozenset(hit.uri for hit in order)
        return [replace(moved, position=hit.position) for moved, hit in zip(order, hits, strict=True)]

    async def _order(self, hits: Sequence[RankedHit]) -> list[RankedHit]:
        """Sorts hits by the scores of the reranker, which reads the title and the snippet of each. A hit that cannot be
        rendered is not delivered, so its place does not matter."""
        items = await self._fanout.render(hits, self._topic)
        texts = [
            f"{items[hit.uri].title or ''}\n{items[hit.uri].snippet or ''}" if hit.uri in items else "" for hit in hits
        ]
        scores = await self._reranker.scores(self._query, texts)
        ranked = sorted(zip(scores, hits, strict=True), key=lambda pair: -pair[0])
        return [hit for _, hit in ranked]


Ranking = MergedRanking | RerankedRanking
