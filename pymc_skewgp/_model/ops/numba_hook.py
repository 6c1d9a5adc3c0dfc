"""Numba implementations that are imported when PyTensor first compiles for numba."""

import importlib
from typing import Any

from pytensor.compile import optdb
from pytensor.graph.rewriting.basic import GraphRewriter


class _Import(GraphRewriter):
    """A rewrite that changes nothing: it makes sure that a module has been imported."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module

    def apply(self, fgraph: Any) -> None:
        """Import the module."""
        importlib.import_module(self.module)


def import_for_numba(module: str) -> None:
    """Have `module`, which registers numba implementations, imported before numba needs them.

    PyTensor's numba backend takes a second to import, and whoever only imports this package does
    not need it. Rewrites tagged "numba" run for every function that it compiles, and for no other.
    """
    optdb.register(f"import_{module}", _Import(module), "numba", position=-1)
