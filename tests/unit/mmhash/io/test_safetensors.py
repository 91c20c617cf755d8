from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from mmhash.errors import InputValueError
from mmhash.io.safetensors import read_tensors

ONE, TWO = np.full(4, 1, np.float32), np.full(4, 2, np.float32)


def test_tensors_are_read_in_place(tmp_path: Path) -> None:
    tensors: dict[str, Any] = {
        "b": ONE,
        "a": TWO.reshape(2, 2),
        "empty": np.zeros((0, 3), np.uint8),
        "0-d": np.array(1.5, np.float32),
    }
    save_file(tensors, tmp_path / "x", metadata={"format": "np"})
    found = {
        tensor.name: (tensor.dtype, tensor.shape, bytes(tensor.data))
        for tensor in read_tensors(str(tmp_path / "x"))
    }
    assert found == {
        name: (str(each.dtype), each.shape, each.tobytes()) for name, each in tensors.items()
    }


def test_a_file_that_is_replaced_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header of one file never describes the bytes of another."""
    path = tmp_path / "x"
    save_file({"a": ONE, "b": TWO}, path)
    save_file({"a": TWO, "b": ONE}, tmp_path / "other")

    def open_replaced(*args: Any, **options: Any) -> Any:
        (tmp_path / "other").replace(path)
        return safe_open(*args, **options)

    monkeypatch.setattr("mmhash.io.safetensors.safe_open", open_replaced)
    with pytest.raises(InputValueError, match="replaced while it was read"):
        list(read_tensors(str(path)))
