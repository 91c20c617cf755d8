"""Cache hits of a gateway that routes by the longest prefix, against workers taken in turn.

examples/routing_gateway.py in front of two workers, compared with the same chats sent to two other
workers in turn. The service, the gateway and the workers are separate processes.
"""

import base64
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from io import BytesIO
from itertools import cycle
from typing import Any, NamedTuple

import httpx
from PIL import Image

from bench.support.measure import Row, report
from bench.support.servers import running
from mmhash.client import Client

CAPACITY = 1500  # blocks of a worker's cache, 24000 tokens
CHATS = 80
AT_ONCE = 16
SYSTEM_PROMPTS = 6
IMAGES = 24

Chat = dict[str, Any]


class Replayed(NamedTuple):
    """The tokens of all prompts of a trace, and the tokens that each worker computed."""

    tokens: int
    computed: tuple[int, ...]

    @property
    def cached_percent(self) -> float:
        """The cached part of all tokens, in percent."""
        return 100 * (1 - sum(self.computed) / self.tokens)


def trace(chats: int = CHATS, seed: int = 0) -> Iterator[Chat]:
    """Yield the requests of chats of several turns, with a few chats at a time.

    Some system prompts and images are far more popular than others. Each request holds all turns
    before it, as chats do.
    """
    draw = random.Random(seed)
    systems = [_words(draw, draw.randint(150, 500)) for _ in range(SYSTEM_PROMPTS)]
    images = [_image_part(draw) for _ in range(IMAGES)]

    def turn(number: int) -> list[Any]:
        shown = (
            draw.choices(images, _popularity(IMAGES)) if number == 0 or draw.random() < 0.2 else []
        )
        return [*shown, {"type": "text", "text": _words(draw, draw.randint(10, 60))}]

    def talk() -> Iterator[Chat]:
        (system,) = draw.choices(systems, _popularity(SYSTEM_PROMPTS))
        messages = [{"role": "system", "content": [{"type": "text", "text": system}]}]
        for number in range(draw.randint(1, 6)):
            messages.append({"role": "user", "content": turn(number)})
            yield {"model": "stand-in", "messages": list(messages)}
            reply = [{"type": "text", "text": _words(draw, draw.randint(30, 150))}]
            messages.append({"role": "assistant", "content": reply})

    waiting = [talk() for _ in range(chats)]
    talking = [waiting.pop() for _ in range(min(AT_ONCE, chats))]
    while talking:
        index = draw.randrange(len(talking))
        chat = next(talking[index], None)
        if chat is not None:
            yield chat
        elif waiting:
            talking[index] = waiting.pop()
        else:
            del talking[index]


def _popularity(count: int) -> list[float]:
    """Return weights by Zipf's law: the second is half as popular as the first."""
    return [1 / rank for rank in range(1, count + 1)]


def _words(draw: random.Random, count: int) -> str:
    return " ".join(f"{draw.randrange(50_000):x}" for _ in range(count))


def _image_part(draw: random.Random) -> dict[str, Any]:
    file = BytesIO()
    Image.frombytes("RGB", (32, 32), draw.randbytes(32 * 32 * 3)).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


@contextmanager
def two_workers() -> Iterator[list[str]]:
    """Run two workers with empty caches; yield their URLs."""
    with ExitStack() as stack:
        worker = ("uvicorn", "bench.radix_worker:app", "--no-access-log")
        yield [stack.enter_context(running(*worker, CAPACITY=str(CAPACITY))) for _ in range(2)]


def by_prefix(service: str, chats: list[Chat]) -> Replayed:
    """Send the chats to the gateway."""
    with two_workers() as workers:
        gateway = ("uvicorn", "examples.routing_gateway:app", "--no-access-log")
        with running(*gateway, MMHASH=service, WORKERS=",".join(workers)) as url:
            return _replay((url, chat) for chat in chats)


def in_turn(service: str, chats: list[Chat]) -> Replayed:
    """Annotate the chats as the gateway does, and send them to the workers in turn."""
    with two_workers() as workers, Client(service) as mmhash:
        annotated = (mmhash.annotate(chat, engine="vllm").request for chat in chats)
        return _replay(zip(cycle(workers), annotated, strict=False))


def _replay(sent: Iterable[tuple[str, Chat]]) -> Replayed:
    tokens = 0
    computed: Counter[str] = Counter()
    with httpx.Client(timeout=60) as http:
        for url, chat in sent:
            answer = http.post(f"{url}/v1/chat/completions", json=chat).raise_for_status().json()
            usage = answer["usage"]
            tokens += usage["prompt_tokens"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            computed[answer["system_fingerprint"]] += usage["prompt_tokens"] - cached
    return Replayed(tokens, tuple(computed.values()))


def rows() -> list[Row]:
    """Measure the figures that the README quotes."""
    chats = list(trace())
    with running("mmhash", "serve") as service:
        ours, peer = by_prefix(service, chats), in_turn(service, chats)

    def row(what: str, unit: str, figure: Callable[[Replayed], float], target: str = "") -> Row:
        values = figure(ours), figure(peer)
        return Row(what, values[0], unit, "in turn", values[1], values[0] / values[1], target)

    what = f"{len(chats)} chats, {ours.tokens} tokens:"
    return [
        row(f"{what} cached", "%", lambda replayed: replayed.cached_percent, "> 1"),
        row("tokens computed", "", lambda replayed: sum(replayed.computed)),
        row("tokens computed by the busier", "", lambda replayed: max(replayed.computed)),
    ]


if __name__ == "__main__":
    report("routing", rows())
