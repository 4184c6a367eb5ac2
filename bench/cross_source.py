"""`make bench-quality`: measures the merged ranking of all five sources on a judged library.

Every query goes to all five sources, and their hits are merged twice: with tldw's formula, which scales the hits of
each source to 0..1, and with our score, which is comparable across sources. Then the same library is searched with each
model of semantic search that is installed.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from aggregator.ranking import group_by_item, merge_duplicates, sort_by_score, take_block
from auth.context import RequestContext
from bench.local_runtime import installed_models, model_settings, open_local_runtime
from bench.metrics import ndcg
from bench.quality.collection import (
    ANSWERS,
    KINDS,
    SEPARATE_KINDS,
    Collection,
    Query,
    read_collection,
    read_off_topic_queries,
)
from bench.quality.minmax_scores import Scale, minmax_orders, scale_as_written, scale_rounded
from bench.quality.storage import ItemNames, store_collection
from config.settings import Settings
from sources.registry import load_sources
from sources.search.arguments import SEVERAL_SOURCES, read_query
from sources.search.scoring import scale_to_range
from sources.source import RankedHit, Source
from sources.storage.contract import Library

PAGE = 10
DEPTH = 50
OWNER = "ines"
# When the queries are asked, shortly after the last item of the library was written.
TODAY = datetime(2025, 12, 6, 12, tzinfo=UTC)
# Long, because quality is measured and not speed.
DEADLINE_MS = 60_000
ROUNDED = "rounded to four digits"
SINGLE_HIT_IS_BEST = "a single hit scores 1"
SETTING = "both, as search_scoring=minmax does"
RESAMPLES = 2_000
RESAMPLING_SEED = 1897
LOSSES_SHOWN = 12
# A query has hits in most sources if it has hits in at least this many.
MOST_SOURCES = 4


class MergedList(Struct, frozen=True):
    """A merged list: its items by first occurrence, the sources of the first page, and the best score."""

    items: tuple[str, ...]
    page_sources: tuple[str, ...]
    best_score: float


class QueryResult(Struct, frozen=True):
    """A query and its lists: by tldw's formula as written, by our score, by variants of the formula, and by our score
    with each model of semantic search."""

    query: Query
    minmax: MergedList
    ours: MergedList
    variants: Mapping[str, MergedList]
    models: Mapping[str, MergedList] = {}


class JudgedLibrary(Struct, frozen=True):
    """The stored library and its owner. `names` maps ids to items of the collection."""

    context: RequestContext
    library: Library
    settings: Settings
    names: ItemNames

    def rank_by_minmax(self, text: str, *scales: Scale) -> list[MergedList]:
        """Returns one list for each scale."""
        expression = read_query(text, self.settings).expression
        assert expression is not None
        return [
            self._merged([(hit.source, hit.id) for hit in merged], merged[0].score if merged else 0.0)
            for merged in minmax_orders(self.context.db_paths, expression, DEPTH, scales)
        ]

    async def is_found_by_meaning_alone(self, sources: Sequence[Source], text: str) -> bool:
        """Whether any source has a hit without a word of the query."""
        return any(hit.cosine and not hit.lexical for hit in await self._hits(sources, text))

    async def rank_by_sources(self, sources: Sequence[Source], text: str) -> MergedList:
        """Merges the results of the sources' own searches in the order of `knowledge_search`."""
        remaining = merge_duplicates(group_by_item(sort_by_score(await self._hits(sources, text))))
        merged: list[RankedHit] = []
        while remaining:
            block, remaining = take_block(remaining, self.settings.fixed.fanout_source_max)
            merged += block
        best = merged[0].score if merged else 0.0
        return self._merged([(hit.source, str(hit.id)) for hit in merged], best)

    async def _hits(self, sources: Sequence[Source], text: str) -> list[RankedHit]:
        # As `knowledge_search` asks the sources: scores of messages have no second stage then.
        context = replace(self.context, config={SEVERAL_SOURCES: True})
        hits: list[RankedHit] = []
        for source in sources:
            arguments = source.search_input(query=text, limit=DEPTH)
            hits += (await source.search(context, self.library, arguments)).hits
        return hits

    def _merged(self, merged: Sequence[tuple[str, str]], best_score: float) -> MergedList:
        return MergedList(
            items=tuple(dict.fromkeys(self.names[identity] for identity in merged)),
            page_sources=tuple(source for source, _ in merged[:PAGE]),
            best_score=best_score,
        )


async def measure(collection: Collection, root: Path) -> list[QueryResult]:
    async with open_local_runtime(root, search_deadline_ms=DEADLINE_MS) as runtime:
        context = replace(runtime.context_for(OWNER), received_at=TODAY)
        async with runtime.libraries.library(context) as library:
            judged = JudgedLibrary(context, library, runtime.settings, await store_collection(library, collection))
            setting = load_sources(replace(runtime.settings, search_scoring="minmax"))
            ours = load_sources(replace(runtime.settings, search_scoring="comparable"))
            results: list[QueryResult] = []
            for query in collection.queries:
                as_written, rounded, single_hit_is_best = judged.rank_by_minmax(
                    query.text, scale_as_written, scale_rounded, scale_to_range
                )
                by_setting = await judged.rank_by_sources(setting, query.text)
                variants = {ROUNDED: rounded, SINGLE_HIT_IS_BEST: single_hit_is_best, SETTING: by_setting}
                ours_list = await judged.rank_by_sources(ours, query.text)
                results.append(QueryResult(query, as_written, ours_list, variants))
            return results


async def measure_model(collection: Collection, root: Path, model: str) -> list[MergedList]:
    """Returns the lists of all queries by words and meaning."""
    async with open_local_runtime(root, semantic_model=model, **model_settings()) as runtime:
        context = replace(runtime.context_for(OWNER), received_at=TODAY)
        async with runtime.libraries.library(context) as library:
            judged = JudgedLibrary(context, library, runtime.settings, await store_collection(library, collection))
            await runtime.libraries.embed(context.user_id)
            sources = load_sources(runtime.settings)
            return [await judged.rank_by_sources(sources, query.text) for query in collection.queries]


async def off_topic_share(root: Path, model: str) -> float:
    """Returns the share of the queries on other topics that have hits by meaning alone, in a library that
    `measure_model` has stored."""
    queries = read_off_topic_queries()
    async with open_local_runtime(root, semantic_model=model, **model_settings()) as runtime:
        context = replace(runtime.context_for(OWNER), received_at=TODAY)
        async with runtime.libraries.library(context) as library:
            judged, sources = JudgedLibrary(context, library, runtime.settings, {}), load_sources(runtime.settings)
            return fmean([await judged.is_found_by_meaning_alone(sources, query) for query in queries])


async def add_models(
    results: Sequence[QueryResult], collection: Collection, root: Path, models: Sequence[str]
) -> list[QueryResult]:
    lists = {model: await measure_model(collection, root / model, model) for model in models}
    return [
        replace(one, models={model: merged[index] for model, merged in lists.items()})
        for index, one in enumerate(results)
    ]


# -- figures -----------------------------------------------------------------------------------------------------------


class Quality(Struct, frozen=True):
    ndcg: float
    mrr: float


def reciprocal_rank(hits: Sequence[str], grades: Mapping[str, int]) -> float:
    """Returns one divided by the rank of the first item on the page that answers the query."""
    ranks = (rank for rank, name in enumerate(hits[:PAGE], 1) if grades.get(name, 0) >= ANSWERS)
    return next((1 / rank for rank in ranks), 0.0)


def quality(pairs: Sequence[tuple[Query, MergedList]]) -> Quality:
    """Returns the mean over the queries."""
    return Quality(
        fmean(ndcg(merged.items, query.grades, PAGE) for query, merged in pairs),
        fmean(reciprocal_rank(merged.items, query.grades) for query, merged in pairs),
    )


def qualities(results: Sequence[QueryResult]) -> tuple[Quality, Quality]:
    return (
        quality([(one.query, one.minmax) for one in results]),
        quality([(one.query, one.ours) for one in results]),
    )


def gain(one: QueryResult) -> float:
    minmax, ours = qualities([one])
    return ours.ndcg - minmax.ndcg


def gain_range(results: Sequence[QueryResult]) -> tuple[float, float]:
    """Returns a 95 % confidence interval of the mean gain, by resampling the queries."""
    gains, rng = [gain(one) for one in results], Random(RESAMPLING_SEED)
    means = sorted(fmean(rng.choices(gains, k=len(gains))) for _ in range(RESAMPLES))
    return means[RESAMPLES // 40], means[-RESAMPLES // 40]


def answerable(results: Sequence[QueryResult]) -> list[QueryResult]:
    """Returns the results that the figures are about, without the kinds that are reported apart."""
    return [one for one in results if one.query.kind not in {"none", *SEPARATE_KINDS}]


def of_kind(results: Sequence[QueryResult], kind: str) -> list[QueryResult]:
    return [one for one in results if one.query.kind == kind]


def unanswered_first_page(results: Sequence[QueryResult]) -> int:
    """Returns the number of queries without an answer among the first ten items of our list."""
    return sum(not reciprocal_rank(one.ours.items, one.query.grades) for one in results)


def answering_sources(query: Query) -> set[str]:
    """Returns the sources that contain an answer."""
    return {source_of(name) for name, grade in query.grades.items() if grade >= ANSWERS}


def best_items(merged: MergedList) -> dict[str, str]:
    """Returns the best item of each source that has hits. Merging keeps the order within a source."""
    best: dict[str, str] = {}
    for name in merged.items:
        best.setdefault(source_of(name), name)
    return best


def irrelevant_best_items(one: QueryResult) -> tuple[bool, int]:
    """Returns whether most sources have hits, and the number of sources whose best hit is irrelevant."""
    best = best_items(one.minmax)
    return len(best) >= MOST_SOURCES, sum(not one.query.grades.get(name) for name in best.values())


def source_of(name: str) -> str:
    return name.partition("/")[0]


def result_line(results: Sequence[QueryResult]) -> str:
    """Compares with the formula as written, and as implemented by tldw, where a single hit scores 1."""
    minmax, ours = qualities(answerable(results))
    program = quality([(one.query, one.variants[SINGLE_HIT_IS_BEST]) for one in answerable(results)])
    return (
        f"RESULT ndcg_minmax={minmax.ndcg:.4f} ndcg_ours={ours.ndcg:.4f} ndcg_gain={ours.ndcg - minmax.ndcg:.4f} "
        f"ndcg_gain_program={ours.ndcg - program.ndcg:.4f} "
        f"unanswered_first_page={unanswered_first_page(answerable(results))}"
        + "".join(
            f" {kind}_ours={qualities(separate)[1].ndcg:.4f}"
            for kind in SEPARATE_KINDS
            if (separate := of_kind(results, kind))
        )
        + "".join(f" {name}={value}" for name, value in _model_figures(results).items())
    )


def _model_figures(results: Sequence[QueryResult]) -> dict[str, str]:
    figures: dict[str, str] = {}
    for model in dict.fromkeys(name for one in results for name in one.models):
        pairs = _with_model(answerable(results), model)
        figures[f"ndcg_{model}"] = f"{quality(pairs).ndcg:.4f}"
        figures[f"unanswered_{model}"] = str(
            sum(not reciprocal_rank(merged.items, query.grades) for query, merged in pairs)
        )
        for kind in SEPARATE_KINDS:
            if separate := _with_model(of_kind(results, kind), model):
                figures[f"{kind}_{model}"] = f"{quality(separate).ndcg:.4f}"
    return figures


def _with_model(results: Sequence[QueryResult], model: str) -> list[tuple[Query, MergedList]]:
    return [(one.query, one.models[model]) for one in results]


# -- the report --------------------------------------------------------------------------------------------------------


def report(collection: Collection, results: Sequence[QueryResult]) -> list[str]:
    return [
        _contents(collection),
        "",
        f"{'':<14} {'':>7} {'nDCG@10':>17} {'MRR@10':>17}",
        f"{'queries':<14} {'':>7} {'min-max':>8} {'ours':>8} {'min-max':>8} {'ours':>8}",
        *(_row(kind, of_kind(results, kind)) for kind in KINDS if kind != "none"),
        _row("all", answerable(results)),
        *_without_answer(of_kind(results, "none")),
        _range_line(answerable(results)),
        _first_page_line(answerable(results)),
        *_separate_kinds(results),
        *_model_rows(results),
        *_by_sources(answerable(results)),
        *_formula_variants(answerable(results)),
        *_losses(answerable(results)),
        *_list(
            "pages of ten hits from a single source:",
            [_single_source_line(one) for one in results if is_single_source(one.ours)],
        ),
    ]


def _contents(collection: Collection) -> str:
    messages = sum(len(chat.messages) for chat in collection.chats)
    return (
        f"{len(collection.notes)} notes, {len(collection.media)} media, {len(collection.chats)} chats of {messages} "
        f"messages, {len(collection.characters)} characters, {len(collection.prompts)} prompts; "
        f"{len(collection.queries)} queries"
    )


def _row(title: str, results: Sequence[QueryResult]) -> str:
    if not results:
        return f"{title:<14} {0:>7}"
    minmax, ours = qualities(results)
    return f"{title:<14} {len(results):>7} {minmax.ndcg:>8.4f} {ours.ndcg:>8.4f} {minmax.mrr:>8.4f} {ours.mrr:>8.4f}"


def _range_line(results: Sequence[QueryResult]) -> str:
    low, high = gain_range(results)
    return f"nDCG@10 gain, 95 % interval over resampled queries: {low:+.3f} to {high:+.3f}"


def _by_sources(results: Sequence[QueryResult]) -> list[str]:
    """Reports the gain by the number of sources that contain an answer, on which it mostly depends."""
    counts = [irrelevant_best_items(one) for one in results]
    in_most_sources, irrelevant = sum(is_wide for is_wide, _ in counts), sum(count for _, count in counts)
    return [
        "",
        "sources that contain an answer:",
        *(
            _row(f"  {count}", [one for one in results if len(answering_sources(one.query)) == count])
            for count in sorted({len(answering_sources(one.query)) for one in results})
        ),
        f"{in_most_sources} of {len(results)} queries have hits in four or five sources",
        f"{irrelevant} of {sum(len(best_items(one.minmax)) for one in results)} best hits of a source are irrelevant",
    ]


def _formula_variants(results: Sequence[QueryResult]) -> list[str]:
    """Reports variants of the formula. The figures above and the result use it as written, its strongest variant."""
    titles = dict.fromkeys(title for one in results for title in one.variants)
    rows = [_variant_row(title, [(one.query, one.variants[title]) for one in results]) for title in titles]
    return ["", "variants of tldw's formula:", *rows]


def _variant_row(title: str, pairs: Sequence[tuple[Query, MergedList]]) -> str:
    mean = quality(pairs)
    return f"  {title:<36} nDCG@10 {mean.ndcg:.4f}  MRR@10 {mean.mrr:.4f}"


def _model_rows(results: Sequence[QueryResult]) -> list[str]:
    """Reports each kind of query by words, and with each model."""
    models = dict.fromkeys(name for one in results for name in one.models)
    if not models:
        return []
    names: list[str] = [kind for kind in dict.fromkeys((*KINDS, *SEPARATE_KINDS)) if kind != "none"]
    kinds = {**{name: of_kind(results, name) for name in names}, "all": answerable(results)}
    return [
        "",
        f"{'nDCG@10':<14} {'words':>8}" + "".join(f" {model:>8}" for model in models),
        *(
            f"{kind:<14} {qualities(ones)[1].ndcg:>8.4f}"
            + "".join(f" {quality(_with_model(ones, model)).ndcg:>8.4f}" for model in models)
            for kind, ones in kinds.items()
            if ones
        ),
    ]


def _without_answer(results: Sequence[QueryResult]) -> list[str]:
    if not results:
        return []
    minmax, ours = median(one.minmax.best_score for one in results), median(one.ours.best_score for one in results)
    return [f"{'none':<14} {len(results):>7} best score, median: min-max {minmax:.2f}, ours {ours:.2f}"]


def _first_page_line(results: Sequence[QueryResult]) -> str:
    return f"{unanswered_first_page(results)} of {len(results)} queries have no answer on our first page"


def _separate_kinds(results: Sequence[QueryResult]) -> list[str]:
    rows = [
        line
        for kind in SEPARATE_KINDS
        if (separate := of_kind(results, kind))
        for line in (_row(f"  {kind}", separate), f"  {_first_page_line(separate)}")
    ]
    return ["", "reported apart:", *rows] if rows else []


def _list(title: str, lines: Sequence[str]) -> list[str]:
    return ["", title, *(f"  {line}" for line in lines or ("none",))]


def _losses(results: Sequence[QueryResult]) -> list[str]:
    better, worse = (sum(sign * gain(one) > 0 for one in results) for sign in (1, -1))
    worst = sorted((one for one in results if gain(one) < 0), key=gain)[:LOSSES_SHOWN]
    return _list(
        f"ours is better for {better} queries and worse for {worse}; largest losses:", [_loss(one) for one in worst]
    )


def _loss(one: QueryResult) -> str:
    return f"{gain(one):+.4f}  {one.query.kind}: {one.query.text}"


def is_single_source(merged: MergedList) -> bool:
    """Whether all hits of a full page are from one source."""
    return len(merged.page_sources) == PAGE and len(set(merged.page_sources)) == 1


def missing_answers(query: Query, merged: MergedList) -> list[str]:
    """Returns items of other sources that answer the query and are missing from a single-source page."""
    return [
        name
        for name, grade in query.grades.items()
        if grade >= ANSWERS and not name.startswith(f"{merged.page_sources[0]}/")
    ]


def unjustified_pages(results: Sequence[QueryResult]) -> list[str]:
    """Returns queries with a single-source page although other sources contain answers."""
    return [one.query.text for one in results if is_single_source(one.ours) and missing_answers(one.query, one.ours)]


def _single_source_line(one: QueryResult) -> str:
    missing = missing_answers(one.query, one.ours)
    verdict = f"not justified, it lacks {', '.join(missing)}" if missing else "justified, no other source answers"
    return f"{one.query.text!r} by {one.ours.page_sources[0]}: {verdict}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.cross_source", description=__doc__)
    parser.add_argument("--models", default=None, help="models to measure, separated by commas; default: all installed")
    chosen = parser.parse_args(arguments).models
    models = installed_models() if chosen is None else [name for name in chosen.split(",") if name]
    collection = read_collection()
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        results = asyncio.run(measure(collection, Path(name, "words")))
        results = asyncio.run(add_models(results, collection, Path(name), models))
        off_topic = {model: asyncio.run(off_topic_share(Path(name, model), model)) for model in models}
    lines = [f"queries on other topics with hits by meaning alone, {model}: {off_topic[model]:.4f}" for model in models]
    for line in [*report(collection, results), "", *lines, result_line(results)]:
        print(line)


if __name__ == "__main__":
    main()
