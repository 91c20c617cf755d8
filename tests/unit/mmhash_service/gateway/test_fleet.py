"""The fleet: probes, events, conversations, and changes of its workers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mmhash.kvindex import Index, WorkerStats
from mmhash.kvindex import Worker as EventSource
from mmhash_service.gateway.connection import BrokenError
from mmhash_service.gateway.discovery import Adapter
from mmhash_service.gateway.expected import UnnamedBlocks
from mmhash_service.gateway.fleet import Fleet, workers_for
from mmhash_service.gateway.policy import Candidate, rank
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Worker
from mmhash_service.gateway.worker_spec import EngineSpec, parse_worker
from tests.support.kv_publisher import Publisher, removed, stored
from tests.support.waiting import wait_until


@pytest.fixture
def fleet() -> Fleet:
    settings = GatewaySettings()
    fleet = Fleet(settings)
    for url in ("http://a:1", "http://b:1"):
        fleet.workers[url] = Worker(parse_worker(url), settings)
    return fleet


def test_a_worker_that_begins_more_conversations_is_crowded(fleet: Fleet) -> None:
    one, other = fleet.workers.values()
    for _ in range(8):
        fleet.note_answer(one, 2048, 2048)
    assert fleet.crowding() == {one.url: 0.625, other.url: 0}


def test_a_document_that_is_asked_often_stays_with_its_worker(fleet: Fleet) -> None:
    """The other one would evict less, but would compute all of it."""
    one, other = fleet.workers.values()
    fleet.cached_tokens = 200_000
    document, question = 8000, 128
    for number in range(500):
        fleet.note_answer(one, question if number else document + question, document + question)
    crowding = fleet.crowding()
    ranked = rank(
        "longest-prefix",
        [
            Candidate(one.url, document, 0, 0, crowding=crowding[one.url]),
            Candidate(other.url, 0, 0, 0, crowding=crowding[other.url]),
        ],
        prompt_tokens=document + question,
        conversation_reuse=fleet.conversations.reused_tokens,
    )
    assert ranked[0].url == one.url


def test_a_late_gateway_learns_from_answers_what_a_worker_had() -> None:
    """The engine stores no block twice: without replays, the gateway never found the first ones."""
    with Publisher(has_replay=False) as publisher:
        line = f"http://127.0.0.1:1,events={publisher.events},engine=vllm@0.32.0"
        settings = GatewaySettings(worker_list=(line,))
        fleet = Fleet(settings)
        spec = parse_worker(line)
        worker = fleet.workers[spec.url] = Worker(spec, settings)
        with Index([EventSource(spec.url, publisher.events)]) as fleet.index:

            def matched() -> int:
                return fleet.index.match([1, 2, 3], 16)[spec.url].tokens

            def is_subscribed() -> bool:
                # The publisher drops batches until it has read the subscription.
                publisher.publish(stored(3))
                return fleet.index.stats().workers[spec.url].batches > 0

            wait_until(is_subscribed)
            assert matched() == 0
            fleet.note_stored(worker, worker.expected.add([1, 2, 3]))
            wait_until(lambda: matched() == 48)
            assert worker.names.verdict == "right"
            publisher.publish(removed(2))
            wait_until(lambda: matched() == 16)


def test_a_file_without_workers_leaves_those_that_are_known(tmp_path: Path) -> None:
    file = tmp_path / "workers"
    old = ["http://127.0.0.1:1", "http://127.0.0.1:2"]
    fleet = Fleet(GatewaySettings(worker_file=write(file, *old), health_interval_s=3600))

    async def refresh(*workers: str) -> list[str]:
        write(file, *workers)
        await fleet._refresh()
        return list(fleet.workers)

    async def run() -> None:
        await fleet.open()
        assert list(fleet.workers) == old
        assert await refresh() == old
        new = [old[1], "http://127.0.0.1:3"]
        assert await refresh(*new) == new
        await fleet.close()

    asyncio.run(run())


def write(file: Path, *workers: str) -> Path:
    file.write_text("".join(f"{one}\n" for one in workers))
    return file


def test_a_worker_whose_events_begin_again_has_lost_what_it_was_sent() -> None:
    """The worker may have restarted between two probes."""
    blocks = UnnamedBlocks([b"1"], 32)
    with Publisher() as publisher:
        line = f"http://127.0.0.1:1,events={publisher.events},replay={publisher.replay},engine=vllm@0.32.0"
        settings = GatewaySettings(worker_list=(line,))
        fleet = Fleet(settings)
        spec = parse_worker(line)
        worker = fleet.workers[spec.url] = Worker(spec, settings)
        with Index([EventSource(spec.url, publisher.events, publisher.replay)]) as fleet.index:

            def stats() -> WorkerStats:
                return fleet.index.stats().workers[spec.url]

            def begin_again() -> bool:
                publisher.number = 0  # again and again, because the first ones may be missed
                publisher.publish(stored(1))
                return stats().restarts > 0

            publisher.publish(stored(1))
            wait_until(lambda: stats().batches == 1)
            fleet._read_events()
            worker.sent.add(blocks, 1000)
            fleet._read_events()
            assert worker.sent.count_tokens(blocks) == 32
            wait_until(begin_again)
            fleet._read_events()
            assert worker.sent.count_tokens(blocks) == 0
            worker.sent.add(blocks, 1000)
            publisher.close()
            wait_until(lambda: stats().disconnects == 1)
            fleet._read_events()
            assert worker.sent.count_tokens(blocks) == 0


def test_an_ejected_worker_does_not_say_where_an_adapter_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead one that had loaded it from another path kept its requests from being planned."""
    monkeypatch.setattr("mmhash_service.gateway.worker.EJECT_AFTER", 1)
    settings, engine = GatewaySettings(), EngineSpec("vllm@0.32.0")
    fleet, old, new = Fleet(settings), Adapter("tiny", "/old"), Adapter("tiny", "/new")
    for url, adapter in (("http://a:1", old), ("http://b:1", new), ("http://c:1", None)):
        worker = Worker(parse_worker(f"{url},engine=vllm@0.32.0"), settings)
        worker.models = {"tiny": None} if adapter is None else {"tiny": None, "lora": adapter}
        worker.readmit()
        fleet.workers[url] = worker
    assert fleet.adapters("lora", engine) == {old, new}
    fleet.workers["http://a:1"].fail()
    assert fleet.adapters("lora", engine) == {new}
    fleet.workers["http://b:1"].fail()
    assert fleet.adapters("lora", engine) == {old, new}


@pytest.mark.parametrize("probe", ["is answered with 503", "is refused", "is not answered"])
def test_only_a_worker_that_hangs_loses_its_requests(
    probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that shuts down finishes its requests: another worker must not repeat them."""
    monkeypatch.setattr("mmhash_service.gateway.worker.EJECT_AFTER", 1)

    async def run() -> None:
        may_answer = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            is_probe = b"/health " in await reader.readuntil(b"\r\n\r\n")
            if not is_probe or probe == "is not answered":
                await may_answer.wait()
            status = b"503 Service Unavailable" if is_probe else b"200 OK"
            writer.write(b"HTTP/1.1 %b\r\ncontent-length: 0\r\n\r\n" % status)
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = GatewaySettings(worker_list=(url,), health_timeout_s=2)
        fleet, worker = Fleet(settings), Worker(parse_worker(url), settings)
        worker.readmit()
        request = asyncio.create_task(worker.probe(b"/request", 60))
        async with asyncio.timeout(60):
            while not worker._unanswered:  # noqa: ASYNC110  (it has no event)
                await asyncio.sleep(0.01)
        if probe == "is refused":
            server.close()
        await fleet._check(worker)
        assert not worker.is_healthy
        may_answer.set()
        if probe == "is not answered":
            with pytest.raises(BrokenError, match="ejected"):
                await request
        else:
            assert await request == (200, b"")
        server.close()

    asyncio.run(run())


def test_a_probe_that_fails_in_an_unknown_way_is_logged_and_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The task ended, silently: the worker stayed as it was for ever."""
    probes = 0

    async def probe(*_: object) -> None:
        nonlocal probes
        probes += 1
        raise KeyError("unknown")

    async def run() -> None:
        fleet = Fleet(GatewaySettings(health_interval_s=0.001))
        worker = Worker(parse_worker("http://a:1"), fleet._settings)
        fleet.workers[worker.url] = worker
        fleet._start_checks([worker])
        await asyncio.to_thread(wait_until, lambda: probes > 1)
        for task in fleet._checks:
            task.cancel()

    monkeypatch.setattr(Worker, "probe", probe)
    asyncio.run(run())
    assert "worker http://a:1: probe failed" in caplog.text
    assert "KeyError: 'unknown'" in caplog.text


def chosen(model: str, *workers: tuple[str, bool]) -> list[int]:
    """Return the numbers of the workers that may get a request; each has its models and health."""
    made = []
    for number, (models, is_healthy) in enumerate(workers):
        worker = Worker(parse_worker(f"http://{number}:1"), GatewaySettings())
        worker.models, worker.is_healthy = dict.fromkeys(models), is_healthy
        made.append(worker)
    return [made.index(worker) for worker in workers_for(model, made)]


UP, DOWN = True, False


@pytest.mark.parametrize(
    ("model", "workers", "expected"),
    [
        ("a", [("a", UP), ("x", UP)], [0]),
        ("a", [("a", UP), ("x", UP), ("", UP)], [0, 2]),
        ("a", [("a", DOWN), ("x", UP)], [0]),  # 503 rather than a model that is not asked for
        ("a", [("a", DOWN), ("x", UP), ("", DOWN)], [0, 2]),
        ("l", [("al", UP), ("a", UP)], [0]),
        ("l", [("al", DOWN), ("a", UP), ("x", UP)], [0, 1]),  # it may load the adapter
        ("", [("a", UP), ("x", UP), ("", UP)], [0, 1, 2]),
        ("other", [("a", UP), ("x", UP), ("", UP)], [0, 1, 2]),
    ],
)
def test_a_request_goes_to_workers_that_have_its_model(
    model: str, workers: list[Any], expected: list[int]
) -> None:
    assert chosen(model, *workers) == expected
