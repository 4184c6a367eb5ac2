"""`make bench-languages DATA=<folder>`: measures searches in other languages, with the data set XQuAD.

The passages of each language are the notes of a separate user, without titles. Each question is asked in the language
of its passage through `notes_search`: by words alone, and with each model of semantic search that is installed. The
last line is about the model that `semantic_model = auto` chooses: no language should lose by it.
"""

import argparse
import asyncio
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from msgspec import Struct

from bench.local_runtime import WORDS_ONLY, installed_models, model_settings, open_local_runtime, user_id_for
from bench.metrics import ndcg
from bench.vector_cache import embed_libraries
from config.settings import Settings
from sources.drafts import NoteDraft
from sources.semantic.service import configured_model

DEPTH = 10
NO_DATA = 2
REQUIRED_FILES = "  xquad/*.json.gz   XQuAD: passages, and questions with the passage that answers them, by language"
# The languages whose figures are in the last line, besides the worst.
REPORTED = ("de", "ru")


class JudgedQuestion(Struct, frozen=True):
    text: str
    passage: str


class LanguageData(Struct, frozen=True):
    """Texts of the passages by their ids."""

    language: str
    passages: Mapping[str, str]
    questions: tuple[JudgedQuestion, ...]


def read_languages(folder: Path) -> list[LanguageData]:
    languages = []
    for path in sorted(folder.glob("xquad/*.json.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            data = json.load(file)
        passages = {passage["id"]: passage["text"] for passage in data["passages"]}
        questions = [JudgedQuestion(question["text"], question["passage"]) for question in data["questions"]]
        languages.append(LanguageData(data["language"], passages, tuple(questions)))
    return languages


class LanguageResult(Struct, frozen=True):
    """nDCG@10, and the share of the queries that were also compared by meaning."""

    quality: float
    compared: float


async def store(languages: Sequence[LanguageData], root: Path) -> dict[str, dict[str, str]]:
    """Returns the passages of the notes by their ids in the library, by language."""
    stored: dict[str, dict[str, str]] = {}
    async with open_local_runtime(root, semantic_model=WORDS_ONLY) as runtime:
        for data in languages:
            async with runtime.libraries.library(runtime.context_for(data.language)) as library:
                drafts = [NoteDraft(title="", content=text) for text in data.passages.values()]
                notes = await library.notes.create_many(drafts)
            stored[data.language] = {note.id: name for note, name in zip(notes, data.passages, strict=True)}
    return stored


async def ask(
    languages: Sequence[LanguageData], stored: Mapping[str, Mapping[str, str]], root: Path, model: str
) -> dict[str, LanguageResult]:
    """`model` is a value of the setting `semantic_model`."""
    results: dict[str, LanguageResult] = {}
    async with open_local_runtime(root, semantic_model=model, **model_settings()) as runtime:
        for data in languages:
            context, passage_of = runtime.context_for(data.language), stored[data.language]
            qualities, compared = [], []
            for question in data.questions:
                response = await runtime.call(context, "notes_search", query=question.text, limit=DEPTH)
                found = [passage_of[hit["id"]] for hit in response["results"]]
                qualities.append(ndcg(found, {question.passage: 1}, DEPTH))
                compared.append(response["semantic"]["status"] == "on")
            results[data.language] = LanguageResult(fmean(qualities), fmean(compared))
    return results


def measure(
    languages: Sequence[LanguageData], root: Path, models: Sequence[str]
) -> dict[str, dict[str, LanguageResult]]:
    """Returns the results by language, by the value of `semantic_model`."""
    words_only = root / WORDS_ONLY
    stored = asyncio.run(store(languages, words_only))
    results = {WORDS_ONLY: asyncio.run(ask(languages, stored, words_only, WORDS_ONLY))}
    for model in models:
        copy = Path(shutil.copytree(words_only, root / model))
        users = [user_id_for(data.language) for data in languages]
        print(asyncio.run(embed_libraries(copy, model, users)), file=sys.stderr)
        results[model] = asyncio.run(ask(languages, stored, copy, model))
    return results


def report(languages: Sequence[LanguageData], results: Mapping[str, Mapping[str, LanguageResult]]) -> list[str]:
    """The last column of a model is the share of the queries that were compared by meaning."""
    models = [model for model in results if model != WORDS_ONLY]
    header = "".join(f" {model:>8} {'-words':>7} {'used':>5}" for model in models)
    lines = [f"{'nDCG@10':<9} {'questions':>9} {'words':>7}{header}"]
    for data in languages:
        words = results[WORDS_ONLY][data.language].quality
        row = f"{data.language:<9} {len(data.questions):>9} {words:>7.4f}"
        for model in models:
            result = results[model][data.language]
            row += f" {result.quality:>8.4f} {result.quality - words:>+7.4f} {result.compared:>5.2f}"
        lines.append(row)
    return lines


def result_line(results: Mapping[str, Mapping[str, LanguageResult]], chosen: str) -> str:
    """`chosen` is the model that `auto` chooses. All figures are differences to searches by words."""
    words = results[WORDS_ONLY]
    gains = {language: result.quality - words[language].quality for language, result in results[chosen].items()}
    worst = min(gains.values(), default=0.0)
    reported = "".join(f" {language}={gains[language]:+.4f}" for language in REPORTED if language in gains)
    return f"RESULT worst_minus_words={worst:+.4f}{reported}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.languages", description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder that contains xquad/")
    parser.add_argument("--models", default=None, help="models to measure, separated by commas; default: all installed")
    parser.add_argument("--languages", default="", help="languages to measure, separated by commas; default: all")
    options = parser.parse_args(arguments)
    languages = read_languages(options.data) if options.data is not None else []
    if chosen_languages := [name for name in options.languages.split(",") if name]:
        languages = [data for data in languages if data.language in chosen_languages]
    if not languages:
        print(f"make bench-languages DATA=<folder> requires these files:\n{REQUIRED_FILES}", file=sys.stderr)
        sys.exit(NO_DATA)
    models = installed_models() if options.models is None else [name for name in options.models.split(",") if name]
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        results = measure(languages, Path(name), models)
    auto = configured_model(Settings(semantic_model="auto"))
    chosen = auto.name if auto is not None and auto.name in results else [*models, WORDS_ONLY][0]
    for line in [*report(languages, results), result_line(results, chosen)]:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
