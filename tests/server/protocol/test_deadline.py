"""The deadline of a call: it cancels late work, can be paused, and does not swallow other cancellations."""

import asyncio

import pytest

from server.protocol.call import Deadline


async def test_work_within_the_deadline_completes() -> None:
    with Deadline(5):
        await asyncio.sleep(0)


async def test_work_over_the_deadline_raises_timeout_error() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01):
        await asyncio.Event().wait()


async def test_the_task_can_continue_after_a_timeout() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01):
        await asyncio.Event().wait()
    await asyncio.sleep(0)


async def test_a_cancellation_from_outside_is_propagated() -> None:
    async def work() -> None:
        with Deadline(5):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_time_spent_paused_does_not_count() -> None:
    with Deadline(0.03) as deadline:
        deadline.pause()
        with pytest.raises(TimeoutError), Deadline(0.06):  # outlasts the paused one
            await asyncio.Event().wait()
        deadline.resume()


async def test_a_resumed_deadline_still_expires() -> None:
    async def work() -> None:
        with Deadline(0.01) as deadline:
            deadline.pause()
            deadline.resume()
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()


async def test_an_error_of_the_work_is_propagated() -> None:
    with pytest.raises(ValueError, match="mine"), Deadline(5):
        raise ValueError("mine")
