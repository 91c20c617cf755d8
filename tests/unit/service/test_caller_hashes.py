"""A long body: searched and written in steps, as if it were done in one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmhash_service import caller_hashes
from mmhash_service.caller_hashes import without_untagged

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=25,
)


@given(request=VALUES.filter(lambda value: isinstance(value, (dict, list))))
def test_a_request_is_written_in_pieces_as_in_one(request: Any) -> None:
    before = json.dumps(request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caller_hashes, "_STEP", 3)
        pieces = list(caller_hashes._write(request))
    assert json.dumps(json.loads(b"".join(pieces))) == before


@pytest.mark.parametrize(
    "name", [b'"uuid"', b'"u\\u0075id"', b'"multi_modal_uuids"', b'"mmhash_tags"']
)
def test_a_name_is_found_wherever_the_steps_of_the_search_part_it(name: bytes) -> None:
    start, end = b'{"a":"', b'",' + name + b':"x"}'
    for at in range((64 << 10) - len(end), 64 << 10):
        body = start + b"A" * (at - len(start)) + end
        assert without_untagged(body, lambda _tags: (), refuse=False) is not None
