"""The benchmark of languages compares searches by words with those of each model."""

import gzip
import json
import re
from pathlib import Path

from bench.languages import LanguageResult, result_line
from tests.bench.runs import run_bench

PASSAGES = {
    "de": ("Die Bienen hinter dem Haus gaben zwölf Kilo Honig.", "Der Zug nach Lissabon fährt mittags ab."),
    "en": ("The bees behind the house gave twelve kilos of honey.", "The train to Lisbon leaves at noon."),
    "ru": ("Пчёлы за домом дали двенадцать килограммов мёда.", "Поезд в Лиссабон отправляется в полдень."),
}
QUESTIONS = {
    "de": "Wie viel Honig gaben die Bienen?",
    "en": "How much honey did the bees give?",
    "ru": "Сколько мёда дали пчёлы?",
}


def test_languages_are_compared_with_searches_by_words(tmp_path: Path) -> None:
    (tmp_path / "xquad").mkdir()
    for language, texts in PASSAGES.items():
        passages = [{"id": str(number), "title": "T", "text": text} for number, text in enumerate(texts)]
        questions = [{"id": "q", "text": QUESTIONS[language], "passage": "0"}]
        with gzip.open(tmp_path / "xquad" / f"{language}.json.gz", "wt") as file:
            json.dump({"language": language, "passages": passages, "questions": questions}, file)

    completed = run_bench("bench.languages", str(tmp_path), "--models", "fast,auto")

    result = "RESULT worst_minus_words=+0.0000 de=+0.0000 ru=+0.0000 en_de=1.0000 worst_language_ratio="
    assert completed.stdout.splitlines()[-1].startswith(result)
    assert re.search(r"^CPU ms .* en \d+\.\d \(1\.00\) ", completed.stdout, re.MULTILINE)
    rows = [re.split(r" +", line) for line in completed.stdout.splitlines()[2:5]]
    assert [row[:2] for row in rows] == [["de", "1.0000"], ["en", "1.0000"], ["ru", "1.0000"]]


def test_missing_data_is_reported() -> None:
    completed = run_bench("bench.languages")

    assert completed.returncode == 2
    assert "xquad/*.json.gz" in completed.stderr


def test_the_result_names_the_language_that_loses_most() -> None:
    words = {"de": LanguageResult(0.9, 0.0), "el": LanguageResult(0.8, 0.0), "ru": LanguageResult(0.7, 0.0)}
    model = {"de": LanguageResult(0.91, 1.0), "el": LanguageResult(0.75, 1.0), "ru": LanguageResult(0.7, 0.0)}

    words["en_de"], model["en_de"] = LanguageResult(0.6, 0.0), LanguageResult(0.5, 1.0)

    line = result_line({"off": words, "auto": model}, {"de": 3.0, "el": 5.0, "en": 2.0})

    expected = "worst_minus_words=-0.0500 de=+0.0100 ru=+0.0000 en_de=0.5000 worst_language_ratio=2.50"
    assert line == f"RESULT {expected}"
