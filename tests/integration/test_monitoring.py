"""The dashboard's queries and the alerts, evaluated by a real Prometheus that scrapes running servers.

Ranges and waiting times are shortened for the test: minutes to seconds. All are several scrapes
long, as in production: one scrape that times out on a busy machine neither fires nor ends an alert.
"""

import json
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from select import select
from threading import Event
from typing import Any

import httpx
import pytest
import yaml
from PIL import Image

from tests.live import models
from tests.support.gateway import EngineProcess, engines, gateway_before
from tests.support.kv_publisher import Publisher
from tests.support.origin import Origin
from tests.support.patience import PATIENT_COMMAND
from tests.support.ports import free_port
from tests.support.prometheus import NEEDED, TOOL, Prometheus, running_prometheus
from tests.support.redis import RedisServer, running_redis
from tests.support.service import Service, environment
from tests.support.service import count as metric
from tests.support.waiting import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = json.loads((DEPLOY / "grafana" / "mmhash.json").read_text())
ALERTS = [
    rule["alert"]
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]

MAX_HELD = 8 << 20
# A fault lasts until its alert fires.
PATIENCE_S = 300
OCTETS = {"content-type": "application/octet-stream"}


def quick_rules() -> str:
    """The rules with 20 s for 5 minutes, a minute for 15 and for an hour, and a wait of 7 s."""
    text = re.sub(r"for: \d+m", "for: 7s", RULES.read_text())
    text = text.replace("[5m]", "[20s]").replace("[15m]", "[60s]")
    return text.replace("[1h]", "[60s]")


class Stack:
    """A service and a gateway with what they need, under load."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder = folder
        self.settings_file = folder / "settings.toml"
        self.model = folder / "tiny"
        self.model.mkdir()
        models.write("qwen2_vl", self.model)
        self.origin = Origin()
        stack.callback(self.origin.close)
        self.serve_images()
        self.redis: RedisServer = stack.enter_context(running_redis(folder))
        self.write_settings()
        self.port = free_port()
        self.service = self._start_service()
        stack.callback(lambda: self.service.kill())  # noqa: PLW0108  (a later one, after a restart)
        self.engines: list[EngineProcess] = stack.enter_context(engines(2))
        self.gateway_port = free_port()
        specs = []
        for engine in self.engines:
            its = stack.enter_context(Publisher())
            specs.append(
                f"{engine.url},events={its.events},replay={its.replay},engine=vllm@0.32.0,block_size=16"
            )
        own = {"models": {"tiny": str(self.model)}, "metrics_port": self.gateway_port}
        self.gateway: Service = stack.enter_context(gateway_before(specs, settings=own))

    def write_settings(self, more: str = "") -> None:
        """Write the settings file of the service."""
        port = self.origin.port
        self.settings_file.write_text(
            f'{more}\nurl_hosts = ["127.0.0.1:{port}"]\nurl_networks = ["127.0.0.0/8"]\n'
            f'memo_url = "{self.redis.url}"\nengine_fallback = "nearest-older"\n'
            f"work_timeout_s = 8.0\nmax_held_bytes = {MAX_HELD}\n"
            f'[models]\ntiny = "{self.model}"\n'
        )

    def _start_service(self) -> Service:
        service = Service(
            "--processes", "2", "--config", str(self.settings_file),
            settings={"metrics_port": self.port}, env=environment(), program=PATIENT_COMMAND,
        )  # fmt: skip
        service.wait_until_listening()
        return service

    def restart_service(self) -> None:
        """Start the service again at the same metrics port."""
        self.service = self._start_service()

    def serve_images(self) -> None:
        """Answer each path of the origin with an image."""
        self.origin.answers = _Always(Origin.ok(picture(-1), 'ETag: "1"'))

    @contextmanager
    def load(self) -> Iterator[None]:
        """Send requests of every kind to both until the end."""
        is_over = Event()
        with ThreadPoolExecutor(3) as threads:
            running = [
                threads.submit(self._ask, is_over, part)
                for part in (self.ask_service, self.ask_gateway)
            ]
            try:
                yield
            finally:
                is_over.set()
            for each in running:
                each.result()

    def _ask(self, is_over: Event, part: Callable[[int], None]) -> None:
        for number in count():
            if is_over.is_set():
                return
            with suppress(httpx.TransportError):  # during a fault
                part(number)
            time.sleep(0.02)

    def ask_service(self, number: int) -> None:
        """One request of each kind."""
        with self.service.new_client() as client:
            client.post("/hash", content=b"abc" * number, headers=OCTETS)
            image = picture(number // 2)
            client.post("/hash?of=pixels", content=image, headers={"content-type": "image/png"})
            url = f"http://127.0.0.1:{self.origin.port}/{number}"
            client.post("/hash", json={"items": [{"kind": "image", "url": url}]})
            client.post("/hash", json={"items": [{}]})
            chat = {"messages": [{"role": "user", "content": "hi"}]}
            client.post("/plan", params={"model": "tiny", "engine": "vllm"}, json=chat)

    def ask_gateway(self, number: int) -> None:
        """A chat, and the same again."""
        text = f"prompt {number // 2} " * 40
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}]}
        with self.gateway.new_client() as client:
            client.post("/v1/chat/completions", json=body)


class _Always(dict[str, Any]):
    """The same answer for every path."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    def __missing__(self, path: str) -> Any:
        return self._answer


def picture(number: int) -> bytes:
    file = BytesIO()
    Image.new("RGB", (64, 64), (number % 256, number // 256 % 256, 7)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Stack, Prometheus]]:
    if TOOL is None:
        pytest.skip(NEEDED)
    with ExitStack() as stack:
        parts = Stack(stack, tmp_path)
        targets = {
            "mmhash": f"127.0.0.1:{parts.port}",
            "mmhash-gateway": f"127.0.0.1:{parts.gateway_port}",
        }
        folder = tmp_path / "prometheus"
        folder.mkdir()
        server = stack.enter_context(running_prometheus(folder, targets, quick_rules()))
        stack.enter_context(parts.load())
        yield parts, server


wait_patiently = partial(wait_until, seconds=PATIENCE_S, pause_s=0.25)


def expressions() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        for target in panel["targets"]:
            text = target["expr"].replace("$__rate_interval", "20s")
            yield panel["title"], text.replace("$job", "mmhash.*").replace("$instance", ".*")


def have_data(server: Prometheus) -> set[str]:
    """Return the queries without a number."""
    missing = set()
    for title, text in expressions():
        values = [float(each["value"][1]) for each in server.query(text)]
        if all(map(math.isnan, values)):
            missing.add(f"{title}: {text}")
    return missing


def slow_origin(stack: Stack) -> Callable[[], None]:
    """Have the origin answer after four seconds."""

    def answer(connection: Any) -> None:
        time.sleep(4)
        connection.sendall(Origin.ok(picture(-1)))

    stack.origin.answers = _Always(answer)
    return stack.serve_images


def broken_origin(stack: Stack) -> Callable[[], None]:
    """Have the origin fail."""
    stack.origin.answers = _Always(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
    return stack.serve_images


def repeat(
    work: Callable[[Event], None], pause_s: float = 0.1, threads: int = 1
) -> Callable[[], None]:
    """Do work again and again in threads; return a function that ends it."""
    is_over = Event()

    def again() -> None:
        while not is_over.wait(pause_s):
            work(is_over)

    pool = ThreadPoolExecutor(threads)
    for _ in range(threads):
        pool.submit(again)

    def end() -> None:
        is_over.set()
        pool.shutdown()

    return end


def stop_decoders(stack: Stack) -> Callable[[], None]:
    """Suspend all decoders of the service, and those that replace them."""
    stopped: set[int] = set()

    def stop(_: Event) -> None:
        for worker in stack.service.workers:
            with suppress(FileNotFoundError, ProcessLookupError):  # replaced meanwhile
                children = Path(f"/proc/{worker}/task/{worker}/children").read_text()
                for pid in map(int, children.split()):
                    os.kill(pid, signal.SIGSTOP)
                    stopped.add(pid)

    stop_again = repeat(stop)

    def end() -> None:
        stop_again()
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return end


def hold_bodies(stack: Stack) -> Callable[[], None]:
    """Send all but the end of long images: each worker holds one, and refuses the others."""
    length = 9 * MAX_HELD // 10
    head = (
        "POST /hash?of=pixels HTTP/1.1\r\nHost: test\r\nContent-Type: image/png\r\n"
        f"Content-Length: {length + 500_000}\r\n\r\n"
    )

    def hold(is_over: Event) -> None:
        with suppress(OSError), stack.service.connect() as connection:
            connection.sendall(head.encode() + bytes(length))
            # The rest, too slowly to end and too fast to stall, unless the body is refused.
            while not is_over.is_set() and not select([connection], [], [], 0.25)[0]:
                connection.sendall(bytes(200))

    return repeat(hold, threads=6)


def stop_redis(stack: Stack) -> Callable[[], None]:
    stack.redis.kill()
    return stack.redis.start


def break_settings(stack: Stack) -> Callable[[], None]:
    stack.write_settings("max_items = ")
    stack.service.process.send_signal(signal.SIGHUP)
    return stack.write_settings


def break_model(stack: Stack) -> Callable[[], None]:
    path = stack.model / "tokenizer.json"
    text = path.read_text()
    path.write_text("{")
    stack.service.process.send_signal(signal.SIGHUP)

    def mend() -> None:
        path.write_text(text)

    return mend


def kill_workers(stack: Stack) -> Callable[[], None]:
    def restarts() -> float:
        with suppress(httpx.TransportError), stack.service.new_client() as client:
            return metric(client, "mmhash_worker_restarts_total")
        return 0  # it asked the worker that was killed

    # Two at a time: on a busy machine, one after the other takes longer than the rule looks back.
    for number in (2, 4):
        for worker in stack.service.workers:
            os.kill(worker, signal.SIGKILL)
        # Each worker counts its own start.
        wait_patiently(lambda number=number: restarts() >= number, "the workers are started again")
    return lambda: None


def unknown_release(stack: Stack) -> Callable[[], None]:
    def ask(_: Event) -> None:
        with stack.service.new_client() as client:
            client.post("/hash?engines=vllm@99.0.0", content=b"abc", headers=OCTETS)

    return repeat(ask, 0.2)


def kill_engine(stack: Stack) -> Callable[[], None]:
    stack.engines[0].kill()
    return stack.engines[0].start


def serve_different_models(stack: Stack) -> Callable[[], None]:
    def restart(*lists: tuple[str, ...]) -> None:
        for engine, listed in zip(stack.engines, lists, strict=True):
            engine.kill()
            engine.models = listed
            engine.start()

    restart(("tiny",), ("other",))
    return partial(restart, (), ())


def broken_responses(stack: Stack) -> Callable[[], None]:
    """Have an engine exit in the middle of its response, again and again."""

    def ask(_: Event) -> None:
        body = {"stream": True, "mode": "die-in-stream", "messages": []}
        with suppress(httpx.HTTPError), stack.gateway.new_client() as client:
            client.post("/v1/chat/completions", json=body)
        for engine in stack.engines:
            if engine.process is not None and engine.process.poll() is not None:
                engine.start()

    return repeat(ask)


def stop_service(stack: Stack) -> Callable[[], None]:
    stack.service.kill()

    def restart() -> None:
        stack.service.log.join()  # its workers have left the port
        stack.restart_service()

    return restart


FAULTS: dict[str, Callable[[Stack], Callable[[], None]]] = {
    "MmhashFailing": stop_decoders,
    "MmhashSlow": slow_origin,
    "MmhashNearlyFull": hold_bodies,
    "MmhashBusy": hold_bodies,
    "MmhashMemoStoreFailing": stop_redis,
    "MmhashFetchesFailing": broken_origin,
    "MmhashReloadFailed": break_settings,
    "MmhashModelFailed": break_model,
    "MmhashWorkersRestarting": kill_workers,
    "MmhashEngineFallback": unknown_release,
    "MmhashGatewayWorkerUnhealthy": kill_engine,
    "MmhashGatewayModelMismatch": serve_different_models,
    "MmhashGatewayBrokenResponses": broken_responses,
    "MmhashDown": stop_service,
}


def test_the_rules_and_the_configuration_are_valid(tmp_path: Path) -> None:
    if TOOL is None:
        pytest.skip(NEEDED)
    config = DEPLOY / "prometheus" / "prometheus.yml"
    for check, path in (("rules", RULES), ("config", config)):
        done = subprocess.run(
            [TOOL, "check", check, str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_fault_and_an_action() -> None:
    assert sorted(FAULTS) == sorted(ALERTS)
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"].keys() == {"summary", "action"}
            assert rule["labels"]["severity"] in {"critical", "warning", "info"}


def test_the_dashboard_has_unique_panels_that_do_not_overlap() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        own = {
            (place["x"] + column, place["y"] + line)
            for column in range(place["w"])
            for line in range(place["h"])
        }
        assert not own & cells
        assert place["x"] + place["w"] <= 24
        cells |= own


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_panel_has_data_under_load(running: tuple[Stack, Prometheus]) -> None:
    stack, server = running
    ends = [unknown_release(stack), stop_redis(stack), broken_responses(stack)]
    try:
        wait_patiently(lambda: not have_data(server), "every panel has data")
    finally:
        for end in ends:
            end()
    wait_patiently(lambda: not have_data(server), "every panel has data after the faults")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_alert_fires_once_when_its_fault_is_injected(
    running: tuple[Stack, Prometheus],
) -> None:
    stack, server = running
    wait_patiently(lambda: len(server.query("up == 1")) == 2, "both are scraped")
    wait_patiently(lambda: not server.firing(), "nothing fires before the faults")
    others: dict[str, set[str]] = {}
    episodes: dict[str, int] = {}
    for name, fault in FAULTS.items():
        assert name not in server.firing()
        seen: set[str] = set()
        begin = time.time()

        def fires(name: str = name, seen: set[str] = seen) -> bool:
            seen |= server.firing()
            return name in seen

        end = fault(stack)
        try:
            wait_patiently(fires, f"{name} fires; those that do: {server.firing()}")
        finally:
            end()

        def nothing_fires(seen: set[str] = seen) -> bool:
            firing = server.firing()
            seen |= firing
            return not firing

        wait_patiently(nothing_fires, "all alerts end with the fault")
        episodes[name] = server.episodes(name, begin)
        others[name] = seen - {name}
        print(f"{name} fired; others: {sorted(others[name])}", flush=True)
    assert episodes == dict.fromkeys(ALERTS, 1)
