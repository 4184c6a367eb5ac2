"""`make bench-retrieval DATA=<folder>`: measures whether questions find their answers through the real tools.

Every LoCoMo conversation is the library of a separate user, with a chat per session. SciFact's abstracts are the notes,
and again the media, of one user. Questions go through the dispatcher like those of a client. Everything is measured by
words alone, and again with each model of semantic search that is installed, after all text was embedded.
"""

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from msgspec import Struct

from auth.context import RequestContext
from bench.datasets import REQUIRED_FILES, Abstract, Claim, Dialogue, JudgedData, MissingDataset, read_datasets
from bench.local_runtime import WORDS_ONLY, LocalRuntime, installed_models, model_settings, open_local_runtime
from bench.metrics import ndcg, recall
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft

DEPTH = 10
BATCH = 500
MONTH_OR_YEAR = re.compile(
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
CATEGORIES = {1: "several turns", 2: "time", 3: "open", 4: "one turn"}
NO_DATA = 2


class QuestionResult(Struct, frozen=True):
    """The quality of the results of one question, from 0 to 1, and whether there were none."""

    category: str
    quality: float
    is_empty: bool
    names_date: bool = False


class Outcome(Struct, frozen=True):
    """With a model, the abstracts are not measured as media."""

    turns: tuple[QuestionResult, ...]
    notes: tuple[QuestionResult, ...]
    media: tuple[QuestionResult, ...] = ()

    @property
    def dated_turns(self) -> Sequence[QuestionResult]:
        """The questions that name a month or a year."""
        return [one for one in self.turns if one.names_date]


def result_line(by_words: Outcome, models: Mapping[str, Outcome]) -> str:
    """The SciFact figures are those of the notes; the media are in the table. Answers are counted by words."""
    figures = {"locomo_turn_r10": _quality(by_words.turns)}
    figures |= {f"locomo_turn_r10_{name}": _quality(outcome.turns) for name, outcome in models.items()}
    figures["scifact_ndcg10"] = _quality(by_words.notes)
    figures |= {f"scifact_ndcg10_{name}": _quality(outcome.notes) for name, outcome in models.items()}
    results = (*by_words.turns, *by_words.notes, *by_words.media)
    figures["empty_answers"] = fmean(one.is_empty for one in results)
    figures["locomo_dates_r10"] = _quality(by_words.dated_turns)
    return "RESULT " + " ".join(f"{name}={value:.4f}" for name, value in figures.items())


def _quality(results: Sequence[QuestionResult]) -> float:
    return fmean(one.quality for one in results) if results else 0.0


# -- LoCoMo: chats -----------------------------------------------------------------------------------------------------


async def measure_dialogue(runtime: LocalRuntime, dialogue: Dialogue) -> list[QuestionResult]:
    context = runtime.context_for(dialogue.id)
    turn_of = await _store_dialogue(runtime, context, dialogue)
    await runtime.libraries.embed(context.user_id)
    outcomes = []
    for question in dialogue.questions:
        results = (await runtime.call(context, "chats_search", query=question.text, limit=DEPTH))["results"]
        turns = [turn_of[hit["message_id"]] for hit in results if hit["message_id"]]
        outcomes.append(
            QuestionResult(
                CATEGORIES[question.category],
                recall(turns, question.evidence),
                not results,
                MONTH_OR_YEAR.search(question.text) is not None,
            )
        )
    return outcomes


async def _store_dialogue(runtime: LocalRuntime, context: RequestContext, dialogue: Dialogue) -> dict[str, str]:
    """Stores the sessions as chats and returns the turn of each message."""
    turn_of: dict[str, str] = {}
    async with runtime.libraries.library(context) as library:
        for session in dialogue.sessions:
            chat = await library.chats.create(ConversationDraft(created_at=session[0].said_at))
            drafts = [MessageDraft(sender=turn.speaker, content=turn.text, created_at=turn.said_at) for turn in session]
            stored = await library.chats.append(chat.id, drafts)
            turn_of |= {message.id: turn.id for message, turn in zip(stored, session, strict=True)}
    return turn_of


# -- SciFact: notes and media ------------------------------------------------------------------------------------------


async def measure_notes(runtime: LocalRuntime, data: JudgedData) -> list[QuestionResult]:
    context = runtime.context_for("scifact")
    abstract_of: dict[str, str] = {}
    async with runtime.libraries.library(context) as library:
        for batch in _batches(data.abstracts):
            drafts = [NoteDraft(title=abstract.title, content=abstract.text) for abstract in batch]
            stored = await library.notes.create_many(drafts)
            abstract_of |= {note.id: abstract.id for note, abstract in zip(stored, batch, strict=True)}
    await runtime.libraries.embed(context.user_id)
    return [await _measure_claim(runtime, context, "notes_search", claim, abstract_of) for claim in data.claims]


async def measure_media(runtime: LocalRuntime, data: JudgedData) -> list[QuestionResult]:
    context = runtime.context_for("scifact")
    abstract_of: dict[str, str] = {}
    async with runtime.libraries.library(context) as library:
        for batch in _batches(data.abstracts):
            drafts = [MediaDraft(title=one.title, content=one.text, media_type="article") for one in batch]
            stored = await library.media.create_many(drafts)
            abstract_of |= {str(item.id): abstract.id for item, abstract in zip(stored, batch, strict=True)}
    return [await _measure_claim(runtime, context, "media_search", claim, abstract_of) for claim in data.claims]


async def _measure_claim(
    runtime: LocalRuntime, context: RequestContext, tool: str, claim: Claim, abstract_of: dict[str, str]
) -> QuestionResult:
    results = (await runtime.call(context, tool, query=claim.text, limit=DEPTH))["results"]
    abstracts = [abstract_of[str(hit["id"])] for hit in results]
    return QuestionResult(tool, ndcg(abstracts, claim.grades, DEPTH), not results)


def _batches(abstracts: Sequence[Abstract]) -> list[Sequence[Abstract]]:
    return [abstracts[start : start + BATCH] for start in range(0, len(abstracts), BATCH)]


# -- the run -----------------------------------------------------------------------------------------------------------


async def measure(data: JudgedData, root: Path, model: str = WORDS_ONLY) -> Outcome:
    """`model` is a value of the setting `semantic_model`."""
    async with open_local_runtime(root, semantic_model=model, **model_settings()) as runtime:
        turns = [result for dialogue in data.dialogues for result in await measure_dialogue(runtime, dialogue)]
        notes = await measure_notes(runtime, data)
        media = await measure_media(runtime, data) if model == WORDS_ONLY else []
    return Outcome(tuple(turns), tuple(notes), tuple(media))


def report(data: JudgedData, by_words: Outcome, models: Mapping[str, Outcome]) -> list[str]:
    messages = sum(len(session) for dialogue in data.dialogues for session in dialogue.sessions)
    return [
        f"LoCoMo: {len(data.dialogues)} conversations, {messages} turns; SciFact: {len(data.abstracts)} abstracts",
        f"{'':<34} {'questions':>9} {'quality':>8} {'empty':>6}",
        *_rows("by words", by_words),
        *(line for name, outcome in models.items() for line in _rows(f"with {name}", outcome)),
    ]


def _rows(title: str, outcome: Outcome) -> list[str]:
    by_category = {name: [one for one in outcome.turns if one.category == name] for name in CATEGORIES.values()}
    return [
        title,
        _row("LoCoMo chats, turn R@10", outcome.turns),
        *(_row(f"  {name}", results) for name, results in by_category.items()),
        _row("  a month or a year is named", outcome.dated_turns),
        _row("SciFact as notes, nDCG@10", outcome.notes),
        *([_row("SciFact as media, nDCG@10", outcome.media)] if outcome.media else []),
    ]


def _row(title: str, results: Sequence[QuestionResult]) -> str:
    if not results:
        return f"{title:<34} {0:>9}"
    return f"{title:<34} {len(results):>9} {_quality(results):>8.4f} {sum(one.is_empty for one in results):>6}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.retrieval", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder that contains locomo/ and scifact/")
    parser.add_argument("--models", default=None, help="models to measure, separated by commas; default: all installed")
    options = parser.parse_args(arguments)
    datasets = _read(options.data)
    models = installed_models() if options.models is None else [name for name in options.models.split(",") if name]
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        by_words = asyncio.run(measure(datasets, Path(name, WORDS_ONLY)))
        outcomes = {model: asyncio.run(measure(datasets, Path(name, model), model)) for model in models}
    for line in [*report(datasets, by_words, outcomes), result_line(by_words, outcomes)]:
        print(line)


def _read(folder: Path | None) -> JudgedData:
    try:
        if folder is None:
            raise MissingDataset("no folder given")
        return read_datasets(folder)
    except MissingDataset as error:
        print(
            f"{error}; make bench-retrieval DATA=<folder> requires these files in the folder:\n{REQUIRED_FILES}",
            file=sys.stderr,
        )
        sys.exit(NO_DATA)


if __name__ == "__main__":
    main(sys.argv[1:])
