"""How settings describe a worker."""

import pytest

from mmhash.kvindex import source
from mmhash_service.gateway import worker_spec
from mmhash_service.gateway.worker_spec import EngineSpec, WorkerSpec, parse_worker


def test_a_worker_has_all_its_parts() -> None:
    text = (
        "http://a:8000/,events=tcp://a:5557,replay=tcp://a:5558,engine=vllm@0.32.0,block_size=16,"
        "block_algorithm=sha256_cbor,seed=0,ranks=2"
    )
    engine = EngineSpec("vllm@0.32.0", 16, "sha256_cbor", "0")
    assert parse_worker(text) == WorkerSpec(
        "http://a:8000", engine, "tcp://a:5557", "tcp://a:5558", 2
    )
    assert parse_worker("https://a") == WorkerSpec("https://a")
    without_engine = WorkerSpec("http://a", EngineSpec(block_size=16), "tcp://a:1")
    assert parse_worker("http://a,events=tcp://a:1,block_size=16") == without_engine
    assert parse_worker("HTTP://A:80/b/") == WorkerSpec("http://a/b")
    assert parse_worker("https://a:80").url == "https://a:80"


def test_a_worker_names_its_server_and_its_hash_of_items() -> None:
    spec = parse_worker("http://a,engine=sglang@0.5.23,server=rust").engine
    assert spec == EngineSpec("sglang@0.5.23", server="rust")
    spec = parse_worker("http://a,engine=sglang@0.5.20,server=mmhash").engine
    assert spec == EngineSpec("sglang@0.5.20", server="mmhash")
    vllm = parse_worker("http://a,engine=vllm@0.33.0,mm_hasher_algorithm=sha256").engine
    assert vllm == EngineSpec("vllm@0.33.0", mm_hasher_algorithm="sha256")
    plain = parse_worker("http://a,engine=sglang@0.5.23,server=python").engine
    assert plain == parse_worker("http://a,engine=sglang@0.5.23").engine


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://a,engine=vllm,mm_hasher_algorithm=sha512",
        "http://a,engine=sglang@0.5.22,server=rust",
        "http://a,engine=vllm,server=rust",
        "http://a,engine=vllm,server=mmhash",
        "http://a,engine=sglang@0.5.19,server=mmhash",
        "http://a,engine=sglang@0.5.23,server=go",
        "http://a,server=go",
        "a:8000",
        "ftp://a",
        "http://",
        "http://a:99999",
        "http://a?b",
        "http://user:secret@a",
        "http://pod..svc:8000",
        "http://xn--a",
        "http://" + "a" * 64,
        "http://a,events",
        "http://a,event=tcp://a:1",
        "http://a,engine=vllm,engine=vllm",
        "http://a,engine=other",
        "http://a,events=a:1,engine=vllm",
        "http://a,replay=tcp://a:1,engine=vllm",
        "http://a,engine=vllm,block_size=0",
        "http://a,engine=vllm,ranks=1000",
        "http://a/v1",
        "http://a:8000/v1/",
        "http://a,engine=vllm@0.32.0,block_algorithm=md5",
        "http://a,engine=vllm@0.32.0,block_algorithm=xxhash",  # its root is random without a seed
        "http://a,engine=vllm@0.20.0,events=tcp://a:1",
        "http://a,engine=sglang@0.5.23,seed=0",
        "http://a,engine=trtllm,events=tcp://a:1",
    ],
)
def test_a_worker_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_worker(text)


@pytest.mark.parametrize("member", ["events", "replay"])
@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp://*:5557",  # where the engine listens, by its own settings
        "tcp://:5557",
        "tcp://a:0",
        "tcp://a:65536",
        "tcp://a:99999",
        "tcp://a:65535",  # of the second rank there is none
        "tcp://a/b:5557",
    ],
)
def test_an_endpoint_to_which_nothing_connects_is_refused(member: str, endpoint: str) -> None:
    endpoints = {"events": "tcp://a:5557", "replay": "tcp://a:5558"} | {member: endpoint}
    members = ",".join(f"{name}={value}" for name, value in endpoints.items())
    with pytest.raises(ValueError, match=f"^{member} of a worker must be tcp://HOST:PORT"):
        parse_worker(f"http://a,engine=vllm@0.32.0,ranks=2,{members}")


@pytest.mark.parametrize(
    "endpoint", ["tcp://a:1", "tcp://a:65535", "tcp://[::1]:5557", "ipc:///run/events"]
)
def test_an_endpoint_has_a_port_or_a_path(endpoint: str) -> None:
    assert parse_worker(f"http://a,engine=vllm@0.32.0,events={endpoint}").events == endpoint


def test_a_host_that_no_name_server_takes_is_refused_by_name() -> None:
    """Each connection to it failed with UnicodeError."""
    with pytest.raises(ValueError, match="the host of a worker's URL"):
        parse_worker("http://pod..svc:8000")
    assert parse_worker("http://pod.svc.").url == "http://pod.svc."


def test_a_worker_has_as_many_ranks_as_the_index_takes() -> None:
    assert worker_spec.MAX_RANKS == source.MAX_RANKS
