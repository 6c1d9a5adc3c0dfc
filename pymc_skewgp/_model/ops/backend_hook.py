"""Implementations for a backend that are imported when PyTensor first compiles for it."""

import importlib
from typing import Any, Literal

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


def import_for(backend: Literal["numba", "jax"], module: str) -> None:
    """Have `module`, which registers implementations, imported before `backend` needs them.

    PyTensor's numba backend takes a second to import, and JAX does not bear the forks of parallel
    chains: whoever only imports this package must get neither. Rewrites with the tag of a backend
    run for every function that is compiled for it, and for no other.
    """
    optdb.register(f"import_{module}", _Import(module), backend, position=-1)
