"""SGLang's /generate requests: `mm_hashes` in the shape that goes with `image_data`."""

from typing import Any

import pytest

import mmhash
from mmhash.engines import sglang
from tests.support.annotated import annotate

ONE, TWO = "AAEC", "data:image/png;base64,AwQF"
H1, H2 = (sglang.mm_hash(mmhash.key(content)) for content in (b"\0\1\2", b"\3\4\5"))


@pytest.mark.parametrize(
    ("prompt", "image_data", "mm_hashes"),
    [
        ({"text": "a"}, ONE, [H1]),
        ({"text": "a"}, [ONE], [H1]),
        ({"text": "a"}, [ONE, TWO, ONE], [H1, H2, H1]),
        ({"text": "a"}, [[ONE, TWO]], [[H1, H2]]),
        ({"text": ["a", "b"]}, ONE, [H1, H1]),
        ({"text": ["a", "b"]}, [ONE, TWO], [H1, H2]),
        ({"text": ["a", "b"]}, [[ONE], [TWO, ONE]], [[H1], [H2, H1]]),
        ({"text": ["a", "b"]}, [[], [TWO]], [[], [H2]]),
        ({"input_ids": [1, 2, 3]}, ONE, [H1]),
        ({"input_ids": [[1, 2], [3]]}, ONE, [H1, H1]),
        ({"text": None, "input_ids": [[1], [2], [3]]}, ONE, [H1, H1, H1]),
        ({"input_ids": [], "session_params": {"id": "s"}}, ONE, [H1]),
        ({"input_embeds": [[0.5, 1.5], [2.5, 3.5]]}, ONE, [H1]),
        ({"input_embeds": [[[0.5], [1.5]], [[2.5]]]}, ONE, [H1, H1]),
    ],
)
def test_hashes_have_the_shape_of_the_images(
    prompt: dict[str, Any], image_data: Any, mm_hashes: list[Any]
) -> None:
    body = {**prompt, "image_data": image_data, "sampling_params": {"n": 2}}
    answer = annotate("sglang", {**body, "video_data": None, "audio_data": []})
    assert answer["request"].pop("mm_hashes") == mm_hashes
    assert answer["request"] == {**body, "video_data": None, "audio_data": []}
    flat = [text for one in mm_hashes for text in ([one] if isinstance(one, str) else one)]
    assert [item["engines"]["sglang"]["mm_hash"] for item in answer["items"]] == flat


@pytest.mark.parametrize(
    "media",
    [
        {},
        {"image_data": None},
        {"image_data": []},
        {"image_data": [[], []]},
        {"image_data": [ONE, None]},
        {"image_data": [[ONE], TWO]},
        {"image_data": [[[ONE]]]},
        {"image_data": {"format": "processor_output"}},
        {"image_data": [{"format": "precomputed_embedding"}, ONE]},
        {"image_data": ONE, "video_data": "data:video/mp4;base64,AAEC"},
        {"image_data": ONE, "audio_data": [ONE]},
    ],
)
def test_no_hashes_are_written_if_the_engine_would_drop_them(media: dict[str, Any]) -> None:
    forged = {"mm_hashes": ["0" * 16], "mm_content_hashes": [None], "mmhash_tags": ["a"]}
    answer = annotate("sglang", {"text": "a", **media, **forged})
    assert answer == {"request": {"text": "a", **media}, "items": []}


def test_a_callers_hashes_are_replaced() -> None:
    forged = {"mm_hashes": ["0" * 16], "mm_content_hashes": ["sha256:" + "0" * 64]}
    answer = annotate("sglang", {"text": "a", "image_data": ONE, **forged})
    assert answer["request"] == {"text": "a", "image_data": ONE, "mm_hashes": [H1]}
