"""The queue: first come first served, and nobody starves."""

from collections.abc import Iterator
from itertools import islice

import pytest

from mmhash.executor.admission import SMALL, AdmissionQueue


class Job:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def served(queue: AdmissionQueue[Job]) -> Iterator[Job]:
    """The order in which they run, one at a time."""
    while (job := queue.admit()) is not None:
        yield job
        queue.release(job)


def test_first_come_first_served() -> None:
    queue: AdmissionQueue[Job] = AdmissionQueue(100, 1)
    jobs = [Job(nbytes) for nbytes in (5, 90, 1, 40)]
    for job in jobs:
        queue.push(job)
    assert list(served(queue)) == jobs


def test_small_ones_do_not_wait_behind_all_large_ones() -> None:
    queue: AdmissionQueue[Job] = AdmissionQueue(1 << 40, 1)
    large, small = [Job(20 * SMALL) for _ in range(50)], [Job(SMALL // 4) for _ in range(8)]
    for job in large + small:
        queue.push(job)
    assert set(small) <= set(islice(served(queue), 10))


def test_a_stream_of_small_ones_does_not_starve_a_large_one() -> None:
    queue: AdmissionQueue[Job] = AdmissionQueue(1 << 40, 1)
    large = Job(20 * SMALL)
    queue.push(Job(SMALL))
    queue.push(large)
    for count, job in enumerate(served(queue)):
        if job is large:
            break
        queue.push(Job(SMALL))
        assert count < 30


def test_an_idle_lane_saves_up_no_turns() -> None:
    queue: AdmissionQueue[Job] = AdmissionQueue(1 << 40, 1)
    for _ in range(100):
        queue.push(Job(20 * SMALL))
    list(served(queue))
    large = Job(20 * SMALL)
    for job in [Job(SMALL), *[Job(SMALL) for _ in range(200)], large]:
        queue.push(job)
    assert large in set(islice(served(queue), 30))


def test_what_does_not_fit_is_waited_for() -> None:
    queue: AdmissionQueue[Job] = AdmissionQueue(10, 3)
    first, second, third = Job(6), Job(5), Job(1)
    for job in (first, second, third):
        queue.push(job)
    assert queue.admit() is first
    assert queue.admit() is None  # the third would fit, and would pass by the second
    queue.release(first)
    assert [queue.admit(), queue.admit()] == [second, third]


def test_larger_than_the_limit_is_alone() -> None:
    queue: AdmissionQueue[Job] = AdmissionQueue(10, 3)
    first, huge = Job(1), Job(99)
    queue.push(first)
    queue.push(huge)
    assert queue.admit() is first
    assert queue.admit() is None
    queue.release(first)
    assert queue.admit() is huge
    queue.push(Job(1))
    assert queue.admit() is None


def test_as_many_as_there_are_threads() -> None:
    queue: AdmissionQueue[Job] = AdmissionQueue(100, 2)
    for _ in range(3):
        queue.push(Job(1))
    assert [queue.admit() is not None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("nbytes", [1, 20 * SMALL])
def test_who_leaves_is_counted_no_more(nbytes: int) -> None:
    queue: AdmissionQueue[Job] = AdmissionQueue(100, 1)
    job = Job(nbytes)
    queue.push(job)
    assert (len(queue), queue.waiting_bytes, queue.backlog) == (1, nbytes, nbytes)
    assert queue.discard(job)
    assert not queue.discard(job)
    assert (len(queue), queue.backlog) == (0, 0)
    assert queue.admit() is None
