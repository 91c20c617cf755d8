"""Sharing GPU memory between processes, by calls of the CUDA driver."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from mmhash.cuda.driver import IpcMemHandle, driver
from mmhash.transport.layout import UUID_SIZE

_LAZY_PEER_ACCESS = 1
_PORTABLE_MAPPED = 3


@cache
def _context(device: int) -> int:
    return driver().primary_context(device)


@contextmanager
def _on(device: int) -> Iterator[None]:
    driver().push(_context(device))
    try:
        yield
    finally:
        driver().pop()


def current_device() -> int:
    """Return torch's current device, or the first device if torch is not imported."""
    driver()  # raises if there is none
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0


@cache
def uuid(device: int) -> bytes:
    """Return the UUID of a device, which is the same in each process, whatever devices it sees."""
    handle, name = ctypes.c_int(), ctypes.create_string_buffer(UUID_SIZE)
    driver().call("cuDeviceGet", ctypes.byref(handle), device)
    driver().call("cuDeviceGetUuid_v2", name, handle)
    return name.raw


def device_of(name: bytes) -> int:
    """Return the device with this UUID, or the current device if this process does not see it."""
    devices = range(driver().count())
    return next((index for index in devices if uuid(index) == name), current_device())


def allocate(device: int, nbytes: int) -> tuple[int, bytes]:
    """Allocate memory of a device; return its address and a handle for other processes."""
    memory = IpcMemHandle()
    with _on(device):
        address = driver().allocate(nbytes)
        try:
            driver().call("cuIpcGetMemHandle", ctypes.byref(memory), address)
        except BaseException:
            driver().call("cuMemFree_v2", address)
            raise
    return address, bytes(memory)


def free(device: int, address: int) -> None:
    """Free memory from allocate()."""
    with _on(device):
        driver().call("cuMemFree_v2", address)


def open_memory(device: int, memory: bytes) -> int:
    """Map another process's memory, on any device, for a device of this process."""
    address = ctypes.c_uint64()
    with _on(device):
        driver().call(
            "cuIpcOpenMemHandle_v2",
            ctypes.byref(address),
            IpcMemHandle.from_buffer_copy(memory),
            _LAZY_PEER_ACCESS,
        )
    return address.value


def close_memory(device: int, address: int) -> None:
    """Undo open_memory()."""
    with _on(device):
        driver().call("cuIpcCloseMemHandle", address)


def register(device: int, address: int, nbytes: int) -> int:
    """Let a device write to host memory of this process; return the address on the device."""
    mapped = ctypes.c_uint64()
    with _on(device):
        driver().call("cuMemHostRegister_v2", address, nbytes, _PORTABLE_MAPPED)
        driver().call("cuMemHostGetDevicePointer_v2", ctypes.byref(mapped), address, 0)
    return mapped.value


def unregister(device: int, address: int) -> None:
    """Undo register()."""
    with _on(device):
        driver().call("cuMemHostUnregister", address)


def copy_then_write(
    device: int, stream: int, *, destination: int, source: int, nbytes: int, word: int, value: int
) -> None:
    """Queue a copy on a stream, followed by the write of a word that shows the copy is done."""
    with _on(device):
        if nbytes:
            driver().call("cuMemcpyDtoDAsync_v2", destination, source, nbytes, stream)
        driver().call("cuStreamWriteValue32_v2", stream, word, value, 0)
