import pytest
import torch
from torch import Tensor

import mmhash
from mmhash import ops
from mmhash.compile import Backend, PassManager
from tests.unit.mmhash.compile.passes_for_tests import TimesInstead

X = torch.arange(9.0).view(3, 3)[0]


def add(x: Tensor) -> Tensor:
    return x + 1


@pytest.fixture
def _registered() -> None:
    """An installation knows the name by its entry point; one that is older than it does not."""
    if "mmhash" not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(mmhash.compile.backend, name="mmhash")


@pytest.mark.usefixtures("_registered")
def test_by_its_name(then: str) -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        return ops.digest(x[0]), ops.digest(x[1])

    compiled = torch.compile(model, backend="mmhash", fullgraph=True, options={"then": then})
    for one, other in zip(compiled(X), model(X), strict=True):
        assert torch.equal(one, other)
    assert mmhash.compile.backend.manager.last_report().matches("merge_digests") == 1


def test_inductor_caches_the_rewritten_graph(then: str) -> None:
    """Another configuration of a pass never gets what was compiled for the first."""
    for by in (3, 4, 3):
        torch.compiler.reset()
        backend = Backend(PassManager([TimesInstead(by)]), then)
        assert torch.equal(torch.compile(add, backend=backend)(X), X * by)


def test_another_compiler_is_refused_by_name() -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="'inductor' or 'eager'"):
        torch.compile(add, backend=Backend(then="onnxrt"))(X)


def test_no_cache_returns_what_was_compiled_without_passes(then: str) -> None:
    def model(x: Tensor) -> tuple[Tensor, Tensor]:
        return ops.digest(x[0]), ops.digest(x[1])

    for _ in range(2):
        torch.compiler.reset()
        torch.compile(model, backend=then)(X)
        torch.compiler.reset()
        backend = Backend(then=then)
        torch.compile(model, backend=backend)(X)
        assert backend.manager.last_report().matches("merge_digests") == 1
