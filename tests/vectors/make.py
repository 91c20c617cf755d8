"""Write the vectors of docs/spec.md: `python tests/vectors/make.py`.

The values come from the spec's own text, written out here once more in the plainest way, not from
mmhash: so the vectors judge the library, and test_vectors.py judges whether they are up to date.
"""

import json
import struct
from pathlib import Path
from typing import Any

from blake3 import blake3
from xxhash import xxh3_128

HERE = Path(__file__).parent
LEAF = 262144
MIB = 1 << 20

LENGTHS = {
    0: "empty",
    1: "one byte",
    3: "the longest XXH3 of its shortest form",
    4: "its next form",
    8: "its last length of that form",
    9: "its next form",
    16: "its last length of that form",
    17: "its next form",
    63: "one byte short of a BLAKE3 block",
    64: "a BLAKE3 block",
    65: "and one byte",
    128: "two blocks, and the end of an XXH3 form",
    129: "its next form",
    240: "its last length of that form",
    241: "the long form of XXH3",
    1023: "one byte short of a BLAKE3 chunk",
    1024: "a BLAKE3 chunk, and an XXH3 stripe block",
    1025: "and one byte: the first parent",
    2048: "two chunks",
    2049: "three chunks: an uneven tree",
    3072: "three whole chunks",
    3073: "four chunks, the last of one byte",
    4096: "four chunks: a full tree of two levels",
    4097: "five chunks",
    8192: "eight chunks: the widest SSE and AVX2 lanes",
    8193: "nine chunks",
    16384: "sixteen chunks: the widest AVX-512 lanes",
    31744: "31 chunks: every level of the tree is uneven",
    LEAF - 1: "one byte short of an xxh3 leaf",
    LEAF: "an xxh3 leaf",
    LEAF + 1: "and one byte: a second leaf",
    2 * LEAF: "two leaves",
    3 * LEAF + 1023: "four leaves, the last of them short",
    MIB - 1: "one byte short of the parallel path",
    MIB: "the parallel path",
    MIB + 1: "and one byte",
    5 * MIB + 4321: "several threads with unequal shares",
}

TENANT = bytes(range(32))

TENSORS = [
    ("uint8", 1, [12], "the plainest tensor"),
    ("uint8", 1, [3, 4], "the same bytes in another shape"),
    ("uint8", 1, [4, 3], "and turned: 30x100 is not 100x30"),
    ("int8", 1, [12], "the same bytes in another dtype"),
    ("bool", 1, [12], "bytes other than 0 and 1 are hashed as they are"),
    ("float16", 2, [2, 3], "two bytes an element"),
    ("bfloat16", 2, [2, 3], "the same size, another dtype"),
    ("uint16", 2, [2, 3], "unsigned 16 bit"),
    ("float32", 4, [1, 3, 2, 2], "an image's features"),
    ("float64", 8, [5], "eight bytes"),
    ("int64", 8, [5], "token ids"),
    ("uint32", 4, [5], "unsigned 32 bit"),
    ("uint64", 8, [5], "unsigned 64 bit"),
    ("complex32", 4, [2], "half precision complex"),
    ("complex64", 8, [2], "complex"),
    ("complex128", 16, [2], "double complex"),
    ("float8_e4m3fn", 1, [12], "the first of the float8 kinds"),
    ("float8_e4m3fnuz", 1, [12], "another"),
    ("float8_e5m2", 1, [12], "another"),
    ("float8_e5m2fnuz", 1, [12], "another"),
    ("float8_e8m0fnu", 1, [12], "scales"),
    ("float4_e2m1fn_x2", 1, [12], "two numbers a byte"),
    ("float32", 4, [], "0-d: one element, no dimension"),
    ("float32", 4, [1], "one element, one dimension"),
    ("float32", 4, [0], "nothing"),
    ("float32", 4, [0, 3], "nothing, in another shape"),
    ("float32", 4, [3, 0], "nothing, turned"),
    ("bfloat16", 2, [4, 40000], "more than one leaf"),
]


def pattern(length: int) -> bytes:
    """Byte i is i mod 251, so that swapped blocks show."""
    return bytes(i % 251 for i in range(length))


def u64(number: int) -> bytes:
    """8 bytes, little-endian."""
    return struct.pack("<Q", number)


def xxh3_tree(data: bytes) -> bytes:
    """Section 3 of the spec."""
    root = xxh3_128(seed=0x6D6D682D726F6F74)
    for at in range(0, len(data), LEAF):
        root.update(xxh3_128(data[at : at + LEAF], seed=0).digest())
    root.update(u64(len(data)))
    return root.digest()


def content_digest(algorithm: str, data: bytes) -> bytes:
    """Sections 2 and 3."""
    return blake3(data).digest() if algorithm == "blake3" else xxh3_tree(data)


def frame(
    algorithm: str,
    tenant: bytes | None,
    kind: str,
    dtype: str,
    shape: list[int],
    data: bytes,
    extra: bytes = b"",
) -> bytes:
    """Section 4."""
    fields = [b"1", kind.encode(), dtype.encode(), b"".join(map(u64, shape)), algorithm.encode(),
              content_digest(algorithm, data), extra]  # fmt: skip
    preimage = b"".join(u64(len(value)) + value for value in fields)
    if tenant is None:
        return blake3(preimage, derive_key_context="mmhash 2026-11-21 key v1").digest()
    secret = blake3(tenant, derive_key_context="mmhash 2026-11-21 tenant v1").digest()
    return blake3(preimage, key=secret).digest()


def describe(mode: str, size: list[int], palette: bytes, transparency: bytes) -> bytes:
    """Section 5.3: a frame of an image."""
    parts = [mode.encode(), palette, transparency]
    return (u64(len(parts[0])) + parts[0] + u64(size[0]) + u64(size[1])
            + u64(len(palette)) + palette + u64(len(transparency)) + transparency)  # fmt: skip


def item_key(item: dict[str, Any], algorithm: str, tenant: bytes | None) -> bytes:
    """Section 5."""
    match item["kind"]:
        case "bytes":
            return frame(algorithm, tenant, "bytes", "", [], pattern(item["nbytes"]))
        case "tensor":
            data = pattern(item["nbytes"])
            return frame(algorithm, tenant, "tensor", item["dtype"], item["shape"], data)
        case "image":
            palette = bytes.fromhex(item.get("palette_rgba", ""))
            if palette:
                palette += b"\0\0\0\xff" * (256 - len(palette) // 4)
            extra = describe(item["mode"], item["size"], palette, b"")
            return frame(algorithm, tenant, "image", "", [1], pattern(item["nbytes"]), extra)
        case "list":
            parts = [item_key(part, algorithm, tenant) for part in item["items"]]
            return frame(algorithm, tenant, "list", "", [len(parts)], b"".join(parts))
    raise ValueError(item["kind"])


def key_items() -> list[tuple[dict[str, Any], str]]:
    """An input with a key, and the reason for it."""
    tensors: list[tuple[dict[str, Any], str]] = []
    for dtype, itemsize, shape, why in TENSORS:
        elements = 1
        for length in shape:
            elements *= length
        tensors.append(
            ({"kind": "tensor", "dtype": dtype, "shape": shape, "nbytes": elements * itemsize}, why)
        )
    rgb = {"kind": "image", "mode": "RGB", "size": [2, 3], "nbytes": 18}
    turned = {"kind": "image", "mode": "RGB", "size": [3, 2], "nbytes": 18}
    small, twin = tensors[0][0], tensors[1][0]
    return [
        ({"kind": "bytes", "nbytes": 0}, "no bytes"),
        ({"kind": "bytes", "nbytes": 12}, "bytes are not a tensor of uint8"),
        *tensors,
        (rgb, "an image is not a tensor of its pixels"),
        (turned, "an image turned"),
        ({"kind": "image", "mode": "L", "size": [6, 3], "nbytes": 18}, "the same bytes as grey"),
        (
            {
                "kind": "image",
                "mode": "P",
                "size": [6, 3],
                "nbytes": 18,
                "palette_rgba": bytes(range(72)).hex(),
            },
            "and through a palette",
        ),
        ({"kind": "list", "items": []}, "an empty list"),
        ({"kind": "list", "items": [small]}, "a list of one is not its part"),
        ({"kind": "list", "items": [small, twin]}, "two parts"),
        ({"kind": "list", "items": [twin, small]}, "their order counts"),
        (
            {"kind": "list", "items": [{"kind": "list", "items": [small]}, twin]},
            "and their nesting",
        ),
    ]


def video_recipe(indices: list[int], size: list[int] | None, decoder: str) -> bytes:
    """Section 11: a recipe of frames."""
    runs = b""
    at = 0
    while at < len(indices):
        step = indices[at + 1] - indices[at] if at + 1 < len(indices) else 0
        end = at + 1
        while end < len(indices) and indices[end] - indices[end - 1] == step:
            end += 1
        runs += u64(indices[at]) + u64(step) + u64(end - at)
        at = end
    return fields(b"video", runs, b"".join(map(u64, size or [])), decoder.encode())


def audio_recipe(span: list[int], form: list[int], decoder: str) -> bytes:
    """Section 11: a recipe of samples."""
    parts = [b"".join(map(u64, span)), b"".join(map(u64, form)), decoder.encode()]
    return fields(b"audio", *parts)


def fields(*values: bytes) -> bytes:
    """Each value after its length."""
    return b"".join(u64(len(value)) + value for value in values)


def recipe_key(source: bytes, recipe: bytes) -> bytes:
    """Section 11."""
    return blake3(
        source + fields(recipe), derive_key_context="mmhash 2026-11-22 recipe v1"
    ).digest()


RECIPES: list[tuple[dict[str, Any], str]] = [
    ({"indices": [0]}, "one frame: a run without a step"),
    ({"indices": [0, 1]}, "two frames are a run"),
    ({"indices": [7, 9]}, "with any step"),
    ({"indices": list(range(32))}, "all of 32 frames"),
    ({"indices": [0, 2, 4, 6, 7, 8, 20]}, "three runs; the last has one frame"),
    ({"indices": [0, 1, 3, 5, 7]}, "the first run is as long as possible: 0 and 1"),
    ({"indices": [0, 1, 3, 4, 6]}, "steps that alternate"),
    ({"indices": [0, (1 << 63) - 1]}, "the largest index"),
    ({"indices": [0, 1], "size": [320, 240]}, "another size"),
    ({"indices": [0, 1], "size": [240, 320]}, "and turned"),
    ({"indices": [0, 1], "decoder": "libavcodec 62.28.102"}, "decoded pixels"),
    ({"range": [0, 88200], "form": [44100, 2, 0]}, "samples as in the source"),
    ({"range": [0, 88200], "form": [16000, 1, 0]}, "resampled and mixed"),
    ({"range": [0, 88200], "form": [16000, 1, 480000]}, "in windows"),
    ({"range": [44100, 88200], "form": [44100, 2, 0]}, "a part"),
    ({"range": [0, 88200], "form": [44100, 2, 0], "decoder": "libavcodec"}, "decoded samples"),
]


def recipe_cases() -> list[dict[str, Any]]:
    """Recipes of a source of 12 bytes, and their keys without and with the tenant."""
    cases = []
    for given, why in RECIPES:
        decoder = given.get("decoder", "")
        if "indices" in given:
            recipe = video_recipe(given["indices"], given.get("size"), decoder)
        else:
            recipe = audio_recipe(given["range"], given["form"], decoder)
        source = {"kind": "bytes", "nbytes": 12}
        keys = {
            name: recipe_key(item_key(source, "blake3", tenant), recipe).hex()
            for name, tenant in (("key", None), ("key_tenant", TENANT))
        }
        # A string: the largest numbers are none of JavaScript's.
        indices = (
            {"indices": [str(index) for index in given["indices"]]} if "indices" in given else {}
        )
        cases.append({"recipe": given | indices, "why": why, "bytes": recipe.hex(), **keys})
    return cases


def vectors() -> dict[str, Any]:
    """All files' contents by their names."""
    digests = [
        {"nbytes": nbytes, "why": why, "blake3": blake3(pattern(nbytes)).hexdigest(),
         "xxh3": xxh3_tree(pattern(nbytes)).hex()}
        for nbytes, why in LENGTHS.items()
    ]  # fmt: skip
    keys = [
        {"item": item, "why": why,
         "blake3": item_key(item, "blake3", None).hex(),
         "xxh3": item_key(item, "xxh3", None).hex(),
         "blake3_tenant": item_key(item, "blake3", TENANT).hex()}
        for item, why in key_items()
    ]  # fmt: skip
    note = "Byte i of a content is i mod 251. "
    return {
        "digest.json": {"note": note + "Hex digests, by algorithm.", "cases": digests},
        "key.json": {
            "note": note + "Hex keys, by algorithm; blake3_tenant with the tenant given.",
            "tenant": TENANT.hex(),
            "cases": keys,
        },
        "recipe.json": {
            "note": note + "The source is 12 bytes; key_tenant with the tenant given.",
            "tenant": TENANT.hex(),
            "cases": recipe_cases(),
        },
    }


def main() -> None:
    """Write each file beside this one."""
    for name, content in vectors().items():
        (HERE / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
