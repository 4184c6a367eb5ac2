"""`make bench-quality`: is the best hit of five sources the best answer? Asked of a judged library of our own.

Every query goes to all five sources, and their hits become one list twice: by the seed's formula, which spreads each
source's hits over 0 to 1, and by the score that means the same in every source.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from aggregator.merge import Candidate, Fairness
from auth.context import RequestContext
from bench.measures import ndcg
from bench.quality.collection import ANSWERS, KINDS, Collection, Query, read_collection
from bench.quality.minmax_scores import Scale, scale_as_written, scale_rounded, seed_order
from bench.quality.shelves import Names, store
from bench.reading_desk import open_desk
from config.settings import Settings
from sources.registry import load_sources
from sources.search.arguments import read_query
from sources.search.scoring import scale_to_range
from sources.source import Source
from sources.storage.contract import Library

PAGE = 10
DEPTH = 50
OWNER = "ines"
# Quality is measured here and not speed: no search is cut short because the machine is busy.
PATIENCE_MS = 60_000
ROUNDED = "rounded to four digits"
LONE_IS_BEST = "a lone hit scores 1"
SETTING = "both, as search_scoring=minmax does"
RESAMPLES = 2_000
RESAMPLING_SEED = 1897
LOSSES_SHOWN = 12
# Sources with hits from which on a query counts as widely met.
WIDE = 4


class Ranked(Struct, frozen=True):
    """One merged list: its items, each where it first stands; the sources of the first page; the best score."""

    items: tuple[str, ...]
    page_sources: tuple[str, ...]
    best_score: float


class Asked(Struct, frozen=True):
    """A query and its lists: by the seed's formula to the letter, by our score, by other readings of the formula."""

    query: Query
    minmax: Ranked
    ours: Ranked
    readings: Mapping[str, Ranked]


class Shelf(Struct, frozen=True):
    """The stored library and its owner. `names` says which item of the collection an id is."""

    reader: RequestContext
    library: Library
    settings: Settings
    names: Names

    def by_seed(self, scale: Scale, text: str) -> Ranked:
        expression = read_query(text, self.settings).expression
        assert expression is not None
        merged = seed_order(self.reader.db_paths, expression, DEPTH, scale)
        return self._ranked([(hit.source, hit.id) for hit in merged], merged[0].score if merged else 0.0)

    async def by_sources(self, sources: Sequence[Source], text: str) -> Ranked:
        """By what the sources' own searches answer, in the order of `knowledge_search`."""
        candidates: list[Candidate] = []
        for source in sources:
            asked = source.search_input(query=text, limit=DEPTH)
            answer = await source.search(self.reader, self.library, asked)
            candidates += (Candidate(source.name, match, rank, answer) for rank, match in enumerate(answer.found))
        fairness = Fairness(self.settings.fanout_document_max, self.settings.fanout_source_max)
        merged = fairness.order(candidates)
        best = merged[0].match.score if merged else 0.0
        return self._ranked([(one.source, str(one.match.id)) for one in merged], best)

    def _ranked(self, merged: Sequence[tuple[str, str]], best_score: float) -> Ranked:
        return Ranked(
            items=tuple(dict.fromkeys(self.names[identity] for identity in merged)),
            page_sources=tuple(source for source, _ in merged[:PAGE]),
            best_score=best_score,
        )


async def measure(collection: Collection, root: Path) -> list[Asked]:
    async with open_desk(root, search_deadline_ms=PATIENCE_MS) as desk:
        reader = desk.reader(OWNER)
        async with desk.libraries.library(reader) as library:
            shelf = Shelf(reader, library, desk.settings, await store(library, collection))
            setting = load_sources(replace(desk.settings, search_scoring="minmax"))
            ours = load_sources(replace(desk.settings, search_scoring="comparable"))
            return [
                Asked(
                    query,
                    shelf.by_seed(scale_as_written, query.text),
                    await shelf.by_sources(ours, query.text),
                    {
                        ROUNDED: shelf.by_seed(scale_rounded, query.text),
                        LONE_IS_BEST: shelf.by_seed(scale_to_range, query.text),
                        SETTING: await shelf.by_sources(setting, query.text),
                    },
                )
                for query in collection.queries
            ]


# -- figures -----------------------------------------------------------------------------------------------------------


class Quality(Struct, frozen=True):
    ndcg: float
    mrr: float


def reciprocal_rank(found: Sequence[str], grades: Mapping[str, int]) -> float:
    """One over the place of the first item on the page that answers."""
    places = (place for place, name in enumerate(found[:PAGE], 1) if grades.get(name, 0) >= ANSWERS)
    return next((1 / place for place in places), 0.0)


def quality(pairs: Sequence[tuple[Query, Ranked]]) -> Quality:
    """The mean over queries that have an answer."""
    return Quality(
        fmean(ndcg(ranked.items, query.grades, PAGE) for query, ranked in pairs),
        fmean(reciprocal_rank(ranked.items, query.grades) for query, ranked in pairs),
    )


def both(asked: Sequence[Asked]) -> tuple[Quality, Quality]:
    return (
        quality([(one.query, one.minmax) for one in asked]),
        quality([(one.query, one.ours) for one in asked]),
    )


def gain(one: Asked) -> float:
    minmax, ours = both([one])
    return ours.ndcg - minmax.ndcg


def gain_range(asked: Sequence[Asked]) -> tuple[float, float]:
    """Where the mean gain would lie, 95 times in 100, with other queries of the same sort: queries drawn anew."""
    gains, draw = [gain(one) for one in asked], Random(RESAMPLING_SEED)
    means = sorted(fmean(draw.choices(gains, k=len(gains))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 40], means[-RESAMPLES // 40]


def answerable(asked: Sequence[Asked]) -> list[Asked]:
    return [one for one in asked if one.query.kind != "none"]


def answering(query: Query) -> set[str]:
    """The sources that hold an answer."""
    return {source_of(name) for name, grade in query.grades.items() if grade >= ANSWERS}


def bests(ranked: Ranked) -> dict[str, str]:
    """The best item of each source that has a hit: within a source every way of merging keeps the order."""
    found: dict[str, str] = {}
    for name in ranked.items:
        found.setdefault(source_of(name), name)
    return found


def misleading(one: Asked) -> tuple[bool, int]:
    """Whether nearly all sources have hits, and of how many the best one has nothing to do with the query."""
    found = bests(one.minmax)
    return len(found) >= WIDE, sum(not one.query.grades.get(name) for name in found.values())


def source_of(name: str) -> str:
    return name.partition("/")[0]


def result_line(asked: Sequence[Asked]) -> str:
    """Against the formula to the letter, and as the program reads it that the seed describes: a lone hit scores 1."""
    minmax, ours = both(answerable(asked))
    program = quality([(one.query, one.readings[LONE_IS_BEST]) for one in answerable(asked)])
    return (
        f"RESULT ndcg_minmax={minmax.ndcg:.4f} ndcg_ours={ours.ndcg:.4f} ndcg_gain={ours.ndcg - minmax.ndcg:.4f} "
        f"ndcg_gain_program={ours.ndcg - program.ndcg:.4f}"
    )


# -- the report --------------------------------------------------------------------------------------------------------


def report(collection: Collection, asked: Sequence[Asked]) -> list[str]:
    return [
        _contents(collection),
        "",
        f"{'':<14} {'':>7} {'nDCG@10':>17} {'MRR@10':>17}",
        f"{'queries':<14} {'':>7} {'min-max':>8} {'ours':>8} {'min-max':>8} {'ours':>8}",
        *(_row(kind, [one for one in asked if one.query.kind == kind]) for kind in KINDS if kind != "none"),
        _row("all", answerable(asked)),
        *_unanswered([one for one in asked if one.query.kind == "none"]),
        _range_line(answerable(asked)),
        *_by_sources(answerable(asked)),
        *_other_readings(answerable(asked)),
        *_losses(answerable(asked)),
        *_listed("pages of ten filled by one source:", [_filled(one) for one in asked if is_filled(one.ours)]),
    ]


def _contents(collection: Collection) -> str:
    messages = sum(len(chat.messages) for chat in collection.chats)
    return (
        f"{len(collection.notes)} notes, {len(collection.media)} media, {len(collection.chats)} chats of {messages} "
        f"messages, {len(collection.characters)} characters, {len(collection.prompts)} prompts; "
        f"{len(collection.queries)} queries"
    )


def _row(title: str, asked: Sequence[Asked]) -> str:
    if not asked:
        return f"{title:<14} {0:>7}"
    minmax, ours = both(asked)
    return f"{title:<14} {len(asked):>7} {minmax.ndcg:>8.4f} {ours.ndcg:>8.4f} {minmax.mrr:>8.4f} {ours.mrr:>8.4f}"


def _range_line(asked: Sequence[Asked]) -> str:
    low, high = gain_range(asked)
    return f"nDCG@10 gained, 95 % range over resampled queries: {low:+.3f} to {high:+.3f}"


def _by_sources(asked: Sequence[Asked]) -> list[str]:
    """Where the answers stand decides most of the gain, so it is told for each number of sources that hold one."""
    met = [misleading(one) for one in asked]
    wide, bad = sum(is_met for is_met, _ in met), sum(count for _, count in met)
    return [
        "",
        "sources that hold an answer:",
        *(
            _row(f"  {count}", [one for one in asked if len(answering(one.query)) == count])
            for count in sorted({len(answering(one.query)) for one in asked})
        ),
        f"{wide} of {len(asked)} queries have hits in four or five sources",
        f"{bad} of {sum(len(bests(one.minmax)) for one in asked)} best hits of a source speak of another matter",
    ]


def _other_readings(asked: Sequence[Asked]) -> list[str]:
    """The figures above and the result are of the formula as written, which is its strongest reading."""
    titles = dict.fromkeys(title for one in asked for title in one.readings)
    rows = [_reading(title, [(one.query, one.readings[title]) for one in asked]) for title in titles]
    return ["", "the seed's formula read otherwise:", *rows]


def _reading(title: str, pairs: Sequence[tuple[Query, Ranked]]) -> str:
    found = quality(pairs)
    return f"  {title:<36} nDCG@10 {found.ndcg:.4f}  MRR@10 {found.mrr:.4f}"


def _unanswered(asked: Sequence[Asked]) -> list[str]:
    if not asked:
        return []
    minmax, ours = median(one.minmax.best_score for one in asked), median(one.ours.best_score for one in asked)
    return [f"{'none':<14} {len(asked):>7} best score, median: min-max {minmax:.2f}, ours {ours:.2f}"]


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines or ("none",))]


def _losses(asked: Sequence[Asked]) -> list[str]:
    better, worse = (sum(sign * gain(one) > 0 for one in asked) for sign in (1, -1))
    worst = sorted((one for one in asked if gain(one) < 0), key=gain)[:LOSSES_SHOWN]
    return _listed(f"ours is better {better} times and worse {worse} times, most here:", [_loss(one) for one in worst])


def _loss(one: Asked) -> str:
    return f"{gain(one):+.4f}  {one.query.kind}: {one.query.text}"


def is_filled(ranked: Ranked) -> bool:
    """Whether one source has the whole page. A page that is not full had room for the others."""
    return len(ranked.page_sources) == PAGE and len(set(ranked.page_sources)) == 1


def kept_out(query: Query, ranked: Ranked) -> list[str]:
    """Items of other sources that answer and are not on the page: the reasons why it should not be one source's."""
    return [
        name
        for name, grade in query.grades.items()
        if grade >= ANSWERS and not name.startswith(f"{ranked.page_sources[0]}/")
    ]


def unjustified(asked: Sequence[Asked]) -> list[str]:
    """Queries whose page is one source's although others answer."""
    return [one.query.text for one in asked if is_filled(one.ours) and kept_out(one.query, one.ours)]


def _filled(one: Asked) -> str:
    missed = kept_out(one.query, one.ours)
    verdict = f"not justified, it keeps out {', '.join(missed)}" if missed else "justified, no other source answers"
    return f"{one.query.text!r} by {one.ours.page_sources[0]}: {verdict}"


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(prog="bench.cross_source", description=__doc__).parse_args(arguments)
    collection = read_collection()
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        asked = asyncio.run(measure(collection, Path(name)))
    for line in [*report(collection, asked), result_line(asked)]:
        print(line)


if __name__ == "__main__":
    main()
