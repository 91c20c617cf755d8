"""Requests of every kind, each with the answer that it must have."""

import base64
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from PIL import Image
from safetensors.numpy import save

import mmhash
from bench.soak.means import SECRET, SHELF, TENANT, Asked, Means
from bench.soak.oracle import item
from bench.soak.pictures import picture
from bench.soak.prompts import annotate, blocks, pad
from bench.soak.refusals import REFUSED
from mmhash.transport import SharedTensor

if TYPE_CHECKING:
    from mmhash.digest import Algorithm

_RAW = "application/octet-stream"
# Twice the content and twice the tensor, in base64, are shorter than the 16 MiB that JSON may have.
_LONGEST_IN_JSON = 2 << 20


class Question(NamedTuple):
    """A request, and what it must come to."""

    kind: str
    expected: Any
    ask: Callable[[], Awaitable[Any]]


def question(means: Means) -> Question:
    """One of any kind."""
    kind = means.draw.choice(_KINDS)
    return Question(kind.__name__.lstrip("_"), *kind(means))


def _octets(means: Means) -> Asked:
    content = means.content()
    algorithm: Algorithm = "xxh3" if means.draw.random() < 0.3 else "blake3"
    tenant = means.draw.choice([None, None, TENANT])
    found = item(content, algorithm=algorithm, tenant=SECRET if tenant else None)
    headers = {"Content-Type": _RAW} | ({"X-Mmhash-Tenant": tenant} if tenant else {})
    params = {"algorithm": algorithm}
    return {"items": [found]}, partial(
        means.post, "/hash", content=content, headers=headers, params=params
    )


def _tensor(means: Means) -> Asked:
    array = means.array()
    params = {"dtype": str(array.dtype), "shape": ",".join(map(str, array.shape))}
    return {"items": [item(array)]}, partial(
        means.post,
        "/hash",
        content=array.tobytes(),
        headers={"Content-Type": _RAW},
        params=params,
    )


def _image_file(means: Means) -> Asked:
    file, kind = picture(means)
    return {"items": [item(file)]}, partial(
        means.post, "/hash", content=file, headers={"Content-Type": f"image/{kind.lower()}"}
    )


def _image_pixels(means: Means) -> Asked:
    file, kind = picture(means)
    return {"items": [item(Image.open(BytesIO(file)))]}, partial(
        means.post,
        "/hash",
        content=file,
        headers={"Content-Type": f"image/{kind.lower()}"},
        params={"of": "pixels"},
    )


def _multipart(means: Means) -> Asked:
    contents = {f"{number}.bin": means.content() for number in range(means.draw.randint(1, 4))}
    files = [("file", (name, content, _RAW)) for name, content in contents.items()]
    found = [item(content, name=name) for name, content in contents.items()]
    return {"items": found}, partial(means.post, "/hash", files=files)


def _safetensors(means: Means) -> Asked:
    # Of one dtype they lie in the file in the order of their names.
    arrays = {name: means.array().view("uint8") for name in "abc"[: means.draw.randint(1, 3)]}
    found = [item(array, name=name) for name, array in arrays.items()]
    headers = {"Content-Type": "application/x-safetensors"}
    return {"items": found}, partial(means.post, "/hash", content=save(arrays), headers=headers)


def _json(means: Means) -> Asked:
    content, array = means.content(_LONGEST_IN_JSON), means.array(_LONGEST_IN_JSON)
    told: list[dict[str, Any]] = [
        {"kind": "bytes", "data": _base64(content)},
        {"kind": "bytes", "url": f"data:{_RAW};base64,{_base64(content)}"},
        {"kind": "bytes", "url": f"data:,{quote(content[:1000])}"},
        _described(array) | {"data": _base64(array.tobytes())},
    ]
    found = [item(content), item(content), item(content[:1000]), item(array)]
    if len(array) > 1:
        counts = [1, len(array) - 1]
        told.append(told[-1] | {"counts": counts, "name": "b"})
        parts = mmhash.split(array, counts=counts)
        found += [item(part, name=f"b[{number}]") for number, part in enumerate(parts)]
    return {"items": found}, partial(means.post, "/hash", json={"items": told})


def _url(means: Means) -> Asked:
    """By http: and file: URLs, of a file that was never asked for and of one that often was."""
    content = means.content()
    fresh, shelved = means.fresh_file(content), f"shelf-{means.draw.randrange(SHELF)}"
    file, _ = picture(means)
    pictured = means.fresh_file(file)
    told = [
        {"kind": kind, "url": f"{base}/{name}"}
        for base in (means.origin, means.folder.as_uri())
        for kind, name in (("bytes", fresh), ("bytes", shelved), ("image", pictured))
    ]
    image = Image.open(BytesIO(file))
    found = [item(content), item((means.folder / shelved).read_bytes()), item(image)]
    return {"items": found * 2}, partial(means.post, "/hash", json={"items": told})


def _shm(means: Means) -> Asked:
    array = means.array()
    shared = SharedTensor.create(array)

    async def ask() -> Any:
        told = [{"kind": "tensor", "shm": shared.handle()}]
        with shared:
            return await means.post("/hash", json={"items": told, "proof": means.proof})

    return {"items": [item(array)]}, ask


def _client(means: Means) -> Asked:
    """The project's own client: what is long it leases from a pool in shared memory."""
    items = [means.content(), means.array(), means.array()]

    async def ask() -> Any:
        return [found.key for found in await means.client.hash(items)]

    return mmhash.keys(items), ask


def _refused(means: Means) -> Asked:
    problem, path, request = means.draw.choice(REFUSED)
    return problem, partial(means.post, path, **request)


# Pixels twice, for it is these that the memo is asked for.
_KINDS = (
    *(_octets, _tensor, _image_file, _image_pixels, _image_pixels, _multipart, _safetensors),
    *(_json, _url, _shm, _client, annotate, pad, blocks, _refused),
)


def _described(array: Any) -> dict[str, Any]:
    return {"kind": "tensor", "dtype": str(array.dtype), "shape": list(array.shape)}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
