"""mmhash gives the values that each engine's own code printed."""

from collections.abc import Callable

import pytest

from mmhash import MMHashError
from tests.vectors import (
    replay_dynamo,
    replay_sglang,
    replay_trtllm,
    replay_vllm,
)
from tests.vectors.engine_cases import Case, cases

REPLAYS: dict[str, Callable[[Case], object]] = {
    **replay_sglang.FILES,
    **replay_vllm.FILES,
    **replay_trtllm.FILES,
    **replay_dynamo.FILES,
}


def replay_of(case: Case) -> Callable[[Case], object]:
    """The function that answers a file's cases: that of the longest name that its name begins with."""
    known = [name for name in REPLAYS if case.file.startswith(name)]
    assert known, f"no replay for {case.file}.json"
    return REPLAYS[max(known, key=len)]


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case.file}-{case.name}")
def test_vector(case: Case, record_property: Callable[[str, object], None]) -> None:
    record_property("vectors", f"{case.file.partition('_')[0]} {case.version}")
    replay = replay_of(case)
    if "error" in case.expect:
        with pytest.raises(MMHashError):
            replay(case)
    else:
        assert replay(case) == case.expect
