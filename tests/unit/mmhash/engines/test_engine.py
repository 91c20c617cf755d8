import numpy as np
import pytest

import mmhash
from mmhash.engines import Span, dynamo, request_fields, sglang, split_names, trtllm, vllm
from mmhash.engines.options import with_options
from mmhash.engines.registry import ENGINES

KEY = mmhash.key(b"abc")
IDS = list(range(40))
SPAN = Span(3, 20, KEY)


def test_each_engine_takes_a_common_span() -> None:
    own = vllm.Span(vllm.uuid(KEY), 3, 17)
    assert vllm.block_keys(IDS, 16, items=[SPAN]) == vllm.block_keys(IDS, 16, items=[own])
    assert sglang.pad_input_ids(IDS, [SPAN]) == sglang.pad_input_ids(IDS, [(3, 20, KEY)])
    hashed = Span(3, 20, hash=f"{KEY.u64:016x}")
    assert sglang.pad_input_ids(IDS, [hashed]) == sglang.pad_input_ids(IDS, [SPAN])
    dynamos = dynamo.RoutingSpan(dynamo.ENGINE.request_fields(KEY, dynamo.LATEST)["mm_hash"], 3, 17)
    assert dynamo.routing_tokens(IDS, [SPAN]) == dynamo.routing_tokens(IDS, [dynamos])


def test_a_hash_is_not_enough_for_vllm() -> None:
    with pytest.raises(mmhash.InputValueError, match="whole key"):
        vllm.block_keys(IDS, 16, items=[Span(3, 20, hash="0" * 16)])


def test_functions_found_from_the_top() -> None:
    assert {"pad_values", "request_fields"} <= {*mmhash.__all__} & {*dir(mmhash)}
    assert mmhash.engines.names() == tuple(engine.name for engine in ENGINES)
    pads = sglang.pad_values(KEY, version="0.5.23")
    assert mmhash.pad_values(KEY, engine="sglang@0.5.23") == mmhash.pad_values(KEY) == pads
    assert mmhash.pad_values(KEY.u64, "sglang@0.5.23") == pads
    assert mmhash.pad_values(KEY.bytes) == sglang.pad_values(KEY.bytes)
    assert mmhash.pad_values(KEY, "sglang@0.5.22") == sglang.pad_values(KEY, version="0.5.22")
    assert mmhash.request_fields(KEY, "sglang")["pad_values"] == pads
    with pytest.raises(mmhash.InputValueError, match="vllm has no pad values"):
        mmhash.pad_values(KEY, engine="vllm")


def test_a_version_may_be_the_name_of_the_engine_too() -> None:
    assert sglang.pad_values(KEY, version="sglang@0.5.22") == sglang.pad_values(
        KEY, version="0.5.22"
    )
    bundle = sglang.BundleItem("IMAGE", [(0, 1), (1, 2)], np.zeros((2, 3)))
    assert len(sglang.split_bundle(bundle, version="sglang@0.5.23")) == 2
    assert len(sglang.split_bundle(bundle, version="sglang@0.5.6")) == 1
    assert vllm.none_hash(version="vllm@0.32.0") == vllm.none_hash(version="0.32.0")
    assert trtllm.mm_hash(b"a", version="trtllm@1.4.0rc1") == trtllm.mm_hash(b"a")
    assert dynamo.url_hash("a", version="dynamo@1.6.1") == dynamo.url_hash("a")
    for wrong in ("vllm@0.5.23", "sglang@", "@0.5.23", "sglang@0.5.23@1", "sglang@0.4.0"):
        with pytest.raises(mmhash.InputValueError):
            sglang.pad_values(KEY, version=wrong)


def test_names_of_engines() -> None:
    assert split_names("sglang@0.5.23,vllm") == ("sglang@0.5.23", "vllm")
    assert split_names(["vllm,sglang", "vllm"]) == ("vllm", "sglang")
    assert split_names("") == split_names([]) == split_names(()) == ()
    with pytest.raises(mmhash.InputTypeError, match="an engine must be a str"):
        split_names([b"vllm"])  # type: ignore[list-item]
    with pytest.raises(mmhash.InputTypeError, match="engines must be a list"):
        split_names(5)


def test_an_orientation_is_in_the_name_unless_no_model_applies_it() -> None:
    for engine in ENGINES:
        for known in engine.releases:
            plain = engine.name_item(KEY, known.last)
            assert plain == engine.name_item(KEY, known.last, orientation=1) == KEY
            turned = engine.name_item(KEY, known.last, orientation=6)
            assert (turned == KEY) == (not engine.applies_orientation(known.last))
    for release in ("0.18.0", "0.23.0"):
        assert vllm.ENGINE.name_item(KEY, release, orientation=6) == KEY
    for release in ("0.24.0rc1", "0.24.0", "0.33.0"):
        assert vllm.ENGINE.name_item(KEY, release, orientation=6) != KEY


def test_a_name_covers_the_options_and_the_orientation() -> None:
    name_item = sglang.ENGINE.name_item
    both = name_item(KEY, "0.5.23", options='{"modalities":["image"]}', orientation=6)
    text = '{"exif_orientation":6,"modalities":["image"]}'
    assert both == with_options(KEY, text)
    assert name_item(KEY, "0.5.23", orientation=6) == with_options(KEY, '{"exif_orientation":6}')


def test_request_fields_take_an_orientation() -> None:
    turned = vllm.ENGINE.name_item(KEY, "0.32.0", orientation=6)
    fields = request_fields(KEY, "vllm@0.32.0", exif_orientation=6)
    assert fields == {"uuid": turned.hex()} != request_fields(KEY, "vllm@0.32.0")
    for wrong in (0, 9, True, 6.0):
        with pytest.raises(mmhash.InputError, match="exif_orientation"):
            request_fields(KEY, "vllm@0.32.0", exif_orientation=wrong)  # type: ignore[arg-type]
