"""`python -m tests.soak --minutes 10`: the service; exit with 1 if anything was wrong, lost or grew.

Two processes of the service share a memo in Redis. Meanwhile processes are killed, and Redis is
killed and stopped. The library computes each answer before the request is sent.
"""

import asyncio
import base64
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from PIL import Image
from safetensors.numpy import save

import mmhash
from mmhash.engines import vllm
from mmhash.view import view_of
from tests.soak.origin import file_server
from tests.soak.run import (
    KILLED,
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
from tests.support.images import image_part
from tests.support.redis import RedisServer
from tests.support.service import Service, count, environment, serving

TENANT, SECRET = "acme", bytes(range(32))
SHELF = 16
NOISE = np.random.default_rng(0).bytes(48 << 20)
LONGEST = 32 << 20
# A process that is killed later would hide what it had leaked.
KILLS = (0.03, 0.1, 0.17)
REDIS_GONE = ((0.22, 0.28), (0.7, 0.8))
REDIS_HANGS = ((0.4, 0.45),)
RAW = "application/octet-stream"


class Environment(NamedTuple):
    """The service, its Redis, and a host of files."""

    service: Service
    redis: RedisServer
    files: Path
    origin: str


@contextmanager
def started(folder: Path) -> Iterator[Environment]:
    """Start everything, and stop it at the end."""
    files = folder / "files"
    files.mkdir()
    for number in range(SHELF):  # so old that the service asks whether they have changed
        file = files / f"shelf-{number}"
        file.write_bytes(NOISE[number << 10 : number * number << 12])
        os.utime(file, (time.time() - 3600,) * 2)
    with ExitStack() as stack:
        origin = stack.enter_context(file_server(files))
        redis = RedisServer(folder)
        stack.callback(redis.kill)
        settings = {
            "tenants": {TENANT: SECRET.hex()},
            "url_hosts": [origin.removeprefix("http://")],
            "url_networks": ["127.0.0.0/8"],
            "memo_url": redis.url,
        }
        service = serving("--processes", "2", settings=settings, env=environment())
        yield Environment(stack.enter_context(service), redis, files, origin)


def item(content: Any, tenant: bytes | None = None, **members: Any) -> dict[str, Any]:
    """Return an item of an answer as the library has it."""
    view = view_of(content)
    return {
        "name": None,
        "kind": view.kind,
        "dtype": view.dtype,
        "shape": list(view.shape),
        "nbytes": len(view.on_host()),
        "algorithm": "blake3",
        "digest": mmhash.digest(content).hex(),
        "key": mmhash.key(content, tenant=tenant).hex(),
    } | members


def picture(draw: random.Random) -> tuple[bytes, str]:
    """Return the file of a picture and its format; one of two is among forty that come again."""
    draw = random.Random(draw.randrange(40 if draw.random() < 0.5 else 1 << 32))
    kind, file = draw.choice(("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")), BytesIO()
    size = draw.randint(1, 320), draw.randint(1, 240)
    start = draw.randrange(1 << 20)
    Image.frombytes("RGB", size, NOISE[start : start + 3 * size[0] * size[1]]).save(file, kind)
    return file.getvalue(), kind


class HashLoad(Load):
    """Requests for hashes, in all forms of a body."""

    kinds = (
        *("octets", "tensor", "pixels", "multipart", "safetensors", "json", "url", "annotate"),
        "refused",
    )

    def __init__(self, environment: Environment, rate: float, seconds: float) -> None:
        super().__init__(environment.service.url, rate, seconds)
        self._environment = environment
        self._number = 0

    def question(self, kind: str) -> Question:
        """Make a request of a kind."""
        question: Question = getattr(self, f"_{kind}")()
        return question

    def _hash(self, expected: Any, **request: Any) -> Question:
        return Question(expected, partial(self._post, "/hash", request))

    async def _post(self, path: str, request: dict[str, Any]) -> Any:
        try:
            response = await self.http.post(path, **request)
        except httpx.TransportError as error:  # a process was killed
            raise ResendError from error
        if response.status_code in {429, 503}:
            raise ResendError
        answer = response.json()
        if not response.is_success:
            return answer["type"].removeprefix("urn:mmhash:problem:")
        for one in answer["items"]:
            one.pop("memo", None)
        return answer.get("request") or answer["items"]

    def _content(self, longest: int = LONGEST) -> bytes:
        nbytes = int(2 ** self.draw.triangular(0, longest.bit_length() - 1, 8)) - 1
        start = self.draw.randrange(len(NOISE) - nbytes)
        return NOISE[start : start + nbytes]

    def _array(self, longest: int = LONGEST) -> np.ndarray[Any, Any]:
        dtype = np.dtype(self.draw.choice(["uint8", "float16", "float32", "int64"]))
        content = self._content(longest)
        row = 4 * dtype.itemsize
        return np.frombuffer(content[: len(content) // row * row], dtype).reshape(-1, 4)

    def _octets(self) -> Question:
        content, is_tenants = self._content(), self.draw.random() < 0.3
        headers = {"Content-Type": RAW} | ({"X-Mmhash-Tenant": TENANT} if is_tenants else {})
        expected = item(content, tenant=SECRET if is_tenants else None)
        return self._hash([expected], content=content, headers=headers)

    def _tensor(self) -> Question:
        array = self._array()
        params = {"dtype": str(array.dtype), "shape": ",".join(map(str, array.shape))}
        headers = {"Content-Type": RAW}
        return self._hash([item(array)], content=array.tobytes(), headers=headers, params=params)

    def _pixels(self) -> Question:
        file, kind = picture(self.draw)
        headers = {"Content-Type": f"image/{kind.lower()}"}
        expected = [item(Image.open(BytesIO(file)))]
        return self._hash(expected, content=file, headers=headers, params={"of": "pixels"})

    def _multipart(self) -> Question:
        contents = {f"{number}.bin": self._content() for number in range(self.draw.randint(1, 4))}
        files = [("file", (name, content, RAW)) for name, content in contents.items()]
        expected = [item(content, name=name) for name, content in contents.items()]
        return self._hash(expected, files=files)

    def _safetensors(self) -> Question:
        # Tensors of one dtype are in the file in the order of their names.
        arrays = {name: self._array().view("uint8") for name in "abc"[: self.draw.randint(1, 3)]}
        expected = [item(array, name=name) for name, array in arrays.items()]
        headers = {"Content-Type": "application/x-safetensors"}
        return self._hash(expected, content=save(arrays), headers=headers)

    def _json(self) -> Question:
        content, array = self._content(2 << 20), self._array(2 << 20)
        data = base64.b64encode(content).decode()
        described = {"kind": "tensor", "dtype": str(array.dtype), "shape": list(array.shape)}
        sent = [
            {"kind": "bytes", "data": data},
            {"kind": "bytes", "url": f"data:{RAW};base64,{data}"},
            described | {"data": base64.b64encode(array.tobytes()).decode()},
        ]
        return self._hash([item(content), item(content), item(array)], json={"items": sent})

    def _url(self) -> Question:
        """Make a request for a new file, for one that is asked for often, and for a picture."""
        files, origin = self._environment.files, self._environment.origin
        content, (image, _) = self._content(), picture(self.draw)
        shelved = f"shelf-{self.draw.randrange(SHELF)}"
        names = [f"fresh-{(self._number + offset) % 100}" for offset in range(2)]
        self._number += 2
        for name, written in zip(names, (content, image), strict=True):
            beside = files / f"{name}.new"
            beside.write_bytes(written)  # a cancelled request may be reading the old one
            beside.replace(files / name)
        kinds = (("bytes", names[0]), ("bytes", shelved), ("image", names[1]))
        sent = [{"kind": kind, "url": f"{origin}/{name}"} for kind, name in kinds]
        shelf = item((files / shelved).read_bytes())
        expected = [item(content), shelf, item(Image.open(BytesIO(image)))]
        return self._hash(expected, json={"items": sent})

    def _annotate(self) -> Question:
        file, _ = picture(self.draw)
        part = image_part(file)

        def chat(part: dict[str, Any]) -> dict[str, Any]:
            return {"model": "m", "messages": [{"role": "user", "content": [part]}]}

        request = {"content": json.dumps(chat(part)), "params": {"engine": "vllm"}}
        request |= {"headers": {"Content-Type": "application/json"}}
        expected = chat(part | {"uuid": vllm.uuid(mmhash.key(file))})
        return Question(expected, partial(self._post, "/annotate", request))

    def _refused(self) -> Question:
        damaged = picture(self.draw)[0][:30]
        return self.draw.choice(
            [
                self._hash("invalid-base64", json={"items": [{"kind": "bytes", "data": "a"}]}),
                self._hash(
                    "invalid-tensor", content=b"abc", headers={"Content-Type": RAW},
                    params={"dtype": "int16", "shape": "2"},
                ),
                self._hash(
                    "damaged-media", content=b"text" + damaged,
                    headers={"Content-Type": "image/png"}, params={"of": "pixels"},
                ),
            ]
        )  # fmt: skip


def soak(environment: Environment, seconds: float, rate: float) -> tuple[list[Outcome], list[str]]:
    """Run load and faults; return the outcomes, and everything that was not as it must be."""
    service, redis = environment.service, environment.redis

    def kill() -> None:
        os.kill(random.choice(service.server_pids), signal.SIGKILL)

    faults = [Fault(at, "process killed", kill) for at in KILLS]
    faults += between(REDIS_GONE, "Redis gone", redis.kill, redis.start)
    faults += between(REDIS_HANGS, "Redis hangs", redis.freeze, redis.thaw)
    load = HashLoad(environment, rate, seconds)
    samples = asyncio.run(run(service, load, faults, seconds))
    failures = [*failures_of(load.outcomes), *growth(samples, seconds)]
    # A fault without an effect proves nothing.
    if service.log.text.count(KILLED) != len(KILLS):
        failures.append("a kill was not noticed")
    with service.new_client(trust_env=False) as client:
        if not count(client, "mmhash_memo_failures_total"):
            failures.append("no operation of the memo failed without Redis")
    metrics = "mmhash_calls_in_progress", "mmhash_held_bytes"
    return load.outcomes, failures + leftovers(service, *metrics, error='"level":"error"')


if __name__ == "__main__":
    sys.exit(main(soak, started))
