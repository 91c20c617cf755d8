import pytest
import torch

from mmhash.compile import Pass, PassManager
from tests.unit.mmhash.compile.passes_for_tests import (
    Raises,
    TimesInstead,
    Unsound,
    traced,
)

X = torch.arange(6.0)


def test_passes_run_in_their_order() -> None:
    manager = PassManager([TimesInstead(by=5), Raises()])
    with pytest.warns(UserWarning, match="raises"):
        module = manager(traced())
    assert torch.equal(module(X), X * 5)
    assert [row.name for row in manager.last_report().rows] == ["times_instead", "raises"]


@pytest.mark.parametrize(
    ("broken", "reason"), [(Raises(), "RuntimeError: not today"), (Unsound(), "RuntimeError: ")]
)
def test_a_pass_that_fails_is_undone_and_named(broken: Pass, reason: str) -> None:
    manager = PassManager([broken, TimesInstead()])
    module = traced()
    code = module.code
    with pytest.warns(UserWarning, match=f"{broken.name} was rolled back: {reason}"):
        PassManager([broken])(module)
    assert module.code == code
    assert torch.equal(module(X), X + X)
    with pytest.warns(UserWarning, match="was rolled back"):
        assert torch.equal(manager(module)(X), X * 3)  # those after it run
    failed, other = manager.last_report().rows
    assert (failed.matches, other.matches) == (0, 1)
    assert failed.rolled_back.startswith(reason)
    assert "\n" not in failed.rolled_back
    assert other.rolled_back == ""
