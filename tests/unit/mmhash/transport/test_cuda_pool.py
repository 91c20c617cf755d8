"""The pool's budget, and what it says where there is no GPU."""

import pytest

from mmhash import DeviceError, InputValueError
from mmhash.transport import FeaturePool
from mmhash.transport.cuda_pool import MIB, PAGE, budget


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MMHASH_POOL_MB", raising=False)
    monkeypatch.delenv("MMHASH_POOL_WORKERS", raising=False)


@pytest.mark.parametrize("total", [2, 3, 7, 1024, 4097])
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 100])
def test_the_workers_never_have_more_than_the_budget(
    monkeypatch: pytest.MonkeyPatch, total: int, workers: int
) -> None:
    monkeypatch.setenv("MMHASH_POOL_MB", str(total))
    if total * MIB < workers * PAGE:
        with pytest.raises(InputValueError, match="MMHASH_POOL_MB"):
            budget(workers)
        return
    share = budget(workers)
    assert share % PAGE == 0
    assert share * workers <= total * MIB < (share + PAGE) * workers
    monkeypatch.setenv("MMHASH_POOL_WORKERS", str(workers))
    assert budget() == share


@pytest.mark.parametrize("text", ["", "0", "-1", "1e3", "1024 MB", "\uff11", "9" * 30, "2000000"])
@pytest.mark.parametrize("name", ["MMHASH_POOL_MB", "MMHASH_POOL_WORKERS"])
def test_a_setting_that_is_no_number_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(InputValueError, match=name):
        budget()


def test_without_a_driver_it_says_so() -> None:
    try:
        import torch
    except ImportError:
        pass
    else:
        if torch.cuda.is_available():
            pytest.skip("there is one")
    with pytest.raises(DeviceError, match="driver"):
        FeaturePool(0)
