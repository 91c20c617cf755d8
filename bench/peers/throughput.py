"""`python -m bench.peers.throughput [--cores 2]`: requests a second and CPU of each router.

The upstreams answer at once. mmhash plans each body: a text, or a text with an image. Each router
has the first cores for itself, and as many processes or threads as cores. The load and the
upstreams use the other cores, if there are any.
"""

import argparse
import base64
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from bench.peers.routers import envoy, envoy_settings, program, running, smg
from bench.peers.workers import Target
from bench.support.load import load
from bench.support.measure import RESULTS, keep, read
from bench.support.servers import free_port, run_module
from tests.support.envoy import Configuration
from tests.support.prompt_models import write_qwen2_vl

PATH = "/v1/chat/completions"
VARIANTS = 24
"""The number of different bodies in a load."""

UPSTREAMS = 8
LOADS = 4
CONNECTIONS = 8  # for each load
SECONDS = 1.5

SIDES = {"text": 0, "149 kB": 192, "220 kB": 233, "366 kB": 302, "2 MB": 708}
"""The width and height of the image in each body, in pixels. 0 stands for no image."""


class Row(NamedTuple):
    """One router with bodies of one size."""

    cores: int
    body: str
    router: str
    requests_s: float
    cpu_ms: float
    """The CPU time that a request takes in all processes of the router."""
    picker_cpu_ms: float
    """The CPU time that a request takes in the picker that the router asks."""
    p99_ms: float
    alone_ms: float
    """The median time of a request with one connection."""


def bodies(side: int) -> list[bytes]:
    """Return chats of equal length, each with a square image unless its side is 0."""
    chance = np.random.default_rng(0)
    texts = []
    for number in range(VARIANTS):
        parts: list[Any] = [{"type": "text", "text": f"{number:04d} What is this? " * 60}]
        if side:
            file = io.BytesIO()
            pixels = chance.integers(0, 256, (side, side, 3), np.uint8)
            Image.fromarray(pixels).save(file, "BMP")
            url = "data:image/bmp;base64," + base64.b64encode(file.getvalue()).decode()
            parts.insert(0, {"type": "image_url", "image_url": {"url": url}})
        messages = [{"role": "user", "content": parts}]
        texts.append(json.dumps({"model": "tiny", "messages": messages}).encode())
    assert len({len(text) for text in texts}) == 1
    return texts


class Way(NamedTuple):
    """A running router: its port, its process, and the process of its picker, if it has one."""

    port: int
    pid: int
    picker: int = 0


Start = Callable[[Sequence[Target], Path, int], AbstractContextManager[Way]]
"""Runs a router, given its workers, a folder for its files, and the number of cores."""


def mmhash_words(command: str, workers: Sequence[Target], cores: int) -> list[str]:
    """Return the command of a gateway or a picker."""
    words = [command, "--processes", str(cores), "--set", "decoders=1"]
    for one in workers:
        words += ["--worker", f"{one.url},engine={one.engine}"]
    return [*words, "--set", f"models={json.dumps({'tiny': workers[0].model})}"]


def routed(command: Callable[[Sequence[Target], int, Path, int], list[str]]) -> Start:
    """Return a function that runs a router by its command."""

    @contextmanager
    def start(workers: Sequence[Target], folder: Path, cores: int) -> Iterator[Way]:
        def words(targets: Sequence[Target], port: int, files: Path) -> list[str]:
            return command(targets, port, files, cores)

        with running(words, workers, folder) as router:
            yield Way(urlsplit(router.url).port or 0, router.process.pid)

    return start


def gateway(workers: Sequence[Target], port: int, _folder: Path, cores: int) -> list[str]:
    """Return the command of mmhash's gateway."""
    words = mmhash_words("gateway", workers, cores)
    return [sys.executable, "-m", "mmhash", *words, "--port", str(port)]


def vllm_router(workers: Sequence[Target], port: int, _folder: Path, _cores: int) -> list[str]:
    """Return the command of vllm-router with the policy that needs no KV events."""
    return [
        program("vllm-router==0.1.17", "vllm-router"), "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", *(one.url for one in workers), "--policy", "cache_aware",
        "--worker-startup-check-interval", "1", "--prometheus-port", str(free_port()),
    ]  # fmt: skip


def round_robin(workers: Sequence[Target], port: int, folder: Path, cores: int) -> list[str]:
    """Return the command of an Envoy without a picker."""
    settings = envoy_settings([one.url for one in workers], port, hashes=False)
    return envoy(settings, port, folder, cores)


def picked(mode: str) -> Start:
    """Return a function that runs an Envoy with a picker, which gets bodies in this mode."""

    @contextmanager
    def start(workers: Sequence[Target], folder: Path, cores: int) -> Iterator[Way]:
        asked = free_port()
        configuration = Configuration(
            [one.url.removeprefix("http://") for one in workers], f"127.0.0.1:{asked}"
        )
        configuration.body_mode(mode)
        configuration.ext_proc["failure_mode_allow"] = False

        def words(_workers: Sequence[Target], port: int, files: Path) -> list[str]:
            configuration.listen(port)
            return envoy(configuration.document, port, files, cores)

        command = mmhash_words("picker", workers, cores)
        with (
            run_module("mmhash", *command, "--port", str(asked)) as picker,
            running(words, workers, folder) as router,
        ):
            yield Way(urlsplit(router.url).port or 0, router.process.pid, picker.process.pid)

    return start


ROUTERS: dict[str, Start] = {
    "mmhash gateway": routed(gateway),
    "Envoy, picker, BUFFERED": picked("BUFFERED"),
    "Envoy, picker, FULL_DUPLEX_STREAMED": picked("FULL_DUPLEX_STREAMED"),
    "smg 1.13.0": routed(lambda workers, port, folder, _: smg(workers, port, folder)),
    "vllm-router 0.1.17": routed(vllm_router),
    "Envoy, round robin": routed(round_robin),
}


def cpu_s(pid: int) -> float:
    """Return the CPU seconds used by a process and by its running children."""
    total = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        children = (task / "children").read_text().split()
        total += sum(cpu_s(int(child)) for child in children)
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return total + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(way: Way, texts: list[bytes], folder: Path) -> list[float]:
    """Return requests a second, CPU time per request in router and picker, and latencies."""
    file = folder / "bodies"
    file.write_bytes(b"".join(texts))

    def send(connections: int, seconds: float) -> dict[str, Any]:
        options: Any = {"bodies": str(file), "media_type": "application/json"}
        return load(way.port, PATH, len(texts[0]), connections, seconds, **options)

    # Let every process of the router connect to the workers, and plan its first prompts.
    send(LOADS * CONNECTIONS, 0.3)
    pids = [pid for pid in (way.pid, way.picker) if pid]
    before = [cpu_s(pid) for pid in pids]
    with ThreadPoolExecutor(LOADS) as threads:
        done = list(threads.map(lambda _: send(CONNECTIONS, SECONDS), range(LOADS)))
    used = [cpu_s(pid) - earlier for pid, earlier in zip(pids, before, strict=True)]
    requests = sum(one["requests"] for one in done)
    rate = sum(one["requests"] / one["seconds"] for one in done)
    alone = send(1, SECONDS / 3)
    times = [max(one["p99"] for one in done), alone["p50"]]
    each = [1e3 * one / requests for one in (*used, 0.0)][:2]
    return [rate, *each, *(1e3 * one for one in times)]


def rows(cores: int, wanted: Sequence[str], routers: Sequence[str], folder: Path) -> Iterator[Row]:
    """Yield a row for each router and body."""
    model = str(write_qwen2_vl(folder / "tiny"))
    have = sorted(os.sched_getaffinity(0))
    others = set(have[cores:]) or set(have)
    os.sched_setaffinity(0, others)
    with ExitStack() as stack:
        upstreams = [
            stack.enter_context(run_module("bench.support.proxies", "answers", "0"))
            for _ in range(min(UPSTREAMS, len(others)))
        ]
        urls = [f"http://127.0.0.1:{one.port}" for one in upstreams]
        workers = [Target(url, "", "", "vllm@0.32.0", 32, model) for url in urls]
        for name in routers:
            start = ROUTERS[name]
            os.sched_setaffinity(0, have[:cores])
            with start(workers, folder, cores) as way:
                os.sched_setaffinity(0, others)
                for body in wanted:
                    figures = measure(way, bodies(SIDES[body]), folder)
                    yield Row(cores, body, name, *(round(one, 2) for one in figures))


def main() -> None:
    """Measure the routers, and keep the rows of the file that are not measured again."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers.throughput", description=__doc__)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--body", action="append", help="default: all")
    parser.add_argument("--router", action="append", help="first words of its name; default: all")
    given = parser.parse_args()
    wanted = tuple(given.router or ("",))
    routers = [name for name in ROUTERS if name.startswith(wanted)]
    kept = {one[:3]: one for one in read(RESULTS / "throughput.csv", Row)}
    with tempfile.TemporaryDirectory() as folder:
        for row in rows(given.cores, given.body or list(SIDES), routers, Path(folder)):
            print(*row, sep="\t", flush=True)
            kept[row[:3]] = row
            keep("throughput", list(kept.values()))


if __name__ == "__main__":
    main()
