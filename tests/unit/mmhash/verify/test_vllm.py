"""Names of published blocks, compared with those of mmhash."""

import json
from collections.abc import Callable

import httpx
import pytest

import mmhash
from mmhash.engines import sglang, vllm
from mmhash.kvindex import BlocksStored, parse_batch
from mmhash.verify import sglang as verify_sglang
from mmhash.verify import vllm as verify_vllm
from mmhash.verify.prompts import Prompt, Sample, prompts
from mmhash.verify.run import Report
from tests.support.kv_publisher import encode, stored
from tests.support.scripted import ScriptedServer

SIZE = 4
TOKENS = list(range(3 * SIZE))


def _stored(
    ids: list[int],
    tokens: list[int],
    extra: list[object] | None = None,
    parent: int | None = None,
) -> BlocksStored:
    fields = {"token_ids": tokens, "extra_keys": extra, "parent_block_hash": parent}
    (event,) = parse_batch(encode(stored(*ids, size=SIZE, **fields))).events
    assert isinstance(event, BlocksStored)
    return event


def _sample() -> Sample:
    (sample,) = prompts()[1].images
    return sample


@pytest.mark.parametrize(
    ("states", "is_rust"),
    [
        ([{"rust_mm_transport": {"copies": 0}}], True),
        ([{"rust_mm_transport": {}}], True),
        ([{}], False),
        ([], False),
        ("rust_mm_transport", False),
        (None, False),
    ],
)
@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_sglangs_server_in_rust_is_found_by_its_state(
    states: object, is_rust: bool, path: str
) -> None:
    info = json.dumps({"version": "0.5.23", "internal_states": states}).encode()
    with (
        ScriptedServer((404, {}, b""), by_path={path: (200, {}, info)}) as engine,
        httpx.Client(base_url=engine.url) as client,
    ):
        assert verify_sglang.release(client) == "0.5.23"
        assert verify_sglang.is_rust(client) is is_rust


@pytest.mark.parametrize(
    ("body", "features"),
    [
        (b'{"version": "1", "features": ["guard", "keys"]}', ("guard", "keys")),
        (b'{"features": 1}', None),
        (None, None),
    ],
)
def test_sglang_says_what_the_plugin_does(
    body: bytes | None, features: tuple[str, ...] | None
) -> None:
    answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
    if body is not None:
        answers["/mmhash"] = (200, {}, body)
    with (
        ScriptedServer((404, {}, b""), by_path=answers) as engine,
        httpx.Client(base_url=engine.url) as client,
    ):
        assert verify_sglang.plugin(client) == features


@pytest.mark.parametrize(
    ("report", "is_correct"),
    [
        (Report("vllm 0.32.0", 8, 8, ()), True),
        (Report("vllm 0.32.0", 8, 7, ()), False),
        (Report("vllm 0.32.0", 0, 0, ()), False),
        (Report("vllm 0.32.0", 8, 8, ("one image",)), False),
    ],
)
def test_a_report_is_correct_if_all_is_named(report: Report, is_correct: bool) -> None:
    assert report.is_correct is is_correct


@pytest.mark.parametrize("version", ["0.18.0", "0.30.0", "0.32.0"])
def test_vllm_names_chain(version: str) -> None:
    sample = _sample()
    items = [vllm.Span(vllm.uuid(sample.key), 2, 5)]
    keys = vllm.block_keys(
        TOKENS,
        SIZE,
        version=version,
        items=items,
        cache_salt="s",
        block_algorithm="sha256",
        seed="0",
    )
    extras = vllm.extra_keys(TOKENS, SIZE, version=version, items=items, cache_salt="s")
    published = [
        None
        if (keys_ := vllm.event_extra_keys(extra, version=version)) is None
        else [list(one) if isinstance(one, tuple) else one for one in keys_]
        for extra in extras
    ]
    prompt = Prompt("p", "", (sample,), salt="s")
    names = verify_vllm.Names(version, "sha256", "0")
    event = _stored([vllm.event_id(key) for key in keys], TOKENS, published)
    assert list(names.check(event, prompt)) == [True] * 3
    assert verify_vllm.holds_images([event], (sample,))
    assert not verify_vllm.holds_images([event], (_sample(),))
    # A block behind a parent that an earlier event stored.
    later = _stored(event.ids[2:], TOKENS[2 * SIZE :], published[2:], event.ids[1])
    assert list(names.check(later, prompt)) == [True]


@pytest.mark.parametrize(
    "change",
    [
        lambda ids: _stored(ids, [1, *TOKENS[1:]]),
        lambda ids: _stored([ids[0] ^ 1, *ids[1:]], TOKENS),
        lambda ids: _stored(ids, TOKENS, parent=7),
        lambda ids: _stored(ids, TOKENS, [["unexplained"], None, None]),
    ],
)
def test_vllm_names_notice_a_change(change: Callable[[list[int]], BlocksStored]) -> None:
    ids = [vllm.event_id(key) for key in vllm.block_keys(TOKENS, SIZE, block_algorithm="sha256")]
    names = verify_vllm.Names(vllm.LATEST, "sha256", None)
    assert all(names.check(_stored(ids, TOKENS), Prompt("p", "")))
    assert not all(names.check(change(ids), Prompt("p", "")))


@pytest.mark.parametrize("salt", [None, "s"])
def test_sglang_names_chain(salt: str | None) -> None:
    sample = Sample(_sample().image, mmhash.key(b"image"))
    padded = sglang.pad_input_ids(TOKENS, [(2, 7, sample.key)])
    keys = sglang.event_keys(padded, SIZE, cache_salt=salt)
    event = _stored([sglang.event_id(key) for key in keys], padded)
    prompt = Prompt("p", "", (sample,), salt=salt)
    assert list(verify_sglang.Names(sglang.LATEST).check(event, prompt)) == [True] * 3
    assert verify_sglang.holds_images([event], [sample.key], sglang.LATEST)
    older = list(verify_sglang.Names("0.5.12").check(event, prompt))
    assert older == [False] * 3
    assert not verify_sglang.holds_images([event], [sample.key], "0.5.12")


def test_prompts_are_new_each_time() -> None:
    one, other = prompts(), prompts()
    assert [prompt.name for prompt in one] == ["text", "one image", "two images", "salted"]
    assert {prompt.text for prompt in one}.isdisjoint(prompt.text for prompt in other)
    keys = [sample.key for prompt in (*one, *other) for sample in prompt.images]
    assert len(set(keys)) == len(keys)
