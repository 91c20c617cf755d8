"""A model for plans. C++ of the tests, compiled with the kernels' headers, and a device made of it."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import mmhash.cuda
from mmhash import leaves, view
from mmhash.cuda import device as devices
from mmhash.cuda import launch
from mmhash.cuda.device import Device
from mmhash.cuda.driver import Driver
from mmhash.leaves import SHORT
from mmhash.prompts import Model
from mmhash.torch_tensor import Content, DeviceBytes, LocatedList, locate_list, read_tensor
from tests.support import prompt_models

HEADERS = Path(mmhash.cuda.__file__).parent


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A small Qwen2-VL."""
    return Model.load(prompt_models.write_qwen2_vl(tmp_path_factory.mktemp("qwen2_vl")))


@pytest.fixture(scope="session")
def compile_for_host(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ctypes.CDLL]:
    """Compile a source of the folder `cuda` to a library, and load it."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile the kernels' headers for the host")

    def compile_source(name: str, *options: str) -> ctypes.CDLL:
        source = Path(__file__).parent / "cuda" / name
        library = tmp_path_factory.mktemp("host") / f"{source.stem}.so"
        command = [compiler, "-std=c++17", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", *options]
        subprocess.run([*command, f"-I{HEADERS}", "-o", library, source], check=True)
        return ctypes.CDLL(str(library))

    return compile_source


@pytest.fixture(scope="session")
def library(compile_for_host: Callable[..., ctypes.CDLL]) -> ctypes.CDLL:
    """The stand-in for libcuda, whose launches hash host memory."""
    return compile_for_host("driver.cpp", "-pthread")


@pytest.fixture
def device(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """Device 0 of the stand-in, with stream 0."""
    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "CDLL", lambda _: library)
        driver = Driver()
    monkeypatch.setattr(devices, "driver", lambda: driver)
    monkeypatch.setattr(devices, "nvrtc_version", lambda: (13, 0))
    monkeypatch.setattr(devices, "load_kernels", lambda *_: b"")
    device = Device(0)
    monkeypatch.setattr(launch, "device_of", lambda _: device)
    monkeypatch.setattr(launch, "current_stream", lambda _: 0)
    yield device
    library.set_delay(ctypes.c_uint64(0))


@pytest.fixture
def on_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plain tensors in host memory, except short ones, pass as tensors on device 0."""

    def is_on_device(item: Any) -> bool:
        plain = type(item) is torch.Tensor and item.is_contiguous()
        return plain and not 0 < item.nbytes <= SHORT

    def read_on_device(item: Any) -> Content:
        if not is_on_device(item):
            return read_tensor(item)
        dtype = str(item.dtype).removeprefix("torch.")
        return dtype, item.shape, DeviceBytes(0, item.data_ptr(), item.nbytes, item)

    def locate_list_on_device(items: Sequence[Any]) -> LocatedList | None:
        if not all(map(is_on_device, items)):
            return locate_list(items)
        dtypes = {item.dtype for item in items}
        if len(dtypes) > 1:
            return None
        devices = [0] * len(items)
        addresses = [item.data_ptr() for item in items]
        lengths = [item.nbytes for item in items]
        dtype = str(dtypes.pop()).removeprefix("torch.")
        return devices, addresses, lengths, dtype, [item.shape for item in items]

    monkeypatch.setattr(view, "read_tensor", read_on_device)
    monkeypatch.setattr(leaves, "locate_list", locate_list_on_device)
