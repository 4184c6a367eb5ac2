"""`make bench-languages DATA=<folder>`: measures searches in other languages, with the data set XQuAD.

The passages of each language are the notes of a separate user, without titles. Each question is asked in the language
of its passage through `notes_search`, for some languages in English, and in English with every long word misspelled: by
words alone, with each model of semantic search that is installed, and with `semantic_model = auto`, which the last line
is about: no language should lose by it. Its last figure is the CPU time of a search by words in the slowest language,
as a multiple of that in English.
"""

import argparse
import asyncio
import gzip
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from msgspec import Struct

from bench.local_runtime import WORDS_ONLY, installed_models, model_settings, open_local_runtime, user_id_for
from bench.metrics import ndcg
from bench.vector_cache import embed_libraries
from sources.drafts import NoteDraft

DEPTH = 10
NO_DATA = 2
REQUIRED_FILES = "  xquad/*.json.gz   XQuAD: passages, and questions with the passage that answers them, by language"
AUTO = "auto"
LANGUAGE_CHARS = 2
# The languages whose figures are in the last line, besides the worst, and those that are also asked in English.
REPORTED = ("de", "ru")
MISSPELLED = "misspelled"
CROSSED = ("de", "es", "ru", "zh")
# The questions of each language whose CPU time is measured, every seventh, after some that fill caches.
TIMED_QUESTIONS, UNTIMED_QUESTIONS, TIMED_STEP = 60, 10, 7


class JudgedQuestion(Struct, frozen=True):
    text: str
    passage: str


class LanguageData(Struct, frozen=True):
    """Texts of the passages by their ids."""

    language: str
    passages: Mapping[str, str]
    questions: tuple[JudgedQuestion, ...]


def misspell(text: str) -> str:
    """Swaps two letters in the middle of every word of at least five."""
    return re.sub(r"[^\W\d_]{5,}", _swap_letters, text)


def _swap_letters(word: re.Match[str]) -> str:
    middle = len(word[0]) // 2
    return word[0][: middle - 1] + word[0][middle] + word[0][middle - 1] + word[0][middle + 1 :]


def read_languages(folder: Path) -> list[LanguageData]:
    languages = []
    for path in sorted([*folder.glob("xquad/*.json.gz"), *folder.glob("*.json.gz")]):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            data = json.load(file)
        passages = {passage["id"]: passage["text"] for passage in data["passages"]}
        questions = [JudgedQuestion(question["text"], question["passage"]) for question in data["questions"]]
        languages.append(LanguageData(data["language"], passages, tuple(questions)))
    return languages


class LanguageResult(Struct, frozen=True):
    """nDCG@10, and the share of the queries that were also compared by meaning. The key of English questions about
    passages in German is `en_de`."""

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
    asked = {data.language: (data.language, data.questions) for data in languages}
    english = next((data.questions for data in languages if data.language == "en"), ())
    if english:
        asked[MISSPELLED] = ("en", tuple(JudgedQuestion(misspell(one.text), one.passage) for one in english))
    asked |= {f"en_{language}": (language, english) for language in CROSSED if language in asked and english}
    results: dict[str, LanguageResult] = {}
    async with open_local_runtime(root, semantic_model=model, **model_settings()) as runtime:
        for key, (language, questions) in asked.items():
            context, passage_of = runtime.context_for(language), stored[language]
            qualities, compared = [], []
            for question in questions:
                response = await runtime.call(context, "notes_search", query=question.text, limit=DEPTH)
                found = [passage_of[hit["id"]] for hit in response["results"]]
                qualities.append(ndcg(found, {question.passage: 1}, DEPTH))
                compared.append(response["semantic"]["status"] == "on")
            results[key] = LanguageResult(fmean(qualities), fmean(compared))
    return results


async def measure_cpu(languages: Sequence[LanguageData], root: Path) -> dict[str, float]:
    """Returns the median of the CPU time of a search in milliseconds, by language. The languages take turns, so that a
    busy machine slows all of them down alike."""
    times: dict[str, list[float]] = {data.language: [] for data in languages}
    async with open_local_runtime(root, **model_settings()) as runtime:
        for number in range(UNTIMED_QUESTIONS + TIMED_QUESTIONS):
            for data in languages:
                question = data.questions[number * TIMED_STEP % len(data.questions)]
                start_ns = time.process_time_ns()
                await runtime.call(runtime.context_for(data.language), "notes_search", query=question.text, limit=DEPTH)
                times[data.language].append((time.process_time_ns() - start_ns) / 1e6)
    return {language: median(own[UNTIMED_QUESTIONS:]) for language, own in times.items()}


def measure(
    languages: Sequence[LanguageData], root: Path, models: Sequence[str]
) -> tuple[dict[str, dict[str, LanguageResult]], dict[str, float]]:
    """Returns the results by language, by the value of `semantic_model`, and the CPU time of searches by words."""
    words_only = root / WORDS_ONLY
    stored = asyncio.run(store(languages, words_only))
    cpu_ms = asyncio.run(measure_cpu(languages, words_only))
    results = {WORDS_ONLY: asyncio.run(ask(languages, stored, words_only, WORDS_ONLY))}
    for model in models:
        copy = Path(shutil.copytree(words_only, root / model))
        users = [user_id_for(data.language) for data in languages]
        print(asyncio.run(embed_libraries(copy, model, users)), file=sys.stderr)
        results[model] = asyncio.run(ask(languages, stored, copy, model))
    return results, cpu_ms


def report(results: Mapping[str, Mapping[str, LanguageResult]]) -> list[str]:
    """The last column of a model is the share of the queries that were compared by meaning."""
    models = [model for model in results if model != WORDS_ONLY]
    header = "".join(f" {model:>12} {'-words':>7} {'used':>5}" for model in models)
    lines = [f"{'nDCG@10':<9} {'words':>7}{header}"]
    for key, by_words in results[WORDS_ONLY].items():
        words = by_words.quality
        row = f"{key:<9} {words:>7.4f}"
        for model in models:
            result = results[model][key]
            row += f" {result.quality:>12.4f} {result.quality - words:>+7.4f} {result.compared:>5.2f}"
        lines.append(row)
    return lines


def result_line(results: Mapping[str, Mapping[str, LanguageResult]], cpu_ms: Mapping[str, float]) -> str:
    """The first figures are differences between `auto` and searches by words."""
    words, auto = results[WORDS_ONLY], results[AUTO]
    gains = {key: one.quality - words[key].quality for key, one in auto.items() if len(key) == LANGUAGE_CHARS}
    reported = "".join(f" {language}={gains[language]:+.4f}" for language in REPORTED if language in gains)
    crossed = f" en_de={auto['en_de'].quality:.4f}" if "en_de" in auto else ""
    slowest = f" worst_language_ratio={max(cpu_ms.values()) / cpu_ms['en']:.2f}" if "en" in cpu_ms else ""
    return f"RESULT worst_minus_words={min(gains.values(), default=0.0):+.4f}{reported}{crossed}{slowest}"


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
    models = (
        [*installed_models(), AUTO] if options.models is None else [name for name in options.models.split(",") if name]
    )
    with tempfile.TemporaryDirectory(prefix="florilegium-bench-") as name:
        results, cpu_ms = measure(languages, Path(name), models)
    english_ms = cpu_ms.get("en", float("nan"))
    by_language = "  ".join(f"{language} {ms:.1f} ({ms / english_ms:.2f})" for language, ms in cpu_ms.items())
    print("CPU ms of a search by words (multiple of English):", by_language)
    for line in [*report(results), *([result_line(results, cpu_ms)] if AUTO in results else [])]:
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
