"""The processes that read imported files can read these files and nothing else.

Each attempt runs in a process that confined itself as the reader and the parsers do. Only layers that the kernel offers
are expected.
"""

import io
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from config.errors import InvalidParams
from config.settings import Settings
from server.import_board import ImportJob
from server.import_jobs import ImportJobs
from sources.importers.engine.batches import batch_limits
from sources.importers.engine.discovery import DiscoveredFile
from sources.importers.engine.limits import import_limits
from sources.importers.engine.reader_messages import ReadFile
from sources.importers.engine.reader_process import ReaderProcess, require_inside
from sources.importers.registry import all_importers
from sources.importers.sandbox import (
    LANDLOCK,
    NO_SANDBOX,
    NO_SANDBOX_PROBLEM,
    SECCOMP,
    SandboxReport,
    child_environment,
    probe_sandbox,
)
from tests.cases import each_case
from tests.sources.importers.office_files import printed_pdf, word
from tests.sources.storage.library_fixture import open_library_fixture

SECRET = "a secret of another user"
# Runs one attempt inside the sandbox and prints `done` or the name of the error.
ATTEMPT = """
import os, pathlib, resource, socket, subprocess, sys, threading
from pathlib import Path
from sources.importers.sandbox import confine

own, other, attempt = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
confine([own], "auto")
try:
    exec(attempt)
except OSError as error:
    print(type(error).__name__)
else:
    print("done")
"""
FILE_ATTEMPTS = {
    "read the file of another user": "other.read_text()",
    "list the folder of another user": "os.listdir(other.parent)",
    "list the folder of its own file": "os.listdir(own.parent)",
    "read the environment of the parent": "Path(f'/proc/{os.getppid()}/environ').read_bytes()",
    "read the memory of the parent": "Path(f'/proc/{os.getppid()}/mem').open('rb')",
    "read the passwords": "Path('/etc/passwd').read_bytes()",
    "write to its own file": "own.open('ab')",
    "create a file": "(own.parent / 'new').touch()",
    "delete its own file": "own.unlink()",
    "rename its own file": "own.rename(own.with_name('renamed'))",
    "link to the file of another user": "os.link(other, own.parent / 'link')",
}
CALL_ATTEMPTS = {
    "open an internet socket": "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
    "open a local socket": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "open a netlink socket": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "start a program": "subprocess.run([sys.executable, '-c', ''], check=True)",
    "replace itself by a program": "os.execv('/bin/sh', ['sh', '-c', 'echo started'])",
    "fork": "os.fork() or os._exit(0)",
    "signal its parent": "os.kill(os.getppid(), 0)",
    "limit its parent": "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)",
    "change a mode": "own.chmod(0o777)",
    "change a time": "os.utime(own)",
    "become root again": "os.setresuid(0, 0, 0)",
    "leave the process group": "os.setsid()",
}
ALLOWED = {
    "read its own file": "own.read_text()",
    "load a module": "import wave, xml.dom.minidom, sqlite3",
    "start a thread": "thread = threading.Thread(target=print); thread.start(); thread.join()",
    "lower its own limits": "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
}


@pytest.fixture(scope="module")
def report() -> SandboxReport:
    return probe_sandbox()


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    arguments = [sys.executable, "-P", "-c", *command]
    return subprocess.run(arguments, env=child_environment(), capture_output=True, text=True, timeout=60, check=False)


def try_in_sandbox(folder: Path, attempt: str) -> str:
    own, other = folder / "ada" / "own.md", folder / "ben" / "chacha.db"
    for path in (own, other):
        path.parent.mkdir()
        path.write_text(SECRET)
    result = run(ATTEMPT, str(own), str(other), attempt)
    assert own.read_text() == SECRET
    return result.stdout.strip() or result.stderr


@pytest.mark.slow("starts a confined process for every attempt")
@pytest.mark.parametrize("name", FILE_ATTEMPTS)
def test_other_files_are_out_of_reach(tmp_path: Path, report: SandboxReport, name: str) -> None:
    outcome = try_in_sandbox(tmp_path, FILE_ATTEMPTS[name])
    assert LANDLOCK not in report.active or outcome in ("PermissionError", "OSError"), outcome


@pytest.mark.slow("starts a confined process for every attempt")
@pytest.mark.parametrize("name", CALL_ATTEMPTS)
def test_network_and_processes_are_out_of_reach(tmp_path: Path, report: SandboxReport, name: str) -> None:
    outcome = try_in_sandbox(tmp_path, CALL_ATTEMPTS[name])
    assert SECCOMP not in report.active or outcome == "PermissionError", outcome


@pytest.mark.slow("starts a confined process for every attempt")
@each_case("name", ALLOWED)
def test_what_reading_needs_is_allowed(tmp_path: Path, name: str) -> None:
    assert try_in_sandbox(tmp_path, ALLOWED[name]).split()[-1] == "done"


def test_layers_that_the_kernel_refuses_are_left_out_and_reported(report: SandboxReport) -> None:
    """A process in the sandbox that enters it again gets no further namespaces or user id."""
    script = (
        "import msgspec; from sources.importers.sandbox import enter_sandbox as enter; "
        "enter(()); print(msgspec.json.encode(enter(())).decode())"
    )
    second = msgspec.json.decode(run(script).stdout, type=SandboxReport)

    if SECCOMP in report.active:
        assert second.missing["namespaces"] == "operation not permitted"
        assert SECCOMP in second.active
    assert second.is_sufficient == report.is_sufficient


def test_required_sandbox_that_is_not_available_ends_the_process(tmp_path: Path) -> None:
    """Without a free descriptor, the kernel cannot create Landlock rules."""
    script = (
        "import os, resource; from sources.importers.sandbox import confine; "
        "descriptor = os.dup(0); os.close(descriptor); "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor, descriptor)); "
        "confine((), 'required'); print('went on')"
    )
    result = run(script)
    assert (result.returncode, result.stdout) == (NO_SANDBOX, "")
    assert "import_sandbox is required, but" in result.stderr


def test_reader_is_confined_before_it_opens_a_file(tmp_path: Path, report: SandboxReport) -> None:
    file = tmp_path / "ship.md"
    file.write_text("# Ship")
    process = ReaderProcess(import_limits(Settings()), [file])
    try:
        assert [type(result) for result in process.find_files([file], None)] == [DiscoveredFile]
        [pid] = _children("sources.importers.reader")
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        namespace = Path(f"/proc/{pid}/ns/net").readlink()
    finally:
        process.close()
    assert (status["Seccomp"] == "2") == (SECCOMP in report.active)
    assert (status["Uid"].split() == ["65534"] * 4) == ("user id" in report.active)
    assert (namespace != Path("/proc/self/ns/net").readlink()) == ("namespaces" in report.active)


def test_reader_has_a_lower_priority_than_the_server_from_its_start(tmp_path: Path) -> None:
    process, limits = ReaderProcess(import_limits(Settings()), [tmp_path]), batch_limits(Settings())
    try:
        process.open_file(ReadFile("markdown", bytes(tmp_path), import_limits(Settings()), limits, None))
        [pid] = _children("sources.importers.reader")
        priority = os.getpriority(os.PRIO_PROCESS, pid)
    finally:
        process.close()
    assert priority == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)


def _children(module: str) -> list[int]:
    children = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            command = (status.parent / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent == os.getpid() and module.encode() in command:
            children.append(int(status.parent.name))
    return children


def test_files_outside_the_import_that_a_reader_names_are_rejected(tmp_path: Path) -> None:
    importer = all_importers()[0]
    inside = DiscoveredFile(tmp_path / "upload" / "a.md", "a.md", importer, 1)
    require_inside([inside], [tmp_path / "upload"])
    for path in (tmp_path / "b.md", tmp_path / "upload" / ".." / "b.md"):
        with pytest.raises(InvalidParams, match="outside the import"):
            require_inside([DiscoveredFile(path, "b.md", importer, 1)], [tmp_path / "upload"])


@pytest.mark.slow("starts a process for each document")
@pytest.mark.parametrize("mode", ["auto", "required", "off"])
async def test_documents_are_imported_in_every_mode(tmp_path: Path, report: SandboxReport, mode: str) -> None:
    documents = DOCUMENTS if mode == "auto" else {"a.docx": DOCUMENTS["a.docx"]}
    states = {name: await _import(tmp_path / name, mode, name, data) for name, data in documents.items()}
    if mode == "required" and not report.is_sufficient:
        assert {(job.state, job.problem) for job in states.values()} == {("failed", NO_SANDBOX_PROBLEM)}
    else:
        assert {name: (job.state, job.items) for name, job in states.items()} == dict.fromkeys(documents, ("done", 1))


DOCUMENTS = {"a.docx": word(), "a.pdf": printed_pdf(), "a.md": b"# Ship\n\nThe galleon sailed."}


async def _import(folder: Path, mode: str, name: str, data: bytes) -> ImportJob:
    async with open_library_fixture(folder) as libraries:
        settings = msgspec.convert({"import_sandbox": mode}, Settings)
        async with ImportJobs(settings, libraries.data_root, libraries.engine, all_importers).open() as jobs:
            context = libraries.context("ada")
            job = await jobs.start(context, io.BytesIO(data), name, None, is_dry_run=False)
            return [state async for state in jobs.watch(context, job.id, interval_s=0.01)][-1]
