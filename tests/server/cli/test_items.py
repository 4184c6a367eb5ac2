"""`florilegium add`, `list`, `edit`, `rm` and `tag` on a local library with two users."""

from pathlib import Path

import pytest

from server.cli.operation_commands import print_output
from tests.cases import each_case
from tests.server.cli.program import Program

ADA = ("--user", "ada")
BEN = ("--user", "ben")


@pytest.fixture
def program(program: Program) -> Program:
    program.with_users("ada", "ben")
    return program


def add_note(program: Program, *arguments: str, stdin: str = "") -> str:
    return str(program.run("add", "note", *arguments, *ADA, "--json", stdin=stdin).json["uri"])


def test_a_note_is_added_from_stdin_and_found_by_its_owner_only(program: Program) -> None:
    uri = add_note(program, "--title", "Voyage", "--tag", "sea", "-", stdin="a galleon\n")

    assert "a galleon" in program.expect("get", uri, *ADA)
    assert program.run("get", uri, *BEN).code == 1
    assert "Voyage" in program.expect("list", "notes", *ADA)
    assert "Voyage" not in program.run("list", "notes", *BEN).stdout


@each_case(
    ("kind", "source"), [("media", "media"), ("chat", "chats"), ("character", "characters"), ("prompts", "prompts")]
)
def test_every_kind_is_added_listed_renamed_and_deleted(program: Program, kind: str, source: str) -> None:
    content = () if kind == "chat" else ("a galleon",)
    uri = program.run("add", kind, *content, "--title", "Voyage", *ADA, "--json").json["uri"]
    assert uri.startswith(f"{source}://")

    assert program.expect("edit", uri, "--title", "Journey", *ADA) == f"Changed {uri}: Journey"
    [item] = program.run("list", kind, *ADA, "--json").json["items"]
    assert (item["uri"], item["title"]) == (uri, "Journey")
    assert program.run("rm", uri, *BEN, "--yes").code == 1
    assert program.expect("rm", uri, *ADA, "--yes") == f"Deleted {uri}."
    assert program.run("list", kind, *ADA, "--json").json == {"items": [], "total": 0}


def test_other_fields_are_set_and_unknown_ones_are_rejected(program: Program) -> None:
    uri = program.run("add", "media", "text", "--title", "T", "--field", "author=Ada", *ADA, "--json").json["uri"]
    messages = 'messages=[{"content": "When?"}, {"content": "Friday.", "role": "assistant"}]'
    chat = program.run("add", "chat", "--title", "Lisbon", "--field", messages, *ADA, "--json").json["uri"]
    wrong = program.run("edit", uri, "--field", "autor=Ben", *ADA)
    huge = program.run("add", "chat", "--title", "T", "--field", f"character_id={2**63}", *ADA)

    assert "Friday." in program.expect("get", chat, *ADA)
    assert wrong.code == 2
    assert "did you mean 'author'?" in wrong.stderr
    assert "character_id: expected a number of 64 bits" in huge.stderr


def test_a_text_is_edited_by_option_stdin_and_editor(program: Program, tmp_path: Path) -> None:
    uri = add_note(program, "a galleon", "--title", "Voyage")
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i s/barge/frigate/ "$1"\ntouch -d "+1 minute" "$1"\n')
    editor.chmod(0o755)

    program.expect("edit", uri, "--content", "a sloop", *ADA)
    assert "a sloop" in program.expect("get", uri, *ADA)
    program.expect("edit", uri, "-", *ADA, stdin="a barge\n")
    assert program.expect("edit", uri, *ADA, EDITOR=str(editor)) == f"Changed {uri}: Voyage"
    assert "a frigate" in program.expect("get", uri, *ADA)
    unchanged = program.run("edit", uri, *ADA, EDITOR="true")
    assert (unchanged.code, unchanged.stderr) == (0, "Unchanged.\n")


def test_deleting_without_a_terminal_requires_yes(program: Program) -> None:
    uri = add_note(program, "--title", "Voyage")

    outcome = program.run("rm", uri, *ADA)

    assert outcome.code == 2
    assert "--yes" in outcome.stderr
    assert program.run("get", uri, *ADA).code == 0


def test_tags_are_added_and_removed_with_signs_or_options(program: Program) -> None:
    uri = add_note(program, "--title", "Voyage", "--tag", "inbox")

    assert program.expect("tag", uri, "+work", "+home", "-inbox", *ADA) == f"{uri}: work, home"
    assert program.expect("tag", uri, "-home", "--add", "sea", "--remove", "work", *ADA) == f"{uri}: sea"
    assert program.run("tag", uri, "+mine", *BEN).code == 1
    assert "expected +TAG or -TAG, got 'work'" in program.run("tag", uri, "work", *ADA).stderr


def test_a_renamed_tag_is_changed_back_with_the_token_that_was_printed(program: Program) -> None:
    program.expect("add", "notes", "Steep.", "--title", "Tea", "--tag", "sky")

    printed = program.expect("rename-tag", "sky", "heaven")

    assert printed.startswith("Items changed: 1 of 1 (done). Token for `florilegium undo`: ")
    undone = program.expect("undo", printed.rpartition(" ")[2])
    assert undone == "Items changed back: 1. Skipped: 0."
    assert "sky" in program.expect("tags")


def test_duplicates_are_searched_for_and_listed(program: Program) -> None:
    text = "Steep the leaves for four minutes in water that has just boiled, then pour it through a sieve."
    uris = [add_note(program, text, "--title", "Tea") for _ in range(2)]
    assert "state: none" in program.expect("duplicates", *ADA)

    assert "found: 1" in program.expect("find-duplicates", *ADA)

    assert all(uri in program.expect("duplicates", *ADA) for uri in uris)
    assert "state: none" in program.expect("duplicates", *BEN)


def test_objects_in_a_response_are_printed_by_their_fields_and_items_by_their_uri(
    capsys: pytest.CaptureFixture[str],
) -> None:
    items = [{"item": {"uri": f"notes://{one}", "title": one}, "text": "Steep."} for one in "ab"]

    print_output({"search": {"state": "done", "found": 1}, "groups": [{"items": items, "share": 1.0}]})

    words = " ".join(capsys.readouterr().out.split())
    assert words == "state: done found: 1 ITEMS SHARE notes://a notes://b 1.0"


def test_a_list_has_a_limit_and_says_how_to_go_on(program: Program) -> None:
    for n in range(3):
        add_note(program, "--title", f"Note {n}")

    listed = program.run("list", "notes", "--limit", "2", *ADA)

    assert len(listed.stdout.splitlines()) == 3
    assert listed.stderr == "2 of 3 notes; more: --offset 2\n"


def test_columns_are_aligned_after_wide_characters(program: Program) -> None:
    program.expect("key", "create", "ada", "--name", "笔记本")
    program.expect("key", "create", "ben", "--name", "laptop")

    titles, *rows = program.expect("key", "list").splitlines()

    # The three characters of the name take six cells.
    wide, narrow = sorted(rows, key=lambda row: "laptop" in row)
    assert wide.index("active") + 3 == narrow.index("active") == titles.index("STATE")


def test_a_mistyped_command_is_answered_with_a_suggestion(program: Program) -> None:
    outcome = program.run("serach", "x")

    assert outcome.code == 2
    assert "'search'" in outcome.stderr
    assert "Did you mean" in program.run("user", "ad", "x").stderr


@each_case(
    ("words", "incomplete", "expected"),
    [
        ("florilegium search --source", "n", "notes"),
        ("florilegium import --format", "chatgpt_", "chatgpt_browser"),
        ("florilegium list", "pr", "prompts"),
    ],
)
def test_values_are_listed_in_help_and_completed_by_the_shell(
    program: Program, words: str, incomplete: str, expected: str
) -> None:
    command = words.split()[1]
    completed = program.run(
        _FLORILEGIUM_COMPLETE="bash_complete", COMP_WORDS=f"{words} {incomplete}", COMP_CWORD=str(len(words.split()))
    )

    assert expected in completed.stdout
    assert expected in "".join(program.expect(command, "--help").split())
