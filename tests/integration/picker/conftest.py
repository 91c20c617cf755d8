"""Two small engines, a picker for them, and a real Envoy in front."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.envoy import Configuration, Picker, envoy_with, picker_for
from tests.support.gateway import EngineProcess, engines


@pytest.fixture(scope="module")
def fleet() -> Iterator[list[EngineProcess]]:
    with engines(2) as started:
        yield started


@pytest.fixture(scope="module")
def endpoints(fleet: list[EngineProcess]) -> list[str]:
    return [one.url.removeprefix("http://") for one in fleet]


@pytest.fixture(scope="module")
def picker(fleet: list[EngineProcess]) -> Iterator[Picker]:
    workers = [f"{one.url},engine=vllm@0.32.0" for one in fleet]
    settings = {"tenants": {"acme": "11" * 32}, "max_held_bytes": 32 << 20}
    with picker_for(workers, settings=settings) as started:
        yield started


@pytest.fixture
def configuration(endpoints: list[str], picker: Picker) -> Configuration:
    return Configuration(endpoints, picker.endpoint)


@pytest.fixture(scope="module", params=["BUFFERED", "FULL_DUPLEX_STREAMED"])
def client(
    request: pytest.FixtureRequest,
    endpoints: list[str],
    picker: Picker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[httpx.Client]:
    """Return a client of an Envoy that sends whole bodies to the picker, in either of two modes."""
    chosen = Configuration(endpoints, picker.endpoint)
    chosen.show_metadata()
    chosen.body_mode(request.param)
    with envoy_with(chosen, tmp_path_factory.mktemp("envoy")) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
