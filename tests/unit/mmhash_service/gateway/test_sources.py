"""Workers from a list, a file and a DNS name."""

import asyncio
from pathlib import Path

import pytest

from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.sources import read_workers
from mmhash_service.gateway.worker_spec import WorkerSpec


def read(**settings: object) -> list[WorkerSpec]:
    return asyncio.run(read_workers(GatewaySettings(**settings)))


def test_a_list_is_used_as_given() -> None:
    assert [one.url for one in read(worker_list=("http://b", "http://a"))] == [
        "http://b",
        "http://a",
    ]


def test_a_file_has_a_worker_in_each_line(tmp_path: Path) -> None:
    file = tmp_path / "workers"
    file.write_text("# all\n\nhttp://a:1,engine=vllm # the first\n  http://b:2\nhttp://b:2\n")
    assert [one.url for one in read(worker_file=file)] == ["http://a:1", "http://b:2"]


@pytest.mark.parametrize("text", ["http://a:80", "http://a:1\nhttp://a:80"])
def test_a_line_without_its_end_is_an_error(tmp_path: Path, text: str) -> None:
    """While the file was written, it named another worker."""
    file = tmp_path / "workers"
    file.write_text(text)
    with pytest.raises(ValueError, match="workers does not end with a line break"):
        read(worker_file=file)


def test_an_error_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "workers"
    file.write_text("# all\nhttp://a:1\nhttp://b:2,engine=vlm\n")
    with pytest.raises(ValueError, match=r"workers, line 3: there is no engine 'vlm'"):
        read(worker_file=file)
    file.write_text("http://a:80\n\nhttp://A/,engine=vllm@0.32.0\n")
    with pytest.raises(ValueError, match=r"workers, line 3: a worker's URL is given twice"):
        read(worker_file=file)


def test_a_release_that_is_not_known_is_refused_at_each_read(tmp_path: Path) -> None:
    """Added after the start it joined silently, and none of its requests had a plan."""
    file = tmp_path / "workers"
    file.write_text("http://a:1\nhttp://b:1,engine=vllm@0.99.0\n")
    with pytest.raises(ValueError, match=r"workers, line 2: vllm 0\.99\.0 is not known"):
        read(worker_file=file)


def test_a_name_that_is_not_found_is_in_the_error() -> None:
    with pytest.raises(OSError, match=r"^worker_dns: nowhere\.invalid: "):
        read(worker_dns="http://nowhere.invalid:8000")


def test_a_name_stands_for_each_address() -> None:
    spec = (
        "http://localhost:8000,events=tcp://localhost:5557,replay=tcp://localhost:5558,engine=vllm"
    )
    found = {one.url: one for one in read(worker_dns=spec)}
    one = found["http://127.0.0.1:8000"]
    assert (one.events, one.replay) == ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558")


@pytest.mark.parametrize("member", ["events", "replay"])
@pytest.mark.parametrize("endpoint", ["tcp://other:5557", "ipc:///run/events"])
def test_the_endpoints_of_a_name_are_of_that_name(member: str, endpoint: str) -> None:
    """All workers had the events of one: each got requests by what another has cached."""
    spec = {"events": "tcp://localhost:5557", "replay": "tcp://localhost:5558", member: endpoint}
    text = f"http://localhost:80,events={spec['events']},replay={spec['replay']},engine=vllm"
    with pytest.raises(ValueError, match="the host of its URL"):
        GatewaySettings(worker_dns=text)


def test_the_case_of_a_name_does_not_matter() -> None:
    spec = "http://LocalHost:8000,events=tcp://LOCALHOST:5557,engine=vllm"
    found = {one.url: one for one in read(worker_dns=spec)}
    assert found["http://127.0.0.1:8000"].events == "tcp://127.0.0.1:5557"
