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
from mmhash.transport import SharedTensor
from tests.soak.context import SECRET, SHELF, TENANT, Asked, LoadContext
from tests.soak.oracle import item
from tests.soak.pictures import picture
from tests.soak.prompts import annotate, blocks, pad
from tests.soak.refusals import REFUSED

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


def question(context: LoadContext) -> Question:
    """One of any kind."""
    kind = context.draw.choice(_KINDS)
    return Question(kind.__name__.lstrip("_"), *kind(context))


def _octets(context: LoadContext) -> Asked:
    content = context.content()
    algorithm: Algorithm = "xxh3" if context.draw.random() < 0.3 else "blake3"
    tenant = context.draw.choice([None, None, TENANT])
    found = item(content, algorithm=algorithm, tenant=SECRET if tenant else None)
    headers = {"Content-Type": _RAW} | ({"X-Mmhash-Tenant": tenant} if tenant else {})
    params = {"algorithm": algorithm}
    return {"items": [found]}, partial(
        context.post, "/hash", content=content, headers=headers, params=params
    )


def _tensor(context: LoadContext) -> Asked:
    array = context.array()
    params = {"dtype": str(array.dtype), "shape": ",".join(map(str, array.shape))}
    return {"items": [item(array)]}, partial(
        context.post,
        "/hash",
        content=array.tobytes(),
        headers={"Content-Type": _RAW},
        params=params,
    )


def _image_file(context: LoadContext) -> Asked:
    file, kind = picture(context)
    return {"items": [item(file)]}, partial(
        context.post, "/hash", content=file, headers={"Content-Type": f"image/{kind.lower()}"}
    )


def _image_pixels(context: LoadContext) -> Asked:
    file, kind = picture(context)
    return {"items": [item(Image.open(BytesIO(file)))]}, partial(
        context.post,
        "/hash",
        content=file,
        headers={"Content-Type": f"image/{kind.lower()}"},
        params={"of": "pixels"},
    )


def _multipart(context: LoadContext) -> Asked:
    contents = {f"{number}.bin": context.content() for number in range(context.draw.randint(1, 4))}
    files = [("file", (name, content, _RAW)) for name, content in contents.items()]
    found = [item(content, name=name) for name, content in contents.items()]
    return {"items": found}, partial(context.post, "/hash", files=files)


def _safetensors(context: LoadContext) -> Asked:
    # Of one dtype they lie in the file in the order of their names.
    arrays = {name: context.array().view("uint8") for name in "abc"[: context.draw.randint(1, 3)]}
    found = [item(array, name=name) for name, array in arrays.items()]
    headers = {"Content-Type": "application/x-safetensors"}
    return {"items": found}, partial(context.post, "/hash", content=save(arrays), headers=headers)


def _json(context: LoadContext) -> Asked:
    content, array = context.content(_LONGEST_IN_JSON), context.array(_LONGEST_IN_JSON)
    sent: list[dict[str, Any]] = [
        {"kind": "bytes", "data": _base64(content)},
        {"kind": "bytes", "url": f"data:{_RAW};base64,{_base64(content)}"},
        {"kind": "bytes", "url": f"data:,{quote(content[:1000])}"},
        _described(array) | {"data": _base64(array.tobytes())},
    ]
    found = [item(content), item(content), item(content[:1000]), item(array)]
    if len(array) > 1:
        counts = [1, len(array) - 1]
        sent.append(sent[-1] | {"counts": counts, "name": "b"})
        parts = mmhash.split(array, counts=counts)
        found += [item(part, name=f"b[{number}]") for number, part in enumerate(parts)]
    return {"items": found}, partial(context.post, "/hash", json={"items": sent})


def _url(context: LoadContext) -> Asked:
    """By http: and file: URLs, of a file that was never asked for and of one that often was."""
    content = context.content()
    fresh, shelved = context.fresh_file(content), f"shelf-{context.draw.randrange(SHELF)}"
    file, _ = picture(context)
    pictured = context.fresh_file(file)
    sent = [
        {"kind": kind, "url": f"{base}/{name}"}
        for base in (context.origin, context.folder.as_uri())
        for kind, name in (("bytes", fresh), ("bytes", shelved), ("image", pictured))
    ]
    image = Image.open(BytesIO(file))
    found = [item(content), item((context.folder / shelved).read_bytes()), item(image)]
    return {"items": found * 2}, partial(context.post, "/hash", json={"items": sent})


def _shm(context: LoadContext) -> Asked:
    array = context.array()
    shared = SharedTensor.create(array)

    async def ask() -> Any:
        sent = [{"kind": "tensor", "shm": shared.handle()}]
        with shared:
            return await context.post("/hash", json={"items": sent})

    return {"items": [item(array)]}, ask


def _client(context: LoadContext) -> Asked:
    """The project's own client: what is long it leases from a pool in shared memory."""
    items = [context.content(), context.array(), context.array()]

    async def ask() -> Any:
        return [found.key for found in await context.client.hash(items)]

    return mmhash.keys(items), ask


def _refused(context: LoadContext) -> Asked:
    problem, path, request = context.draw.choice(REFUSED)
    return problem, partial(context.post, path, **request)


# Pixels twice, for it is these that the memo is asked for.
_KINDS = (
    *(_octets, _tensor, _image_file, _image_pixels, _image_pixels, _multipart, _safetensors),
    *(_json, _url, _shm, _client, annotate, pad, blocks, _refused),
)


def _described(array: Any) -> dict[str, Any]:
    return {"kind": "tensor", "dtype": str(array.dtype), "shape": list(array.shape)}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
