"""`florilegium search` and `florilegium get` on a local library."""

import asyncio
import os
import pty
import re
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import Settings
from config.times import format_clock
from server.cli.local_library import open_local
from server.cli.output import strip_control_characters
from server.cli.search import RecordingTime
from sources.demo import demo_uuid, fill
from sources.drafts import NoteDraft
from tests.cases import each_case
from tests.server.cli.program import EXECUTABLE, ROOT, Program
from tests.sources.semantic.api_server import ApiRequest, serve_api

RECORDING = f"media://{demo_uuid('media', 'calibration-evening')}"
LOG = f"notes://{demo_uuid('notes', 'dome-log')}"
ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Ada has the demo library. Ben has one note with control sequences that would rename the terminal."""
    program = Program(tmp_path_factory.mktemp("shared"))
    program.with_users("ada", "ben")

    async def provide(settings: Settings) -> None:
        async with open_local(settings, "ada") as ada, ada.libraries.library(ada.context) as library:
            await fill(library)
        async with open_local(settings, "ben") as ben, ben.libraries.library(ben.context) as library:
            await library.notes.create(
                NoteDraft(title="Dome", content=f"{ESCAPE}]0;renamed\x07 the dome\x9b2J of Ben", uuid="harmful")
            )

    asyncio.run(provide(program.settings))
    return program


def on_terminal(program: Program, *arguments: str, **environment: str) -> str:
    """Returns what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*EXECUTABLE, *arguments],
        cwd=program.home,
        env=program.environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 65_536):
            written += part
    except OSError:  # Linux returns EIO when the other side is closed
        pass
    finally:
        os.close(ours)
    assert process.wait(30) == 0
    return written.decode()


# -- search ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow("starts several processes")
def test_a_search_without_hits_says_how_to_get_a_model(shared: Program) -> None:
    # As if the package that every local model needs were not installed.
    (shared.home / "sitecustomize.py").write_text("import sys; sys.modules['tokenizers'] = None")
    variables = {"PYTHONPATH": f"{shared.home}:{ROOT}", "FLORILEGIUM_SEMANTIC_MODEL": "auto"}

    empty = shared.run("search", "quagga", "--user", "ben", **variables)
    found = shared.run("search", "dome", "--user", "ben", **variables)
    switched_off = shared.run("search", "quagga", "--user", "ben")

    advice = "no model for searches by meaning is installed; run `florilegium model install fast`"
    assert (empty.code, advice in empty.stderr) == (1, True)
    assert (found.code, advice in found.stderr) == (0, False)
    assert (switched_off.code, advice in switched_off.stderr) == (1, False)


def test_hits_of_all_sources_are_shown_with_position_and_uri(shared: Program) -> None:
    shown = shared.expect("search", "why does the dome stick", "--user", "ada")

    assert re.search(r"^1 Dome: where and when it sticks  notes · 2025-10-19$", shown, re.MULTILINE)
    assert LOG in shown
    assert re.search(r"Under the dome: Tobias looks at nine wheels  media · 02:\d\d · 2026-01-10", shown)
    assert re.search(r"  chats · \w+ · turn \d+ · ", shown)
    assert ESCAPE not in shown


def test_query_words_need_no_quotes_and_sources_can_be_selected(shared: Program) -> None:
    shown = shared.expect("search", "dark", "frames", "--source", "media", "--source", "prompts", "--user", "ada")

    assert set(re.findall(r"^   (\w+)://", shown, re.MULTILINE)) == {"media", "prompts"}


def test_search_without_hits_says_so_and_exits_with_1(shared: Program) -> None:
    outcome = shared.run("search", "zzyzx", "--user", "ada")

    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("No hits.\n")
    assert shared.run("search", "zzyzx", "--user", "ada", "--json").code == 1


def test_json_output_is_the_response_of_the_tool(shared: Program) -> None:
    outcome = shared.run("search", "dome", "--limit", "2", "--user", "ada", "--json")

    assert outcome.code == 0
    assert len(outcome.json["results"]) == 2
    assert {"uri", "score", "last_modified"} <= outcome.json["results"][0].keys()
    assert {"has_more", "next_offset", "session"} <= outcome.json.keys()


def test_pages_contain_every_hit_exactly_once(shared: Program) -> None:
    def uris(*options: str) -> list[str]:
        answer = shared.run("search", "grease OR azimuth", "--user", "ada", "--json", *options)
        return [hit["uri"] for hit in answer.json["results"]]

    first, rest = uris("--limit", "5"), uris("--limit", "100", "--offset", "5")

    assert len(first) == 5
    assert sorted(first + rest) == sorted(uris("--limit", "100"))


def test_recent_sorts_newest_first(shared: Program) -> None:
    answer = shared.run("search", "dome", "--recent", "--user", "ada", "--json").json

    times = [hit["last_modified"] for hit in answer["results"]]
    assert times == sorted(times, reverse=True)


def test_each_user_finds_only_their_own_items(shared: Program) -> None:
    ben = shared.run("search", "dome", "--user", "ben", "--json").json
    ada = shared.run("search", "dome", "--user", "ada", "--limit", "100", "--json").json

    assert [hit["uri"] for hit in ben["results"]] == ["notes://harmful"]
    assert "notes://harmful" not in [hit["uri"] for hit in ada["results"]]
    assert (
        shared.run("get", LOG, "--user", "ben").stderr
        == f"florilegium: note {LOG.removeprefix('notes://')!r} not found\n"
    )


def test_reading_commands_do_not_create_the_default_user(shared: Program) -> None:
    unnamed = shared.run("search", "dome")
    assert (unnamed.code, unnamed.stdout) == (1, "")
    assert "the default user 'local' has no library yet" in unnamed.stderr
    assert "local" not in shared.states()


@pytest.mark.sqlite  # a data directory without files
def test_reading_commands_report_missing_data_and_create_nothing(shared: Program, program: Program) -> None:
    shared.expect("backup", str(program.home / "saved"))
    for command in (
        *(("search", "dome"), ("search", "--user", "ada", "dome"), ("get", LOG), ("export", "out"), ("reindex",)),
        *(("backup", "more"), ("user", "list"), ("key", "list"), ("user", "disable", "ada")),
        ("migrate", "--check"),
    ):
        outcome = program.run(*command)
        assert (outcome.code, outcome.stdout) == (1, "")
        assert f"no data found in {program.data_dir}; " in outcome.stderr
    assert not program.data_dir.exists()
    program.expect("restore", "saved")
    assert program.run("search", "dome", "--user", "ada").code == 0


def test_user_option_is_required_if_authentication_is_configured(shared: Program) -> None:
    for command in (("search", "dome"), ("get", LOG), ("demo",)):
        outcome = shared.run(*command, FLORILEGIUM_REQUIRE_AUTH="true")
        assert (outcome.code, outcome.stdout) == (2, "")
        assert "--user is required because authentication is configured" in outcome.stderr
    assert shared.run("search", "dome", "--user", "ada", FLORILEGIUM_REQUIRE_AUTH="true").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("search", "dome", "--source", "note"), 2, "did you mean 'notes'?"),
        (("search", "dome", "--user", "nobody"), 1, "user 'nobody' not found"),
        (("search", "dome", "--limit", "0"), 2, "0 is not in the range 1<=x<=100"),
        (("search",), 2, "Missing argument"),
        (("get", "notes://nothing"), 1, "note 'nothing' not found"),
        (("get", "elsewhere://1"), 2, "expected one of notes, media"),
        (("get", "dome"), 2, "expected the uri of a hit"),
        (("get", LOG, "--at", "soon"), 2, "expected a time such as 04:12"),
    ],
)
def test_invalid_arguments_are_reported_without_a_traceback(
    program: Program, arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    program.with_users("local")

    outcome = program.run(*arguments)

    assert (outcome.code, outcome.stdout) == (code, "")
    assert sentence in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_reinterpreted_query_is_reported(shared: Program) -> None:
    outcome = shared.run("search", 'dome "sticks', "--user", "ada")

    assert outcome.code == 0
    assert "query interpretation: searched for " in outcome.stderr


# -- colours -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow("starts several processes")
def test_matches_are_highlighted_on_a_terminal_unless_no_color_is_set(shared: Program) -> None:
    command = ("search", "dome sticks", "--limit", "1", "--user", "ada")

    coloured = on_terminal(shared, *command)
    plain = on_terminal(shared, *command, NO_COLOR="1")

    assert f"{ESCAPE}[31m{ESCAPE}[1msticks{ESCAPE}[0m" in coloured
    assert ESCAPE not in plain
    assert re.sub(rf"{ESCAPE}\[\d+m", "", coloured) == plain


@each_case("command", [("search", "dome"), ("get", "notes://harmful", "--query", "dome")])
def test_stored_text_cannot_control_the_terminal(shared: Program, command: tuple[str, ...]) -> None:
    shown = on_terminal(shared, *command, "--user", "ben")

    assert "renamed" in shown
    assert set(re.findall(rf"{ESCAPE}.\d*.?", shown)) <= {f"{ESCAPE}[{n}m" for n in (0, 1, 2, 31, 32)}
    assert "\x9b" not in shown
    assert "\x07" not in shown


@given(st.text())
def test_stripped_text_has_no_control_characters_and_keeps_its_lines(text: str) -> None:
    shown = strip_control_characters(text)

    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert shown.count("\n") == text.count("\n")


@given(st.integers(0, 359_999))
def test_a_displayed_time_can_be_used_as_an_argument(seconds: int) -> None:
    assert RecordingTime().convert(format_clock(seconds), None, None) == seconds


# -- get ---------------------------------------------------------------------------------------------------------------


def test_get_shows_the_whole_item_by_default(shared: Program) -> None:
    shown = shared.expect("get", LOG, "--user", "ada")

    assert shown.startswith("Dome: where and when it sticks  notes\n")
    assert "The dome sticks again." in shown
    assert shown.endswith("| waiting for the sun |")


def test_a_recording_is_read_at_a_time_within_a_budget(shared: Program) -> None:
    outcome = shared.run("get", RECORDING, "--at", "04:12", "--max-tokens", "600", "--user", "ada")

    assert outcome.code == 0
    assert "[04:12] We expose for one hundred and twenty seconds" in outcome.stdout
    tokens = re.search(r"^(\d+) tokens$", outcome.stderr, re.MULTILINE)
    assert tokens
    assert int(tokens[1]) <= 600


def test_a_truncated_response_continues_at_its_cursor(shared: Program) -> None:
    whole = shared.run("get", RECORDING, "--user", "ada", "--json").json["content"]
    part = shared.run("get", RECORDING, "--max-tokens", "400", "--user", "ada")
    [cursor] = re.findall(r"--cursor (\S+)", part.stderr)
    first = shared.run("get", RECORDING, "--max-tokens", "400", "--user", "ada", "--json").json

    rest = shared.run("get", RECORDING, "--cursor", cursor, "--user", "ada", "--json").json

    assert first["next_cursor"] == cursor
    assert first["content"] + rest["content"] == whole


def test_get_accepts_a_mode_and_a_query(shared: Program) -> None:
    answer = shared.run("get", RECORDING, "--query", "pillowcase", "--mode", "chunk", "--user", "ada", "--json").json

    assert (answer["mode"], answer["anchor"]) == ("chunk", "query")
    assert "pillowcase" in answer["content"]


def test_an_embeddings_api_that_hangs_leaves_the_search_to_words(shared: Program) -> None:
    released = threading.Event()

    def hang(request: ApiRequest) -> tuple[int, bytes]:
        released.wait()
        return 200, b""

    with serve_api(hang) as server:
        variables = {
            "FLORILEGIUM_SEMANTIC_MODEL": server.url,
            "FLORILEGIUM_SEMANTIC_ENDPOINT_MODEL": "m",
            "FLORILEGIUM_SEMANTIC_ENDPOINT_DIMENSION": "4",
            "FLORILEGIUM_SEMANTIC_TIMEOUT_MS": "100",
        }
        try:
            outcome = shared.run("search", "dome", "--user", "ada", **variables)
        finally:
            released.set()

    assert "Dome: where and when it sticks" in outcome.stdout
    assert "0.1 s" in outcome.stderr
