"""Whatever a program writes to, and through which alias, the passes do not change its results.

`MMHASH_PROGRAMS` says how many programs are tried, `MMHASH_PROGRAMS_FROM` from which seed on.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from mmhash.compile import Backend, PassManager
from tests.property.programs import (
    BUFFERS,
    NAMES,
    Module,
    Program,
    alike,
    compile_source,
    draw,
    inputs,
    results,
    trace,
)

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("MMHASH_PROGRAMS", "100"))
FIRST = int(os.environ.get("MMHASH_PROGRAMS_FROM", "0"))


Capture = Callable[[str, bool, PassManager | None], Program]


def symbolic(source: str, with_buffers: bool, manager: PassManager | None) -> Program:
    module = trace(source, with_buffers=with_buffers)
    if manager is not None:
        manager(module, _inputs(with_buffers))
    return module


def aten(source: str, with_buffers: bool, manager: PassManager | None) -> Program:
    if with_buffers:
        return exported(source, with_buffers, manager)
    module = make_fx(compile_source(source), tracing_mode="fake")(*inputs(1))
    if manager is not None:
        manager(module)
    return module  # type: ignore[no-any-return]


def exported(source: str, with_buffers: bool, manager: PassManager | None) -> Program:
    model: torch.nn.Module = Module(compile_source(source))
    if not with_buffers:
        model = _Function(compile_source(source))
    module = torch.export.export(model, _inputs(with_buffers)).module()
    if manager is not None:
        manager(module)
    return module


def dynamo(source: str, with_buffers: bool, manager: PassManager | None) -> Program:
    torch.compiler.reset()
    program = compile_source(source)
    backend: Any = "eager" if manager is None else Backend(manager, "eager")
    if with_buffers:
        return torch.compile(Module(program), backend=backend)  # type: ignore[no-any-return]
    compiled: Program = torch.compile(program, backend=backend)
    return compiled


class _Function(torch.nn.Module):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def forward(
        self, p: Tensor, m: Tensor, s: Tensor, w: Tensor, q: Tensor, r: Tensor, v: Tensor
    ) -> tuple[Tensor, ...]:
        return self._program(p, m, s, w, q, r, v)


CAPTURES: tuple[Capture, ...] = (symbolic, symbolic, symbolic, aten, aten, dynamo, exported)


def _inputs(with_buffers: bool) -> tuple[Tensor, ...]:
    return tuple(
        value
        for name, value in zip(NAMES, inputs(1), strict=True)
        if not with_buffers or name not in BUFFERS
    )


def run(
    capture: Capture, source: str, with_buffers: bool, manager: PassManager | None
) -> list[dict[str, Tensor]]:
    """Return the results for two inputs."""
    program = capture(source, with_buffers, manager)
    return [results(program, seed, with_buffers=with_buffers) for seed in (1, 2)]


def can_be_captured(
    capture: Capture, source: str, with_buffers: bool, expected: list[dict[str, Tensor]]
) -> bool:
    """Return True if torch's graph of the program, without the passes, has the same results."""
    try:
        return all(map(alike, run(capture, source, with_buffers, None), expected))
    except Exception:  # noqa: BLE001  (torch's tracers raise many kinds; no code of ours runs)
        return False


def eager(source: str, with_buffers: bool) -> list[dict[str, Tensor]] | None:
    program = compile_source(source)
    model = Module(program) if with_buffers else program
    try:
        return [results(model, seed, with_buffers=with_buffers) for seed in (1, 2)]
    except (RuntimeError, IndexError, ValueError):
        return None  # a buffer has another shape the second time


@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
def test_the_passes_change_no_result() -> None:
    tried = fused = merged = 0
    seed = FIRST
    while tried < COUNT:
        seed += 1
        source = draw(seed)
        capture = CAPTURES[seed % len(CAPTURES)]
        with_buffers = seed % 3 == 0
        expected = eager(source, with_buffers)
        if expected is None or not can_be_captured(capture, source, with_buffers, expected):
            continue
        tried += 1
        manager = PassManager()
        found = run(capture, source, with_buffers, manager)
        report = manager.last_report()
        program = f"seed {seed}, {capture.__name__}:\n{source}"
        assert not any(row.rolled_back for row in report.rows), f"{report}\n{program}"
        assert all(map(alike, found, expected)), program
        fused += report.matches("fuse_normalize_digest")
        merged += report.matches("merge_digests")
    print(f"{tried} programs of {seed - FIRST}: {fused} fused, {merged} merged")
    if tried >= 50:  # or the passes would be tried on nothing
        assert fused > tried // 20
        assert merged > tried // 20
