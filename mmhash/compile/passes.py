"""The base class of passes over a graph."""

import hashlib
import inspect
import marshal
import sys
from abc import ABC, abstractmethod

from torch.fx import GraphModule

from mmhash.compile import effects, nodes


class Pass(ABC):
    """A pass that rewrites a graph.

    `config` holds its settings, a frozen dataclass of the same module, or None if it has none.
    """

    name: str
    config: object = None

    @abstractmethod
    def __call__(self, graph_module: GraphModule) -> int:
        """Rewrite the graph; return the number of changed places: 0 if the graph did not change."""

    def uuid(self) -> str:
        """Return an identifier of the pass: a hash of its source and settings."""
        try:
            source = inspect.getsource(sys.modules[type(self).__module__])
        except (OSError, TypeError):  # defined at a prompt, without a file
            source = marshal.dumps(type(self).__call__.__code__).hex()
        parts = (
            type(self).__qualname__,
            repr(self.config),
            source,
            *map(inspect.getsource, (effects, nodes)),
        )
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()
