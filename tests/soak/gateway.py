"""`python -m tests.soak.gateway --minutes 10`: exit with 1 if anything was wrong, lost or grew.

A gateway before three workers, with its memo in Redis. Meanwhile workers are killed, their events
are lost, their replays refused, and Redis is killed and stopped.
"""

import asyncio
import base64
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from io import BytesIO
from itertools import cycle
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx
from PIL import Image

import mmhash
from mmhash.engines import vllm
from tests.live import models
from tests.soak.origin import file_server
from tests.soak.run import (
    SLOTS,
    BrokenError,
    Fault,
    Load,
    Outcome,
    Question,
    ResendError,
    between,
    failures_of,
    growth,
    leftovers,
    main,
    run,
)
from tests.soak.worker import expected
from tests.support.gateway import gateway_before
from tests.support.ports import free_port
from tests.support.redis import RedisServer
from tests.support.service import TIMEOUT_S, Service, count, environment

WORKERS, IMAGES, SIDE = 3, 300, 48
# Kills and restarts of single workers, over the whole run: the gateway's process is never killed.
KILLS = tuple(0.04 + 0.06 * number for number in range(16))
DOWN = 0.01  # as long until it is restarted
LOST_EVENTS = (0.07, 0.25, 0.43, 0.61, 0.85)
REFUSED_REPLAYS = (0.13, 0.49, 0.91)
SHORT = 0.02
# In the second half these are around its middle, so that connections that are gone tilt no trend.
ALL_DOWN = ((0.205, 0.215), (0.745, 0.755))
REDIS_GONE = ((0.3, 0.36), (0.72, 0.78))
REDIS_HANGS = ((0.44, 0.48),)
# The gateway notices a restarted worker at its next probe, which a busy machine delays.
NOTICED_S = 6.0


class Worker:
    """A worker at an address that it keeps when it is restarted."""

    def __init__(self) -> None:
        self._ports = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self._ports[0]}"
        self.down: list[tuple[float, float]] = []
        """The times from each kill until it answered again."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def specification(self) -> str:
        """The worker as `--worker` wants it."""
        _, events, replay = (f"tcp://127.0.0.1:{port}" for port in self._ports)
        return f"{self.url},events={events},replay={replay},engine=vllm@0.32.0,block_size=16"

    def start(self) -> None:
        """Start it, and note in the background when it answers."""
        command = [sys.executable, "-m", "tests.soak.worker", *map(str, self._ports)]
        self._process = subprocess.Popen(command)
        if self.down:
            Thread(target=self._note_end, args=(len(self.down) - 1,), daemon=True).start()

    def _note_end(self, number: int) -> None:
        self.wait_until_ready()
        self.down[number] = self.down[number][0], time.monotonic()

    def wait_until_ready(self) -> None:
        """Wait until it answers."""
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            with suppress(httpx.TransportError):
                httpx.get(f"{self.url}/health", timeout=TIMEOUT_S, trust_env=False)
                return
            time.sleep(0.05)
        raise AssertionError("a worker did not start")

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self.down.append((time.monotonic(), math.inf))
            self._process.kill()
            self._process.wait()

    def switch(self, name: str, is_on: bool) -> None:
        """Begin or end a fault of its events."""
        with suppress(httpx.TransportError):  # it is down
            url = f"{self.url}/fault"
            httpx.post(url, json={name: is_on}, timeout=TIMEOUT_S, trust_env=False)


class Environment(NamedTuple):
    """All processes of a soak, and the images that it has by URL."""

    workers: list[Worker]
    redis: RedisServer
    gateway: Service
    origin: str
    files: list[bytes]


@contextmanager
def started(folder: Path) -> Iterator[Environment]:
    """Start everything, and stop it at the end."""
    served = folder / "images"
    served.mkdir()
    files = []
    for number in range(IMAGES):
        colours, file = random.Random(number).randbytes(SIDE * SIDE * 3), BytesIO()
        Image.frombytes("RGB", (SIDE, SIDE), colours).save(file, "PNG")
        (served / f"{number}.png").write_bytes(file.getvalue())
        files.append(file.getvalue())
    models.write("qwen2_vl", folder / "model")
    with ExitStack() as stack:
        origin = stack.enter_context(file_server(served))
        redis = RedisServer(folder)
        stack.callback(redis.kill)
        workers = [Worker() for _ in range(WORKERS)]
        for worker in workers:
            stack.callback(worker.kill)
            worker.start()
        for worker in workers:
            worker.wait_until_ready()
        settings = {
            "memo_url": redis.url,
            "models": {"tiny": str(folder / "model")},
            "url_hosts": [origin.removeprefix("http://")],
            "url_networks": ["127.0.0.0/8"],
            "gateway.media_urls": "fetch",
            "gateway.health_interval_s": "0.5",
            "gateway.health_timeout_s": "10",
        }
        specs = [worker.specification for worker in workers]
        gateway = gateway_before(specs, settings=settings, env=environment())
        yield Environment(workers, redis, stack.enter_context(gateway), origin, files)


class ChatLoad(Load):
    """Chats through the gateway, each reply compared with the one that it must be."""

    kinds = ("stream", "whole", "image", "image by URL", "models")

    def __init__(self, fleet: Environment, rate: float, seconds: float) -> None:
        super().__init__(fleet.gateway.url, rate, seconds)
        self._origin, self._files = fleet.origin, fleet.files

    def question(self, kind: str) -> Question:
        """Make a request of a kind."""
        if kind == "models":
            return Question("tiny", self._ask_models)
        text = f"Describe it. {self.draw.randbytes(self.draw.randrange(8, 2000)).hex()}"
        content: list[dict[str, Any]] = []
        uuids: list[str | None] = []
        if kind in {"image", "image by URL"}:
            number = min(IMAGES, int(IMAGES ** self.draw.random())) - 1
            file = self._files[number]
            data = f"data:image/png;base64,{base64.b64encode(file).decode()}"
            url = data if kind == "image" else f"{self._origin}/{number}.png"
            content.append({"type": "image_url", "image_url": {"url": url}})
            uuids.append(vllm.uuid(mmhash.key(file)))
        content.append({"type": "text", "text": text})
        message = {"role": "user", "content": content}
        body = {"model": "tiny", "messages": [message], "stream": kind != "whole"}
        return Question("".join(expected(body, uuids)), partial(self._ask, body))

    async def _ask_models(self) -> str:
        response = await self.http.get("/v1/models")
        self._check(response)
        return str(response.json()["data"][0]["id"])

    async def _ask(self, body: dict[str, Any]) -> str:
        path = "/v1/chat/completions"
        if not body["stream"]:
            response = await self.http.post(path, json=body)
            self._check(response)
            return str(response.json()["choices"][0]["message"]["content"])
        received, is_complete = [], False
        async with self.http.stream("POST", path, json=body) as response:
            self._check(response)
            try:
                async for line in response.aiter_lines():
                    if line == "data: [DONE]":
                        is_complete = True
                    elif line:
                        event = json.loads(line.removeprefix("data: "))
                        received.append(event["choices"][0]["delta"]["content"])
            except httpx.RemoteProtocolError as error:
                raise BrokenError(repr(error)) from error
        if not is_complete:
            raise BrokenError("the stream ended without [DONE]")
        return "".join(received)

    @staticmethod
    def _check(response: httpx.Response) -> None:
        if response.status_code in {502, 503, 504}:
            raise ResendError
        response.raise_for_status()


def faults_of(environment: Environment) -> list[Fault]:
    """Return all faults of a run."""
    workers, redis, turns = environment.workers, environment.redis, cycle(environment.workers)

    def all_of(act: Callable[[Worker], object]) -> Callable[[], None]:
        def on_all() -> None:
            for worker in workers:
                act(worker)

        return on_all

    def switch(name: str) -> tuple[Callable[[], None], Callable[[], None]]:
        return all_of(lambda one: one.switch(name, True)), all_of(
            lambda one: one.switch(name, False)
        )

    found: list[Fault] = []
    for at in KILLS:
        worker = next(turns)
        found += between(((at, at + DOWN),), "worker killed", worker.kill, worker.start)
    for at in LOST_EVENTS:
        found += between(((at, at + SHORT),), "events dropped", *switch("lose"))
    for at in REFUSED_REPLAYS:  # events are lost too: otherwise nothing asks for a replay
        found += between(((at, at + SHORT),), "replays refused", *switch("refuse"))
        found += between(((at, at + SHORT / 2),), "events dropped", *switch("lose"))
    found += between(ALL_DOWN, "all workers down", all_of(Worker.kill), all_of(Worker.start))
    found += between(REDIS_GONE, "Redis gone", redis.kill, redis.start)
    return found + between(REDIS_HANGS, "Redis hangs", redis.freeze, redis.thaw)


def nobody_could_answer(down: list[list[tuple[float, float]]], began: float, ended: float) -> bool:
    """Return True if at some moment in that time no worker was up and known to be."""
    moments = [began, *(begin for times in down for begin, _ in times if began < begin < ended)]
    return any(
        all(any(begin <= moment < end + NOTICED_S for begin, end in times) for times in down)
        for moment in moments
    )


def soak(environment: Environment, seconds: float, rate: float) -> tuple[list[Outcome], list[str]]:
    """Run load and faults; return the outcomes, and everything that was not as it must be."""
    gateway, load = environment.gateway, ChatLoad(environment, rate, seconds)
    samples = asyncio.run(run(gateway, load, faults_of(environment), seconds))
    failures = [*failures_of(load.outcomes), *growth(samples, seconds)]
    down = [worker.down for worker in environment.workers]
    failures += [
        f"refused {one.resent} times while a worker was up: {one.kind}"
        for one in load.outcomes
        if one.resent and not nobody_could_answer(down, one.began, one.began + one.took)
    ]
    # At most what the slots had under way at each kill.
    broken, kills = sum(one.verdict == "broken" for one in load.outcomes), sum(map(len, down))
    if broken > SLOTS * kills:
        failures.append(f"{broken} replies were broken by {kills} kills")
    # A fault without an effect proves nothing.
    with gateway.new_client(trust_env=False) as client:
        states = client.get("/workers").json()["workers"]
        for name in ("gaps", "replays", "drops", "blocks"):
            if not sum(state[name] for state in states):
                failures.append(f"the index has no {name}")
        if not count(client, "mmhash_memo_failures_total"):
            failures.append("no operation of the memo failed without Redis")
    if not any(one.resent for one in load.outcomes):
        failures.append("no request was refused while all workers were down")
    return load.outcomes, failures + leftovers(gateway, "mmhash_gateway_requests_in_progress")


if __name__ == "__main__":
    sys.exit(main(soak, started))
