"""Random torch programs: features and digests, with writes, views and aliases between them.

A program is Python source. Each statement is tried while it is drawn, and kept if it runs: so most
shapes and dtypes fit without a model of them here.
"""

import operator
import random
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Tracer
from torch.nn import functional

import mmhash.ops  # noqa: F401  (registers the operators)

NAMES = ("p", "m", "s", "w", "q", "r", "v")
BUFFERS = ("m", "s", "r", "v")

Program = Callable[..., tuple[Tensor, ...]]


@torch.library.custom_op("mmhash_programs::bump", mutates_args=("x",))
def bump(x: Tensor) -> None:
    x.add_(1)


class _Calls:
    """Calls that a symbolic trace has to record, though no argument is a proxy."""

    tracer: Tracer | None = None

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.tracer is not None:
            return self.tracer.create_proxy("call_function", function, args, kwargs)
        return function(*args, **kwargs)


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def inputs(seed: int) -> tuple[Tensor, ...]:
    """Pixels, mean, std, a matrix, a view of it, and running statistics."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (3, 3, 4, 4), dtype=torch.uint8, generator=generator)
    mean, std, matrix = (
        torch.rand(shape, generator=generator) + 0.25 for shape in ((3, 1, 1), (3, 1, 1), (4, 6))
    )
    return pixels, mean, std, matrix, matrix[1:], torch.zeros(3), torch.ones(3)


class Module(torch.nn.Module):
    """A program whose mean, std and statistics are buffers."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program
        for name, value in zip(NAMES, inputs(3), strict=True):
            if name in BUFFERS:
                self.register_buffer(name, value)

    def forward(self, p: Tensor, w: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        return self._program(p, self.m, self.s, w, q, self.r, self.v)


def compile_source(source: str, call: Callable[..., Any] = _call) -> Program:
    """Return the function that a program's source defines."""
    namespace: dict[str, Any] = {
        "torch": torch, "F": functional, "operator": operator, "call": call,
        "aten": torch.ops.aten, "digest": torch.ops.mmhash.digest.default,
        "bump": torch.ops.mmhash_programs.bump.default,
    }  # fmt: skip
    exec(compile(source, "<program>", "exec"), namespace)
    return namespace["program"]  # type: ignore[no-any-return]


def trace(source: str, *, with_buffers: bool) -> GraphModule:
    """Return the graph of torch's functions and methods as the program calls them."""
    tracer = Tracer()
    tracer.proxy_buffer_attributes = True  # or their writes would be done while it is traced
    recorded = _Calls()
    program = compile_source(source, recorded)
    recorded.tracer = tracer
    graph: Graph = tracer.trace(Module(program) if with_buffers else program)
    return GraphModule(tracer.root, graph)


# X is a tensor that is there already, Y another, N a new name. Among those that write there are
# more of those that the passes have taken for harmless.
WRITES = """
X.add_(1)
X.mul_(2)
X.sub_(1)
X.fill_(3)
X.zero_()
X.copy_(Y)
X.clamp_(0, 1)
X.normal_()
X.uniform_(1, 2)
X.random_(0, 9)
X.masked_fill_(X > 1, 2)
X.index_fill_(0, call(torch.tensor, [0]), 2)
X.index_put_((call(torch.tensor, [0]),), call(torch.tensor, 2.0))
X.index_add_(0, call(torch.tensor, [0]), X[0:1])
X.addcmul_(Y, Y)
X.lerp_(Y, 0.5)
X.data.add_(1)
X.detach().mul_(2)
X.view(-1).add_(1)
X[0].fill_(2)
X[0:1].mul_(2)
X.unbind()[0].add_(1)
X.expand_as(X).add_(1)
X.select(0, 0).zero_()
X.T.add_(1)
call(operator.iadd, X, 1)
call(operator.imul, X, 2)
call(operator.isub, X, Y)
call(operator.ipow, X, 2)
call(operator.setitem, X, 0, 2)
call(operator.setitem, X, Ellipsis, 2)
call(operator.setitem, X, Ellipsis, Y)
X.__setitem__(0, 2)
torch.add(X, 1, out=X)
torch.mul(Y, 2, out=X)
torch.cat([Y], out=X)
torch.relu_(X)
torch.fill_(X, 2)
torch._foreach_add_([X], 1)
torch._foreach_mul_([X, Y], 2)
torch._foreach_copy_([X], [Y])
torch._foreach_zero_([X])
torch.Tensor.add_(X, 1)
F.relu(X, inplace=True)
F.dropout(X, 0.5, True, True)
F.dropout(X, 0.5, training=True, inplace=True)
F.hardtanh(X, 0, 1, True)
F.threshold(X, 1, 2, True)
F.embedding(call(torch.tensor, [0, 1]), X, max_norm=0.1)
torch.embedding_renorm_(X, call(torch.tensor, [0]), 0.1, 2.0)
torch.batch_norm(Z, None, None, X, v, True, 0.1, 1e-5, False)
torch.batch_norm(Z, None, None, r, v, True, 0.1, 1e-5, False)
torch.batch_norm(Z, None, None, X.view(-1), v, True, 0.1, 1e-5, False)
torch.instance_norm(Z, None, None, X, v, True, 0.1, 1e-5, False)
torch.native_batch_norm(Z, None, None, X, v, True, 0.1, 1e-5)
torch.batch_norm_update_stats(Z, X, v, 0.5)
F.batch_norm(Z, X, v, training=True)
F.batch_norm(Z, X.flatten(), v, training=True, momentum=0.5)
F.instance_norm(Z, X, v)
aten.native_batch_norm.default(Z, None, None, X, v, True, 0.1, 1e-5)
aten._batch_norm_impl_index.default(Z, None, None, X, v, True, 0.1, 1e-5, False)
aten.batch_norm.default(Z, None, None, X, v, True, 0.1, 1e-5, False)
aten._native_batch_norm_legit.default(Z, None, None, X, v, True, 0.1, 1e-5)
aten.add_.Tensor(X, 1)
aten.fill_.Scalar(X, 2)
aten.copy_.default(X, Y)
aten.add.out(X, 1, out=X)
aten.mul_(X, 2)
aten._foreach_add_.Scalar([X], 1)
aten.embedding_renorm_.default(X, call(torch.tensor, [0]), 0.1, 2.0)
bump(X)
X.transpose_(0, -1)
X.t_()
X.unsqueeze_(0)
X.squeeze_()
X.resize_(1)
X.set_(Y)
X.swapaxes_(0, 1)
X.as_strided_((1,), (1,))
X.resize_as_(Y)
X.view(torch.uint8).add_(1)
X.view(torch.int32).bitwise_not_()
X[X > 1] = 2
X.data = Y
X.share_memory_().add_(1)
torch.aminmax(Y, out=(X, r))
torch.where(X > 1, X, Y, out=X)
torch.from_dlpack(X).add_(1)
torch.from_numpy(X.numpy()).add_(1)
torch.vmap(lambda a: a.add_(1))(X)
torch.func.functionalize(lambda a: a.add_(1))(X)
torch.view_as_complex(X.view(-1, 2)).mul_(2)
F.normalize(X, out=X)
F.embedding_bag(call(torch.tensor, [[0, 1]]), X, max_norm=0.1)
aten.set_.source_Tensor(X, Y)
""".strip().splitlines()

READS = """
N = X[0]
N = X[0:1]
N = X[..., 0]
N = X.view(-1)
N = X.reshape(-1)
N = X.detach()
N = X.data
N = X.expand_as(X)
N = X.unbind()[0]
N = X.T
N = X.transpose(0, -1)
N = X.narrow(0, 0, 1)
N = X.select(0, 0)
N = X.flatten()
N = X.unsqueeze(0)
N = X.squeeze()
N = X.contiguous()
N = X.view_as(X)
N = X.chunk(2)[0]
N = X.split(1)[-1]
N = X.diagonal()
N = X.as_strided((4,), (1,), 0)
N = torch.split(X, 1)[0]
N = torch.atleast_2d(X)
N = torch.as_strided(X, (4,), (1,), 0)
N = torch.tensor_split(X, 2)[0]
N = aten.slice.Tensor(X, 0, 0, 1)
N = aten.view.default(X, [-1])
N = aten.detach.default(X)
N = aten.alias.default(X)
N = +X
N = X.to(torch.float32)
N = X.float()
N = X + Y
N = X * 2
N = X.clone()
N = X.sum()
N = X.abs().sqrt()
N = X.float().mean(0)
N = torch.where(X > 1, X, 1)
N = torch.cat([X, X])
N = torch.stack([X, X])
N = torch.dropout(X, 0.5, True)
N = torch.rand_like(X)
N = F.pad(X, (1, 1))
N = F.interpolate(X, scale_factor=2)
N = X.new_zeros(3)
N = call(torch.ones, 3)
N = call(torch.tensor, 0.5)
N = X.cumsum(0)
N = X.view(torch.uint8)
N = torch.from_dlpack(X)
N = torch.vmap(lambda a: a + 1)(X)
N = torch.cond(p.sum() > 0, lambda a: a + 1, lambda a: a - 1, (X,))
N = digest(X)
N = digest(X, algorithm="xxh3")
N = digest(X, dim=0)
""".strip().splitlines()

_SCALES = ("0.5", "2", "1 / 255", None, "T", "T", "T", "T", "U")
_TOUCHES = """
T.fill_(3.0)
T.mul_(2)
T.add_(1)
T.copy_(call(torch.tensor, 3.0))
T.zero_().add_(2)
T.data.fill_(3.0)
T.detach().fill_(3.0)
T.view(1).fill_(3.0)
T.view(1)[0:1].mul_(2)
T.expand(1).add_(1)
T.unsqueeze(0).unbind()[0].fill_(3.0)
T.normal_().abs_().add_(1)
T.set_(call(torch.tensor, 3.0))
T.transpose_(0, 0).fill_(2)
call(operator.setitem, T, Ellipsis, 3.0)
call(operator.setitem, T, (), 3.0)
call(operator.iadd, T, 1)
call(operator.imul, T, 2)
torch.add(T, 1, out=T)
torch.mul(T, T, out=T)
torch._foreach_add_([T], 1)
torch.fill_(T, 2)
aten.fill_.Scalar(T, 3.0)
aten.add_.Tensor(T, 1)
bump(T)
F.relu(T.neg_(), inplace=True).add_(2)
""".strip().splitlines()


class _Draw:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.lines: list[str] = []
        self._env: dict[str, Any] = dict(zip(NAMES, inputs(seed), strict=True))
        self._env |= compile_source("def program(): pass").__globals__
        self._results: list[str] = []
        self._count = 0

    def source(self) -> str:
        """Draw a program."""
        pick = self._random
        blocks = [self._normalize() for _ in range(pick.randint(1, 2))]
        blocks += [self._digests() for _ in range(pick.randint(1, 2))]
        noise = pick.randint(0, 6)
        while any(blocks) or noise:
            if noise and pick.random() < 0.4:
                noise -= 1
                self._noise()
            elif any(blocks):
                block = pick.choice([block for block in blocks if block])
                if not self._run(block.pop(0)):
                    block.clear()
        seen = {name for name in self._results if name in self._env}
        seen |= set(pick.sample(self._tensors(), k=min(2, len(self._tensors()))))
        returned = ", ".join(sorted(seen))
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def program({', '.join(NAMES)}):\n{body}    return ({returned},)\n"

    def _new(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _tensors(self) -> list[str]:
        return [name for name, value in self._env.items() if isinstance(value, Tensor)]

    def _run(self, line: str) -> bool:
        try:
            exec(line, self._env)
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
            return False
        self.lines.append(line)
        return True

    def _noise(self) -> None:
        """One statement that runs, of a few that are tried."""
        for _ in range(8):
            template = self._random.choice(self._random.choice((WRITES, READS)))
            names = self._tensors()
            images = [name for name in names if self._env[name].ndim == 4 and self._is_float(name)]
            new = self._new("n")
            parts = {"X": self._random.choice(names), "Y": self._random.choice(names), "N": new,
                     "Z": self._random.choice(images) if images else "p.float()"}  # fmt: skip
            if self._run(_fill(template, parts)):
                return

    def _is_float(self, name: str) -> bool:
        return bool(self._env[name].dtype == torch.float32)

    def _normalize(self) -> list[str]:
        """Features of pixels, and digests of them, in one of the spellings."""
        pick = self._random
        scalar, features, digests = self._new("t"), self._new("f"), self._new("d")
        scale = pick.choice(_SCALES)
        lines: list[str] = []
        if scale in {"T", "U"}:
            lines.append(f"{scalar} = call(torch.tensor, {pick.choice(('0.5', '2.0', '1 / 255'))})")
            if pick.random() < 0.7:
                touched = scalar
                if pick.random() < 0.4:
                    touched = self._new("t")
                    view = pick.choice(("T.view(1)", "T.detach()", "T.data", "T.expand(1)", "+T",
                                        "T.unsqueeze(0)", "T[()]", "T[None]"))  # fmt: skip
                    lines.append(f"{touched} = {_fill(view, {'T': scalar})}")
                touch = _fill(pick.choice(_TOUCHES), {"T": touched})
                lines.append(f"{scalar} = {touch}" if scale == "U" else touch)
            scale = scalar
        pixels = pick.choice(("p", "p", "p", "p[1:]", "p.clone()", "p.contiguous()", "p.detach()"))
        cast = pick.choice(("{}.float()", "{}.to(torch.float32)", "{}.to(dtype=torch.float32)"))
        last = pick.choice(("", "", ".half()", ".to(torch.bfloat16)", ".to(torch.float32)"))
        x = cast.format(pixels)
        spelling = pick.randrange(3)
        if spelling == 0:
            scaled = f"{x} * {scale}" if scale else x
            lines.append(f"{features} = (({scaled} - m) / s){last}")
        elif spelling == 1:
            scaled = f".mul_({scale})" if scale else ""
            lines.append(f"{features} = {x}{scaled}.sub_(m).div_(s){last}")
        else:
            one, two = self._new("a"), self._new("b")
            lines.append(f"{one} = torch.mul({x}, {scale})" if scale else f"{one} = {x}")
            lines.append(f"{two} = torch.sub({one}, m)")
            lines.append(f"{features} = torch.div({two}, s){last}")
        algorithm = pick.choice(("", ', algorithm="xxh3"'))
        lines.append(f"{digests} = digest({features}, dim=0{algorithm})")
        self._results += [features, digests]
        return lines

    def _digests(self) -> list[str]:
        """Digests of parts of one tensor."""
        pick = self._random
        source = pick.choice(("w", "w", "q", "p", "m", "r", "s"))
        parts = ("{}[0]", "{}[1]", "{}[-1]", "{}[1:]", "{}.unbind()[0]", "{}.select(0, 1)", "{}",
                 "{}.narrow(0, 0, 1)", "{}.chunk(2)[0]", "torch.split({}, 1)[0]")  # fmt: skip
        names = [self._new("d") for _ in range(pick.randint(2, 4))]
        self._results += names
        return [f"{name} = digest({pick.choice(parts).format(source)})" for name in names]


def _fill(template: str, names: dict[str, str]) -> str:
    """Put names for the capital letters that stand alone."""
    return re.sub(r"(?<![\w.])[NXYZT](?!\w)", lambda found: names.get(found[0], found[0]), template)


def draw(seed: int) -> str:
    """The source of a program that gives the same numbers each time: its results hold no NaN."""
    for attempt in range(1000):
        torch.manual_seed(0)
        source = _Draw(seed * 1000 + attempt).source()
        if is_repeatable(source):
            return source
    raise AssertionError("no program could be drawn")


def is_repeatable(source: str) -> bool:
    """Return True if a program runs, twice alike; which NaN results from two is torch's choice."""
    runs = []
    for _ in range(2):
        try:
            runs.append(results(compile_source(source), 1))
        except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError):
            return False
    one, other = runs
    has_nan = any(value.is_floating_point() and value.isnan().any() for value in one.values())
    return not has_nan and alike(one, other)


def results(program: Program, seed: int, *, with_buffers: bool = False) -> dict[str, Tensor]:
    """Return a program's results for these inputs, and the inputs and buffers after it."""
    given = dict(zip(NAMES, inputs(seed), strict=True))
    if with_buffers:
        given = {name: value for name, value in given.items() if name not in BUFFERS}
    torch.manual_seed(seed)
    returned = [value.detach().clone() for value in program(*given.values())]
    left = dict(program.named_buffers()) if isinstance(program, torch.nn.Module) else {}
    named = {f"result {index}": value for index, value in enumerate(returned)}
    return named | given | {name: left[name].clone() for name in BUFFERS if name in left}


def alike(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    """Compare shapes, dtypes and values; a graph may lack the buffers that it does not use."""
    return all(
        found[name].dtype == value.dtype and torch.equal(found[name], value)
        for name, value in expected.items()
        if name in found or name not in BUFFERS
    )
