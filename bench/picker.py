"""An Envoy with `mmhash picker`, next to `mmhash gateway`: CPU, requests/s, time added.

Two upstreams of this machine answer at once. The bodies of a load differ, and each is a prompt that
is planned: a text, and texts with an image. Both ways take turns within one run. All processes and
the load share the cores, so requests/s are those of the whole machine.
"""

import base64
import contextlib
import io
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from bench.support.load import load
from bench.support.measure import keep
from bench.support.servers import Server, free_port, run_module
from tests.support.envoy import Configuration, envoy_process
from tests.support.prompt_models import write_qwen2_vl

PATH = "/v1/chat/completions"

VARIANTS = 24
"""The different bodies of a load."""

CONNECTIONS = 8
SECONDS = 4.0
ROUNDS = 3


class Row(NamedTuple):
    """A way to forward requests of one size."""

    body: str
    way: str
    requests_s: float
    own_ms: float
    """CPU of mmhash for a request."""
    envoy_ms: float
    added_p50_ms: float
    added_p99_ms: float


def bodies(side: int) -> list[bytes]:
    """Return chats of equal length, each with an image of so many pixels a side; 0 is none."""
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


BODIES = {"text": bodies(0), "149 kB": bodies(192), "366 kB": bodies(302), "2 MB": bodies(708)}


class Way(NamedTuple):
    """A port, the process of mmhash behind it, and perhaps Envoy's."""

    port: int
    own: Server | None
    envoy: int = 0


@contextlib.contextmanager
def ways(folder: Path) -> Iterator[dict[str, Way]]:
    """Run the upstreams, and both ways to them."""
    model = write_qwen2_vl(folder / "tiny")
    with ExitStack() as stack:
        upstreams = [
            stack.enter_context(run_module("bench.support.proxies", "answers", "0"))
            for _ in range(2)
        ]
        urls = [f"http://127.0.0.1:{one.port}" for one in upstreams]
        common = ["--set", f'models={{"tiny": "{model}"}}', "--set", "decoders=1"]
        for url in urls:
            common += ["--worker", f"{url},engine=vllm@0.32.0"]
        gateway = run_module("mmhash", "gateway", "--port", "0", *common)
        gateway_server = stack.enter_context(gateway)
        found = {
            "straight": Way(upstreams[0].port, None),
            "mmhash gateway": Way(gateway_server.port, gateway_server),
        }
        for mode in ("BUFFERED", "FULL_DUPLEX_STREAMED"):
            port = free_port()
            picker = stack.enter_context(
                run_module("mmhash", "picker", "--port", str(port), *common)
            )
            endpoints = [url.removeprefix("http://") for url in urls]
            configuration = Configuration(endpoints, f"127.0.0.1:{port}")
            configuration.body_mode(mode)
            configuration.ext_proc["failure_mode_allow"] = False
            process, _ = stack.enter_context(envoy_process(configuration, folder))
            found[f"Envoy, picker, {mode}"] = Way(configuration.port, picker, process.pid)
        yield found


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU of a process and of its children that run."""
    total = 0.0
    for task in Path(f"/proc/{pid}/task").iterdir():
        children = (task / "children").read_text().split()
        total += sum(cpu_s(int(child)) for child in children)
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return total + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(folder: Path) -> Iterator[Row]:
    """Yield a row for each body and way: medians of the rounds, in which the ways take turns."""
    with ways(folder) as found:
        for body, texts in BODIES.items():
            file = folder / "bodies"
            file.write_bytes(b"".join(texts))
            options: Any = {"bodies": str(file), "media_type": "application/json"}
            size = len(texts[0])
            rounds: dict[str, list[list[float]]] = {name: [] for name in found}
            for way in found.values():  # the first requests connect
                load(way.port, PATH, size, 2, 1.0, **options)
            for _ in range(ROUNDS):
                for name, way in found.items():
                    pids = [way.own.process.pid if way.own else 0, way.envoy]
                    before = [cpu_s(pid) if pid else 0.0 for pid in pids]
                    done = load(way.port, PATH, size, CONNECTIONS, SECONDS, **options)
                    after = [cpu_s(pid) if pid else 0.0 for pid in pids]
                    alone = load(way.port, PATH, size, 1, SECONDS / 2, **options)
                    each = [
                        1e3 * (b - a) / done["requests"] for a, b in zip(before, after, strict=True)
                    ]
                    rate = done["requests"] / done["seconds"]
                    rounds[name].append([rate, *each, 1e3 * alone["p50"], 1e3 * alone["p99"]])
            medians = {name: np.median(values, axis=0) for name, values in rounds.items()}
            straight = medians.pop("straight")
            for name, (rate, own, envoy, p50, p99) in medians.items():
                added = (p50 - straight[3], p99 - straight[4])
                yield Row(body, name, *(round(float(one), 2) for one in (rate, own, envoy, *added)))


if __name__ == "__main__":
    print(
        platform.machine(),
        os.cpu_count(),
        "cores; bodies of",
        {k: len(v[0]) for k, v in BODIES.items()},
    )
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for row in measure(Path(name)):
            rows.append(row)
            print(*row, sep="\t", flush=True)
    keep("picker", rows)
