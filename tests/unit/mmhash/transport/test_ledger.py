"""The ledger of a pool: every byte becomes free again, and leases are never confused."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import settings

from mmhash import InputValueError, TransportError
from mmhash.transport import SharedPool, SharedTensor
from mmhash.transport.handles import Grant
from mmhash.transport.layout import ALIGNMENT
from mmhash.transport.lease import Lease
from mmhash.transport.ledger import Ledger
from mmhash.transport.segments import DIRECTORY

KIB = 1024


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(clock: Clock) -> Iterator[Ledger]:
    made = Ledger(64 * KIB, consumers=2, timeout_s=10, slots=100, clock=clock)
    yield made
    made.close()


def copied(ledger: Ledger, grant: Grant) -> None:
    """Do as the device does when the copy is done."""
    ledger.filled(grant)


def grant(ledger: Ledger, nbytes: int = 40 * KIB) -> Grant:
    granted, _ = ledger.grant(nbytes)
    copied(ledger, granted)
    return granted


def is_full(ledger: Ledger, nbytes: int = 40 * KIB) -> bool:
    try:
        ledger.grant(nbytes)
    except TransportError:
        return True
    return False


def test_a_slice_returns_when_all_have_acknowledged(ledger: Ledger) -> None:
    first = grant(ledger)
    assert is_full(ledger)
    Lease(first, 0).acknowledge()
    Lease(first, 0).acknowledge()  # twice is once
    assert is_full(ledger)
    Lease(first, 1).acknowledge()
    second = grant(ledger)
    assert second.generation != first.generation
    with pytest.raises(TransportError, match="lease is over"):
        Lease(first, 0).check()
    Lease(second, 0).check()


def test_a_lease_nobody_acknowledges_is_taken_back_in_time(ledger: Ledger, clock: Clock) -> None:
    lost = grant(ledger)
    reader = Lease(lost, 0)
    reader.check()
    clock.now = 9
    assert is_full(ledger)
    clock.now = 11
    assert grant(ledger)
    with pytest.raises(TransportError, match="lease is over"):
        reader.check()


def test_a_late_acknowledgement_means_nothing(ledger: Ledger, clock: Clock) -> None:
    late = Lease(grant(ledger), 0)
    late.check()
    clock.now = 11
    second = grant(ledger)
    Lease(second, 0).acknowledge()
    late.acknowledge()
    Lease(second, 1).acknowledge()
    assert ledger.leases() == 0


def test_a_slice_is_not_taken_back_before_its_copy_is_done(ledger: Ledger, clock: Clock) -> None:
    granted, _ = ledger.grant(40 * KIB)
    for consumer in range(2):
        Lease(granted, consumer).acknowledge()
    clock.now = 99
    assert is_full(ledger)
    copied(ledger, granted)
    assert not is_full(ledger)


def test_ready_is_waited_for_and_no_longer(ledger: Ledger) -> None:
    given, _ = ledger.grant(KIB)
    lease = Lease(given, 0)
    with pytest.raises(TransportError, match="not done within"):
        lease.wait_ready(0.01)
    copied(ledger, given)
    lease.wait_ready(0)
    ledger.close()
    with pytest.raises(TransportError, match="lease is over"):
        lease.check()


def test_a_dead_producer_is_not_waited_for() -> None:
    program = (
        "from mmhash.transport.ledger import Ledger; l = Ledger(1024); import json;"
        "print(json.dumps(l.grant(8)[0]), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        given = Grant(*json.loads(owner.stdout.readline()))
        lease = Lease(given, 0)
        lease.check()
        owner.kill()
    with pytest.raises(TransportError, match="producer has exited"):
        lease.wait_ready(60)
    (DIRECTORY / given.name).unlink(missing_ok=True)  # another process may sweep


def test_random_leases_never_overlap_and_all_comes_back(ledger: Ledger, clock: Clock) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    held: dict[Grant, range] = {}
    for _ in range(6 * settings().max_examples):
        clock.now += 0.003
        if held and chance.random() < 0.5:
            done = chance.choice(list(held))
            for consumer in range(2):
                Lease(done, consumer).acknowledge()
            del held[done]
            ledger.leases()
        size = chance.choice([0, 1, 511, 512, 513, 7000, 20_000])
        with suppress(TransportError):
            given, start = ledger.grant(size)
            copied(ledger, given)
            place = range(start, start + max(size, 1))
            assert place.stop <= 64 * KIB
            assert place.start % ALIGNMENT == 0
            assert all(
                place.stop <= other.start or other.stop <= place.start for other in held.values()
            )
            held[given] = place
        for lease in held:
            Lease(lease, 0).check()
    clock.now += 11
    assert ledger.leases() == 0
    assert not is_full(ledger, 64 * KIB)


def test_slots_run_out_like_room(ledger: Ledger) -> None:
    assert sum(is_full(ledger, 1) for _ in range(200)) == 100


@pytest.mark.parametrize("consumers", [0, 65])
def test_consumers_are_bounded(consumers: int) -> None:
    with pytest.raises(InputValueError, match="1 to 64"):
        Ledger(KIB, consumers=consumers)


@pytest.mark.parametrize("forget", [False, True])
def test_closing_or_forgetting_acknowledges_but_not_in_a_forked_child(forget: bool) -> None:
    pool = SharedPool(KIB)
    ledger = pool._ledger
    feature = SharedTensor.open(pool.lease(b"lent").handle())
    assert bytes(feature.view) == b"lent"
    child = os.fork()
    if child == 0:
        feature.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert ledger.leases() == 1
    if forget:
        del feature
    else:
        feature.close()
    assert ledger.leases() == 0
    pool.close()


def test_a_handle_that_only_a_dead_pool_lent_can_still_be_closed() -> None:
    document = {"name": "mmhash-1-" + "0" * 16, "offset": 0, "nbytes": 4}
    lease = {"name": "mmhash-2-" + "0" * 16, "slot": 0, "generation": 1}
    SharedTensor.open(document | {"lease": lease}).close()
