"""The pool of CUDA memory on a machine without a GPU."""

import pytest

from mmhash import DeviceError
from mmhash.transport import FeaturePool


def test_a_missing_driver_is_a_named_error() -> None:
    try:
        import torch
    except ImportError:
        pass
    else:
        if torch.cuda.is_available():
            pytest.skip("there is one")
    with pytest.raises(DeviceError, match="driver"):
        FeaturePool(0)
