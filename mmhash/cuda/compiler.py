"""Compiles kernels to machine code with NVRTC, and caches the results on disk.

NVRTC is the compiler that CUDA builds of torch install, so neither nvcc nor a host compiler is
needed.
"""

import ctypes
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from blake3 import blake3

from mmhash.errors import DeviceError

SOURCES = Path(__file__).parent
OPTIONS = ("--std=c++17",)
OLDEST = 80  # sm_80 (Ampere) has all instructions that the kernels use

_CHECK_SIZE = 32


def load_kernels(source: str, capability: int) -> bytes:
    """Return the machine code of a source for a GPU with compute `capability` (90 for 9.0).

    The code comes from the disk cache. If it is missing or damaged, compile and store it.
    """
    nvrtc = _Nvrtc.get()
    target = nvrtc.target(capability)
    directory = cache_directory()
    if directory is None:
        return nvrtc.compile(source, target)
    path = directory / _cache_name(source, target, nvrtc.version)
    image = _read_checked(path)
    if image is None:
        image = nvrtc.compile(source, target)
        _write_checked(path, image)
    return image


def nvrtc_version() -> tuple[int, int]:
    """Return the version of NVRTC; raise a DeviceError if it is not installed."""
    return _Nvrtc.get().version


@cache
def _headers(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.cuh"))}


def _cache_name(source: str, target: str, version: tuple[int, int]) -> str:
    parts = [source.encode(), (SOURCES / source).read_bytes()]
    for name, text in _headers(SOURCES).items():
        parts += [name.encode(), text]
    parts += [option.encode() for option in OPTIONS]
    parts += [target.encode(), b"%d.%d" % version]
    hasher = blake3()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little") + part)
    return f"{source}-{target}-{hasher.hexdigest()[:32]}"


def cache_directory() -> Path | None:
    """Return a directory that only this user can write to, or None.

    Code from elsewhere is never run.
    """
    configured = os.environ.get("MMHASH_CACHE_DIR")
    if configured:
        directory = Path(configured)
    else:
        try:
            home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        except RuntimeError:  # no home
            return None
        directory = Path(home) / "mmhash"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError:
        return None
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if status.st_uid != os.geteuid() or writable_by_others:
        return None
    return directory


def _read_checked(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    check, image = content[:_CHECK_SIZE], content[_CHECK_SIZE:]
    return image if image and blake3(image).digest() == check else None


def _write_checked(path: Path, image: bytes) -> None:
    """Write a file atomically if possible. Processes that race write the same bytes."""
    with suppress(OSError):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(blake3(image).digest() + image)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def _candidates() -> Iterator[str]:
    """Yield the paths of NVRTC, newest first: torch's wheels, then the linker's search path."""
    spec = find_spec("nvidia")
    libraries: list[Path] = []
    for root in (spec.submodule_search_locations or []) if spec else []:
        libraries += Path(root).glob("*/lib/libnvrtc.so.[0-9]*")
    complete = [path for path in libraries if not path.name.endswith(".alt")]
    for path in sorted(complete, key=lambda path: path.name, reverse=True):
        yield str(path)
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


class _Nvrtc:
    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", known)
        self._known = sorted(known)

    @staticmethod
    @cache
    def get() -> "_Nvrtc":
        for name in _candidates():
            with suppress(OSError, AttributeError):
                return _Nvrtc(ctypes.CDLL(name))
        raise DeviceError(
            "NVRTC is not installed: install a CUDA build of torch, or run"
            " `pip install nvidia-cuda-nvrtc`"
        )

    def target(self, capability: int) -> str:
        """Return the GPU's architecture, or the nearest PTX if the GPU is newer than NVRTC."""
        older = [arch for arch in self._known if OLDEST <= arch <= capability]
        if not older:
            version = f"{self.version[0]}.{self.version[1]}"
            raise DeviceError(f"NVRTC {version} does not support sm_{capability}")
        return f"sm_{capability}" if older[-1] == capability else f"compute_{older[-1]}"

    def compile(self, source: str, target: str) -> bytes:
        headers = _headers(SOURCES)
        count = len(headers)
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            (SOURCES / source).read_bytes(),
            source.encode(),
            count,
            (ctypes.c_char_p * count)(*headers.values()),
            (ctypes.c_char_p * count)(*(name.encode() for name in headers)),
        )
        try:
            options = [option.encode() for option in (*OPTIONS, f"--gpu-architecture={target}")]
            try:
                self._call(
                    "nvrtcCompileProgram",
                    program,
                    len(options),
                    (ctypes.c_char_p * len(options))(*options),
                )
            except DeviceError as error:
                log = self._output(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise DeviceError(f"{source} does not compile for {target}: {log}") from error
            return self._output(program, "CUBIN" if target.startswith("sm_") else "PTX")
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _output(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        output = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, output)
        return output.raw

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            describe = self._library.nvrtcGetErrorString
            describe.restype = ctypes.c_char_p
            raise DeviceError(f"{name}: {describe(status).decode()}")


if __name__ == "__main__":  # fill the cache: python -m mmhash.cuda.compiler 90
    for kernels in sorted(SOURCES.glob("*.cu")):
        load_kernels(kernels.name, int(sys.argv[1]))
