"""SGLang with SGLANG_RUST_SERVER=1: how it names images, and which hashes it accepts."""

import base64
import io
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from mmhash.engines import sglang
from mmhash.kvindex.table import block_id
from mmhash.prompts import Model
from mmhash.verify import verify_engine
from mmhash.verify.subscriber import Subscriber
from tests.live.engines import Engine, running
from tests.live.environments import Environment

ENVIRONMENT = Environment("sglang", "0.5.23")
RUST = {"SGLANG_RUST_SERVER": "1"}
TEXT = "<|vision_start|><|image_pad|><|vision_end|>" + " what is it" * 20


@pytest.fixture(scope="module")
def rust(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    ENVIRONMENT.build_or_skip()
    log = tmp_path_factory.mktemp("engine") / "rust.log"
    with running(ENVIRONMENT, "qwen2_vl", log=log, variables=RUST) as engine:
        yield engine


def request(seed: int, **members: Any) -> dict[str, Any]:
    file = io.BytesIO()
    Image.effect_noise((112, 84), seed).convert("RGB").save(file, "PNG")
    image = base64.b64encode(file.getvalue()).decode()
    options = {"sampling_params": {"max_new_tokens": 1}}
    return {"text": TEXT, "image_data": image, **options, **members}


def own_hash(body: dict[str, Any]) -> str:
    return f"{sglang.file_hash(base64.b64decode(body['image_data'])):016x}"


def cached(engine: Engine, body: dict[str, Any]) -> int:
    answer = engine.post("/generate", body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["meta_info"]["cached_tokens"])


def test_its_images_have_the_names_of_the_plan(rust: Engine) -> None:
    body = request(10)
    model = Model.load(ENVIRONMENT.model("qwen2_vl"))
    plan = model.plan(body, ENVIRONMENT.spelling, server="rust", block_size=rust.block_size)
    with Subscriber(rust.events.endpoint) as subscriber:
        assert cached(rust, body) == 0
        stored = {one for event in subscriber.stored(first_s=10) for one in event.ids}
    assert plan.event_ids
    assert {block_id(one) for one in plan.event_ids} <= stored


def test_it_reads_hashes_by_its_own_grammar(rust: Engine) -> None:
    body = request(20)
    assert cached(rust, body) == 0
    reused = cached(rust, body)
    assert reused > 0
    own = own_hash(body)
    for entry in (own, f"0x{own}", own.upper(), "ab" * 24 + own):  # taken: the same name
        assert sglang.parse_mm_hash(entry, server="rust") == int(own, 16)
        assert cached(rust, body | {"mm_hashes": [entry]}) == reused
    for entry in ("0X1f", "1_0", " 12 ", "+12", "-1", "0x", "0x0xAB", "zz"):  # ignored
        with pytest.raises(ValueError, match="would ignore"):
            sglang.parse_mm_hash(entry, server="rust")
        assert cached(rust, body | {"mm_hashes": [entry]}) == reused
    assert cached(rust, body | {"mm_hashes": ["1f"]}) < reused  # taken: another name


def test_verify_engine_reports_it(rust: Engine) -> None:
    report = verify_engine(rust.url, rust.events.endpoint)
    assert report.is_correct, report.line()
    assert report.server == "rust"
