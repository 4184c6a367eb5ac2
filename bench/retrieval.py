"""`make bench-retrieval DATA=<folder>`: measures whether questions find their answers through the real tools.

The chats with an assistant (`bench.quality.assistant`) are the libraries of two users; without a folder, only they are
measured. For comparison, the same questions are answered by plain bm25 over single messages. Every LoCoMo conversation
is the library of a separate user, with a chat per session. SciFact's abstracts are the notes, and again the media, of
one user. Questions go through the dispatcher like those of a client. Everything is measured by words alone, and again
with each model of semantic search that is installed, after all text was embedded. Vectors are kept for later runs (see
`bench.vector_cache`).
"""

import argparse
import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import Struct

from bench.datasets import REQUIRED_FILES, Abstract, Dialogue, JudgedData, MissingDataset, read_datasets
from bench.local_runtime import (
    WORDS_ONLY,
    LocalRuntime,
    installed_models,
    model_settings,
    open_local_runtime,
    user_id_for,
)
from bench.message_weights import LEARNED, collect, learn, leave_one_out
from bench.metrics import ndcg, recall
from bench.plain_bm25 import PlainBm25
from bench.quality.assistant import PEOPLE, AssistantChats, read_assistant_chats
from bench.vector_cache import embed_libraries
from sources.drafts import ConversationDraft, MediaDraft, MessageDraft, NoteDraft
from sources.search.message_boost import MessageWeights
from sources.semantic.service import UNKNOWN_WORDS

DEPTH = 10
BATCH = 500
MONTH_OR_YEAR = re.compile(
    r"\b(?:january|february|march|april|may|june|july|august|september|october|november|december|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
CATEGORIES = {1: "several turns", 2: "time", 3: "open", 4: "one turn"}
NO_DATA = 2
WRITTEN_BY = {"u": "the user's message", "a": "the assistant's answer"}
HELD_OUT = "held-out questions"
# The states of a search with a model. A query that consists of quotations, or of words that the model does not know, is
# compared by words.
_COMPARED = ("on", "not_applicable")


class QuestionResult(Struct, frozen=True):
    """The quality of the results of one question, from 0 to 1, and whether there were none."""

    category: str
    quality: float
    is_empty: bool
    names_date: bool = False
    is_held_out: bool = False
    kind: str = ""


class Outcome(Struct, frozen=True):
    """With a model, the abstracts are not measured as media."""

    turns: tuple[QuestionResult, ...] = ()
    notes: tuple[QuestionResult, ...] = ()
    media: tuple[QuestionResult, ...] = ()
    assistant: tuple[QuestionResult, ...] = ()
    # Turn R@10 if the weights of the second stage for each conversation are learned from the others, and the weights
    # that all conversations together teach.
    turns_left_out: float = 0.0
    learned: MessageWeights | None = None

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
    figures |= _assistant_figures(by_words, models)
    figures["locomo_turn_r10_loo"] = by_words.turns_left_out
    figures |= {f"locomo_turn_r10_{name}_loo": outcome.turns_left_out for name, outcome in models.items()}
    return "RESULT " + " ".join(f"{name}={value:.4f}" for name, value in figures.items())


def assistant_line(by_words: Outcome, models: Mapping[str, Outcome]) -> str:
    """The result without other datasets."""
    return "RESULT " + " ".join(f"{name}={value:.4f}" for name, value in _assistant_figures(by_words, models).items())


def _assistant_figures(by_words: Outcome, models: Mapping[str, Outcome]) -> dict[str, float]:
    outcomes = {"": by_words, **{f"_{name}": outcome for name, outcome in models.items()}}
    return {f"assistant_r10{name}": _quality(outcome.assistant) for name, outcome in outcomes.items()}


def _quality(results: Sequence[QuestionResult]) -> float:
    return fmean(one.quality for one in results) if results else 0.0


# -- storing -----------------------------------------------------------------------------------------------------------

NOTES_OWNER, MEDIA_OWNER = "scifact", "scifact-media"
NO_DATASETS = JudgedData((), (), ())


class StoredData(Struct, frozen=True):
    """The turns of the messages by dialogue, the abstracts of the notes and those of the media, and the keys of the
    messages of chats with an assistant, by their ids in the library."""

    turns: Mapping[str, Mapping[str, str]]
    notes: Mapping[str, str]
    media: Mapping[str, str]
    assistant: Mapping[str, str]


async def store(data: JudgedData, chats: AssistantChats, root: Path) -> StoredData:
    async with open_local_runtime(root, semantic_model=WORDS_ONLY) as runtime:
        turns = {dialogue.id: await _store_dialogue(runtime, dialogue) for dialogue in data.dialogues}
        notes, media = await _store_notes(runtime, data), await _store_media(runtime, data)
        return StoredData(turns, notes, media, await _store_assistant(runtime, chats))


async def _store_assistant(runtime: LocalRuntime, chats: AssistantChats) -> dict[str, str]:
    key_of: dict[str, str] = {}
    for person in PEOPLE:
        async with runtime.libraries.library(runtime.context_for(person)) as library:
            for chat in chats.of(person):
                drafts = [
                    MessageDraft(role=one.role, content=one.text, created_at=f"{one.said_at:%Y-%m-%dT%H:%M:%SZ}")
                    for one in chat.messages
                ]
                created_at = drafts[0].created_at
                stored_chat = await library.chats.create(ConversationDraft(title=chat.title, created_at=created_at))
                stored = await library.chats.append(stored_chat.id, drafts)
                key_of |= {message.id: one.key for message, one in zip(stored, chat.messages, strict=True)}
    return key_of


async def _store_dialogue(runtime: LocalRuntime, dialogue: Dialogue) -> dict[str, str]:
    turn_of: dict[str, str] = {}
    async with runtime.libraries.library(runtime.context_for(dialogue.id)) as library:
        for session in dialogue.sessions:
            chat = await library.chats.create(ConversationDraft(created_at=session[0].said_at))
            drafts = [MessageDraft(sender=turn.speaker, content=turn.text, created_at=turn.said_at) for turn in session]
            stored = await library.chats.append(chat.id, drafts)
            turn_of |= {message.id: turn.id for message, turn in zip(stored, session, strict=True)}
    return turn_of


async def _store_notes(runtime: LocalRuntime, data: JudgedData) -> dict[str, str]:
    abstract_of: dict[str, str] = {}
    async with runtime.libraries.library(runtime.context_for(NOTES_OWNER)) as library:
        for batch in _batches(data.abstracts):
            drafts = [NoteDraft(title=abstract.title, content=abstract.text) for abstract in batch]
            stored = await library.notes.create_many(drafts)
            abstract_of |= {note.id: abstract.id for note, abstract in zip(stored, batch, strict=True)}
    return abstract_of


async def _store_media(runtime: LocalRuntime, data: JudgedData) -> dict[str, str]:
    abstract_of: dict[str, str] = {}
    async with runtime.libraries.library(runtime.context_for(MEDIA_OWNER)) as library:
        for batch in _batches(data.abstracts):
            drafts = [MediaDraft(title=one.title, content=one.text, media_type="article") for one in batch]
            stored = await library.media.create_many(drafts)
            abstract_of |= {str(item.id): abstract.id for item, abstract in zip(stored, batch, strict=True)}
    return abstract_of


def _batches(abstracts: Sequence[Abstract]) -> list[Sequence[Abstract]]:
    return [abstracts[start : start + BATCH] for start in range(0, len(abstracts), BATCH)]


# -- asking ------------------------------------------------------------------------------------------------------------


async def ask(
    data: JudgedData, chats: AssistantChats, stored: StoredData, root: Path, model: str = WORDS_ONLY
) -> Outcome:
    """`model` is a value of the setting `semantic_model`."""
    async with open_local_runtime(root, semantic_model=model, **model_settings()) as runtime:
        pools = [
            pool for dialogue in data.dialogues for pool in await collect(runtime, dialogue, stored.turns[dialogue.id])
        ]
        return Outcome(
            turns=tuple(
                [
                    result
                    for dialogue in data.dialogues
                    for result in await _ask_questions(runtime, dialogue, stored.turns[dialogue.id])
                ]
            ),
            notes=tuple(await _ask_claims(runtime, NOTES_OWNER, "notes_search", data, stored.notes)),
            media=tuple(await _ask_claims(runtime, MEDIA_OWNER, "media_search", data, stored.media))
            if model == WORDS_ONLY
            else (),
            assistant=tuple(await _ask_assistant(runtime, chats, stored.assistant)),
            turns_left_out=leave_one_out(pools),
            learned=learn(pools) if pools else None,
        )


async def _ask_assistant(
    runtime: LocalRuntime, chats: AssistantChats, key_of: Mapping[str, str]
) -> list[QuestionResult]:
    found = []
    for question in chats.questions:
        results = await _search(runtime, question.person, "chats_search", question.text)
        found.append([key_of[hit["message_id"]] for hit in results if hit.get("message_id")])
    return _assistant_results(chats, found)


def ask_plain_bm25(chats: AssistantChats) -> tuple[QuestionResult, ...]:
    """Each message alone, in one index per person."""
    indexes = {
        person: PlainBm25({message.key: message.text for chat in chats.of(person) for message in chat.messages})
        for person in PEOPLE
    }
    found = [indexes[question.person].search(question.text, DEPTH) for question in chats.questions]
    return tuple(_assistant_results(chats, found))


def _assistant_results(chats: AssistantChats, found: Sequence[Sequence[str]]) -> list[QuestionResult]:
    return [
        QuestionResult(
            WRITTEN_BY[question.evidence[0].partition("/")[2][0]],
            recall(keys, question.evidence),
            not keys,
            is_held_out=question.is_held_out,
            kind=question.kind,
        )
        for question, keys in zip(chats.questions, found, strict=True)
    ]


async def _ask_questions(runtime: LocalRuntime, dialogue: Dialogue, turn_of: Mapping[str, str]) -> list[QuestionResult]:
    outcomes = []
    for question in dialogue.questions:
        results = await _search(runtime, dialogue.id, "chats_search", question.text)
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


async def _ask_claims(
    runtime: LocalRuntime, owner: str, tool: str, data: JudgedData, abstract_of: Mapping[str, str]
) -> list[QuestionResult]:
    outcomes = []
    for claim in data.claims:
        results = await _search(runtime, owner, tool, claim.text)
        abstracts = [abstract_of[str(hit["id"])] for hit in results]
        outcomes.append(QuestionResult(tool, ndcg(abstracts, claim.grades, DEPTH), not results))
    return outcomes


async def _search(runtime: LocalRuntime, owner: str, tool: str, query: str) -> Sequence[Mapping[str, Any]]:
    response = await runtime.call(runtime.context_for(owner), tool, query=query, limit=DEPTH)
    semantic = response["semantic"]
    is_compared = semantic["status"] in _COMPARED or semantic.get("reason") == UNKNOWN_WORDS
    if runtime.settings.semantic_model != WORDS_ONLY and not is_compared:
        raise RuntimeError(f"expected a search by meaning, got {semantic} for {query!r}")
    results: Sequence[Mapping[str, Any]] = response["results"]
    return results


# -- the run -----------------------------------------------------------------------------------------------------------


async def measure_model(data: JudgedData, chats: AssistantChats, stored: StoredData, root: Path, model: str) -> Outcome:
    owners = [*PEOPLE, *(dialogue.id for dialogue in data.dialogues)]
    owners += [NOTES_OWNER] if data.abstracts else []
    print(await embed_libraries(root, model, [user_id_for(owner) for owner in owners]), file=sys.stderr)
    return await ask(data, chats, stored, root, model)


def report_assistant(chats: AssistantChats, outcomes: Mapping[str, Sequence[QuestionResult]]) -> list[str]:
    messages = sum(len(chat.messages) for chat in chats.chats)
    lines = [f"Chats with an assistant: {len(chats.chats)} conversations, {messages} messages; evidence R@10"]
    lines.append(f"{'':<34} {'questions':>9} {'quality':>8} {'empty':>6}")
    for title, results in outcomes.items():
        lines.append(_row(title, results))
        lines += [_row(f"  {name}", [one for one in results if one.category == name]) for name in WRITTEN_BY.values()]
        lines.append(_row(f"  {HELD_OUT}", [one for one in results if one.is_held_out]))
        in_full = [one for one in results if one.kind]
        lines.append(_row("  conversations written in full", in_full))
        kinds = dict.fromkeys(one.kind for one in in_full)
        lines += [_row(f"    {kind}", [one for one in in_full if one.kind == kind]) for kind in kinds]
        lines.append(_row(f"    {HELD_OUT}", [one for one in in_full if one.is_held_out]))
    return lines


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
        f"{'  leave one conversation out':<34} {len(outcome.turns):>9} {outcome.turns_left_out:>8.4f}",
        "  weights learned: " + ", ".join(f"{name} {getattr(outcome.learned, name):+.2f}" for name in LEARNED),
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
    datasets = _read(options.data) if options.data is not None else NO_DATASETS
    chats = read_assistant_chats()
    models = installed_models() if options.models is None else [name for name in options.models.split(",") if name]
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        words_only = Path(name, WORDS_ONLY)
        stored = asyncio.run(store(datasets, chats, words_only))
        by_words = asyncio.run(ask(datasets, chats, stored, words_only))
        outcomes = {}
        for model in models:
            root = Path(shutil.copytree(words_only, Path(name, model)))
            outcomes[model] = asyncio.run(measure_model(datasets, chats, stored, root, model))
    with_models = {f"with {model}": outcome.assistant for model, outcome in outcomes.items()}
    assistant = {"plain bm25, each message alone": ask_plain_bm25(chats), "by words": by_words.assistant, **with_models}
    lines = report_assistant(chats, assistant)
    if datasets is NO_DATASETS:
        lines.append(f"not measured: LoCoMo and SciFact, which need these files in DATA=<folder>:\n{REQUIRED_FILES}")
        lines.append(assistant_line(by_words, outcomes))
    else:
        lines = [*report(datasets, by_words, outcomes), *lines, result_line(by_words, outcomes)]
    for line in lines:
        print(line)


def _read(folder: Path) -> JudgedData:
    try:
        return read_datasets(folder)
    except MissingDataset as error:
        print(
            f"{error}; make bench-retrieval DATA=<folder> requires these files in the folder:\n{REQUIRED_FILES}",
            file=sys.stderr,
        )
        sys.exit(NO_DATA)


if __name__ == "__main__":
    main(sys.argv[1:])
