"""Starts engine servers by their own commands, on free ports, and collects their KV events."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeVar

import httpx
import zmq

from mmhash.kvindex import BlocksStored, parse_batch
from tests.live.environments import Environment
from tests.live.fork_server import Program
from tests.support.ports import free_port

Test = TypeVar("Test", bound=Callable[..., None])

START_S = 900  # on a machine whose cores are busy
BLOCK_SIZE = {"vllm": 32, "sglang": 16}

_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Run the worker in the scheduler's process. Starting takes much less CPU, and the two do not
    # wait for each other in a busy loop.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # By default all servers of a machine bind to the same core. With two servers in busy loops,
    # requests would wait for seconds.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "SGLANG_USE_CPU_ENGINE": "1",
    # Otherwise it sleeps for 5 s at each stop, and then looks for processes to dump.
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
    "TRITON_INTERPRET": "1",
}

# The guard runs in the engine's process.
_ROOT = Path(__file__).parents[2]
_PROJECT = {"PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'service'}"}


@dataclass
class Events:
    """The events that one engine has published, collected in a thread."""

    endpoint: str
    stored: list[BlocksStored] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self._thread = Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
            subscriber.setsockopt(zmq.SUBSCRIBE, b"")
            subscriber.setsockopt(zmq.RCVTIMEO, 100)
            subscriber.connect(self.endpoint)
            while not self._is_closed:
                try:
                    *_, payload = subscriber.recv_multipart()
                except zmq.Again:
                    continue
                events = parse_batch(payload).events
                with self._lock:
                    self.stored += [one for one in events if isinstance(one, BlocksStored)]

    def take(self) -> list[BlocksStored]:
        """Return what was stored since the last call."""
        with self._lock:
            stored, self.stored = self.stored, []
        return stored

    def wait(self, blocks: int, seconds: float = 30) -> list[BlocksStored]:
        """Return what was stored, once there are this many blocks or no more are published."""
        until = time.monotonic() + seconds
        while sum(len(one.ids) for one in self.stored) < blocks and time.monotonic() < until:
            time.sleep(0.02)
        return self.take()

    def settle(self, seconds: float = 0.3) -> None:
        """Forget what earlier requests stored, once nothing more is published."""
        time.sleep(seconds)
        while self.take():
            time.sleep(seconds)

    def close(self) -> None:
        """Stop collecting."""
        self._is_closed = True
        self._thread.join()


@dataclass
class Engine:
    """A running engine."""

    environment: Environment
    url: str
    events: Events
    log: Path
    client: httpx.Client
    pid: int = 0
    replay: str = ""
    # How the engine was started, as far as names depend on it.
    name_of_setup: str = ""
    model: str = "qwen2_vl"
    algorithm: str = "sha256"
    seed: str | None = None
    loras: dict[str, str] = field(default_factory=dict)
    guard: str | None = None

    @property
    def name(self) -> str:
        """Return the engine's name without its release."""
        return self.environment.engine

    @property
    def spelling(self) -> str:
        """Return the engine and its release, as in `vllm@0.32.0`."""
        return self.environment.spelling

    @property
    def block_size(self) -> int:
        """Return the number of tokens in a block."""
        return BLOCK_SIZE[self.environment.engine]

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """Send a JSON request."""
        return self.client.post(path, json=body, **options)

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send a chat request that must succeed, and return its answer."""
        answer = self.post("/v1/chat/completions", {"model": "tiny", "max_tokens": 1} | body)
        assert answer.status_code == 200, answer.text[:2000]
        result: dict[str, Any] = answer.json()
        return result


def only(name: str) -> Callable[[Test], Test]:
    """Run a test with this engine only."""

    def mark(test: Test) -> Test:
        test.only = name  # type: ignore[attr-defined]
        return test

    return mark


LIMITS = (
    *("--dtype", "float32", "--max-model-len", "2048"),
    *("--limit-mm-per-prompt", '{"image": 8, "video": 2}'),
)
"""How a render server is started, as the engines are."""


def variables_of() -> dict[str, str]:
    """Return the environment of an engine."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("MMHASH_", "PYTHON"))}
    return own | _VARIABLES


@contextmanager
def running(
    environment: Environment,
    model: str,
    *options: str,
    log: Path,
    variables: dict[str, str] | None = None,
    has_guard: bool = False,
) -> Iterator[Engine]:
    """Run an engine until the block ends."""
    port, events_port, replay_port = free_port(), free_port(), free_port()
    folder = environment.model(model)
    start = {"vllm": _vllm_command, "sglang": _sglang_command}[environment.engine]
    command = [*start(environment, folder, port, (events_port, replay_port)), *options]
    if has_guard and environment.engine == "sglang":
        command[1:3] = [str(Path(__file__).parent / "stand_ins" / "guarded_sglang.py")]
    with log.open("w") as output:
        files = {1: output.fileno(), 2: output.fileno()}
        env = variables_of() | _PROJECT | (variables or {})
        process = Program(command, env=env, files=files)
    url = f"http://127.0.0.1:{port}"
    try:
        # An engine may close a connection after a 500, so each request gets a new connection.
        limits = httpx.Limits(max_keepalive_connections=0)
        with httpx.Client(base_url=url, timeout=120, limits=limits) as client:
            _wait_until_ready(client, process, log)
            events = Events(f"tcp://127.0.0.1:{events_port}")
            try:
                replay = f"tcp://127.0.0.1:{replay_port}"
                engine = Engine(environment, url, events, log, client, process.pid, replay)
                engine.model = model
                yield engine
            finally:
                events.close()
    finally:
        _stop(process)


def _vllm_command(
    environment: Environment, model: Path, port: int, events: tuple[int, int]
) -> list[str]:
    return [
        environment.command("vllm"), "serve", str(model),
        "--load-format", "dummy", "--dtype", "float32", "--max-model-len", "2048",
        "--block-size", str(BLOCK_SIZE["vllm"]), "--enforce-eager",
        "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny",
        "--limit-mm-per-prompt", '{"image": 8, "video": 2}', "--enable-prompt-tokens-details",
        "--kv-events-config",
        json.dumps({"enable_kv_cache_events": True, **_publisher(events)}),
    ]  # fmt: skip


def _sglang_command(
    environment: Environment, model: Path, port: int, events: tuple[int, int]
) -> list[str]:
    return [
        environment.command("python"), "-m", "sglang.launch_server",
        "--model-path", str(model), "--dtype", "float32", "--device", "cpu",
        "--attention-backend", "torch_native", "--sampling-backend", "pytorch",
        "--grammar-backend", "none", "--disable-overlap-schedule", "--disable-cuda-graph",
        "--page-size", str(BLOCK_SIZE["sglang"]), "--context-length", "2048",
        "--max-total-tokens", "16384", "--max-running-requests", "8",
        "--mem-fraction-static", "0.3", "--enable-cache-report", "--sleep-on-idle",
        "--skip-server-warmup", "--host", "127.0.0.1", "--port", str(port),
        "--served-model-name", "tiny",
        "--kv-events-config",
        json.dumps(_publisher(events)),
    ]  # fmt: skip


def _publisher(ports: tuple[int, int]) -> dict[str, str]:
    endpoint, replay = (f"tcp://*:{port}" for port in ports)
    return {"publisher": "zmq", "topic": "kv", "endpoint": endpoint, "replay_endpoint": replay}


def _wait_until_ready(client: httpx.Client, process: Program, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            if client.get("/v1/models").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise RuntimeError(f"the engine did not start: {log.read_text()[-4000:]}")


def _stop(process: "Program | subprocess.Popen[bytes]") -> None:
    """End the engine and its workers, and wait until they are gone."""
    for number in (15, 9):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
