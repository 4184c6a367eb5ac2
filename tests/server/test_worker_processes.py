"""The process that starts workers: replaces them, passes signals on, and ends with them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.worker_program import HANG_S

pytestmark = pytest.mark.slow("kills processes")

ROOT = Path(__file__).parent.parent.parent
# Only reached if a test fails.
WAIT_MAX_S = 30.0


class Supervisor:
    """A running supervisor with two workers, and what they answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.port = int(process.stdout.readline().removeprefix("port "))

    def answers(self) -> set[tuple[int, int]]:
        """The process ids and counted signals of the workers that answer."""
        answers = set()
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", self.port), WAIT_MAX_S) as connection:
                process_id, hangups = connection.makefile().read().split()
                answers.add((int(process_id), int(hangups)))
        return answers

    def wait_for(self, condition: Callable[[set[tuple[int, int]]], bool]) -> set[tuple[int, int]]:
        ends_at = time.monotonic() + WAIT_MAX_S
        while not condition(answers := self.answers()):
            assert time.monotonic() < ends_at, answers
            time.sleep(0.02)
        return answers


def start(worker: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.server.worker_program", "supervise", worker]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    process = start("work")
    try:
        yield Supervisor(process)
    finally:
        process.kill()
        process.wait()


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return "zombie" not in Path(f"/proc/{process_id}/status").read_text()


def test_a_killed_worker_is_replaced_while_the_other_serves(supervisor: Supervisor) -> None:
    [first, second] = [process_id for process_id, _ in supervisor.wait_for(lambda answers: len(answers) == 2)]
    os.kill(first, signal.SIGKILL)

    answers = supervisor.wait_for(lambda answers: len(answers) == 2 and first not in dict(answers))
    assert second in dict(answers)


def test_a_worker_that_hangs_is_replaced_while_the_other_serves(supervisor: Supervisor) -> None:
    [first, second] = [process_id for process_id, _ in supervisor.wait_for(lambda answers: len(answers) == 2)]
    os.kill(first, signal.SIGSTOP)
    ends_at = time.monotonic() + WAIT_MAX_S
    while is_running(first):
        assert time.monotonic() < ends_at
        time.sleep(0.02)

    assert second in dict(supervisor.wait_for(lambda answers: len(answers) == 2))


def test_no_worker_is_replaced_after_the_machine_stood_still(supervisor: Supervisor) -> None:
    workers = supervisor.wait_for(lambda answers: len(answers) == 2)
    processes = [supervisor.process.pid, *dict(workers)]
    for process_id in processes:
        os.kill(process_id, signal.SIGSTOP)
    time.sleep(2 * HANG_S)
    for process_id in processes:
        os.kill(process_id, signal.SIGCONT)
    time.sleep(HANG_S)

    assert supervisor.wait_for(lambda answers: len(answers) == 2) == workers


def test_a_worker_that_does_not_start_leaves_the_other_serving() -> None:
    with start("fail-one") as process:
        try:
            supervisor = Supervisor(process)
            [(serving, _)] = supervisor.answers()
            assert process.stderr is not None
            for _ in range(5):
                assert "worker 1 ended with code 3" in process.stderr.readline()
            assert supervisor.answers() == {(serving, 0)}
        finally:
            process.terminate()
        assert process.wait(WAIT_MAX_S) == 0


def test_a_worker_that_fails_before_the_other_serves_does_not_end_it() -> None:
    with start("fail-first") as process:
        try:
            [(_, hangups)] = Supervisor(process).answers()
            assert hangups == 0
        finally:
            process.terminate()
        assert process.wait(WAIT_MAX_S) == 0


def test_sigterm_ends_all_workers_and_is_a_success(supervisor: Supervisor) -> None:
    workers = [process_id for process_id, _ in supervisor.wait_for(lambda answers: len(answers) == 2)]
    supervisor.process.terminate()

    assert supervisor.process.wait(WAIT_MAX_S) == 0
    assert not any(map(is_running, workers))


def test_sighup_reaches_every_worker(supervisor: Supervisor) -> None:
    supervisor.wait_for(lambda answers: len(answers) == 2)
    supervisor.process.send_signal(signal.SIGHUP)

    supervisor.wait_for(lambda answers: [hangups for _, hangups in answers] == [1, 1])


def test_workers_end_with_a_killed_supervisor(supervisor: Supervisor) -> None:
    workers = [process_id for process_id, _ in supervisor.wait_for(lambda answers: len(answers) == 2)]
    supervisor.process.kill()
    supervisor.process.wait()

    ends_at = time.monotonic() + WAIT_MAX_S
    while any(map(is_running, workers)):
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def test_workers_that_never_start_end_the_supervisor() -> None:
    process = start("fail")
    output, _ = process.communicate(timeout=WAIT_MAX_S)

    assert (process.returncode, output) == (2, "workers do not start; the last one ended with code 3, see the log\n")
