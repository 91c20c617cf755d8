"""The load: requests through the gateway, each reply compared with the one that it must be."""

import asyncio
import base64
import json
import random
import time
from typing import Any, Literal, NamedTuple

import httpx

import mmhash
from mmhash.engines import vllm
from tests.soak.gateway.fleet import Environment
from tests.soak.gateway.images import IMAGES
from tests.soak.gateway.worker import expected

Verdict = Literal["right", "wrong", "lost", "broken", "cancelled"]

SLOTS = 8
CANCELLED = 0.08
TIMEOUT_S = 60.0
# While all workers are down the gateway has to answer so; a client sends its request again.
_UNAVAILABLE = {502, 503, 504}
_KINDS = ("stream", "whole", "image", "image by URL", "models")


class Outcome(NamedTuple):
    """The outcome of a request, its duration, and how often it was refused and sent again."""

    kind: str
    verdict: Verdict
    began: float
    took: float
    refused: int
    detail: str = ""


class _BrokenError(Exception):
    """The reply began and did not end: its worker was killed meanwhile."""


class _RefusedError(Exception):
    """The gateway has no worker that answers."""


def _data_url(file: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


class Load:
    """Slots that send one request after another until the time is over."""

    def __init__(self, fleet: Environment, rate: float, until: float) -> None:
        self._rate, self._until = rate, until
        self._draw = random.Random(0)
        self._origin, self._files = fleet.origin, fleet.files
        self._client = httpx.AsyncClient(
            base_url=fleet.gateway.url, timeout=TIMEOUT_S, trust_env=False
        )
        self.outcomes: list[Outcome] = []

    async def run(self) -> None:
        """Send requests, and wait for the last replies."""
        async with self._client, asyncio.TaskGroup() as slots:
            for _ in range(SLOTS):
                slots.create_task(self._slot())

    async def _slot(self) -> None:
        while time.monotonic() < self._until:
            self.outcomes.append(await self._request(self._draw.choice(_KINDS)))
            await asyncio.sleep(self._draw.expovariate(self._rate / SLOTS))

    async def _request(self, kind: str) -> Outcome:
        is_given_up = self._draw.random() < CANCELLED
        patience_s = 10 ** self._draw.uniform(-3, -1) if is_given_up else TIMEOUT_S
        began, refused, detail = time.monotonic(), 0, ""
        verdict: Verdict = "right"
        body, wanted = self._question(kind)
        try:
            async with asyncio.timeout(patience_s):
                while True:
                    try:
                        received = await self._ask(kind, body)
                        break
                    except _RefusedError:
                        refused += 1
                        await asyncio.sleep(0.2)
            if received != wanted:
                verdict, detail = "wrong", f"{received!r:.300} is not {wanted!r:.300}"
        except TimeoutError:
            verdict = "cancelled" if is_given_up else "lost"
        except _BrokenError as error:
            verdict, detail = "broken", str(error)
        except httpx.HTTPError as error:
            verdict, detail = "lost", repr(error)
        return Outcome(kind, verdict, began, time.monotonic() - began, refused, detail)

    def _question(self, kind: str) -> tuple[dict[str, Any], str]:
        if kind == "models":
            return {}, "tiny"
        text = f"Describe it. {self._draw.randbytes(self._draw.randrange(8, 2000)).hex()}"
        content: list[dict[str, Any]] = []
        uuids: list[str | None] = []
        if kind in {"image", "image by URL"}:
            number = min(IMAGES, int(IMAGES ** self._draw.random())) - 1
            file = self._files[number]
            url = _data_url(file) if kind == "image" else f"{self._origin}/{number}.png"
            content.append({"type": "image_url", "image_url": {"url": url}})
            uuids.append(vllm.uuid(mmhash.key(file)))
        content.append({"type": "text", "text": text})
        message = {"role": "user", "content": content}
        body = {"model": "tiny", "messages": [message], "stream": kind != "whole"}
        return body, "".join(expected(body, uuids))

    async def _ask(self, kind: str, body: dict[str, Any]) -> str:
        if kind == "models":
            response = await self._client.get("/v1/models")
            self._check(response)
            return str(response.json()["data"][0]["id"])
        path = "/v1/chat/completions"
        if not body["stream"]:
            response = await self._client.post(path, json=body)
            self._check(response)
            return str(response.json()["choices"][0]["message"]["content"])
        received, is_complete = [], False
        async with self._client.stream("POST", path, json=body) as response:
            self._check(response)
            try:
                async for line in response.aiter_lines():
                    if line == "data: [DONE]":
                        is_complete = True
                    elif line:
                        event = json.loads(line.removeprefix("data: "))
                        received.append(event["choices"][0]["delta"]["content"])
            except httpx.RemoteProtocolError as error:
                raise _BrokenError(repr(error)) from error
        if not is_complete:
            raise _BrokenError("the stream ended without [DONE]")
        return "".join(received)

    @staticmethod
    def _check(response: httpx.Response) -> None:
        if response.status_code in _UNAVAILABLE:
            raise _RefusedError
        response.raise_for_status()
