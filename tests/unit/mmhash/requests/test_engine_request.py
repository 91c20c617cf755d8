"""Options that change an engine's features of a medium change its hash."""

import json
from pathlib import Path
from typing import Any

import pytest

import mmhash
from mmhash.engines import vllm
from mmhash.engines.options import OPTIONS_CONTEXT, with_options
from tests.support.annotated import annotate

SPEC = Path(__file__).parents[4] / "docs" / "spec.md"
URL = "data:image/png;base64,YWJj"
KEY = mmhash.key(b"abc")
UNFRAMED = [f"0.{minor}.0" for minor in range(18, 31)]
FRAMED = ["0.31.0", "0.32.0", "0.33.0"]
OTHER = {"image": "video", "video": "image", "audio": "video"}


def part(modality: str) -> dict[str, Any]:
    return {"type": f"{modality}_url", f"{modality}_url": {"url": URL}}


def uuid_of(release: str, modality: str = "image", **options: Any) -> str:
    body = {"messages": [{"role": "user", "content": [part(modality)]}], **options}
    answer = annotate(f"vllm@{release}", body)
    (item,) = answer["items"]
    (annotated,) = answer["request"]["messages"][0]["content"]
    assert item["engines"] == {f"vllm@{release}": {"uuid": annotated["uuid"]}}
    assert item["key"] == KEY.hex()
    return str(annotated["uuid"])


NO_OPTIONS: list[dict[str, Any]] = [
    {},
    {"media_io_kwargs": None},
    {"media_io_kwargs": {}},
    {"media_io_kwargs": {"image": {}}, "mm_processor_kwargs": {}},
    {"mm_processor_kwargs": None, "temperature": 1.0},
]


@pytest.mark.parametrize("release", [*UNFRAMED, *FRAMED])
@pytest.mark.parametrize("options", NO_OPTIONS, ids=str)
def test_without_options_the_uuid_is_the_key(release: str, options: dict[str, Any]) -> None:
    assert uuid_of(release, **options) == vllm.uuid(KEY)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"media_io_kwargs": {"image": {"image_mode": "RGBA"}}},
    {"media_io_kwargs": {"image": {"image_mode": None}}},
    {"media_io_kwargs": {"image": {"image_mod": "eRGBA"}}},
    {"media_io_kwargs": {"image": {"a": "b", "c": "d"}}},
    {"media_io_kwargs": {"image": {"a": 'b","c":"d'}}},
    {"media_io_kwargs": {"image.image_mode": "RGBA"}},
    {"media_io_kwargs": {"video": {"num_frames": 4}}},
    {"mm_processor_kwargs": {"min_pixels": 3136}},
    {"mm_processor_kwargs": {"min_pixel": "s@\x0c\0\0\0\0\0\0"}},
    {"mm_processor_kwargs": {"size": {"a": 1, "b": 2}}},
    {"mm_processor_kwargs": {"size.a": 1, "size.b": 2}},
    {
        "media_io_kwargs": {"image": {"image_mode": "RGBA"}},
        "mm_processor_kwargs": {"min_pixels": 3136},
    },
]


@pytest.mark.parametrize("release", UNFRAMED)
def test_the_uuid_includes_options_that_the_engine_does_not_hash(release: str) -> None:
    uuids = [uuid_of(release, **options) for options in OPTIONS]
    assert len(set(uuids)) == len(uuids)
    assert uuids == [uuid_of(release, **options) for options in OPTIONS]


@pytest.mark.parametrize("release", FRAMED)
@pytest.mark.parametrize("modality", OTHER)
def test_the_uuid_leaves_out_options_that_the_engine_hashes(release: str, modality: str) -> None:
    own = {"media_io_kwargs": {modality: {"a": 1}}, "mm_processor_kwargs": {"b": 2}}
    assert uuid_of(release, modality, **own) == vllm.uuid(KEY)
    other = OTHER[modality]
    left_out = [
        {"media_io_kwargs": {other: {"a": 1}}},
        {"media_io_kwargs": {other: {"a": 2}}},
        {"mm_processor_kwargs": {f"{other}s_kwargs": {"a": 1}}},
    ]
    uuids = [uuid_of(release, modality, **options) for options in left_out]
    assert len({vllm.uuid(KEY), *uuids}) == 4


def test_the_spelling_of_json_does_not_count_but_that_of_numbers_does() -> None:
    def uuid(options: str) -> str:
        content = json.dumps([part("image")])
        body = f'{{"messages":[{{"content":{content}}}],"media_io_kwargs":{options}}}'
        answer = annotate("vllm@0.29.0", body.encode())
        return str(answer["items"][0]["engines"]["vllm@0.29.0"]["uuid"])

    one = uuid('{"image":{"a":1.0,"b":"\\u00e9"}}')
    assert uuid('{ "image" : {"b":"é",\n"a":1.0}, "video":{} }') == one
    assert len({one, uuid('{"image":{"a":1,"b":"é"}}'), uuid('{"image":{"a":1.00,"b":"é"}}')}) == 3


def test_a_batch_of_chats_has_its_hashes_too() -> None:
    chat = [{"role": "user", "content": [part("image") | {"uuid": "forged"}]}]
    body = {"messages": [chat, chat], "media_io_kwargs": {"image": {"a": 1}}}
    answer = annotate("vllm@0.29.0", body)
    expected = uuid_of("0.29.0", media_io_kwargs={"image": {"a": 1}})
    assert [one[0]["content"][0]["uuid"] for one in answer["request"]["messages"]] == [expected] * 2


SGLANG: list[dict[str, Any]] = [
    {"max_dynamic_patch": 1},
    {"max_dynamic_patch": 2},
    {"min_dynamic_patch": 1},
    {"image_max_dynamic_patch": 1},
    {"images_config": {"image_mode": "tiny"}},
    {"mm_processor_kwargs": {"max_slice_nums": 1}},
    {"modalities": ["multi-images"]},
]


@pytest.mark.parametrize("release", ["0.5.13", "0.5.20", "0.5.23"])
def test_each_option_of_generate_gives_another_hash(release: str) -> None:
    def hash_of(**options: Any) -> str:
        body = {"text": "a", "image_data": "YWJj", **options}
        answer = annotate(f"sglang@{release}", body)
        (hash_,) = answer["request"]["mm_hashes"]
        assert answer["items"][0]["engines"][f"sglang@{release}"]["mm_hash"] == hash_
        return str(hash_)

    hashes = [hash_of(**options) for options in SGLANG]
    plain = hash_of()
    assert plain == f"{KEY.u64:016x}"
    assert len({plain, *hashes}) == 1 + len(SGLANG)
    assert hash_of(max_dynamic_patch=None, images_config={}) == plain


def test_the_example_of_the_spec_is_right() -> None:
    key = mmhash.Digest("blake3", bytes.fromhex(EXAMPLE_KEY))
    text = '{"media_io_kwargs":{"video":{"fps":2.0,"num_frames":16}}}'
    made = with_options(key, text).hex()
    page = SPEC.read_text()
    assert all(one in page for one in (OPTIONS_CONTEXT, EXAMPLE_KEY, text, made)), made
    assert with_options(key, "") == key


EXAMPLE_KEY = "67a9b575aa9f84b9d94710bda1fae602c80c8e0210bad353301a2b419ba510eb"
