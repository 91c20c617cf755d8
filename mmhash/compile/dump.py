"""Each graph before and after each pass, as files to read: `MMHASH_COMPILE_DUMP` says where."""

import difflib
import itertools
import os
from pathlib import Path

from torch.fx import GraphModule

_numbers = itertools.count()


class Dump:
    """The folder of one graph."""

    def __init__(self, folder: Path, graph_module: GraphModule) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._code = _code(graph_module)
        self._steps = itertools.count()

    def write(self, name: str, graph_module: GraphModule) -> None:
        """Keep the graph as a pass has left it, and what that changed."""
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
    """A folder of its own for a graph, if dumps are asked for."""
    asked = os.environ.get("MMHASH_COMPILE_DUMP")
    if not asked:
        return None
    return Dump(Path(asked) / f"{os.getpid()}-{next(_numbers)}", graph_module)


def _code(graph_module: GraphModule) -> str:
    return graph_module.print_readable(print_output=False) + "\n"
