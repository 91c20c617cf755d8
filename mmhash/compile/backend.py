"""A torch.compile backend that runs passes before Inductor or another backend."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule

from mmhash.compile.manager import PassManager

Compiled = Callable[..., Any]


class Backend:
    """A `backend` for torch.compile that runs a manager's passes, then another backend.

    The passes rewrite Dynamo's graph, so Inductor's caches are keyed by the rewritten graph.
    """

    __name__ = "mmhash"

    def __init__(self, manager: PassManager | None = None, then: str = "inductor") -> None:
        self.manager = manager or PassManager()
        self.then = then

    def __call__(
        self,
        graph_module: GraphModule,
        example_inputs: list[torch.Tensor],
        *,
        options: Mapping[str, str] | None = None,
    ) -> Compiled:
        """Rewrite the graph and compile it.

        `options={"then": "eager"}` in torch.compile selects a backend other than Inductor.
        """
        then = torch._dynamo.lookup_backend({"then": self.then, **(options or {})}["then"])
        return then(self.manager(graph_module), example_inputs)


backend = Backend()
