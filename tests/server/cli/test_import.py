"""`florilegium import`: what it brings in, what it prints, how it ends, and how its progress looks."""

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from server.cli.import_ import exit_code, farewell, report
from server.cli.meter import line, size
from sources.importers.engine.import_runner import ImportProblem, ImportProgress, ImportSummary, OutcomeCounts
from tests.server.cli.program import EXECUTABLE, Program


def vault(program: Program, **notes: str) -> Path:
    folder = program.home / "vault"
    (folder / ".obsidian").mkdir(parents=True, exist_ok=True)
    for name, text in notes.items():
        (folder / f"{name}.md").write_text(text)
    return folder


def test_a_folder_comes_in_once_and_is_found(program: Program) -> None:
    folder = vault(program, Tea="# Tea\nSteep for three minutes.", Kettle="# Kettle\nCopper.")
    first = program.run("import", str(folder), "--json")
    again = program.run("import", str(folder))
    vault(program, Tea="# Tea\nSteep for five minutes.")
    changed = program.run("import", str(folder), "--json")

    assert (first.code, again.code, changed.code) == (0, 0, 0)
    assert first.json["kinds"]["notes"]["new"] == 2
    assert again.stdout.split() == ["new", "updated", "unchanged", "notes", "0", "0", "2"]
    assert (changed.json["kinds"]["notes"]["updated"], changed.json["kinds"]["notes"]["unchanged"]) == (1, 1)
    assert "five minutes" in program.expect("search", "steep")
    assert program.run("search", "three").code == 1


def test_what_is_imported_for_one_user_is_not_anothers(program: Program) -> None:
    program.with_users("ada", "ben")
    program.expect("import", str(vault(program, Tea="# Tea\nSteep.")), "--user", "ada")
    assert "Tea" in program.expect("search", "steep", "--user", "ada")
    assert program.run("search", "steep", "--user", "ben").code == 1


def test_a_rehearsal_says_what_would_come_and_writes_nothing(program: Program) -> None:
    rehearsed = program.expect("import", str(vault(program, Tea="# Tea\nSteep.")), "--dry-run")
    assert rehearsed.endswith("this was a rehearsal: nothing was written")
    assert program.run("search", "steep").code == 1


def test_the_exit_code_tells_whether_something_or_everything_failed(program: Program) -> None:
    good, odd = vault(program, Tea="# Tea\nSteep.") / "Tea.md", program.home / "odd.bin"
    odd.write_bytes(b"\0\1\2")
    some = program.run("import", str(good), str(odd))
    nothing = program.run("import", str(odd), str(program.home / "absent"))
    assert (some.code, nothing.code) == (1, 2)
    assert "not read: odd.bin: got a format that nobody here reads" in some.stdout
    assert "not read: absent: file 'absent' not found" in nothing.stdout


def test_an_unknown_format_is_wrong_usage(program: Program) -> None:
    outcome = program.run("import", str(vault(program)), "--format", "wordstar")
    assert outcome.code == 2
    assert "format: got 'wordstar', expected one of" in outcome.stderr


def test_a_terminal_sees_a_bar_and_a_program_does_not(program: Program) -> None:
    folder = vault(program, Tea="# Tea\nSteep.")
    assert program.run("import", str(folder)).stderr == ""
    reading, writing = pty.openpty()
    try:
        subprocess.run(
            [*EXECUTABLE, "import", str(folder)],
            env=program.environment(TERM="xterm"),
            stdout=subprocess.PIPE,
            stderr=writing,
            timeout=30,
            check=True,
        )
        drawn = os.read(reading, 65_536).decode()
    finally:
        os.close(reading)
        os.close(writing)
    assert "\N{LIGHT SHADE}" in drawn or "\N{FULL BLOCK}" in drawn
    bar, _, ending = drawn.rpartition("\r\x1b[2K")
    assert "\x1b[36m" in bar or "\x1b[2m" in bar
    assert " 1 item in 00:" in ending


@pytest.mark.parametrize("columns", [20, 60, 80, 100, 200])
def test_the_bar_fits_its_line_and_says_what_is_left(columns: int) -> None:
    meter = ImportProgress(
        bytes_total=1_000_000_000, bytes_read=250_000_000, items=30_000, file="a\x1b[31m\nlong name.zip" * 9
    )
    drawn = line(meter, 60.0, columns)
    assert len(drawn) < columns
    assert "\x1b" not in drawn
    assert "\n" not in drawn
    if columns >= 100:
        assert " 25%  250.0 MB of 1.0 GB  30,000 items  500/s  03:00 left" in drawn


@pytest.mark.parametrize(
    ("read", "bar"),
    [
        (0, "░" * 24),
        (1, "░" * 24),
        (6, "▏" + "░" * 23),
        (500, "█" * 12 + "░" * 12),
        (999, "█" * 23 + "▉"),
        (1_000, "█" * 24),
    ],
)
def test_the_bar_moves_by_eighths_of_a_cell(read: int, bar: str) -> None:
    assert line(ImportProgress(bytes_total=1_000, bytes_read=read), 1.0, 100).partition(" ")[0] == bar


def test_a_wide_name_takes_two_cells_a_character() -> None:
    meter = ImportProgress(bytes_total=1_000, bytes_read=500, file="聊天记录" * 30)
    drawn = line(meter, 1.0, 120)
    assert 117 <= len(drawn) + sum(map(drawn.count, "聊天记录")) < 120


def test_a_bar_without_a_beginning_promises_nothing() -> None:
    assert "0%  0 B of 0 B  0 items  0/s  --:-- left" in line(ImportProgress(), 0.0, 100)


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 B"), (999, "999 B"), (12_300, "12 KB"), (3_400_000, "3.4 MB"), (5 * 10**15, "5000.0 TB")],
)
def test_sizes_are_told_as_files_are_listed(count: int, told: str) -> None:
    assert size(count) == told


def test_the_report_is_harmless_and_counts_what_it_does_not_tell() -> None:
    summary = ImportSummary(
        files=1,
        broken=3,
        kinds={"notes": OutcomeCounts(new=1_234, deleted=1)},
        skipped={"empty": 2},
        problems=[ImportProblem("a.zip", "entry 3", "got \x1b]0;evil\x07")],
    )
    told = list(report(summary, is_rehearsal=False))
    assert told[0].split() == ["new", "updated", "unchanged", "deleted"]
    assert told[1].split() == ["notes", "1,234", "0", "0", "1"]
    assert told[-1] == "and 2 more"
    assert "\x1b]0" not in "".join(told)
    assert exit_code(summary) == 1


def test_exit_codes_of_summaries() -> None:
    assert exit_code(ImportSummary()) == 2
    assert exit_code(ImportSummary(files=1)) == 0
    assert exit_code(ImportSummary(files=1, broken=1, kinds={"notes": OutcomeCounts(refused=1)})) == 2


def test_a_folder_tells_what_is_broken_in_it_and_counts_what_is_of_no_format(program: Program) -> None:
    folder = program.home / "dl"
    folder.mkdir()
    (folder / "Tea.md").write_text("# Tea\nSteep.")
    (folder / "half.zip").write_bytes(b"PK\3\4" + bytes(900))
    for name in ("a.mp3", "b.xlsx"):
        (folder / name).write_bytes(b"\0")
    outcome = program.run("import", str(folder), "--dry-run")
    assert outcome.code == 1
    assert "left out: 2 files of no known format (.mp3, .xlsx)" in outcome.stdout
    assert "not read: dl/half.zip: the archive: got something that cannot be read, expected a zip" in outcome.stdout


def test_an_interrupted_import_says_what_is_in_and_the_same_command_completes_it(program: Program) -> None:
    turns = 20_000
    chat = program.home / "Sera.jsonl"
    first = {"user_name": "Ada", "character_name": "Sera", "create_date": "2024-5-1"}
    lines = ({"name": "Ada", "is_user": True, "mes": f"turn {turn}"} for turn in range(turns))
    chat.write_text("\n".join(map(json.dumps, (first, *lines))))

    drawn, code = interrupted(program, "import", str(chat))

    assert code == 130
    told = re.search(r"interrupted: ([\d,]+) items or more are in, and stay; the same command goes on", drawn)
    assert told is not None
    assert "Aborted" not in drawn
    done = program.run("import", str(chat), "--json")
    counts = done.json["kinds"]["messages"]
    assert (done.code, counts["new"] + counts["unchanged"]) == (0, turns)
    # The conversation is an item too, once for each piece in which it came.
    assert 0 < counts["unchanged"] < turns
    assert 0 < int(told[1].replace(",", "")) < turns


def interrupted(program: Program, *arguments: str) -> tuple[str, int]:
    """What a command shows on its terminal, if it is interrupted as soon as something is in."""
    reading, writing = pty.openpty()
    try:
        running = subprocess.Popen([*EXECUTABLE, *arguments], env=program.environment(TERM="xterm"), stderr=writing)
        drawn = ""
        while not re.search(r"[1-9][\d,]* items", drawn):
            drawn += os.read(reading, 65_536).decode()
        running.send_signal(signal.SIGINT)
        code = running.wait(30)
        return drawn + os.read(reading, 65_536).decode(), code
    finally:
        os.close(reading)
        os.close(writing)


def test_an_interrupted_rehearsal_wrote_nothing() -> None:
    assert farewell(ImportProgress(items=5), is_rehearsal=True).endswith("nothing was written")
