import pytest

import mmhash
from mmhash.client import Span as ClientSpan
from mmhash.engines import Span, dynamo, lmcache, sglang, split_names, vllm
from mmhash.prompts.plan import Span as PlanSpan  # type: ignore[attr-defined]

KEY = mmhash.key(b"abc")
IDS = list(range(40))
SPAN = Span(3, 20, KEY)


def test_there_is_one() -> None:
    assert ClientSpan is PlanSpan is Span
    assert lmcache.Span is vllm.Span  # type: ignore[attr-defined]


def test_each_engine_takes_it() -> None:
    own = vllm.Span(vllm.uuid(KEY), 3, 17)
    assert vllm.block_keys(IDS, 16, items=[SPAN]) == vllm.block_keys(IDS, 16, items=[own])
    assert lmcache.substitute(IDS, [SPAN]) == lmcache.substitute(IDS, [own])
    assert sglang.pad_input_ids(IDS, [SPAN]) == sglang.pad_input_ids(IDS, [(3, 20, KEY)])
    hashed = Span(3, 20, hash=f"{KEY.u64:016x}")
    assert sglang.pad_input_ids(IDS, [hashed]) == sglang.pad_input_ids(IDS, [SPAN])
    dynamos = dynamo.Span(dynamo.ENGINE.request_fields(KEY, dynamo.LATEST)["mm_hash"], 3, 17)
    assert dynamo.routing_tokens(IDS, [SPAN]) == dynamo.routing_tokens(IDS, [dynamos])


def test_a_hash_is_not_enough_for_vllm() -> None:
    with pytest.raises(mmhash.InputValueError, match="whole key"):
        vllm.block_keys(IDS, 16, items=[Span(3, 20, hash="0" * 16)])


def test_names_of_engines() -> None:
    assert split_names("sglang@0.5.23,vllm") == ("sglang@0.5.23", "vllm")
    assert split_names(["vllm,sglang", "vllm"]) == ("vllm", "sglang")
    assert split_names("") == split_names([]) == split_names(()) == ()
    with pytest.raises(mmhash.InputTypeError, match="an engine is a str"):
        split_names([b"vllm"])  # type: ignore[list-item]
    with pytest.raises(mmhash.InputTypeError, match="engines is a list"):
        split_names(5)
