"""Chats of every format in a library: searchable, unchanged by a second import, and visible to their owner only."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from config.settings import Settings
from sources.importers.engine.file_probe import probe_file
from sources.importers.engine.summary import ImportSummary, OutcomeCounts
from sources.importers.registry import all_importers, select_importer
from tests.cases import each_case
from tests.sources.importers import test_chatgpt, test_chatgpt_browser, test_claude_ai, test_sillytavern
from tests.sources.importers.chat_exports import GEMINI, encoded
from tests.sources.importers.chat_files import LIMITS, failures, imported_conversations, json_file, read, zip_file
from tests.sources.importers.note_exports import KEEP
from tests.sources.importers.office_files import packed
from tests.sources.importers.single_files import import_here
from tests.sources.storage.library_fixture import LibraryFixture, make_search, open_library_fixture, total_items

SETTINGS = Settings()


def chatgpt(folder: Path) -> Path:
    return zip_file(folder / "export.zip", {"conversations.json": [test_chatgpt.BRANCHING], "chat.html": b""})


def claude_ai(folder: Path) -> Path:
    messages = test_claude_ai.message(1, "Green bread?"), test_claude_ai.message(2, "80 degrees.", "assistant")
    return json_file(folder / "conversations.json", [test_claude_ai.chat(*messages), test_claude_ai.PROJECT])


def chatgpt_browser(folder: Path) -> Path:
    return test_chatgpt_browser.main_database(folder / "chat.db")


def sillytavern(folder: Path) -> Path:
    answer = {"name": "Sera", "is_user": False, "mes": "80 degrees.", "swipes": ["80 degrees.", "90 degrees."]}
    return test_sillytavern.jsonl(folder / "chat.jsonl", *test_sillytavern.LINES, answer)


async def import_chats(libraries: LibraryFixture, owner: str, path: Path) -> ImportSummary:
    async with libraries.library(owner) as library:
        return await import_here(library, path, settings=SETTINGS)


def all_unchanged(counts: OutcomeCounts) -> OutcomeCounts:
    return OutcomeCounts(unchanged=counts.total)


@each_case("sample", [chatgpt, claude_ai, chatgpt_browser, sillytavern])
async def test_chats_are_searchable_and_a_second_import_changes_nothing(tmp_path: Path, sample: Any) -> None:
    path = sample(tmp_path)
    async with open_library_fixture(tmp_path / "data") as libraries:
        first, second = await import_chats(libraries, "ada", path), await import_chats(libraries, "ada", path)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            hits = (await ada.chats.search(make_search("80 degrees"))).hits
            assert await total_items(ben) == 0
    assert (first.failures, first.problems) == (0, [])
    assert all(counts == OutcomeCounts(new=counts.total) for counts in first.kinds.values())
    assert second.kinds == {kind: all_unchanged(counts) for kind, counts in first.kinds.items()}
    assert "80 degrees." in hits[0].text


@each_case("sample", [chatgpt, claude_ai, chatgpt_browser, sillytavern])
def test_file_name_that_is_not_valid_text_is_accepted(tmp_path: Path, sample: Any) -> None:
    path = sample(tmp_path)
    strange = path.rename(os.fsdecode(os.fsencode(tmp_path) + b"/\xff" + os.fsencode(path.suffix)))
    importer = select_importer(probe_file(strange, LIMITS), all_importers())
    assert importer is not None
    assert importer.name == sample.__name__
    events = read(importer, strange)
    assert imported_conversations(events)
    assert not failures(events)
    assert msgspec.json.encode([conversation.draft for conversation in imported_conversations(events)])


async def test_newer_export_adds_messages_and_changes_the_canonical_path(tmp_path: Path) -> None:
    mapping = test_chatgpt.BRANCHING["mapping"] | {
        "z": test_chatgpt.node("a", test_chatgpt.message("And white tea?", create_time=1700000100))
    }
    newer = test_chatgpt.BRANCHING | {"mapping": mapping, "current_node": "z"}
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_chats(libraries, "ada", chatgpt(tmp_path))
        summary = await import_chats(libraries, "ada", json_file(tmp_path / "newer.json", [newer]))
        async with libraries.library("ada") as ada:
            stored = (await ada.chats.messages(test_chatgpt.CHAT, 20, 0)).rows
    assert summary.kinds["messages"] == OutcomeCounts(new=1, updated=5, unchanged=1)
    assert [message.content for message in stored if message.is_canonical] == [
        "Green tea?",
        "80 degrees.",
        "And white tea?",
    ]
    by_id = {message.uuid: message for message in stored}
    assert by_id[str(stored[-1].parent_id)].content == "80 degrees."


async def test_older_export_after_a_newer_one_changes_nothing(tmp_path: Path) -> None:
    mapping = dict(test_chatgpt.BRANCHING["mapping"])
    extra = {"y": test_chatgpt.node("a", test_chatgpt.message("Only in the old one"))}
    older = test_chatgpt.BRANCHING | {
        "title": "Old",
        "mapping": {key: mapping[key] for key in ("root", "s", "q", "a")} | extra,
        "current_node": "y",
        "update_time": 1700000008,
    }
    folder = tmp_path / "exports"
    folder.mkdir()
    json_file(folder / "a-new.json", [test_chatgpt.BRANCHING])
    json_file(folder / "b-old.json", [older])
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_chats(libraries, "ada", folder)
        second = await import_chats(libraries, "ada", folder)
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            stored = (await ada.chats.messages(test_chatgpt.CHAT, 20, 0)).rows
            title = (await ada.chats.get(test_chatgpt.CHAT)).title
            assert await total_items(ben) == 0
    assert all(counts == all_unchanged(counts) for counts in second.kinds.values())
    assert title == "Tea"
    assert [message.content for message in stored if message.is_canonical] == ["Black tea?", "Boiling.", "Thanks"]
    assert stored[-1].content == "Only in the old one"


async def test_older_claude_export_changes_nothing(tmp_path: Path) -> None:
    messages = test_claude_ai.message(1, "Green bread?"), test_claude_ai.message(2, "80 degrees.", "assistant")
    newer = test_claude_ai.chat(*messages, name="New", updated_at="2025-02-02T00:00:00Z")
    older = test_claude_ai.chat(*messages[:1], name="Old", updated_at="2025-02-01T00:00:00Z")
    async with open_library_fixture(tmp_path / "data") as libraries:
        await import_chats(libraries, "ada", json_file(tmp_path / "a.json", [newer]))
        summary = await import_chats(libraries, "ada", json_file(tmp_path / "b.json", [older]))
        async with libraries.library("ada") as ada, libraries.library("ben") as ben:
            assert [chat.title for chat in (await ada.chats.list(9, 0)).rows] == ["New"]
            assert await total_items(ben) == 0
    assert summary.kinds == {"chats": OutcomeCounts(unchanged=1), "messages": OutcomeCounts(unchanged=1)}


async def test_problem_names_folder_file_and_location_once_each(tmp_path: Path) -> None:
    folder = tmp_path / "Downloads"
    (folder / "old").mkdir(parents=True)
    json_file(folder / "conversations.json", [test_chatgpt.BRANCHING, {"mapping": 7}])
    zip_file(folder / "old" / "export.zip", {"conversations.json": [{"mapping": 7}], "chat.html": b""})
    async with open_library_fixture(tmp_path / "data") as libraries:
        summary = await import_chats(libraries, "ada", folder)
        async with libraries.library("ben") as ben:
            assert await total_items(ben) == 0
    assert [(problem.file, problem.location) for problem in summary.problems] == [
        ("Downloads/conversations.json", "chat 2"),
        ("Downloads/old/export.zip", "conversations.json, chat 1"),
    ]


async def test_archive_with_several_products_is_read_by_the_importer_of_each(tmp_path: Path) -> None:
    path = tmp_path / "takeout.zip"
    entries: dict[str, str | bytes] = {
        "Takeout/My Activity/Gemini Apps/MyActivity.json": encoded(GEMINI),
        "Takeout/Keep/Shopping.json": json.dumps(KEEP),
        "Takeout/archive_browser.html": "<html></html>",
    }
    path.write_bytes(packed(entries))
    async with open_library_fixture(tmp_path / "data") as libraries:
        first, second = await import_chats(libraries, "ada", path), await import_chats(libraries, "ada", path)
        async with libraries.library("ben") as ben:
            assert await total_items(ben) == 0
    assert (first.failures, first.kinds["notes"].new, first.kinds["chats"].new > 0) == (0, 1, True)
    assert second.kinds == {kind: all_unchanged(counts) for kind, counts in first.kinds.items()}
