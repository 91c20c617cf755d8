"""Kernels compile for every card we name, and a cache on disk never gives other code."""

from pathlib import Path

import pytest

from mmhash.cuda import compiler
from mmhash.errors import DeviceError

try:
    compiler.nvrtc_version()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

# Each source, with the names of kernels in it.
KERNELS = {
    "blake3.cu": ("blake3_1", "blake3_180", "blake3_1600"),
    "normalize_blake3.cu": ("normalize_blake3_16", "normalize_blake3_32"),
    "normalize_xxh3.cu": ("normalize_xxh3_16", "normalize_xxh3_32"),
    "xxh3.cu": ("xxh3_1", "xxh3_180", "xxh3_1600"),
}
# No source depends on the card, so newer ones only have to be known to NVRTC.
COMPILED = [*((source, compiler.OLDEST) for source in KERNELS), ("xxh3.cu", 90), ("xxh3.cu", 100)]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "cache"
    monkeypatch.setenv("MMHASH_CACHE_DIR", str(directory))
    return directory


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for NVRTC and notes what it is asked to compile."""
    asked: list[str] = []

    def compile_nothing(nvrtc: object, source: str, target: str) -> bytes:
        asked.append(f"{source} {target}")
        return b"image of " + source.encode()

    monkeypatch.setattr(compiler._Nvrtc, "compile", compile_nothing)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize(("source", "capability"), COMPILED)
@pytest.mark.usefixtures("cache")
def test_kernels_compile(source: str, capability: int) -> None:
    image = compiler.load_kernels(source, capability)
    assert image.startswith(b"\x7fELF")
    for name in KERNELS[source]:
        assert name.encode() in image


def test_a_card_too_old_is_refused() -> None:
    with pytest.raises(DeviceError, match="sm_50"):
        compiler._Nvrtc.get().target(50)


@pytest.mark.usefixtures("cache")
def test_a_source_that_does_not_compile_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.cu").write_text("not a kernel")
    monkeypatch.setattr(compiler, "SOURCES", tmp_path)
    with pytest.raises(DeviceError, match=r"broken\.cu does not compile for sm_90: .*error"):
        compiler.load_kernels("broken.cu", 90)


def test_the_cache_is_used_and_private(cache: Path, counted: list[str]) -> None:
    first = compiler.load_kernels("blake3.cu", 90)
    assert compiler.load_kernels("blake3.cu", 90) == first
    assert counted == ["blake3.cu sm_90"]
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 40])
def test_a_damaged_file_is_compiled_again(cache: Path, counted: list[str], damage: bytes) -> None:
    good = compiler.load_kernels("blake3.cu", 90)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for bad in (damage, whole[:-1], whole[:-1] + b"?"):
        file.write_bytes(bad)
        assert compiler.load_kernels("blake3.cu", 90) == good
        assert file.read_bytes() == whole
    assert len(counted) == 4


def test_each_source_option_and_card_has_its_own_file(
    cache: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.load_kernels("blake3.cu", 90)
    compiler.load_kernels("xxh3.cu", 90)
    compiler.load_kernels("blake3.cu", 80)
    monkeypatch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "-DX"))
    compiler.load_kernels("blake3.cu", 90)
    monkeypatch.setattr(compiler, "_headers", lambda _: {"blake3.cuh": b"changed"})
    compiler.load_kernels("blake3.cu", 90)
    assert len(counted) == len(list(cache.iterdir())) == 5


def test_a_directory_that_others_may_write_is_not_trusted(cache: Path, counted: list[str]) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    compiler.load_kernels("blake3.cu", 90)
    compiler.load_kernels("blake3.cu", 90)
    assert len(counted) == 2
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MMHASH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert compiler.load_kernels("blake3.cu", 90) == b"image of blake3.cu"
