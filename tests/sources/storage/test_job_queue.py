"""The job queue: fair shares, one job per connection, background jobs, abandoned jobs and expected waits."""

import pytest

from config.paths import UserId
from sources.storage.job_queue import BackgroundPace, JobGroup, JobLane, JobQueue, QueuedJob

ADA, BEN, CYD = UserId("ada"), UserId("ben"), UserId("cyd")


class QueueFixture:
    """A queue with a clock. Jobs are named, and `started` lists them in the order in which they started."""

    def __init__(self, slots: int = 1) -> None:
        self.now = 100.0
        self.queue = JobQueue(slots, lambda: self.now)
        self.started: list[str] = []
        self.jobs: dict[str, QueuedJob] = {}

    def add(self, user: UserId, *names: str, lane: JobLane | None = None, group: JobGroup | None = None) -> None:
        for name in names:
            job = QueuedJob(user, lane or JobLane(), group, lambda name=name: self.started.append(name))  # type: ignore[misc]
            self.jobs[name] = job
            self.queue.add(job)

    def end(self, name: str, seconds: float = 0.01) -> None:
        """The job ran for this long, and its result is processed at once."""
        self.now += seconds
        self.jobs[name].cost_s = seconds
        self.queue.finish(self.jobs[name])
        self.queue.leave(self.jobs[name])

    def run_all(self) -> list[str]:
        """Ends all jobs, one after the other, and returns the order in which they started."""
        for position in range(len(self.jobs)):
            self.end(self.started[position])
        return self.started


def background() -> JobGroup:
    return JobGroup(is_background=True)


def test_users_take_turns_however_many_jobs_one_has() -> None:
    queue = QueueFixture()
    queue.add(ADA, "a1", "a2", "a3", "a4")
    queue.add(BEN, "b1", "b2")

    assert queue.run_all() == ["a1", "b1", "a2", "b2", "a3", "a4"]


def test_a_user_with_long_jobs_has_fewer_turns() -> None:
    queue = QueueFixture()
    queue.add(ADA, "a1", "a2", "a3")
    queue.add(BEN, *(f"b{number}" for number in range(8)))
    queue.end("a1", 0.045)
    while "a2" not in queue.started:
        queue.end(queue.started[-1], 0.01)

    assert queue.started.index("a2") >= 4


def test_a_single_long_job_delays_the_next_only_for_a_limited_time() -> None:
    queue = QueueFixture()
    queue.add(ADA, "a1", "a2")
    queue.add(BEN, *(f"b{number}" for number in range(100)))
    queue.end("a1", 60.0)
    for position in range(1, 20):
        queue.end(queue.started[position], 0.01)

    assert "a2" in queue.started


def test_an_idle_user_goes_first_but_cannot_save_up_time() -> None:
    queue = QueueFixture()
    queue.add(ADA, *(f"a{number}" for number in range(200)))
    for position in range(100):
        queue.end(queue.started[position], 0.01)
    queue.add(BEN, *(f"b{number}" for number in range(100)))
    for position in range(100, 120):
        queue.end(queue.started[position], 0.01)

    assert queue.started[101] == "b0"
    assert 8 <= sum(name.startswith("a") for name in queue.started[101:121]) <= 12


def test_the_first_job_of_an_idle_user_does_not_wait_for_a_slot() -> None:
    queue = QueueFixture()
    queue.add(ADA, "a1", "a2")
    queue.end("a1", 0.1)
    queue.add(BEN, "b1", "b2")
    queue.add(CYD, "c1")
    assert queue.started == ["a1", "a2", "b1"]

    queue.end("a2")
    assert queue.started == ["a1", "a2", "b1", "c1"]


def test_one_job_of_a_connection_runs_at_a_time_and_others_use_the_free_slot() -> None:
    queue, lane = QueueFixture(slots=2), JobLane()
    queue.add(ADA, "a1", "a2", lane=lane)
    queue.add(ADA, "a3", "a4")
    assert queue.started == ["a1", "a3"]

    queue.end("a3")
    assert queue.started == ["a1", "a3", "a4"]
    queue.end("a1")
    assert queue.started == ["a1", "a3", "a4", "a2"]


def test_background_jobs_run_one_at_a_time_and_take_no_slot_from_others() -> None:
    queue = QueueFixture()
    queue.add(ADA, "import 1", "import 2", group=background())
    queue.add(ADA, "a1", "a2")
    assert queue.started == ["import 1", "a1"]

    queue.end("import 1")
    queue.end("a1")
    assert queue.started == ["import 1", "a1", "import 2", "a2"]


def test_background_jobs_of_users_take_turns() -> None:
    queue = QueueFixture()
    queue.add(ADA, "import a1", "import a2", "import a3", group=background())
    queue.add(BEN, "import b1", group=background())

    assert queue.run_all() == ["import a1", "import b1", "import a2", "import a3"]


class PaceFixture:
    """The pace of a background job in a queue. `pauses` lists how long it paused."""

    def __init__(self) -> None:
        self.queue = QueueFixture()
        self.pauses: list[float] = []
        self.pace = BackgroundPace(self.queue.queue, lambda: self.queue.now, self._sleep)
        self.queue.add(ADA, "import 1", group=background())
        self.queue.add(BEN, "b1")

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.queue.now += seconds

    def work(self, seconds: float) -> None:
        self.queue.now += seconds
        self.pace.pause_if_due()


def test_a_background_job_pauses_for_a_multiple_of_its_work_while_other_jobs_run() -> None:
    job = PaceFixture()
    job.pace.start()
    job.work(0.001)
    assert job.pauses == []
    job.work(0.004)
    assert job.pauses == [pytest.approx(0.03)]

    job.queue.end("b1")
    job.work(0.005)
    assert len(job.pauses) == 1


def test_the_wait_of_a_background_job_for_its_start_is_no_work() -> None:
    job = PaceFixture()
    job.queue.now += 5
    job.pace.start()
    job.work(0.001)
    assert job.pauses == []


def test_a_background_job_pauses_briefly_after_a_long_step() -> None:
    job = PaceFixture()
    job.pace.start()
    job.work(3)
    assert job.pauses == [0.1]


def test_a_job_that_is_withdrawn_never_starts() -> None:
    queue = QueueFixture()
    queue.add(ADA, "a1", "a2", "a3")

    assert queue.queue.leave(queue.jobs["a2"])
    queue.end("a1")

    assert queue.started == ["a1", "a3"]


def test_an_abandoned_job_frees_its_slot_but_not_its_connection() -> None:
    queue, lane = QueueFixture(), JobLane()
    queue.add(ADA, "a1", "a2", lane=lane)
    queue.add(BEN, "b1", "b2")

    assert not queue.queue.leave(queue.jobs["a1"])
    assert queue.started == ["a1", "b1"]
    queue.end("b1")
    queue.end("b2")
    assert queue.started == ["a1", "b1", "b2"]

    queue.queue.finish(queue.jobs["a1"])
    assert queue.started[-1] == "a2"
    queue.end("a2")
    assert queue.queue.state().running == 0


def test_no_job_starts_while_too_many_results_are_unprocessed() -> None:
    queue = QueueFixture()
    queue.add(ADA, *(f"a{number}" for number in range(10)))
    for position in range(4):
        queue.queue.finish(queue.jobs[queue.started[position]])
    assert len(queue.started) == 4

    queue.queue.leave(queue.jobs["a0"])
    assert len(queue.started) == 5


def test_a_group_knows_how_long_its_jobs_waited() -> None:
    queue, group = QueueFixture(), JobGroup()
    queue.add(BEN, "b1")
    queue.add(ADA, "a1", "a2", group=group)
    queue.end("b1", 2.0)
    assert queue.started == ["b1", "a1"]
    queue.end("a1", 1.0)
    queue.end("a2", 5.0)

    assert group.waited_s() == pytest.approx(3.0)


# -- expected waits ----------------------------------------------------------------------------------------------------


def measured_queue() -> QueueFixture:
    """A queue in which jobs start every 0.1 s; Ada has 18 waiting jobs and Ben, whose first job did not wait, has 4."""
    queue = QueueFixture()
    queue.add(ADA, *(f"a{number}" for number in range(30)))
    for position in range(10):
        queue.end(queue.started[position], 0.1)
    queue.add(BEN, *(f"b{number}" for number in range(5)))
    queue.jobs["a10"].cost_s = 0.1
    queue.queue.leave(queue.jobs["a29"])
    return queue


def test_nothing_is_expected_to_wait_in_an_empty_queue() -> None:
    queue = QueueFixture()
    queue.add(ADA, "a1")

    assert queue.queue.expected_wait_s(BEN, 5) == 0


def test_own_jobs_and_those_of_others_up_to_the_same_number_are_ahead() -> None:
    queue = measured_queue()
    state = queue.queue.state()

    assert state.job_interval_s == pytest.approx(0.1)
    assert (state.waiting, state.running) == (22, 2)
    assert queue.queue.expected_wait_s(ADA, 1) == pytest.approx((18 + 4) * 0.1)
    assert queue.queue.expected_wait_s(BEN, 1) == pytest.approx((4 + 4.8) * 0.1)
    assert queue.queue.expected_wait_s(CYD, 1) == pytest.approx(2 * 0.8 * 0.1)


def test_totals_count_jobs_and_their_times() -> None:
    queue = QueueFixture()
    queue.add(ADA, "a1", "a2")
    queue.end("a1", 1.0)
    queue.end("a2", 2.0)
    state = queue.queue.state()

    assert state.jobs_total == 2
    assert state.wait_total_s == pytest.approx(1.0)
    assert state.run_total_s == pytest.approx(3.0)
