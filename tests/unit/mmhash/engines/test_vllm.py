import io
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mmhash import InputTypeError, InputValueError
from mmhash.engines import vllm
from mmhash.engines.vllm import EncodedMedia, Lora, Span

RELEASES = ["0.18.0", "0.19.0", "0.27.1", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0"]
UNFRAMED, FRAMED = "0.30.0", "0.33.0"
PHOTO = Image.frombytes("RGB", (2, 2), bytes(range(12)))
TOKENS = list(range(1000, 1064))


def named(value: Any, version: str = FRAMED, **options: Any) -> str:
    return vllm.mm_hash(version=version, value=value, **options)


# Items


def test_algorithms() -> None:
    lengths = {name: len(named(1, algorithm=name)) for name in ("blake3", "sha256", "sha512")}
    assert lengths == {"blake3": 64, "sha256": 64, "sha512": 128}
    with pytest.raises(InputValueError, match="'md5': choose one of blake3, sha256, sha512"):
        named(1, algorithm="md5")


def test_framing_tells_apart_what_older_releases_confuse() -> None:
    twins: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"k": ["a"]}, {"k": {"0": "a"}}),
        ({"ab": "c"}, {"a": "bc"}),
        ({"a": {"b": 1}}, {"a.b": 1}),
        ({"a": None}, {"a": ""}),
        ({"b": 1, "a": []}, {"b": 1}),
    ]
    for one, other in twins:
        assert vllm.mm_hash(version=UNFRAMED, **one) == vllm.mm_hash(version=UNFRAMED, **other)
        assert vllm.mm_hash(version=FRAMED, **one) != vllm.mm_hash(version=FRAMED, **other)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1])
def test_an_int_that_64_bits_do_not_hold(number: int) -> None:
    with pytest.raises(InputValueError, match="an int above 64 bits"):
        named([number])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (bytearray(b"a"), "pickles a builtins.bytearray"),
        (np.float32(1), "pickles a numpy.float32"),
        (np.array([object()]), "an object array holds pointers"),
        (np.frombuffer(b"\xff\xff\xff\x7f", "<U1").reshape(()), "a value cannot be read: invalid"),
        (np.ma.masked_array([1, 2], [True, False]), "call filled"),
        (torch.zeros(2, dtype=torch.float8_e4m3fn), "cannot hash this torch.float8_e4m3fn tensor"),
        (torch.zeros(2, requires_grad=True), "cannot hash this torch.float32 tensor"),
        (memoryview(b"abcd")[::2], "cannot be read: buffer is not contiguous"),
        (EncodedMedia("clip", b"mp4"), "that holds a str"),
        (EncodedMedia(PHOTO, bytearray(b"png")), "original_bytes must be bytes, not bytearray"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_of_an_unknown_type_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InputTypeError, match=message):
        named(value)


def test_a_value_that_cannot_be_encoded_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for version in (UNFRAMED, FRAMED):
        with pytest.raises(InputValueError, match="nested too deep"):
            named(endless, version)
        with pytest.raises(InputValueError, match="UTF-8"):
            named("\ud800", version)
        with pytest.raises(InputValueError, match="UTF-8"):
            named({"\ud800": 1}, version)
    damaged = Image.open(io.BytesIO(_png()[:60]))
    with pytest.raises(InputValueError, match="truncated or damaged"):
        named(damaged)


def test_damaged_exif() -> None:
    buffer = io.BytesIO()
    PHOTO.save(buffer, "PNG", exif=b"Exif\0\0XXXX" + bytes(32))
    image = Image.open(buffer)
    assert named(image, "0.31.0") == named(PHOTO, "0.31.0")
    image = Image.open(buffer)
    with pytest.raises(InputValueError, match="EXIF is damaged"):
        named(image, "0.30.0")


@pytest.mark.parametrize("version", ["0.27.0", "0.28.0", "0.30.0", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_an_image_that_the_server_decodes_is_named_by_its_file(version: str, mode: str) -> None:
    background = [0, 0, 255]
    io_config = {"image_mode": "RGB", "rgba_background_color": background}
    media_io = {"image": {"rgba_background_color": background}}
    options: dict[str, Any] = {
        "model_id": "m",
        "processor_kwargs": {"max_pixels": 4},
        "media_io_kwargs": media_io,
        "version": version,
        "algorithm": "sha256",
    }
    media = EncodedMedia(PHOTO, b"png", None if mode == "RGB" else io_config)
    (expected,) = vllm.identifiers("image", [media], **options)
    assert vllm.image_identifier(b"png", is_rgb=mode == "RGB", **options) == expected


def test_a_transparent_colour_is_converted_since_0_33() -> None:
    def identifier(version: str, **facts: bool) -> str | None:
        return vllm.image_identifier(b"png", model_id="m", version=version, **facts)

    keyed = {"is_rgb": True, "is_keyed": True}
    assert identifier("0.32.0", **keyed) == identifier("0.32.0", is_rgb=True)
    assert identifier("0.33.0", **keyed) == identifier("0.33.0", is_rgb=False)


def test_an_image_whose_name_depends_on_its_pixels_has_none() -> None:
    assert vllm.image_identifier(b"png", is_rgb=True, model_id="m", version="0.26.0") is None
    gray = {"image": {"image_mode": "L"}}
    assert vllm.image_identifier(b"", is_rgb=True, model_id="m", media_io_kwargs=gray) is None


def test_encoded_video() -> None:
    frames = np.zeros((2, 3), np.uint8)
    long, short = bytes(7), bytes(6)
    for version in ("0.27.0", "0.30.0", "0.33.0"):
        larger, smaller = EncodedMedia(frames, short), EncodedMedia(frames, long)
        assert named(larger, version) != named(smaller, version)
        assert named(smaller, version) == named(EncodedMedia(frames, bytes(100)), version)
    assert named(EncodedMedia(torch.from_numpy(frames), short), "0.30.0") == (
        named(EncodedMedia(frames, short), "0.30.0")
    )
    for version, media in (("0.26.0", frames), ("0.29.0", torch.from_numpy(frames))):
        with pytest.raises(InputTypeError, match="this release of vLLM pickles encoded media"):
            named(EncodedMedia(media, short), version)


def test_identifiers_without_options() -> None:
    hashed = vllm.mm_hash(model_id="m", image=PHOTO)
    assert vllm.identifiers("image", [PHOTO], model_id="m") == [hashed]
    both = vllm.identifiers("image", [PHOTO, PHOTO], model_id="m", uuids=["mine", None])
    assert both == ["mine", hashed]
    assert vllm.identifiers("image", [], model_id="m") == []


def test_options_are_hashed_with_a_uuid() -> None:
    def identify(modality: str, version: str, **options: Any) -> str:
        (found,) = vllm.identifiers(
            modality, [None], model_id="m", uuids=["u"], version=version, **options
        )
        return found

    options = {"images_kwargs": {"a": 1}, "audio_kwargs": {"b": 2}, "size": 3}
    assert identify("image", "0.29.0", processor_kwargs=options) == (
        vllm.mm_hash(version="0.29.0", model_id="m", image="u", **options)
    )
    for modality, of_modality in (
        ("image", {"images_kwargs": {"a": 1}, "size": 3}),
        ("video", {"size": 3}),
        ("vision_chunk", options),
    ):
        expected = vllm.mm_hash(model_id="m", **{modality: "u"}, mm_processor_kwargs=of_modality)
        assert identify(modality, "0.33.0", processor_kwargs=options) == expected
    media_io = {"image": {"image_mode": "RGB"}, "video": {}}
    assert identify("image", "0.33.0", media_io_kwargs=media_io) == vllm.mm_hash(
        model_id="m", image="u", media_io_kwargs={"image": {"image_mode": "RGB"}}
    )
    assert identify("video", "0.33.0", media_io_kwargs=media_io) == "u"
    assert identify("image", "0.29.0", media_io_kwargs=media_io) == "u"
    assert identify("audio", "0.33.0", processor_kwargs={"videos_kwargs": {"fps": 1}}) == "u"


# As vLLM 0.32.0 has them for the uuids "a" and "b" of two videos of Qwen3-VL, model "m".
PER_VIDEO = [
    (
        {"fps": 2.0},
        "d754a7efe3324a090fc5fe6030d8b1b43f4624e871b7cca44e660ed3a3598f8d",
        "d0e688fd3aab5ef29498d78b235088b0841a6830b446f077e8de8bca0bbd3fa1",
    ),
    (
        {"fps": [1.0, 2.0]},
        "64599580c8f5ce9dadd2ef0c49117465c9f613539fea1de89697643ef7516c4e",
        "39aa863c8f02beef6d8dda793599fbc5740c3fea3acd18f0b6660299480d7412",
    ),
    (
        {"fps": [1.0, 2.0], "num_frames": [2, 4]},
        "b0e64407382b486db3aebe3aad2044f8b4bf0ff9b4b170df7d800f6f49e6daee",
        "dfdea5da573eac8b6381d33cbc4384f98a47df241dac5408b6e7499831a101f4",
    ),
    (
        {"videos_kwargs": {"fps": [1.0, 2.0]}, "fps": [3.0, 4.0]},
        "1df63de5eac649b86aaf66493cf1477ebb98bd6c56ef71e319790d1269fa25c7",
        "e79fb2e6d4665eec07bd8bcc1ffe546b16034a2eca7b907f2294f5ec403e6dd8",
    ),
    (
        {"fps": [1.0, 2.0], "videos_kwargs": {"fps": 3.0}},
        "8d393ef78413a1927abb24bf2b8decc40a0309218fe911d60d340fd22c15815e",
        "ed3150b3050a7cc0f44e9363315d8f8f0f7303997aff9a882fa9621e7664c602",
    ),
    ({"images_kwargs": {"fps": [1.0, 2.0]}}, "a", "b"),
]


@pytest.mark.parametrize(("options", *"ab"), PER_VIDEO)
def test_options_of_each_video_are_hashed_with_it(options: Any, a: str, b: str) -> None:
    def identify(modality: str, version: str, *, per_video: bool) -> list[str]:
        return vllm.identifiers(
            modality,
            [None, None],
            model_id="m",
            uuids=["a", "b"],
            processor_kwargs=options,
            per_video_options=per_video,
            version=version,
        )

    assert identify("video", "0.32.0", per_video=True) == [a, b]
    assert identify("video", "0.33.0", per_video=True) == [a, b]
    for modality, version in (("video", "0.31.0"), ("image", "0.32.0")):
        other = identify(modality, version, per_video=False)
        assert identify(modality, version, per_video=True) == other


def test_each_video_has_its_entry() -> None:
    with pytest.raises(InputValueError, match="fps needs an entry per video: 2, not 1"):
        vllm.identifiers(
            "video",
            [b"a", b"b"],
            model_id="m",
            processor_kwargs={"fps": [1.0]},
            per_video_options=True,
        )
    options = {"processor_kwargs": {"fps": [1.0]}, "per_video_options": True}
    assert vllm.identifiers("video", [], model_id="m", **options) == []


def test_until_0_26_a_request_without_uuids_is_hashed_by_what_was_decoded() -> None:
    encoded = EncodedMedia(PHOTO, b"png")
    for version, item in (("0.26.0", PHOTO), ("0.27.0", encoded)):
        hashed = vllm.mm_hash(version=version, model_id="m", image=item)
        assert vllm.identifiers("image", [encoded], model_id="m", version=version) == [hashed]
    hashed = vllm.mm_hash(version="0.26.0", model_id="m", image=encoded)
    given = vllm.identifiers("image", [encoded], model_id="m", uuids=[None], version="0.26.0")
    assert given == [hashed]


def test_wrong_arguments_of_identifiers_are_refused() -> None:
    with pytest.raises(InputTypeError, match="items must be a list, not Image"):
        vllm.identifiers("image", PHOTO, model_id="m")  # type: ignore[arg-type]
    with pytest.raises(InputValueError, match="uuids needs an entry per item: 1, not 2"):
        vllm.identifiers("image", [PHOTO], model_id="m", uuids=["a", "b"])
    with pytest.raises(InputTypeError, match="an entry of uuids must be a str or None"):
        vllm.identifiers("image", [PHOTO], model_id="m", uuids=[7])  # type: ignore[list-item]
    with pytest.raises(InputValueError, match="must differ"):
        vllm.identifiers(
            "image", [PHOTO], model_id="m", processor_kwargs={"image": 1}, version="0.29.0"
        )
    with pytest.raises(InputTypeError, match="names of processor_kwargs must be text"):
        vllm.identifiers(
            "image",
            [PHOTO],
            model_id="m",
            processor_kwargs={1: 2},
            version="0.29.0",  # type: ignore[dict-item]
        )


# Blocks


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"])
def test_roots(algorithm: str) -> None:
    for version in RELEASES:
        one = vllm.none_hash(version=version, seed="0", block_algorithm=algorithm)
        assert one == vllm.none_hash(seed="0", block_algorithm=algorithm)
        assert one != vllm.none_hash(version=version, seed="", block_algorithm=algorithm)
    for version in ("0.18.0", "0.28.0"):
        with pytest.raises(InputValueError, match="is random in each process"):
            vllm.none_hash(version=version, block_algorithm=algorithm)
    if algorithm.startswith("xxhash"):
        with pytest.raises(InputValueError, match=f"the root of {algorithm} in vllm"):
            vllm.none_hash(version="0.33.0", block_algorithm=algorithm)
    else:
        assert vllm.none_hash(version="0.29.0", block_algorithm=algorithm) == (
            vllm.none_hash(seed="vllm-none-hash", block_algorithm=algorithm)
        )


TOKEN_LISTS = st.lists(st.integers(0, 2**64 - 1), max_size=60)


@st.composite
def spans(draw: st.DrawFn, scale: int = 1) -> list[Span]:
    """Spans that neither overlap nor stand in a wrong order, some of which touch."""
    found, at = [], 0
    for _ in range(draw(st.integers(0, 5))):
        at += draw(st.integers(0, 9))
        length = scale * draw(st.integers(1, 20))
        found.append(Span(draw(st.sampled_from("abc")), at, length))
        at = found[-1].end
    return found


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor", "xxhash"])
@given(data=st.data(), block_size=st.integers(1, 20), salt=st.sampled_from([None, "s"]))
def test_blocks_of_one_repeated_token_are_chained_as_others(
    algorithm: str, data: st.DataObject, block_size: int, salt: str | None
) -> None:
    token, other = data.draw(st.tuples(*[st.sampled_from([1, 200, 70_000, 2**40])] * 2))
    items = data.draw(spans(10))
    tokens = [other] * max([200, *[item.end for item in items]])
    for item in items:
        tokens[item.offset : item.end] = [token] * item.length
        tokens[data.draw(st.integers(item.offset, item.end - 1))] = data.draw(
            st.sampled_from([token, other])
        )
    options: dict[str, Any] = {"items": items, "cache_salt": salt}
    keys = vllm.block_keys(tokens, block_size, block_algorithm=algorithm, seed="0", **options)
    parent = b""
    for index, extra in enumerate(vllm.extra_keys(tokens, block_size, **options)):
        block = tokens[block_size * index :][:block_size]
        parent = vllm.block_key(
            block, parent=parent, extra=extra, block_algorithm=algorithm, seed="0"
        )
        assert parent == keys[index]
    assert len(keys) == len(tokens) // block_size


@pytest.mark.parametrize("version", RELEASES)
@given(tokens=TOKEN_LISTS, items=spans(), block_size=st.integers(1, 20), cut=st.integers(0, 60))
def test_keys_of_a_prefix_are_a_prefix_of_the_keys(
    version: str, tokens: list[int], items: list[Span], block_size: int, cut: int
) -> None:
    def keys(tokens: list[int]) -> list[bytes]:
        return vllm.block_keys(tokens, block_size, version=version, items=items, seed="0")

    whole, part = keys(tokens), keys(tokens[:cut])
    assert len(whole) == len(tokens) // block_size
    assert part == whole[: len(tokens[:cut]) // block_size]


@pytest.mark.parametrize("version", RELEASES)
@given(items=spans(), block_size=st.integers(1, 20))
def test_a_block_binds_the_items_that_it_holds(
    version: str, items: list[Span], block_size: int
) -> None:
    extras = vllm.extra_keys(TOKENS, block_size, version=version, items=items)
    for index, extra in enumerate(extras):
        start, end = block_size * index, block_size * index + block_size
        held = [item for item in items if item.offset < end and item.end > start]
        assert len(extra or ()) == len(held)


@given(
    items=spans(),
    block_size=st.integers(1, 20),
    steps=st.lists(st.integers(0, 64), max_size=4).map(sorted),
    lookahead=st.integers(0, 3),
)
def test_steps_do_not_count_since_0_31(
    items: list[Span], block_size: int, steps: list[int], lookahead: int
) -> None:
    options: dict[str, Any] = {"items": items, "lookahead": lookahead}
    in_one_go = vllm.extra_keys(TOKENS, block_size, **options)
    assert vllm.extra_keys(TOKENS, block_size, **options, hashed_after=steps) == in_one_go


def test_lookahead() -> None:
    items = [Span("a", 17, 3)]
    found = vllm.extra_keys(TOKENS[:33], 16, items=items, lookahead=2)
    assert found == [((("mm", "a", 17),), TOKENS[16], TOKENS[17])]
    assert len(vllm.block_keys(TOKENS[:33], 16, lookahead=1)) == 2
    with pytest.raises(InputValueError, match="has no lookahead: it came with"):
        vllm.block_keys(TOKENS, 16, version="0.32.0", lookahead=1)


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_kinds_of_tokens(algorithm: str) -> None:
    keys = vllm.block_keys(TOKENS, 16, block_algorithm=algorithm)
    for tokens in (tuple(TOKENS), np.array(TOKENS), torch.tensor(TOKENS)):
        assert vllm.block_keys(tokens, 16, block_algorithm=algorithm) == keys  # type: ignore[arg-type]
    assert vllm.block_keys([], 16, block_algorithm=algorithm) == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tokens": "text"}, InputTypeError, "tokens must be a list of ints, not str"),
        ({"tokens": [1, 2.5]}, InputTypeError, "int, not float"),
        ({"tokens": [2**64]}, InputValueError, "from 0 to 2\\*\\*64 - 1"),
        ({"block_size": 0}, InputValueError, "block_size must be at least 1, not 0"),
        ({"lookahead": -1}, InputValueError, "lookahead must be at least 0, not -1"),
        ({"items": [("a", 1, 2)]}, InputTypeError, "items must hold Spans, not tuple"),
        ({"items": [Span("a", 1, 0)]}, InputValueError, "length must be at least 1, not 0"),
        ({"items": [Span("a", 9, 2), Span("b", 1, 2)]}, InputValueError, "order of their offsets"),
        ({"items": [Span("\ud800", 1, 2)]}, InputValueError, "identifier has a lone surrogate"),
        ({"cache_salt": 7}, InputTypeError, "cache_salt must be a str, not int"),
        ({"lora": "l"}, InputTypeError, "lora must be a Lora or None, not str"),
        ({"block_algorithm": "sha512"}, InputValueError, "unknown block_algorithm 'sha512'"),
        ({"hashed_after": [8, 4]}, InputValueError, "hashed_after must rise"),
    ],
    ids=str,
)
def test_wrong_arguments_of_block_keys_are_refused(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    prompt = {"tokens": TOKENS, "block_size": 16, **change}
    with pytest.raises(error, match=message):
        vllm.block_keys(**prompt)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["0.18.1", "0.30.0", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_equal_extra_keys_are_one_block(version: str, algorithm: str) -> None:
    """A pickle shows which texts are one object: those of a block are not, except for the tags."""
    items = [Span("ab", 0, 3), Span("ab", 3, 2), Span("mm", 5, 2)]
    options: dict[str, Any] = {"version": version, "block_algorithm": algorithm, "seed": "0"}
    request: dict[str, Any] = {"items": items, "cache_salt": "ab", "lora": Lora("ab", "ab")}
    (expected,) = vllm.block_keys(TOKENS[:16], 16, **request, **options)
    (extra,) = vllm.extra_keys(TOKENS[:16], 16, **request, version=version)
    assert extra is not None

    def rebuilt(value: Any, make: Callable[[str], str]) -> Any:
        if isinstance(value, tuple):
            return tuple(rebuilt(part, make) for part in value)
        return make(value) if isinstance(value, str) else value

    for make in (str, sys.intern, lambda text: text.encode().decode()):
        same = rebuilt(extra, make)
        assert same == extra
        assert vllm.block_key(TOKENS[:16], extra=same, **options) == expected


def test_wrong_arguments_of_block_key_are_refused() -> None:
    with pytest.raises(InputTypeError, match="parent must be bytes, not str"):
        vllm.block_key(TOKENS, parent="00")  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="extra must be a tuple or None, not list"):
        vllm.block_key(TOKENS, extra=["a"])  # type: ignore[arg-type]
    for algorithm in ("sha256", "sha256_cbor"):
        with pytest.raises(InputTypeError, match="type object"):
            vllm.block_key(TOKENS, extra=(object(),), block_algorithm=algorithm)


def _png() -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((20, 20), 50).save(buffer, "PNG")
    return buffer.getvalue()
