"""The pass manager: runs passes over a graph in order, and rolls back each pass that fails."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from torch.fx import Graph, GraphModule

from mmhash.compile.fuse_normalize_digest import FuseNormalizeDigest
from mmhash.compile.merge_digests import MergeDigests
from mmhash.compile.passes import Pass


@dataclass(frozen=True)
class Row:
    """The report of one pass: how many places it rewrote, and its cost."""

    name: str
    matches: int
    nodes_before: int
    nodes_after: int
    milliseconds: float
    rolled_back: str = ""  # the reason for the rollback, if any

    def __str__(self) -> str:
        line = f"{self.name:22} {self.matches:7} {self.nodes_before:5} -> {self.nodes_after:<5}"
        line += f" {self.milliseconds:6.2f} ms"
        return f"{line}  rolled back: {self.rolled_back}" if self.rolled_back else line


@dataclass(frozen=True)
class PassReport:
    """All passes over one graph; as text, one line per pass."""

    rows: tuple[Row, ...]

    def matches(self, name: str) -> int:
        """Return the number of places that the pass with this name rewrote."""
        return sum(row.matches for row in self.rows if row.name == name)

    def __str__(self) -> str:
        return "\n".join(["pass                   matches nodes", *map(str, self.rows)])


class PassManager:
    """Ordered passes, by default all passes of mmhash, and a report of the last run."""

    def __init__(self, passes: Sequence[Pass] | None = None) -> None:
        if passes is None:
            passes = (FuseNormalizeDigest(), MergeDigests())
        self.passes = tuple(passes)
        self._report = PassReport(())

    def __call__(self, graph_module: GraphModule) -> GraphModule:
        """Rewrite a graph in place, and return it.

        Compilers and torch.export store metadata about the result of each node. Nodes without
        metadata do not change.
        """
        rows: list[Row] = []
        kept: Graph | None = None
        for graph_pass in self.passes:
            # Copy the graph again only after a change: copying is most of the cost if nothing
            # matches.
            kept = kept or copy.deepcopy(graph_module.graph)
            row = self._run(graph_pass, graph_module, kept)
            rows.append(row)
            if row.matches or row.rolled_back:
                kept = None
        self._report = PassReport(tuple(rows))
        return graph_module

    def _run(self, graph_pass: Pass, graph_module: GraphModule, kept: Graph) -> Row:
        before = len(kept.nodes)
        matches, error = 0, ""
        start = perf_counter()
        try:
            matches = graph_pass(graph_module)
            if matches:
                graph_module.graph.lint()
                graph_module.recompile()
        except Exception as failure:  # noqa: BLE001  (the model must run even if a pass fails)
            graph_module.graph = kept
            # The first line of the error; torch adds details below.
            matches, error = 0, f"{type(failure).__name__}: {failure}".partition("\n")[0]
            warnings.warn(f"compiler pass {graph_pass.name} was rolled back: {error}", stacklevel=3)
        taken = (perf_counter() - start) * 1e3
        after = len(graph_module.graph.nodes)
        return Row(graph_pass.name, matches, before, after, taken, error)

    def last_report(self) -> PassReport:
        """Return the report about the last graph."""
        return self._report
