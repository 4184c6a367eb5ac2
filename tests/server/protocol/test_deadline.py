"""The clock of a call: it ends what takes too long, stands still on request, and leaves other cancellations alone."""

import asyncio

import pytest

from server.protocol.deadline import Deadline


async def test_work_that_ends_in_time_is_left_alone() -> None:
    with Deadline(5):
        await asyncio.sleep(0)


async def test_work_that_takes_too_long_ends_with_a_timeout() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01):
        await asyncio.Event().wait()


async def test_the_task_goes_on_after_its_deadline() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01):
        await asyncio.Event().wait()
    await asyncio.sleep(0)


async def test_a_cancellation_by_somebody_else_stays_a_cancellation() -> None:
    async def work() -> None:
        with Deadline(5):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_clock_stands_still_while_paused_and_goes_on_after() -> None:
    with Deadline(0.03) as deadline:
        deadline.pause()
        await asyncio.sleep(0.06)
        deadline.resume()


async def test_a_clock_that_goes_on_still_ends_the_work() -> None:
    async def work() -> None:
        with Deadline(0.01) as deadline:
            deadline.pause()
            deadline.resume()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()


async def test_an_error_of_the_work_itself_passes_through() -> None:
    with pytest.raises(ValueError, match="mine"), Deadline(5):
        raise ValueError("mine")
