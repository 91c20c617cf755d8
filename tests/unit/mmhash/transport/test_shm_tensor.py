"""SharedTensor: read in place by other processes, sliced without being opened, gone once its owner closes it."""

import json
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import mmhash
from mmhash import Digest, InputTypeError, InputValueError, TransportError
from mmhash.dtypes import ITEM_SIZE
from mmhash.transport import SharedTensor, shm_tensor
from mmhash.transport.segments import DIRECTORY

NOISE = np.random.default_rng(3).integers(0, 256, 48_000, dtype=np.uint8)

READER = """
    import json, sys, mmhash
    from mmhash.transport import SharedTensor
    for line in sys.stdin:
        handle, counts = json.loads(line)
        feature = SharedTensor.open(handle)
        parts = mmhash.split(feature, counts=counts) if counts else [feature]
        print(json.dumps([str(key) for key in mmhash.keys(parts)]), flush=True)
"""
OWNER = """
    import json, sys, numpy, mmhash
    from mmhash.transport import SharedTensor
    values = numpy.arange(300_000, dtype=numpy.uint32).reshape(300, 1000)
    owned = SharedTensor.create(values)
    print(json.dumps([owned.handle(), str(mmhash.key(values))]), flush=True)
    sys.stdin.read()
"""


def process(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def reader() -> Iterator[Any]:
    with process(READER) as child:

        def ask(handle: object, counts: object = None) -> list[Digest]:
            child.stdin.write(json.dumps([handle, counts]) + "\n")
            child.stdin.flush()
            return [Digest.parse(text) for text in json.loads(child.stdout.readline())]

        yield ask


def test_another_process_has_the_same_keys(reader: Any) -> None:
    values = torch.from_numpy(NOISE).view(torch.bfloat16).reshape(100, 240)
    with SharedTensor.create(values) as owned:
        assert reader(owned.handle()) == [mmhash.key(values)]
        parts = mmhash.split(values, counts=[1, 0, 60, 39])
        assert reader(owned.handle(), [1, 0, 60, 39]) == mmhash.keys(parts)
        assert reader(owned[1:61].handle()) == [mmhash.key(values[1:61])]
    with SharedTensor.create(b"plain") as owned:
        assert reader(owned.handle()) == [mmhash.key(b"plain")]


@pytest.mark.parametrize("dtype", ITEM_SIZE)
def test_every_dtype_in_place(dtype: str) -> None:
    values = torch.from_numpy(NOISE[:480]).view(getattr(torch, dtype)).reshape(3, -1)
    with SharedTensor.create(values) as owned:
        opened = SharedTensor.open(owned.handle())
        assert mmhash.key(opened) == mmhash.key(owned) == mmhash.key(values)
        assert opened.reconstruct().dtype == values.dtype
        assert mmhash.key(opened.reconstruct()) == mmhash.key(values)
        try:
            array = opened.array()
        except InputTypeError:
            assert dtype in {"complex32", "float4_e2m1fn_x2"}  # by ml_dtypes' version
        else:
            assert mmhash.key(array) == mmhash.key(values)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (2, 3, 5)])
def test_every_shape(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    with SharedTensor.create(values) as owned:
        opened = SharedTensor.open(owned.handle())
        assert np.array_equal(opened.array(), values)
        assert opened.reconstruct().shape == values.shape
        assert mmhash.key(opened) == mmhash.key(values)


def test_readers_write_to_themselves_alone() -> None:
    values = np.arange(10, dtype=np.int64)
    with SharedTensor.create(values) as owned:
        first, second = (SharedTensor.open(owned.handle()) for _ in range(2))
        first.reconstruct().add_(1)
        assert np.array_equal(second.array(), values)
        assert np.array_equal(owned.array(), values)
        with pytest.raises(ValueError, match="read-only"):
            second.array()[0] = 1
        assert second.view.readonly


def test_nothing_is_opened_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr(
        shm_tensor,
        "map_private",
        lambda *where: opened.append(where) or memoryview(NOISE),  # type: ignore[func-returns-value]
    )
    whole = SharedTensor.open(SharedTensor.create(NOISE.reshape(100, 480)).handle())
    parts = mmhash.split(whole, counts=[10, 20, 70])
    handles = [part.handle() for part in parts]
    assert [handle["offset"] for handle in handles] == [0, 4800, 14400]
    assert not opened
    assert mmhash.keys(parts) == mmhash.keys(
        mmhash.split(NOISE.reshape(100, 480), counts=[10, 20, 70])
    )
    assert len(opened) == 1


def test_slices_in_one_piece_and_no_others() -> None:
    values = np.arange(120, dtype=np.int16).reshape(1, 4, 30)
    with SharedTensor.create(values) as owned:
        for index in [
            slice(None),
            (slice(None), slice(1, 3)),
            (slice(0, 1), slice(-2, None)),
            (slice(None), slice(2, 3), slice(4, 9)),
            (slice(None), slice(3, 1)),
            (slice(5, 9),),
        ]:
            assert np.array_equal(owned[index].array(), values[index])
            assert np.array_equal(owned[index][:1].array(), values[index][:1])
        items = mmhash.split(owned, counts=[1, 3], dim=1)
        assert mmhash.keys(items) == mmhash.keys(mmhash.split(values, counts=[1, 3], dim=1))
        with pytest.raises(InputValueError, match="not contiguous"):
            owned[:, :, :4]
        with pytest.raises(InputValueError, match="steps of 1"):
            owned[:, ::2]
        with pytest.raises(InputValueError, match="4 slices for 3"):
            owned[:, :, :, :]
        with pytest.raises(InputTypeError, match="only slices"):
            owned[0]


def test_pickle_carries_the_handle_alone() -> None:
    with SharedTensor.create(NOISE) as owned:
        pickled = pickle.dumps(owned[:40_000])
        assert len(pickled) < 1000
        assert np.array_equal(pickle.loads(pickled).array(), NOISE[:40_000])


def test_other_objects_are_refused() -> None:
    from PIL import Image

    with pytest.raises(InputTypeError, match="image"):
        SharedTensor.create(Image.new("RGB", (2, 2)))
    with SharedTensor.create(b"plain") as owned:
        for call in (owned.array, owned.reconstruct):
            with pytest.raises(InputTypeError, match="plain bytes"):
                call()
        with pytest.raises(InputValueError):
            owned[1:2]
        assert bytes(owned.view) == b"plain"


def test_twice_opened_twice_closed() -> None:
    owned = SharedTensor.create(NOISE)
    first, second = (SharedTensor.open(owned.handle()) for _ in range(2))
    array = first.array()
    for _ in range(2):
        first.close()
        owned.close()
    assert np.array_equal(array, NOISE)  # what was opened stays as long as it is looked at
    for closed in (first, second, owned):
        with pytest.raises(TransportError):
            closed.array()


def test_the_owner_is_killed_while_it_is_read() -> None:
    with process(OWNER) as owner:
        handle, key = json.loads(owner.stdout.readline())
        feature = SharedTensor.open(handle)
        first = feature[:1].array().sum()
        owner.kill()
        owner.wait()
        assert str(mmhash.key(feature)) == key
        assert feature[:1].array().sum() == first
        mmhash.transport.remove_orphans()  # unless another process has
        assert not (DIRECTORY / handle["name"]).exists()
        assert str(mmhash.key(feature)) == key
    with pytest.raises(TransportError, match="is gone"):
        mmhash.key(SharedTensor.open(handle))
