"""An exception between any two lines, as a signal handler raises it: no slice and no file is lost."""

import gc
import os
import re
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import mmhash
from mmhash.transport import SharedPool, SharedTensor
from mmhash.transport.ledger import Claim, Ledger
from mmhash.transport.segments import DIRECTORY, Segment

pytestmark = [
    # An exception in a finalizer has nowhere to go.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # A thread of numpy's may take an alarm and be late with it: in one of 600 runs on a busy machine
    # it came after the test's end, and pytest-timeout's own handler would call it the time-out.
    pytest.mark.timeout(method="thread"),
]

KIB = 1024
NOISE = np.random.default_rng(5).integers(0, 256, 40 * KIB, dtype=np.uint8)


class Struck(BaseException):
    """As a KeyboardInterrupt, but nobody else raises it."""


def strike(act: Callable[[], Any], line: int) -> bool:
    """Do `act` and raise at a line of mmhash.transport; False if it has fewer."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not re.search(r"mmhash/transport/", frame.f_code.co_filename):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise Struck
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except Struck:
        return True
    finally:
        sys.settrace(before)
    return left <= 0


def at_every_line(act: Callable[[], Any], check: Callable[[], None]) -> None:
    line = 1
    while strike(act, line):
        check()
        line += 1
    assert line > 20


@pytest.fixture(autouse=True)
def _no_garbage() -> None:
    """Earlier tests' segments go now, not in the middle of a test."""
    gc.collect()


def segments() -> set[str]:
    return {path.name for path in DIRECTORY.glob(f"mmhash-{os.getpid()}-*")}


@pytest.mark.parametrize("nbytes", [0, 40 * KIB, 65 * KIB])
def test_lease_at_every_line(nbytes: int) -> None:
    """In the pool, and with 65 KiB beside it."""
    pool = SharedPool(64 * KIB, timeout=1000)
    content = bytes(nbytes)
    before = segments()

    def check() -> None:
        pool._ledger.collect()
        assert (pool._ledger.leased, pool._ledger.leases) == (0, 0)
        assert segments() == before
        feature = pool.lease(NOISE)
        assert feature.handle()["offset"] == 0
        with SharedTensor.open(feature.handle()) as opened:
            assert mmhash.key(opened) == mmhash.key(NOISE)

    at_every_line(lambda: pool.lease(content), check)
    pool.close()


def test_closing_what_was_leased_at_every_line() -> None:
    """The feature acknowledges when it is closed again, or at the latest when it is gone."""
    pool = SharedPool(64 * KIB, timeout=1000)

    line = 1
    while True:
        feature = SharedTensor.open(pool.lease(NOISE).handle())
        mmhash.key(feature)
        struck = strike(feature.close, line)
        feature.close()
        pool._ledger.collect()
        assert pool._ledger.leases == 0
        if not struck:
            break
        line += 1
    assert line > 5
    pool.close()


def test_creating_at_every_line() -> None:
    before = segments()
    at_every_line(lambda: SharedTensor.create(NOISE), lambda: _same(before))
    at_every_line(lambda: SharedPool(64 * KIB).close(), lambda: _same(before))
    assert segments() == before


def test_removing_at_every_line() -> None:
    line, struck = 1, True
    while struck:
        segment = Segment(10)
        struck = strike(segment.close, line)
        segment.close()
        assert segment.name not in segments()
        line += 1


def test_a_pool_closed_at_every_line() -> None:
    before = segments()
    line, struck = 1, True
    while struck:
        pool = SharedPool(64 * KIB)
        pool.lease(NOISE)
        pool.lease(NOISE)
        struck = strike(pool.close, line)
        pool.close()
        assert segments() == before
        line += 1


def test_collecting_at_every_line() -> None:
    line, struck = 1, True
    while struck:
        ledger = Ledger(64 * KIB, timeout=0)
        for _ in range(3):
            granted = ledger.grant(10 * KIB)
            assert granted is not None
            ledger.filled(granted[0])
        struck = strike(ledger.collect, line)
        ledger.collect()
        assert (ledger.leased, ledger.leases) == (0, 0)
        assert ledger.grant(64 * KIB) is not None
        ledger.close()
        line += 1


def test_a_claim_that_is_gone_gives_its_slice_back_even_if_its_end_was_interrupted() -> None:
    ledger = Ledger(64 * KIB, timeout=1000)
    claim = Claim()
    assert ledger.grant(64 * KIB, claim=claim) is not None
    assert ledger.grant(1) is None
    del claim
    assert ledger.grant(64 * KIB) is not None
    ledger.close()


def test_signals_at_any_time() -> None:
    """Real ones, some of which come while the last one is being handled."""
    pool = SharedPool(64 * KIB, timeout=1000)
    before = segments()

    armed = False

    def handler(*_: object) -> None:
        if armed:
            raise Struck

    previous = signal.signal(signal.SIGALRM, handler)
    struck = turn = 0
    try:
        while turn < 1500 or struck <= 100:  # the fewer, the faster a lease is: 100 to 371 of 1500
            turn += 1
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (turn % 300 + 1), 2e-5)
            try:
                armed = True
                pool.lease(NOISE[: 10 * KIB + turn])
                armed = False
            except Struck:
                armed = False
                struck += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            for lease in list(pool._ledger._active.values()):  # a complete lease is its caller's
                if pool._ledger._words[pool._ledger.layout.ready_offset(lease.slot) // 4]:
                    pool._ledger._end(lease)
    finally:
        _end_alarms(previous)
    pool._ledger.collect()
    assert (pool._ledger.leased, pool._ledger.leases) == (0, 0)
    assert segments() == before
    assert pool.lease(bytes(64 * KIB)).handle()["offset"] == 0
    pool.close()


def test_a_signal_handler_may_lease_too() -> None:
    pool = SharedPool(1 << 20)
    features: list[tuple[bytes, Any]] = []

    def lease() -> None:
        content = os.urandom(1000 + len(features))
        features.append((content, pool.lease(content)))

    previous = signal.signal(signal.SIGALRM, lambda *_: lease())
    try:
        for turn in range(300):
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (turn + 1))
            lease()
    finally:
        _end_alarms(previous)
    for content, feature in features:
        assert bytes(SharedTensor.open(feature.handle()).view) == content
    pool.close()


def _end_alarms(previous: Any) -> None:
    """Stop the timer, and drop a signal that is still on its way."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, previous)


def _same(before: set[str]) -> None:
    if segments() != before:
        gc.collect()  # a traced frame may be part of a cycle
    assert segments() == before
