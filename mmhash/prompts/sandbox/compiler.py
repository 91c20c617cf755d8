"""Templates compiled to Python that spends from a budget: each loop, macro and large value."""

# ruff: noqa: D102, N802  (jinja2 calls visit_ and the name of a node)

from collections.abc import Callable, Iterator
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.ext import Extension
from jinja2.parser import Parser

MAX_NODES = 30_000
"""The nodes of the largest template, compiled in 1 s: a template of 20 KB has 3000."""

_STATEMENTS = (
    nodes.Assign,
    nodes.AssignBlock,
    nodes.Break,
    nodes.CallBlock,
    nodes.Continue,
    nodes.ExprStmt,
    nodes.FilterBlock,
    nodes.For,
    nodes.If,
    nodes.Macro,
    nodes.Output,
    nodes.Scope,
    nodes.With,
)


def bound_work(tree: nodes.Template) -> None:
    """Let each loop and macro of a template spend for its body; refuse unknown statements."""
    if sum(1 for _ in _walk(tree)) > MAX_NODES:
        raise TemplateError(f"it has more than {MAX_NODES} nodes")
    for node in _walk(tree):
        if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
            raise TemplateError(f"the statement {type(node).__name__} is not offered")
        if isinstance(node, nodes.For) and node.recursive:
            raise TemplateError("recursive loops are not offered")
    for node in list(_walk(tree)):
        if isinstance(node, nodes.For):
            node.iter = _call("steps", node.iter, nodes.Const(_weight(node)))
        elif isinstance(node, (nodes.Macro, nodes.CallBlock)):
            spend = nodes.ExprStmt(lineno=node.lineno)
            spend.node = _call("spend", nodes.Const(_weight(node)))
            node.body.insert(0, spend)


def _call(name: str, *args: Any) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)


def _weight(node: nodes.For | nodes.Macro | nodes.CallBlock) -> int:
    # A nested loop's body counts here too: a loop may be empty, and its set-up is work as well.
    return sum(1 for _ in _walk(node))


def _walk(root: nodes.Node) -> Iterator[nodes.Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.iter_child_nodes())


class WeighingGenerator(CodeGenerator):
    """Python code in which joined, sliced, compared and hashable values are weighed.

    A tuple is weighed when it is made, because its hash visits all that is in it, each time.
    """

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat(map(environment.text, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("(environment.weigh(")
        self.visit(node.expr, frame)
        self.write(")")
        for operand in node.ops:
            self.visit(operand, frame)
        self.write(")")

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:
        operator = operators[node.op]
        weigh = "members" if operator in {"in", "not in"} else "weigh"
        self.write(f" {operator} environment.{weigh}(")
        self.visit(node.expr, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        is_target = node.ctx != "load"
        self.write("" if is_target else "environment.weigh(")
        super().visit_Tuple(node, frame)
        self.write("" if is_target else ")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.weigh_keys(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.weigh_top(")
        self.visit(node.node, frame)
        self.write(")[")
        self.visit(node.arg, frame)
        self.write("]")


class Generation(Extension):
    """The tag `generation`, which marks what the assistant wrote: it changes no text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag up to its end as a call of a macro: assignments in it stay in it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_text_of")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _text_of(self, caller: Callable[[], str]) -> str:
        return caller()
