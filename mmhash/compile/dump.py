"""Graphs before and after each pass, written to the directory `MMHASH_COMPILE_DUMP`."""

import difflib
import itertools
import os
from pathlib import Path

from torch.fx import GraphModule

_numbers = itertools.count()


class Dump:
    """The directory of one graph."""

    def __init__(self, folder: Path, graph_module: GraphModule) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._code = _code(graph_module)
        self._steps = itertools.count()

    def write(self, name: str, graph_module: GraphModule) -> None:
        """Write the graph after a pass, and the difference to the graph before."""
        before, self._code = self._code, _code(graph_module)
        difference = difflib.unified_diff(
            before.splitlines(keepends=True),
            self._code.splitlines(keepends=True),
            "before",
            "after",
        )
        stem = f"{next(self._steps)}-{name}"
        for kind, text in (
            ("before.py", before),
            ("after.py", self._code),
            ("diff", "".join(difference)),
        ):
            (self._folder / f"{stem}.{kind}").write_text(text)


def open_dump(graph_module: GraphModule) -> Dump | None:
    """Create a directory for a graph, if dumps are on."""
    directory = os.environ.get("MMHASH_COMPILE_DUMP")
    if not directory:
        return None
    return Dump(Path(directory) / f"{os.getpid()}-{next(_numbers)}", graph_module)


def _code(graph_module: GraphModule) -> str:
    return graph_module.print_readable(print_output=False) + "\n"
