"""A torch.compile backend that runs passes before Inductor, or without a compiler."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from mmhash.compile.manager import PassManager
from mmhash.errors import InputValueError


class Backend:
    """A `backend` for torch.compile that runs a manager's passes, then Inductor or nothing.

    The passes rewrite graphs after AOTAutograd, which has removed all writes from them. Inductor's
    cache is keyed by the rewritten graph.
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
    ) -> Any:
        """Compile Dynamo's graph.

        `options={"then": "eager"}` in torch.compile runs the rewritten graph without Inductor.
        """
        then = {"then": self.then, **(options or {})}["then"]
        if then == "eager":
            from torch._dynamo.backends.common import aot_autograd  # noqa: PLC0415  (slow to import)

            return aot_autograd(fw_compiler=self._boxed)(graph_module, example_inputs)
        if then != "inductor":
            raise InputValueError(f"then must be 'inductor' or 'eager', not {then!r}")
        from torch._functorch import config as functorch_config  # noqa: PLC0415  (as above)
        from torch._inductor.compile_fx import compile_fx  # noqa: PLC0415  (as above)

        # AOTAutograd's own cache is keyed by the graph before the passes.
        with functorch_config.patch(enable_autograd_cache=False):
            return compile_fx(graph_module, example_inputs, inner_compile=self._by_inductor)

    def _boxed(self, graph_module: GraphModule, _: Sequence[Any]) -> Any:
        from torch._functorch._aot_autograd.utils import make_boxed_func  # noqa: PLC0415  (as above)

        return make_boxed_func(self.manager(graph_module).forward)

    def _by_inductor(self, graph_module: GraphModule, *arguments: Any, **named: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner  # noqa: PLC0415  (as above)

        return compile_fx_inner(self.manager(graph_module), *arguments, **named)


backend = Backend()
