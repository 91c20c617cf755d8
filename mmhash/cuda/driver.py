"""The functions of the CUDA driver that mmhash calls; failures raise DeviceError."""

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from mmhash.errors import DeviceError

_HOST_ALLOC_PORTABLE_MAPPED = 3
_NOT_READY = 600
_PROCESSORS, _CAPABILITY_MAJOR, _CAPABILITY_MINOR = 16, 75, 76

IPC_HANDLE_SIZE = 64


class IpcMemHandle(ctypes.Structure):
    """CUipcMemHandle, passed to the driver by value."""

    _fields_ = (("reserved", ctypes.c_ubyte * IPC_HANDLE_SIZE),)


# Names as cuda.h maps them; some have a version suffix.
_CALLS = {
    "cuInit": (ctypes.c_uint,),
    "cuDeviceGet": (ctypes.c_void_p, ctypes.c_int),
    "cuDeviceGetCount": (ctypes.c_void_p,),
    "cuDeviceGetAttribute": (ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.c_void_p, ctypes.c_int),
    "cuCtxPushCurrent_v2": (ctypes.c_void_p,),
    "cuCtxPopCurrent_v2": (ctypes.c_void_p,),
    "cuModuleLoadData": (ctypes.c_void_p, ctypes.c_char_p),
    "cuModuleGetFunction": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    "cuMemHostAlloc": (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint),
    "cuMemHostGetDevicePointer_v2": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint),
    "cuMemAlloc_v2": (ctypes.c_void_p, ctypes.c_size_t),
    "cuMemsetD32Async": (ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p),
    "cuStreamQuery": (ctypes.c_void_p,),
    "cuDeviceGetUuid_v2": (ctypes.c_void_p, ctypes.c_int),
    "cuIpcGetMemHandle": (ctypes.c_void_p, ctypes.c_uint64),
    "cuIpcOpenMemHandle_v2": (ctypes.c_void_p, IpcMemHandle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (ctypes.c_uint64,),
    "cuMemFree_v2": (ctypes.c_uint64,),
    "cuMemcpyDtoDAsync_v2": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p),
    "cuMemHostRegister_v2": (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint),
    "cuMemHostUnregister": (ctypes.c_void_p,),
    "cuStreamWriteValue32_v2": (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint),
    "cuGetErrorName": (ctypes.c_int, ctypes.c_void_p),
}


class Driver:
    """libcuda, loaded and initialised once per process."""

    def __init__(self) -> None:
        try:
            self._library = library = ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise DeviceError("no CUDA driver: libcuda.so.1 is not installed") from None
        self._functions: dict[str, Any] = {}
        # Each launch calls these two functions. Declaring argtypes would double the time of a call,
        # so pass addresses as c_void_p: a bare int is cut to 32 bits.
        self._get_current, self._launch = library["cuCtxGetCurrent"], library["cuLaunchKernel"]
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver; raise a DeviceError if it fails."""
        self.check(name, self._function(name)(*arguments))

    def _function(self, name: str) -> Any:
        function = self._functions.get(name)
        if function is None:
            function = self._library[name]
            function.argtypes, function.restype = _CALLS[name], ctypes.c_int
            self._functions[name] = function
        return function

    def check(self, name: str, status: int) -> None:
        """Raise DeviceError if a function returned a status other than success."""
        if status:
            raise DeviceError(f"{name}: {self._error_name(status)}")

    def _error_name(self, status: int) -> str:
        name = ctypes.c_char_p()
        self._function("cuGetErrorName")(status, ctypes.byref(name))
        return name.value.decode() if name.value else f"error {status}"

    def current_context(self) -> int | None:
        """Return the calling thread's context."""
        context = ctypes.c_void_p()
        self.check("cuCtxGetCurrent", self._get_current(ctypes.byref(context)))
        return context.value

    def launch(
        self, kernel: int, blocks: int, threads: int, stream: int, arguments: ctypes.Array[Any]
    ) -> None:
        """Launch a kernel in the current context. `arguments` is an array of pointers."""
        pointer = ctypes.c_void_p
        shape = (blocks, 1, 1, threads, 1, 1)
        status = self._launch(pointer(kernel), *shape, 0, pointer(stream), arguments, None)
        self.check("cuLaunchKernel", status)

    def count(self) -> int:
        """Return the number of devices."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def capability(self, device: int) -> int:
        """Return a device's compute capability: 90 for 9.0."""
        major, minor = (
            self._attribute(device, which) for which in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR)
        )
        return major * 10 + minor

    def processors(self, device: int) -> int:
        """Return the number of multiprocessors of a device."""
        return self._attribute(device, _PROCESSORS)

    def _attribute(self, device: int, which: int) -> int:
        handle, value = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, handle)
        return value.value

    def primary_context(self, device: int) -> int:
        """Return the context that torch and the runtime API use, kept until the process exits."""
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(handle), device)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
        assert context.value is not None  # noqa: S101  (the driver reported success)
        return context.value

    def push(self, context: int) -> None:
        """Make a context current in the calling thread until pop()."""
        self.call("cuCtxPushCurrent_v2", context)

    def pop(self) -> None:
        """Undo the last push()."""
        self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def functions(self, image: bytes, names: Sequence[str]) -> list[int]:
        """Load machine code into the current context, and return its kernels by name."""
        module, functions = ctypes.c_void_p(), []
        self.call("cuModuleLoadData", ctypes.byref(module), image)
        for name in names:
            function = ctypes.c_void_p()
            self.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
            functions.append(function.value or 0)
        return functions

    def allocate(self, nbytes: int) -> int:
        """Allocate device memory and return its address."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), nbytes)
        return address.value

    def allocate_pinned(self, nbytes: int) -> tuple[int, int]:
        """Allocate host memory that kernels can write; return its addresses on host and device."""
        host, device = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuMemHostAlloc", ctypes.byref(host), nbytes, _HOST_ALLOC_PORTABLE_MAPPED)
        self.call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), host, 0)
        return host.value or 0, device.value

    def finished(self, stream: int) -> bool:
        """Return True if all work on a stream is done; raise a DeviceError if it failed."""
        status = self._function("cuStreamQuery")(stream)
        if status == _NOT_READY:
            return False
        self.check("cuStreamQuery", status)
        return True


@cache
def driver() -> Driver:
    """Return the driver; raise a DeviceError if this machine has none."""
    return Driver()
