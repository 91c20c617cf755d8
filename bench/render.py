"""Measures the CPU time of a rendered prompt, next to vLLM's own render server.

Both servers answer the same chats with `mm_payload: "none"`. A chat has 500 new tokens of text, and
JPEGs of 1280 by 720 pixels. The model is that of bench/plan.py, with Qwen2-VL's own pixel limits.
The figures are CPU seconds of the whole server, which gets one request at a time. A known request
has been rendered before, with its text and its images.
"""

import base64
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.memo import another
from bench.plan import chats, texts_of, write_model
from bench.support.measure import Row, report
from bench.support.servers import Server, run_module
from tests.live.engines import variables_of
from tests.live.environments import Environment
from tests.support.ports import free_port

VLLM = Environment("vllm", "0.32.0")
CASES = {"text": 0, "one 720p image": 1, "four 720p images": 4}
REQUESTS = {"mmhash": 100, "vllm": 10}
LENGTH = "max_position_embeddings"

Servers = dict[str, tuple[Server, httpx.Client]]


@contextmanager
def vllm_server(folder: Path) -> Iterator[Server]:
    """Run vLLM's render server."""
    port = free_port()
    command = [
        *(VLLM.command("vllm"), "launch", "render", str(folder), "--port", str(port)),
        *("--host", "127.0.0.1", "--served-model-name", "m", "--dtype", "float32"),
        *("--limit-mm-per-prompt", '{"image": 8}'),
    ]
    with (
        (folder / "render.log").open("w") as log,
        subprocess.Popen(command, env=variables_of(), stdout=log, stderr=log, text=True) as process,
    ):
        try:
            while process.poll() is None:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/health")
                    break
                except httpx.TransportError:
                    time.sleep(0.5)
            yield Server(process, port)
        finally:
            process.terminate()


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """Run both servers."""
    models = f'{{"m": "{folder}"}}'
    with (
        run_module("mmhash", "serve", "--port", "0", MMHASH_MODELS=models) as ours,
        vllm_server(folder) as theirs,
    ):
        named = {"mmhash": ours, "vllm": theirs}
        yield {
            name: (one, httpx.Client(base_url=f"http://127.0.0.1:{one.port}", timeout=300))
            for name, one in named.items()
        }


def images(amount: int) -> list[str]:
    """Return new JPEGs as data: URLs."""
    files = [another() for _ in range(amount)]
    return [f"data:image/jpeg;base64,{base64.b64encode(one).decode()}" for one in files]


def cpu_of(server: Server, client: httpx.Client, bodies: list[bytes]) -> float:
    """Return the CPU seconds that a request takes."""
    start = server.cpu_s()
    for body in bodies:
        text = body.replace(b"{", b'{"mm_payload": "none", ', 1)
        headers = {"content-type": "application/json"}
        answer = client.post("/v1/chat/completions/render", content=text, headers=headers)
        answer.raise_for_status()
    return (server.cpu_s() - start) / len(bodies)


def rows() -> list[Row]:
    """Measure each case with new and with known images."""
    made: list[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        write_model(folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {LENGTH: 32768}))
        texts = iter(texts_of(folder))
        with servers(folder) as both:
            for name, amount in CASES.items():
                known = chats(texts, images(amount), 1)
                for kind in ("new", "known"):
                    figures = {}
                    for server, (process, client) in both.items():
                        cpu_of(process, client, known * 2)
                        wanted = range(REQUESTS[server])
                        bodies = [
                            body
                            for _ in wanted
                            for body in (
                                chats(texts, images(amount), 1) if kind == "new" else known
                            )
                        ]
                        figures[server] = cpu_of(process, client, bodies) * 1e3
                    ours, theirs = figures["mmhash"], figures["vllm"]
                    what, ratio = f"{name}, {kind}", theirs / ours
                    target = ">= 10" if kind == "new" else ">= 50"
                    made.append(Row(what, ours, "ms of CPU", "vllm 0.32.0", theirs, ratio, target))
    return made


if __name__ == "__main__":
    report("render", rows())
