"""Fixtures for compiled graphs: a compiler without state of the test before."""

import shutil
from collections.abc import Iterator

import pytest
import torch

# Inductor looks for these; a bare machine has neither.
_CAN_BUILD = shutil.which("g++") or shutil.which("clang++")


@pytest.fixture(autouse=True)
def _fresh_compiler(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    # Here, because the import takes 5 s of CPU at the collection of every run.
    import torch._inductor.config

    torch.compiler.reset()
    # Which takes longer to make than all that these tests compile.
    with torch._inductor.config.patch(cpp_cache_precompile_headers=False):
        yield
    torch.compiler.reset()


@pytest.fixture(
    params=[
        "eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.skipif(not _CAN_BUILD, reason="Inductor needs a C++ compiler"),
                pytest.mark.slow,
            ],
        ),
    ]
)
def then(request: pytest.FixtureRequest) -> str:
    """The compiler of the graph after the passes."""
    name: str = request.param
    return name


@pytest.fixture
def pixels() -> torch.Tensor:
    """A batch of four images, channels first, that holds every value."""
    return torch.arange(4 * 3 * 8 * 10).remainder(256).to(torch.uint8).view(4, 3, 8, 10)
