"""`mmhash explain`: shows each step from a file's bytes to the hashes in an engine's cache."""

import struct
from collections.abc import Iterator
from typing import Annotated

import typer

import mmhash
from mmhash.cli.options import Engine
from mmhash.cli.report import format_count, say
from mmhash.cpu import hash_bytes
from mmhash.errors import InputValueError, MMHashError
from mmhash.framing import frame
from mmhash.image import read_image, read_orientation
from mmhash.io.files import hash_file, open_file
from mmhash.io.images import open_image
from mmhash.io.names import STDIN, printable, reason


def explain_image(
    image: Annotated[str, typer.Argument(help="An image file.")],
    *,
    engine: Engine,
) -> None:
    """Show the steps from an image to its hashes in an engine."""
    name, version = mmhash.engines.registry.parse(engine)
    if image == STDIN:
        raise InputValueError("explain reads the image twice, so not from stdin: give a file")
    try:
        steps = list(_steps(image, f"{name}@{version}"))
    except (OSError, MMHashError) as error:
        raise InputValueError(f"{printable(image)}: {reason(error)}") from error
    say(f"{printable(image)} for {name} {version}")
    width = max(len(what) for what, _ in steps)
    for what, value in steps:
        say(f"  {what:<{width}}  {value}")


def _steps(path: str, engine: str) -> Iterator[tuple[str, str]]:
    with open_file(path) as file:
        encoded, nbytes = hash_file(file, "blake3")
    yield "file", f"{nbytes} bytes"
    yield "digest of the file, as b3sum", encoded.hex()
    of_file = frame("bytes", "", (), encoded)
    yield "key by of=bytes, the default of requests", of_file.hex()
    for field, value in mmhash.request_fields(of_file, engine).items():
        values = value if isinstance(value, list) else [value]
        yield f"its {field} in a request", " ".join(map(str, values))
    with open_file(path) as file, open_image(file) as image:
        yield "decoded", f"{image.format}, mode {image.mode}, {image.width} x {image.height}"
        frames, pixels, descriptions = read_image(image)
        orientation = read_orientation(image)
    content = hash_bytes(memoryview(pixels), "blake3")
    yield "pixels", f"{len(pixels)} bytes, {format_count(frames, 'frame')}"
    yield "digest of the pixels", content.hex()
    packed = f"image {struct.pack('<Q', frames).hex()} {descriptions[:33].hex()}"
    yield "framed with kind, shape, modes and sizes", packed
    key = frame("image", "", (frames,), content, descriptions)
    yield "key by of=pixels", key.hex()
    found, version = mmhash.engines.find(engine)
    named = found.name_item(key, version, orientation=orientation)
    if named != key:
        yield f"key with EXIF orientation {orientation}, which the engine may apply", named.hex()
    yield from found.explain(named, version)
