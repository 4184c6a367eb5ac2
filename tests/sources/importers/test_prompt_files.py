"""Prompt files: one or several prompts in Markdown, YAML, JSON and tables, with commonly used field names."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.errors import InvalidParams, TooLarge
from sources.importers.engine.events import FailedItem, ImportedPrompt, SkippedItem
from sources.importers.registry import load_importer
from sources.records import SavedPromptArgument
from tests.cases import each_case
from tests.sources.importers.single_files import (
    damaged_files,
    importer_for,
    read,
    read_draft,
    read_or_reject,
    write,
)

IMPORTER = load_importer("prompt_files")

MARKDOWN = """---
name: Reviewer
author: Ada
keywords: code review, python
arguments:
  - name: diff
    description: What changed
    required: true
  - tone
model: large
---
Reads a change.

## System prompt
You review code.

## User
Review {{diff}}.
"""
YAML = """prompts:
  - name: Haiku
    system: You write haiku.
    user: |
      About {{topic}}.
      In spring.
    keywords: [poetry, short]
    created_at: 2024-05-01
  - title: Limerick
    prompt: A limerick, please.
"""
JSON = json.dumps(
    [
        {
            "uuid": "3F2504E0-4F89-11D3-9A0C-0305E82C3301",
            "name": "A",
            "System Prompt": "s",
            "User Prompt": "u",
            "tags": "x;y",
        },
        {"act": "B", "prompt": "p", "contributor": "eve", "temperature": 0.5},
    ]
)
CSV = 'Name,System Prompt,User Prompt,Keywords\r\nA,s,"two\r\nlines, and ""quotes""","x, y"\r\n,,,\r\nB,,u,\r\n'
SAMPLES = {"a.md": MARKDOWN.encode(), "a.yaml": YAML.encode(), "a.json": JSON.encode(), "a.csv": CSV.encode()}


def drafts(path: Path) -> list[Any]:
    return [event.draft for event in read(IMPORTER, path) if isinstance(event, ImportedPrompt)]


def test_markdown_has_front_matter_and_sections(tmp_path: Path) -> None:
    prompt = read_draft(IMPORTER, write(tmp_path / "review.md", MARKDOWN))

    assert (prompt.name, prompt.author, prompt.details) == ("Reviewer", "Ada", "Reads a change.")
    assert (prompt.system_prompt, prompt.user_prompt) == ("You review code.", "Review {{diff}}.")
    assert prompt.tags == ("code review", "python")
    assert prompt.arguments == (
        SavedPromptArgument(name="diff", description="What changed", required=True),
        SavedPromptArgument(name="tone"),
    )
    assert prompt.metadata == {"model": "large"}


def test_markdown_without_sections_is_the_user_prompt(tmp_path: Path) -> None:
    prompt = read_draft(
        IMPORTER, write(tmp_path / "greet.md", "---\nsystem: Be kind.\n---\nGreet {{name}}.\n\n# Loudly\n")
    )

    assert (prompt.name, prompt.system_prompt) == ("greet", "Be kind.")
    assert prompt.user_prompt == "Greet {{name}}.\n\n# Loudly"


def test_yaml_list_of_prompts_is_read(tmp_path: Path) -> None:
    haiku, limerick = drafts(write(tmp_path / "poems.yaml", YAML))

    assert (haiku.name, haiku.system_prompt) == ("Haiku", "You write haiku.")
    assert haiku.user_prompt == "About {{topic}}.\nIn spring."
    assert (haiku.tags, haiku.created_at) == (("poetry", "short"), "2024-05-01T00:00:00.000Z")
    assert (limerick.name, limerick.user_prompt) == ("Limerick", "A limerick, please.")


def test_json_keeps_ids_and_unknown_fields(tmp_path: Path) -> None:
    first, second = drafts(write(tmp_path / "a.json", JSON))

    assert first.uuid == "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
    assert (first.system_prompt, first.user_prompt, first.tags) == ("s", "u", ("x", "y"))
    assert (second.name, second.user_prompt, second.author) == ("B", "p", "eve")
    assert second.metadata == {"temperature": 0.5}


@each_case(
    "value",
    [
        {"name": "A", "user": "u"},
        [{"name": "A", "user": "u"}],
        {"Prompts": [{"name": "A", "user": "u"}]},
        {"A": {"user": "u"}},
    ],
)
def test_json_layouts_are_read(tmp_path: Path, value: Any) -> None:
    prompt = read_draft(IMPORTER, write(tmp_path / "a.json", json.dumps(value)))

    assert (prompt.name, prompt.user_prompt, prompt.metadata) == ("A", "u", {})


def test_second_field_of_a_group_is_kept_in_the_metadata(tmp_path: Path) -> None:
    value = {"name": "A", "title": "Long A", "user": "u", "notes": "n", "details": "d"}

    prompt = read_draft(IMPORTER, write(tmp_path / "a.json", json.dumps(value)))

    assert (prompt.details, prompt.metadata) == ("d", {"title": "Long A", "notes": "n"})


@each_case("delimiter", [",", ";", "\t"])
def test_table_with_column_names_in_the_first_line_is_read(tmp_path: Path, delimiter: str) -> None:
    text = CSV.replace("Name,System Prompt,User Prompt,Keywords", delimiter.join(CSV.splitlines()[0].split(",")))
    text = text.replace("A,s,", f"A{delimiter}s{delimiter}").replace('","x', f'"{delimiter}"x')
    text = text.replace(",,,", delimiter * 3).replace("B,,u,", delimiter.join(["B", "", "u", ""]))

    first, second = drafts(write(tmp_path / "a.csv", text))

    assert (first.name, first.system_prompt, first.tags) == ("A", "s", ("x", "y"))
    assert first.user_prompt == 'two\nlines, and "quotes"'
    assert (second.name, second.user_prompt) == ("B", "u")


def test_failed_prompts_are_reported_with_their_location(tmp_path: Path) -> None:
    entries = [7, {"user": "u"}, {"name": "empty", "user": " "}, {"name": "A", "user": "u", "arguments": 5, "tags": 7}]
    table = f'name,user\n,u\nB,"{"x" * 200_000}"\n'

    assert read(IMPORTER, write(tmp_path / "a.json", json.dumps(entries)))[:3] == [
        FailedItem("prompt 1", "expected a prompt with a name and a text, got 7"),
        FailedItem("prompt 2", "the prompt has no name"),
        SkippedItem("prompt without text"),
    ]
    nameless, long = read(IMPORTER, write(tmp_path / "a.csv", table))
    assert isinstance(nameless, FailedItem)
    assert nameless.location == "line 2"
    assert isinstance(long, ImportedPrompt)


def test_prompts_keep_their_ids_when_the_file_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "name,user\nA,1\nA,2\nB,3\n")
    before = [prompt.uuid for prompt in drafts(path)]

    after = [prompt.uuid for prompt in drafts(write(path, "name,user\nC,0\nA,new\nA,2\nB,3\n"))]

    assert len(set(before)) == 3
    assert after[1:] == before
    assert drafts(path) == drafts(path)


@each_case("name", SAMPLES)
def test_prompt_files_are_recognized(tmp_path: Path, name: str) -> None:
    assert importer_for(write(tmp_path / name, SAMPLES[name])) == "prompt_files"


@each_case(
    ("name", "text", "importer_name"),
    [
        ("a.md", "---\ntitle: x\n---\ntext", "markdown"),
        ("a.md", "# System\ntext", "markdown"),
        ("a.json", '{"name": "x"}', None),
        ("a.json", '{"name": "x", "first_mes": "hi", "system_prompt": ""}', "character_cards"),
        ("a.yaml", "name: x\nversion: 1", None),
        ("a.csv", "name,age\nx,1", "documents"),
    ],
)
def test_other_files_are_not_recognized(tmp_path: Path, name: str, text: str, importer_name: str | None) -> None:
    assert importer_for(write(tmp_path / name, text)) == importer_name


@each_case(
    ("name", "data", "problem"),
    [
        ("a.json", b"[" * 5_000, "JSON is nested more than|JSON is malformed"),
        (
            "a.json",
            b'{"name": "A", "user": "u", "x": ' + b"[" * 200 + b"]" * 200 + b"}",
            "JSON is nested more than",
        ),
        ("a.json", b'{"name": "\\ud800", "user": "u"}', "JSON is malformed"),
        ("a.json", b'"one"', "expected a prompt or a list of prompts"),
        ("a.json", b"", "JSON is malformed"),
        ("a.yaml", b"a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "YAML aliases are not supported"),
        ("a.yaml", b"- " * 5_000, "YAML is nested more than"),
        ("a.yaml", b"one", "expected a prompt or a list of prompts"),
        ("a.yaml", b"", "expected a prompt or a list of prompts"),
        ("a.csv", b"\0", "expected text, got a NUL character"),
        ("a.json", b"[" + b"{}," * 2_500_000 + b"{}]", "JSON has more than 2000000 values"),
        ("a.yaml", b"- a\n" * 300_000, "YAML has more than 200000 values"),
        ("a.csv", b"name,user" + b"," * 100_001, "line 1: expected at most 100000 columns"),
        ("a.csv", b"name,user\n" + b"," * 100_001, "line 2: expected at most 100000 columns"),
    ],
)
def test_malicious_files_are_rejected(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    with pytest.raises(InvalidParams, match=problem):
        read(IMPORTER, write(tmp_path / name, data))


def test_oversized_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TooLarge):
        read(IMPORTER, write(tmp_path / "a.csv", b"x" * 2_000), line_max_bytes=1_000)


@given(damaged_files(SAMPLES))
def test_damaged_file_is_read_or_rejected(sample: tuple[str, bytes]) -> None:
    read_or_reject(IMPORTER, *sample)


@given(st.sampled_from(sorted(SAMPLES)), st.binary(max_size=500))
def test_any_bytes_are_read_or_rejected(name: str, data: bytes) -> None:
    read_or_reject(IMPORTER, name, data)
