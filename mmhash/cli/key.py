"""`mmhash key`: prints the key of each item in each file, by the kind of the file.

Keys of file bytes need none of the modules for arrays, tensors and images, so these load late.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

import mmhash
from mmhash.cli.options import AsJson, DigestAlgorithm, Engines, Of
from mmhash.cli.report import complain, say, say_json
from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputTypeError, InputValueError, MMHashError
from mmhash.framing import TENANT_SIZE, frame
from mmhash.io.files import hash_file, open_file
from mmhash.io.names import STDIN, escape, printable, reason

PICKLES = {".pt", ".pth", ".pkl", ".pickle", ".ckpt"}


class _Hashing(NamedTuple):
    """The options for hashing and framing, the same for all files."""

    algorithm: Algorithm
    tenant: bytes | None


class _Keyed(NamedTuple):
    """An item with its key, and the orientation if it is an image hashed by its pixels."""

    name: str
    key: Digest
    exif_orientation: int = 1


def key_files(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files to read; - or none for standard input.", show_default=False),
    ] = None,
    *,
    of: Of = "bytes",
    algorithm: DigestAlgorithm = "blake3",
    engine: Engines = None,
    tenant_file: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A file with the tenant's secret."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the key of each file or safetensors tensor."""
    hashing = _Hashing(algorithm, _read_tenant(tenant_file) if tenant_file else None)
    # Import the engines only for --engine.
    engines = mmhash.engines.split_names(engine) if engine else ()
    for release in engines:
        # Report an unknown engine before reading any file.
        mmhash.engines.registry.parse(release)
    is_complete = True
    for file in files or [STDIN]:
        try:
            items = [_image_key(file, hashing)] if of == "pixels" else [*_keys_of(file, hashing)]
        except (OSError, MMHashError) as error:
            complain(f"{printable(file)}: {reason(error)}")
            is_complete = False
            continue
        for item in items:
            _print_key(item, engines, as_json=as_json)
    if not is_complete:
        raise typer.Exit(1)


def _print_key(item: _Keyed, engines: Sequence[str], *, as_json: bool) -> None:
    """Print `<key>  <name>` and a line for each engine, or one line of JSON.

    A line with an escaped name begins with a backslash, as in the output of b3sum.
    """
    fields = {
        release: mmhash.engines.request_fields(
            item.key, release, exif_orientation=item.exif_orientation
        )
        for release in engines
    }
    if as_json:
        named = {"name": item.name, "key": item.key.hex()}
        say_json(named | ({"engines": fields} if fields else {}))
        return
    mark, name = escape(item.name)
    for text in (item.key.hex(), *(f"{each} {json.dumps(fields[each])}" for each in fields)):
        say(f"{mark}{text}  {name}")


def _read_tenant(path: Path) -> bytes:
    with path.open("rb") as file:
        # one byte more than a valid file can have
        content = file.read(2 * TENANT_SIZE + len("\r\n") + 1)
    if len(content) == TENANT_SIZE:
        return content
    if re.fullmatch(rb"[0-9a-fA-F]{%d}\r?\n?" % (2 * TENANT_SIZE), content):
        return bytes.fromhex(content.decode())
    raise InputValueError(f"{path}: a tenant's secret must be 32 bytes or 64 hex digits")


def _keys_of(name: str, hashing: _Hashing) -> Iterator[_Keyed]:
    """Yield the items of a file with their keys; the suffix decides the format."""
    suffix = Path(name).suffix.lower()
    if suffix in PICKLES:
        raise InputTypeError(
            f"{suffix} files are pickles, which run code when they are loaded: save the"
            " tensors as .safetensors or .npy"
        )
    if suffix == ".npy":
        yield _Keyed(name, _array_key(name, hashing))
    elif suffix == ".safetensors":
        yield from _tensor_keys(name, hashing)
    else:
        with open_file(name) as file:
            content, _ = hash_file(file, hashing.algorithm)
        yield _Keyed(name, frame("bytes", "", (), content, tenant=hashing.tenant))


def _array_key(name: str, hashing: _Hashing) -> Digest:
    import numpy as np  # noqa: PLC0415

    from mmhash.hashing import key  # noqa: PLC0415

    try:
        array = np.lib.format.open_memmap(name, mode="r")
    except OSError:
        raise
    except Exception as error:  # numpy's parser lets the errors of its parts through: TokenError, …
        raise InputValueError(
            "not an .npy file of plain numbers (objects would be pickles, which are never"
            f" loaded): {error}"
        ) from error
    return key(array, **hashing._asdict())


def _tensor_keys(name: str, hashing: _Hashing) -> Iterator[_Keyed]:
    from mmhash.hashing import digest  # noqa: PLC0415
    from mmhash.io.safetensors import read_tensors  # noqa: PLC0415

    for tensor in read_tensors(name):
        content = digest(tensor.data, algorithm=hashing.algorithm)
        key = frame("tensor", tensor.dtype, tensor.shape, content, tenant=hashing.tenant)
        yield _Keyed(f"{name}:{tensor.name}", key)


def _image_key(name: str, hashing: _Hashing) -> _Keyed:
    from mmhash.hashing import digest  # noqa: PLC0415
    from mmhash.io.images import read_image_file  # noqa: PLC0415

    with open_file(name) as file:
        image = read_image_file(file)
    content = digest(image.pixels, algorithm=hashing.algorithm)
    return _Keyed(name, image.key(content, tenant=hashing.tenant), image.exif_orientation)
