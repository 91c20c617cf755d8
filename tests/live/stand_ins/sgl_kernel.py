"""A stand-in for SGLang's compiled kernels, for the CPU without AMX.

SGLang imports this package unconditionally. For a tiny Qwen2-VL, it calls one function of the
package. The other functions exist by name, and raise when they are called.
"""

from collections.abc import Callable
from typing import Any

import torch


def assign_req_to_token_pool_cpu(
    rows: Any, pool: Any, starts: Any, ends: Any, locations: Any, _width: Any
) -> None:
    """Write the cache locations of each request's new tokens into its row of the pool."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        count = end - start
        pool[row, start:end] = locations[taken : taken + count].to(pool.dtype)
        taken += count


def __getattr__(name: str) -> Callable[..., Any]:
    # Define only these names: for any other, SGLang's own `except ImportError` must apply.
    if not name.endswith("_cpu"):
        raise AttributeError(name)

    def unavailable(*_arguments: Any, **_named: Any) -> Any:
        raise NotImplementedError(f"{name} is not in this stand-in")

    return unavailable


# Other models' modules look these operators up at import. Leave out convert_weight_packed, from
# whose presence SGLang would conclude that it has the AMX kernels.
_declared = torch.library.Library("sgl_kernel", "FRAGMENT")
for _operator in (
    "fused_sigmoid_mul_cpu",
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
    "fused_gdn_gating_cpu",
    "fused_sigmoid_gating_delta_rule_update_cpu",
):
    _declared.define(f"{_operator}(Tensor x) -> Tensor")
