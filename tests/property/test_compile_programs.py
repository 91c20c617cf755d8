"""Whatever a program writes to, and through which alias, the passes do not change its results.

`MMHASH_PROGRAMS` says how many programs are tried, `MMHASH_PROGRAMS_FROM` from which seed on.
"""

import os
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from mmhash.compile import Backend, PassManager
from tests.property.programs import (
    NAMES,
    Program,
    alike,
    compile_source,
    draw,
    inputs,
    results,
    trace,
)

COUNT = int(os.environ.get("MMHASH_PROGRAMS", "120"))
FIRST = int(os.environ.get("MMHASH_PROGRAMS_FROM", "0"))


def symbolic(source: str, manager: PassManager | None) -> Program:
    module = trace(source)
    if manager is not None:
        manager(module, inputs(1))
    return module


def aten(source: str, manager: PassManager | None) -> Program:
    module = make_fx(compile_source(source), tracing_mode="fake")(*inputs(1))
    if manager is not None:
        manager(module)
    return module  # type: ignore[no-any-return]


def exported(source: str, manager: PassManager | None) -> Program:
    class Model(torch.nn.Module):
        pass

    scope: dict[str, object] = {"program": compile_source(source)}
    names = ", ".join(NAMES)
    exec(f"def forward(self, {names}): return program({names})", scope)  # noqa: S102
    Model.forward = scope["forward"]  # type: ignore[assignment]
    module = torch.export.export(Model(), inputs(1)).module()
    if manager is not None:
        manager(module)
    return module


def dynamo(source: str, manager: PassManager | None) -> Program:
    torch.compiler.reset()
    backend: object = "eager" if manager is None else Backend(manager, "eager")
    compiled: Program = torch.compile(compile_source(source), backend=backend)  # type: ignore[arg-type]
    return compiled


Capture = Callable[[str, PassManager | None], Program]
CAPTURES: list[Capture] = [symbolic, symbolic, symbolic, aten, aten, dynamo, exported]


def run(capture: Capture, source: str, manager: PassManager | None) -> list[list[Tensor]] | None:
    """The results for two inputs; None if torch cannot make a graph of the program or run it."""
    try:
        program = capture(source, manager)
        return [results(program, seed) for seed in (1, 2)]
    except Exception:  # noqa: BLE001  (which errors torch's tracers raise is theirs)
        return None


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
def test_the_passes_change_no_result() -> None:
    failures: list[str] = []
    tried = fused = merged = 0
    seed = FIRST
    while tried < COUNT:
        seed += 1
        source = draw(seed)
        capture = CAPTURES[seed % len(CAPTURES)]
        manager = PassManager()
        eager = [results(compile_source(source), of) for of in (1, 2)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = run(capture, source, manager)
        undone = [str(one.message) for one in caught if "rolled back" in str(one.message)]
        tried += found is not None
        fused += manager.last_report().matches("fuse_normalize_digest")
        merged += manager.last_report().matches("merge_digests")
        if found is not None and not undone and all(map(alike, found, eager)):
            continue
        plain = run(capture, source, None)
        if plain is None or not all(map(alike, plain, eager)):
            tried -= found is not None
            continue  # the graph without the passes is another program already
        failures.append(f"seed {seed}, {capture.__name__}, {undone}:\n{source}")
    print(f"{tried} programs of {seed - FIRST}: {fused} fused, {merged} merged")
    assert not failures, f"{len(failures)} of {tried} programs:\n" + "\n".join(failures[:5])
    assert fused > tried // 20
    assert merged > tried // 20
