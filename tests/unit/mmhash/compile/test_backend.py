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


def test_a_model_that_cannot_be_compiled_says_so_itself() -> None:
    def refuse(graph_module: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        raise RuntimeError("no room")

    if "mmhash_refuses" not in torch._dynamo.list_backends():
        torch._dynamo.register_backend(refuse, name="mmhash_refuses")
    backend = Backend(PassManager(), "mmhash_refuses")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="no room"):
        torch.compile(add, backend=backend)(X)
