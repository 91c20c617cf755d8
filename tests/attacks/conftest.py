"""Real server processes to attack: after each attack they must still answer, correctly and at once."""

from collections.abc import Iterator

import pytest

from tests.support.gateway import EngineProcess, engines, gateway_before
from tests.support.service import Service
from tests.support.victim import Victim, serving

TAG_SECRET = "5c" * 32
IMPATIENT_S = 2.0


@pytest.fixture(scope="session")
def _victim() -> Iterator[Victim]:
    with serving() as victim:
        yield victim


@pytest.fixture
def server(_victim: Victim) -> Iterator[Victim]:
    """A server with small limits, for most attacks."""
    yield _victim
    _victim.assert_well()


@pytest.fixture(scope="session")
def _impatient() -> Iterator[Victim]:
    with serving(timeout_s=IMPATIENT_S) as victim:
        yield victim


@pytest.fixture
def impatient(_impatient: Victim) -> Iterator[Victim]:
    """A server that gives up on slow clients soon, but later than a busy machine stalls."""
    yield _impatient
    _impatient.assert_well()


@pytest.fixture(scope="session")
def _signing() -> Iterator[Victim]:
    with serving(tag_secrets=[TAG_SECRET]) as victim:
        yield victim


@pytest.fixture
def signing(_signing: Victim) -> Iterator[Victim]:
    """A server that signs tags."""
    yield _signing
    _signing.assert_well()


@pytest.fixture(scope="module")
def worker() -> Iterator[EngineProcess]:
    """The worker behind the gateway."""
    with engines(1) as (started,):
        yield started


@pytest.fixture(scope="module")
def gateway(worker: EngineProcess) -> Iterator[Service]:
    """A gateway in front of one worker."""
    with gateway_before([f"{worker.url},engine=sglang@0.5.23"]) as service:
        yield service
