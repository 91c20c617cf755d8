import io
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from mmhash import InputError, InputTypeError, InputValueError
from mmhash.engines import dynamo
from mmhash.engines.dynamo import RoutingSpan

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
RGB = Image.fromarray(PIXELS)
A, B = "00000000000000ff", "ffffffffffffffff"

CALLS: list[Callable[..., object]] = [
    lambda **options: dynamo.mm_hash(PIXELS, **options),
    lambda **options: dynamo.url_hash("https://a/b.png", **options),
    lambda **options: dynamo.bytes_hash(b"abc", **options),
    lambda **options: dynamo.image_uuid(RGB, **options),
    lambda **options: dynamo.uuid(A, **options),
    lambda **options: dynamo.pad_value(A, **options),
    lambda **options: dynamo.routing_tokens([1, 2], [RoutingSpan(A, 0, 1)], **options),
    lambda **options: dynamo.block_keys([1, 2, 3], 2, **options),
    lambda **options: dynamo.sequence_keys([A, B], **options),
]


@pytest.mark.parametrize("call", CALLS)
def test_versions(call: Callable[..., object]) -> None:
    assert call() == call(version="1.6") == call(version="1.6.0") == call(version="1.6.1")
    for version in ("1.5.1", "1.6.2", "2.0"):
        with pytest.raises(InputValueError, match=r"dynamo .* mmhash knows 1\.6\.0 to 1\.6\.1"):
            call(version=version)


def test_mm_hash_of_one_content() -> None:
    strided = np.zeros((2, 8, 3), np.uint8)
    strided[:, ::2] = PIXELS
    for same in (strided[:, ::2], torch.from_numpy(PIXELS), RGB):
        assert dynamo.mm_hash(same) == dynamo.mm_hash(PIXELS)
    assert dynamo.mm_hash(PIXELS.reshape(4, 2, 3)) != dynamo.mm_hash(PIXELS)


@pytest.mark.parametrize(
    ("decoded", "words"),
    [
        (PIXELS.astype(np.float32), "not float32"),
        (b"abc", "not bytes"),
        (PIXELS[:0], "without pixels"),
        (RGB.convert("P"), r"\bP\b"),
        (Image.new("RGB", (0, 3)), "without pixels"),
    ],
)
def test_mm_hash_refuses_other_values(decoded: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        dynamo.mm_hash(decoded)


def test_a_damaged_image() -> None:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 50).convert("RGB").save(file, "PNG")
    for name in (dynamo.mm_hash, dynamo.image_uuid):
        with pytest.raises(InputValueError, match="damaged"):
            name(Image.open(io.BytesIO(file.getvalue()[:300])))


def test_image_uuid_byte_by_byte() -> None:
    header = bytes([1, 0, 0, 3]) + (2).to_bytes(4, "little") + (4).to_bytes(4, "little")
    assert dynamo.image_uuid(PIXELS) == blake3(header + PIXELS.tobytes()).hexdigest()
    assert dynamo.image_uuid(RGB) == dynamo.image_uuid(PIXELS)


@pytest.mark.parametrize(
    ("image", "error", "words"),
    [
        (RGB.convert("L"), InputValueError, r"\bL\b"),
        (PIXELS[0], InputValueError, r"not uint8 of \(4, 3\)"),
        (torch.from_numpy(PIXELS), InputTypeError, "not Tensor"),
        (b"abc", InputTypeError, "not bytes"),
    ],
)
def test_image_uuid_refuses_other_images(image: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dynamo.image_uuid(image)


def test_url_hash() -> None:
    assert dynamo.url_hash("https://ü") == xxh3_64_hexdigest("https://ü".encode())
    with pytest.raises(InputTypeError, match="url must be a str, not bytes"):
        dynamo.url_hash(b"https://a")  # type: ignore[arg-type]
    with pytest.raises(InputValueError, match="url has a lone surrogate"):
        dynamo.url_hash("\ud800")


def test_bytes_hash_takes_bytes_alone() -> None:
    for same in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
        assert dynamo.bytes_hash(same) == blake3(b"abc").hexdigest()
    for other in (PIXELS, RGB):
        with pytest.raises(InputTypeError, match="encoded item"):
            dynamo.bytes_hash(other)


def test_uuid_keeps_the_first_16_digits() -> None:
    assert dynamo.uuid(A) == A + "0" * 48
    assert dynamo.uuid("Ab" * 32) == "Ab" * 8 + "0" * 48
    for text in ("client-uuid", A[:15], "", "0x" + A):
        with pytest.raises(InputValueError, match="mm_hash must start with 16 hex digits"):
            dynamo.uuid(text)
    with pytest.raises(InputTypeError, match="mm_hash must be a str, not int"):
        dynamo.uuid(5)  # type: ignore[arg-type]


@given(st.integers(0, 2**64 - 1))
def test_pad_value_keeps_30_bits(number: int) -> None:
    assert dynamo.pad_value(f"{number:016x}") == 1_000_000 + number % 2**30
    assert dynamo.pad_value(f"{number:016x}") < 2**31


@pytest.mark.parametrize("text", ["", "ff", A + A, " " + A[1:], "0x" + A[2:], A[:-1] + "\n"])
def test_pad_value_takes_16_digits(text: str) -> None:
    with pytest.raises(InputValueError, match="mm_hash: a hash must be 16 hex digits"):
        dynamo.pad_value(text)


TOKENS = list(range(10))
PAD_A, PAD_B = dynamo.pad_value(A), dynamo.pad_value(B)


@pytest.mark.parametrize(
    ("spans", "places"),
    [
        ([RoutingSpan(A, 2, 3)], {2: PAD_A, 3: PAD_A, 4: PAD_A}),
        ([RoutingSpan(A, 2, 3), RoutingSpan(B, 4, 2)], {2: PAD_A, 3: PAD_A, 4: PAD_B, 5: PAD_B}),
        ([RoutingSpan(A, 8, 9)], {8: PAD_A, 9: PAD_A}),
        ([RoutingSpan(None, 0, 9), RoutingSpan(A, 1, 1)], {1: PAD_A}),
        ([RoutingSpan(A, 2, 3, [True, False, True])], {2: PAD_A, 4: PAD_A}),
        ([RoutingSpan(A, 2, 3, np.array([0, 1, 0]))], {3: PAD_A}),
        ([RoutingSpan(A, 2, 3, torch.tensor([False, True, True]))], {3: PAD_A, 4: PAD_A}),
        ([RoutingSpan(A, 8, 3, [False, True, True])], {9: PAD_A}),
        # Python reads the digits, so what it takes for a number Dynamo does too.
        ([RoutingSpan("0xff", 0, 1)], {0: PAD_A}),
        ([RoutingSpan("f_f", 0, 1)], {0: PAD_A}),
        ([RoutingSpan("-1", 0, 1)], {0: 1_000_000 + 2**30 - 1}),
    ],
)
def test_routing_tokens(spans: list[RoutingSpan], places: dict[int, int]) -> None:
    wanted = [places.get(place, token) for place, token in enumerate(TOKENS)]
    assert dynamo.routing_tokens(TOKENS, spans) == wanted
    assert dynamo.routing_tokens(np.array(TOKENS), spans) == wanted


@pytest.mark.parametrize(
    "spans",
    [[], [RoutingSpan(None, 0, 3)], [RoutingSpan(A, 3, 0)], [RoutingSpan(A, 10, 3)], [RoutingSpan(A, 50, 3)],
     [RoutingSpan(A, 0, 2, [False, False])], [RoutingSpan(A, 50, 3, [True, False, False])]],
)  # fmt: skip
def test_no_routing_tokens(spans: list[RoutingSpan]) -> None:
    assert dynamo.routing_tokens(TOKENS, spans) is None


@pytest.mark.parametrize(
    ("spans", "error", "words"),
    [
        ([RoutingSpan("client-uuid", 0, 2)], InputValueError, "mm_hash must start with hex digits"),
        ([RoutingSpan(5, 0, 2)], InputTypeError, "mm_hash must be a str, not int"),  # type: ignore[arg-type]
        ([RoutingSpan(A, -1, 2)], InputValueError, "offset must be at least 0, not -1"),
        ([RoutingSpan(A, True, 1)], InputTypeError, "offset must be an int, not bool"),
        (
            [RoutingSpan(A, 11, 3, [True, True, True])],
            InputValueError,
            "offset 11 is past the 10 tokens",
        ),
        (RoutingSpan(A, 0, 2), InputTypeError, "spans must hold RoutingSpans"),
        (None, InputTypeError, "spans must be a list, not NoneType"),
    ],
)
def test_bad_spans(spans: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dynamo.routing_tokens(TOKENS, spans)


def block(tokens: list[int], seed: int = 1337, tail: bytes = b"") -> str:
    return xxh3_64_hexdigest(b"".join(t.to_bytes(4, "little") for t in tokens) + tail, seed)


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(1, 9))
def test_block_keys_are_the_full_blocks(tokens: list[int], size: int) -> None:
    whole = [tokens[at : at + size] for at in range(0, len(tokens) - size + 1, size)]
    keys = dynamo.block_keys(tokens, size)
    assert keys == [block(part) for part in whole]
    assert dynamo.block_keys(np.array(tokens, np.int64), size) == keys
    assert dynamo.block_keys(np.array(tokens, ">u8"), size) == keys
    assert dynamo.block_keys(array("q", tokens), size) == keys
    windows = [tokens[at : at + size + 1] for at in range(0, len(tokens) - size, size)]
    assert dynamo.block_keys(tokens, size, eagle=True) == [block(part) for part in windows]


@pytest.mark.parametrize(
    "same",
    [tuple(TOKENS), range(10), torch.tensor(TOKENS), [np.int64(n) for n in TOKENS],
     np.array(TOKENS).repeat(2)[::2]],
)  # fmt: skip
def test_tokens_of_other_kinds(same: Any) -> None:
    assert dynamo.block_keys(same, 4) == dynamo.block_keys(TOKENS, 4)


def test_the_items_of_a_block() -> None:
    plain = dynamo.block_keys(TOKENS, 5)
    sorted_tail = int(A, 16).to_bytes(8, "little") + int(B, 16).to_bytes(8, "little")
    both: list[Any] = [[[B, A]], [[A, B], None], [(A, B), []]]
    for items in both:
        assert dynamo.block_keys(TOKENS, 5, items=items) == [
            block(TOKENS[:5], tail=sorted_tail),
            plain[1],
        ]
    none: list[Any] = [[], [None], [[], []], [None, None, [A]]]
    for items in none:
        assert dynamo.block_keys(TOKENS, 5, items=items) == plain
    assert dynamo.block_keys(TOKENS, 5, items=[[A, A]]) != dynamo.block_keys(TOKENS, 5, items=[[A]])


def test_lora_and_salt_move_the_seed() -> None:
    lora, salt = xxh3_64_intdigest("ü".encode(), 0), xxh3_64_intdigest(b"s", 1)
    for name, secret, seed in (
        ("ü", None, 1337 + lora),
        (None, "s", 1337 + salt),
        ("ü", "s", 1337 + lora + salt),
        ("", "", 1337),
    ):
        keys = dynamo.block_keys(TOKENS, 10, lora=name, cache_salt=secret)
        assert keys == [block(TOKENS, seed % 2**64)]
    assert dynamo.block_keys(TOKENS, 10, lora="s") != dynamo.block_keys(TOKENS, 10, cache_salt="s")


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        ((TOKENS, 0), {}, InputValueError, "block_size must be at least 1"),
        ((TOKENS, 4.0), {}, InputTypeError, "block_size must be an int, not float"),
        (([2**32, 2], 2), {}, InputValueError, "tokens holds a number"),
        ((np.array([2**32, 2]), 2), {}, InputValueError, "tokens holds a number"),
        ((np.array([1.0]), 1), {}, InputTypeError, "tokens must be a row of ints, not float64"),
        ((np.array([[1]]), 1), {}, InputTypeError, r"tokens must be .* \(1, 1\)"),
        (([1.0], 1), {}, InputTypeError, "tokens must be a list of ints"),
        (("abcd", 1), {}, InputTypeError, "tokens must be a list of ints, not str"),
        ((TOKENS, 4), {"items": "ab"}, InputTypeError, "items must be a list, not str"),
        ((TOKENS, 4), {"items": [A]}, InputTypeError, "a block of items must be a list, not str"),
        ((TOKENS, 4), {"items": [[5]]}, InputTypeError, "items must be a str, not int"),
        (
            (TOKENS, 4),
            {"items": [["1" + A]]},
            InputValueError,
            "items: a hash must be 16 hex digits",
        ),
        ((TOKENS, 4), {"lora": 5}, InputTypeError, "lora must be a str, not int"),
        ((TOKENS, 4), {"cache_salt": "\ud800"}, InputValueError, "cache_salt has a lone surrogate"),
    ],
)
def test_bad_blocks(arguments: Any, options: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        dynamo.block_keys(*arguments, **options)


def test_sequence_keys_chain() -> None:
    keys = dynamo.block_keys(TOKENS, 3)
    first, second, third = dynamo.sequence_keys(keys)
    assert first == keys[0]
    for parent, key, chained in ((first, keys[1], second), (second, keys[2], third)):
        pair = bytes.fromhex(parent)[::-1] + bytes.fromhex(key)[::-1]
        assert chained == xxh3_64_hexdigest(pair, 1337)
    assert dynamo.sequence_keys([]) == []
    assert dynamo.sequence_keys(keys[:2]) == [first, second]


@pytest.mark.parametrize(
    ("keys", "error"),
    [(A, InputTypeError), ([5], InputTypeError), (["ff"], InputValueError), (None, InputTypeError)],
)
def test_bad_sequences(keys: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="block_keys"):
        dynamo.sequence_keys(keys)
