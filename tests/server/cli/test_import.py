"""`florilegium import`: results, output, exit codes and progress."""

import json
import os
import pty
import re
import select
import signal
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest

from server.cli.import_ import exit_code, interruption_message, report_lines
from server.cli.output import format_size
from server.cli.progress import _plain_line, _styled_parts
from sources.importers.engine.limits import ImportProgress
from sources.importers.engine.summary import ImportProblem, ImportSummary, OutcomeCounts
from tests.cases import each_case
from tests.server.cli.program import EXECUTABLE, TIMEOUT_S, Program

BEAR_ID = "0F2C1E52-93B4-4F6A-8C1D-2B3A4D5E6F70"


def vault(program: Program, **notes: str) -> Path:
    folder = program.home / "vault"
    (folder / ".obsidian").mkdir(parents=True, exist_ok=True)
    for name, text in notes.items():
        (folder / f"{name}.md").write_text(text)
    return folder


def test_second_import_changes_only_what_changed(program: Program) -> None:
    folder = vault(program, Tea="# Tea\nSteep for three minutes.", Kettle="# Kettle\nCopper.")
    first = program.run("import", str(folder), "--json")
    second = program.run("import", str(folder))
    vault(program, Tea="# Tea\nSteep for five minutes.")
    changed = program.run("import", str(folder), "--json")

    assert (first.code, second.code, changed.code) == (0, 0, 0)
    assert first.json["kinds"]["notes"]["new"] == 2
    assert second.stdout.split() == ["new", "updated", "unchanged", "notes", "0", "0", "2"]
    assert (changed.json["kinds"]["notes"]["updated"], changed.json["kinds"]["notes"]["unchanged"]) == (1, 1)
    assert "five minutes" in program.expect("search", "steep")
    assert program.run("search", "three").code == 1


def test_equal_notes_of_two_evernote_notebooks_stay_apart(program: Program) -> None:
    for notebook, text in (("Work", "copper"), ("Home", "iron")):
        note = f"<title>Kettle</title><content>A kettle of {text}.</content><created>20240105T103000Z</created>"
        (program.home / f"{notebook}.enex").write_text(f"<en-export><note>{note}</note></en-export>")

    first = program.run("import", "Work.enex", "Home.enex", "--json").json["kinds"]["notes"]
    second = program.run("import", "Home.enex", "Work.enex", "--again", "--json").json["kinds"]["notes"]

    assert (first["new"], second["unchanged"]) == (2, 2)
    assert "copper" in program.expect("search", "copper")
    assert "iron" in program.expect("search", "iron")


def bear_backup(program: Program, name: str, modified: str, text: str) -> str:
    """Writes a backup with one note, and returns its name."""
    details = {"uniqueIdentifier": BEAR_ID, "creationDate": "2024-01-05T10:30:00Z", "modificationDate": modified}
    with ZipFile(program.home / name, "w") as backup:
        backup.writestr("Kettle.textbundle/text.markdown", f"# Kettle\n{text}\n")
        backup.writestr("Kettle.textbundle/info.json", json.dumps({"net.shinyfrog.bear": details}))
    return name


def test_an_older_backup_does_not_overwrite_a_newer_note(program: Program) -> None:
    older = bear_backup(program, "older.bear2bk", "2024-02-01T00:00:00Z", "Copper.")
    newer = bear_backup(program, "newer.bear2bk", "2024-03-01T00:00:00Z", "Iron.")
    program.expect("import", newer)

    kept = program.run("import", older)
    again = program.run("import", bear_backup(program, "newest.bear2bk", "2024-04-01T00:00:00Z", "Steel."), "--json")

    assert kept.stdout.split() == ["new", "updated", "unchanged", "kept", "notes", "0", "0", "0", "1"]
    assert again.json["kinds"]["notes"]["updated"] == 1
    assert "Steel" in program.expect("search", "kettle")


def test_a_backup_does_not_overwrite_what_was_edited_after_it(program: Program) -> None:
    program.expect("import", bear_backup(program, "first.bear2bk", "2024-02-01T00:00:00Z", "Copper."))
    program.expect("edit", f"notes://{BEAR_ID.lower()}", "--title", "My kettle")

    before = program.run("import", bear_backup(program, "a.bear2bk", "2024-03-01T00:00:00Z", "Iron."), "--json")
    after = program.run("import", bear_backup(program, "b.bear2bk", "2999-01-01T00:00:00Z", "Steel."), "--json")

    assert before.json["kinds"]["notes"]["kept"] == 1
    assert after.json["kinds"]["notes"]["updated"] == 1


def test_file_with_a_name_that_is_not_utf_8_is_imported(program: Program) -> None:
    folder = program.home / "old disk"
    folder.mkdir()
    (folder / os.fsdecode(b"caf\xe9.md")).write_text("# Tea\nSteep.")
    # Processes decode arguments and encode output in a way of their own.
    assert program.run_process("import", str(folder)).code == 0
    assert "Tea" in program.expect("search", "steep")


def test_subfolders_that_cannot_be_read_are_reported_and_the_rest_imported(program: Program) -> None:
    (program.home / "vault" / ".obsidian").mkdir(parents=True)
    for name in ("documents", "vault"):
        for subfolder in ("closed", "open"):
            folder = program.home / name / subfolder
            folder.mkdir(parents=True)
            (folder / "Kettle.md").write_text("# Kettle\nCopper.")
        (program.home / name / "link.md").symlink_to("closed/Kettle.md")
        (program.home / name / "closed").chmod(0)

    result = program.run_without_privileges("import", "documents", "vault", "--json")

    assert (result.code, result.json["failed_files"], result.json["kinds"]["notes"]["new"]) == (1, 2, 2)
    assert [(problem["file"], problem["problem"]) for problem in result.json["problems"]] == [
        (f"{name}/closed", "cannot be read: Permission denied") for name in ("documents", "vault")
    ]
    assert result.json["skipped"] == {"symbolic link not followed": 2}


def test_folders_that_can_be_listed_but_not_searched_do_not_end_the_import(program: Program) -> None:
    for folder in ("documents/a", "documents/messages"):
        (program.home / folder).mkdir(parents=True)
        (program.home / folder / "Kettle.md").write_text("# Kettle")
        (program.home / folder).chmod(0o444)
    (program.home / "documents" / "Tea.md").write_text("# Tea")

    result = program.run_without_privileges("import", "documents", "--json")

    assert (result.code, result.json["kinds"]["notes"]["new"]) == (1, 1)
    assert [(problem["file"], problem["problem"]) for problem in result.json["problems"]] == [
        (f"documents/{name}/Kettle.md", "Kettle.md: cannot be read: Permission denied") for name in ("a", "messages")
    ]


@each_case("first", ["%PDF-1.7", "<en-export>", "<!DOCTYPE NETSCAPE-Bookmark-file-1>"])
def test_zip_is_not_taken_for_the_first_file_in_it(program: Program, first: str) -> None:
    with ZipFile(program.home / "notes.zip", "w") as archive:  # does not compress
        for name, text in {"a.bin": first, "Tea.md": "# Tea", "Cup.md": "# Cup"}.items():
            archive.writestr(name, text)

    result = program.run("import", "notes.zip", "--dry-run", "--json").json

    assert (result["failed_files"], result["kinds"]["notes"]["new"], sum(result["skipped"].values())) == (0, 2, 1)


def test_files_of_a_slack_export_that_are_not_read_are_counted(program: Program) -> None:
    day = [{"type": "message", "user": "U1", "text": "hello", "ts": "1704450600.000100"}]
    files = {
        "users.json": [{"id": "U1", "name": "ada"}],
        "channels.json": [{"id": "C1", "name": "general"}],
        "general/2024-01-05.json": day,
        "Tea.md": "# Tea",
    }
    with ZipFile(program.home / "slack.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, json.dumps(content))

    result = program.run("import", "slack.zip", "--dry-run", "--json").json

    assert (result["kinds"]["messages"]["new"], result["skipped"]) == (1, {"file not used by slack": 1})


def test_missing_path_and_doubtful_encoding_are_reported(program: Program) -> None:
    missing = program.run("import", "/nope")
    assert (missing.code, missing.stdout.strip()) == (2, "failed: /nope: no such file or folder; check the path")
    note = program.home / "short.md"
    note.write_bytes("文件".encode("gbk"))
    result = program.run("import", str(note))
    assert result.code == 0
    assert (
        "check: short.md: encoding: guessed gb18030; if the text is wrong, convert the file to UTF-8" in result.stdout
    )


def test_import_for_one_user_is_invisible_to_others(program: Program) -> None:
    program.with_users("ada", "ben")
    program.expect("import", str(vault(program, Tea="# Tea\nSteep.")), "--user", "ada")
    assert "Tea" in program.expect("search", "steep", "--user", "ada")
    assert program.run("search", "steep", "--user", "ben").code == 1


def test_dry_run_prints_the_result_and_writes_nothing(program: Program) -> None:
    output = program.expect("import", str(vault(program, Tea="# Tea\nSteep.")), "--dry-run")
    assert output.endswith(
        "Dry run: nothing was written. It does not look into the library, so every item counts as new."
    )
    assert program.run("search", "steep").code == 1


def test_exit_code_is_1_for_some_failures_and_2_if_nothing_was_imported(program: Program) -> None:
    good, odd = vault(program, Tea="# Tea\nSteep.") / "Tea.md", program.home / "odd.bin"
    odd.write_bytes(b"\0\1\2")
    partial = program.run("import", str(good), str(odd))
    nothing = program.run("import", str(odd), str(program.home / "absent"))
    assert (partial.code, nothing.code) == (1, 2)
    assert "failed: odd.bin: unsupported format" in partial.stdout
    assert "absent: no such file or folder; check the path" in nothing.stdout


def test_unknown_format_is_a_usage_error(program: Program) -> None:
    outcome = program.run("import", str(vault(program)), "--format", "wordstar")
    assert outcome.code == 2
    assert "format: expected one of own_export, " in outcome.stderr
    assert "got 'wordstar'" in outcome.stderr


@pytest.mark.slow("starts commands on a terminal")
def test_progress_bar_is_drawn_on_terminals_only(program: Program) -> None:
    folder = vault(program, Tea="# Tea\nSteep.")
    assert program.run("import", str(folder)).stderr == ""
    read_end, write_end = pty.openpty()
    with os.fdopen(read_end, "rb", buffering=0) as terminal:
        with os.fdopen(write_end, "wb", buffering=0) as errors:
            command = subprocess.Popen(
                [*EXECUTABLE, "import", str(folder)],
                env=program.environment(TERM="xterm"),
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        # Read while the command runs: a terminal holds 4 KB, and a writer waits for more room.
        written = b""
        with suppress(OSError):  # Linux reports the end of a terminal as an error.
            while part := terminal.read(65_536):
                written += part
        assert command.wait(TIMEOUT_S) == 0
    output = written.decode()
    assert "\N{LIGHT SHADE}" in output or "\N{FULL BLOCK}" in output
    bar, _, final_line = output.rpartition("\r\x1b[2K")
    assert "\x1b[36m" in bar or "\x1b[2m" in bar
    assert " 1 item in 00:" in final_line


def progress_line(progress: ImportProgress, elapsed_s: float, columns: int) -> str:
    return "".join(text for text, _ in _styled_parts(progress, elapsed_s, columns))


def test_progress_without_a_terminal_names_a_file_only_when_there_is_one() -> None:
    assert _plain_line(ImportProgress()) == "looking for files"
    assert _plain_line(ImportProgress(2_048, 1_024, 1, "a\x1b.zip")) == "1 KB of 2 KB, 1 item: a\ufffd.zip"


@each_case("columns", [20, 60, 80, 100, 200])
def test_progress_line_fits_the_terminal(columns: int) -> None:
    progress = ImportProgress(
        bytes_total=1_000_000_000, bytes_read=250_000_000, items=30_000, file="a\x1b[31m\nlong name.zip" * 9
    )
    line = progress_line(progress, 60.0, columns)
    assert len(line) < columns
    assert "\x1b" not in line
    assert "\n" not in line
    if columns >= 100:
        assert " 25%  250.0 MB of 1.0 GB  30,000 items  500/s  03:00 left" in line


@each_case(
    ("bytes_read", "bar"),
    [
        (0, "░" * 24),
        (1, "░" * 24),
        (6, "▏" + "░" * 23),
        (500, "█" * 12 + "░" * 12),
        (999, "█" * 23 + "▉"),
        (1_000, "█" * 24),
    ],
)
def test_bar_moves_by_eighths_of_a_cell(bytes_read: int, bar: str) -> None:
    progress = ImportProgress(bytes_total=1_000, bytes_read=bytes_read)
    assert progress_line(progress, 1.0, 100).partition(" ")[0] == bar


def test_wide_characters_take_two_cells() -> None:
    progress = ImportProgress(bytes_total=1_000, bytes_read=500, file="聊天记录" * 30)
    line = progress_line(progress, 1.0, 120)
    assert 117 <= len(line) + sum(map(line.count, "聊天记录")) < 120


def test_progress_line_without_data_shows_no_remaining_time() -> None:
    assert "0%  0 B of 0 B  0 items  0/s  --:-- left" in progress_line(ImportProgress(), 0.0, 100)


@each_case(
    ("count", "size"),
    [(0, "0 B"), (999, "999 B"), (12_300, "12 KB"), (3_400_000, "3.4 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes_have_decimal_units(count: int, size: str) -> None:
    assert format_size(count) == size


def test_report_removes_control_characters_and_counts_hidden_failures() -> None:
    summary = ImportSummary(
        files=1,
        failed_items=3,
        kinds={"notes": OutcomeCounts(new=1_234, deleted=1)},
        skipped={"empty message": 2, "message of a deleted conversation": 1},
        problems=[ImportProblem("a.zip", "entry 3", "got \x1b]0;evil\x07")],
    )
    lines = list(report_lines(summary, is_dry_run=False))
    assert lines[0].split() == ["new", "updated", "unchanged", "deleted"]
    assert lines[1].split() == ["notes", "1,234", "0", "0", "1"]
    assert "skipped: 2 empty messages" in lines[2]
    assert "skipped: 1 message of a deleted conversation" in lines[3]
    assert lines[-1] == "and 2 more failures"
    assert "\x1b]0" not in "".join(lines)
    assert exit_code(summary) == 1


def test_exit_codes_of_summaries() -> None:
    assert exit_code(ImportSummary()) == 2
    assert exit_code(ImportSummary(files=1)) == 0
    assert exit_code(ImportSummary(files=1, failed_items=1, kinds={"notes": OutcomeCounts(refused=1)})) == 2


def test_damaged_and_unsupported_files_in_a_folder_are_reported(program: Program) -> None:
    folder = program.home / "dl"
    folder.mkdir()
    (folder / "Tea.md").write_text("# Tea\nSteep.")
    (folder / "half.zip").write_bytes(b"PK\3\4" + bytes(900))
    for name in ("a.mp3", "b.mp4"):
        (folder / name).write_bytes(b"\0")
    outcome = program.run("import", str(folder), "--dry-run")
    assert outcome.code == 1
    assert "skipped: 2 unsupported files (.mp3, .mp4)" in outcome.stdout
    assert "failed: dl/half.zip: archive: not a valid zip file" in outcome.stdout


# Takes a second or two to import, of which the first progress line is a small part.
TURNS = 20_000


def chat_lines(turns: int) -> bytes:
    header = {"user_name": "Ada", "character_name": "Sera", "create_date": "2024-5-1"}
    messages = ({"name": "Ada", "is_user": True, "mes": f"turn {turn} {'x' * 80}"} for turn in range(turns))
    return "".join(f"{json.dumps(line)}\n" for line in (header, *messages)).encode()


@pytest.mark.slow("kills processes")
def test_interrupted_import_reports_its_items_and_the_same_command_completes_it(program: Program) -> None:
    chat = program.home / "Sera.jsonl"
    chat.write_bytes(chat_lines(TURNS))
    output, code = interrupt_after_first_items(program, "import", str(chat))
    second = program.run("import", str(chat), "--json")

    assert code == 130
    message = re.search(r"Interrupted\. At least ([\d,]+) items were imported and kept\.", output)
    assert message is not None
    assert "Aborted" not in output
    counts = second.json["kinds"]["messages"]
    assert (second.code, counts["new"] + counts["unchanged"]) == (0, TURNS)
    # The conversation counts as an item, too, once for each part in which it was written.
    assert 0 < counts["unchanged"] < TURNS
    assert 0 < int(message[1].replace(",", "")) < TURNS


def interrupt_after_first_items(program: Program, *arguments: str) -> tuple[str, int]:
    """Interrupts a command when its progress line shows the first items. Returns what it wrote to the terminal, and its
    exit code."""
    read_end, write_end = pty.openpty()
    try:
        # A shell starts commands in the background with the signal ignored, which tests and their processes inherit.
        process = subprocess.Popen(
            [*EXECUTABLE, *arguments],
            env=program.environment(TERM="xterm"),
            stderr=write_end,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no other thread
        )
        output, is_interrupted = b"", False
        # A terminal holds less than a long progress line, so it is read until the process ends.
        while process.poll() is None or select.select([read_end], [], [], 0)[0]:
            if select.select([read_end], [], [], 0.1)[0]:
                output += os.read(read_end, 65_536)
            if not is_interrupted and re.search(rb"[1-9][\d,]* items", output):
                process.send_signal(signal.SIGINT)
                is_interrupted = True
        return output.decode(), process.wait()
    finally:
        os.close(read_end)
        os.close(write_end)


def test_interruption_messages() -> None:
    one, dry_run = ImportProgress(items=1), ImportProgress(items=5)
    assert "At least 1 item was imported and kept." in interruption_message(one, is_dry_run=False)
    assert interruption_message(dry_run, is_dry_run=True) == "Interrupted. Dry run: nothing was written."
