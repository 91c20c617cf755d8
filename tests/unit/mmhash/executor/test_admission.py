"""The line: first come first served, and nobody starves."""

from collections.abc import Iterator
from itertools import islice

import pytest

from mmhash.executor.admission import SMALL, AdmissionQueue


class Job:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def served(line: AdmissionQueue[Job]) -> Iterator[Job]:
    """The order in which they run, one at a time."""
    while (job := line.admit()) is not None:
        yield job
        line.release(job)


def test_first_come_first_served() -> None:
    line: AdmissionQueue[Job] = AdmissionQueue(100, 1)
    jobs = [Job(nbytes) for nbytes in (5, 90, 1, 40)]
    for job in jobs:
        line.push(job)
    assert list(served(line)) == jobs


def test_small_ones_do_not_wait_behind_all_large_ones() -> None:
    line: AdmissionQueue[Job] = AdmissionQueue(1 << 40, 1)
    large, small = [Job(20 * SMALL) for _ in range(50)], [Job(SMALL // 4) for _ in range(8)]
    for job in large + small:
        line.push(job)
    assert set(small) <= set(islice(served(line), 10))


def test_a_stream_of_small_ones_does_not_starve_a_large_one() -> None:
    line: AdmissionQueue[Job] = AdmissionQueue(1 << 40, 1)
    large = Job(20 * SMALL)
    line.push(Job(SMALL))
    line.push(large)
    for count, job in enumerate(served(line)):
        if job is large:
            break
        line.push(Job(SMALL))
        assert count < 30


def test_an_idle_lane_saves_up_no_turns() -> None:
    line: AdmissionQueue[Job] = AdmissionQueue(1 << 40, 1)
    for _ in range(100):
        line.push(Job(20 * SMALL))
    list(served(line))
    large = Job(20 * SMALL)
    for job in [Job(SMALL), *[Job(SMALL) for _ in range(200)], large]:
        line.push(job)
    assert large in set(islice(served(line), 30))


def test_what_does_not_fit_is_waited_for() -> None:
    line: AdmissionQueue[Job] = AdmissionQueue(10, 3)
    first, second, third = Job(6), Job(5), Job(1)
    for job in (first, second, third):
        line.push(job)
    assert line.admit() is first
    assert line.admit() is None  # the third would fit, and would pass by the second
    line.release(first)
    assert [line.admit(), line.admit()] == [second, third]


def test_larger_than_the_limit_is_alone() -> None:
    line: AdmissionQueue[Job] = AdmissionQueue(10, 3)
    first, huge = Job(1), Job(99)
    line.push(first)
    line.push(huge)
    assert line.admit() is first
    assert line.admit() is None
    line.release(first)
    assert line.admit() is huge
    line.push(Job(1))
    assert line.admit() is None


def test_as_many_as_there_are_threads() -> None:
    line: AdmissionQueue[Job] = AdmissionQueue(100, 2)
    for _ in range(3):
        line.push(Job(1))
    assert [line.admit() is not None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("nbytes", [1, 20 * SMALL])
def test_who_leaves_is_counted_no_more(nbytes: int) -> None:
    line: AdmissionQueue[Job] = AdmissionQueue(100, 1)
    job = Job(nbytes)
    line.push(job)
    assert (len(line), line.waiting_bytes, line.backlog) == (1, nbytes, nbytes)
    assert line.discard(job)
    assert not line.discard(job)
    assert (len(line), line.backlog) == (0, 0)
    assert line.admit() is None
