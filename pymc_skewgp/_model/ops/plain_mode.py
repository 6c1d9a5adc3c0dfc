"""NumPy under PyTensor's own rewrites: functions that are there at once, without compilation.

Kernel matrices are evaluated a few times or a few hundred times. Compiling them would be most of
the wait, while NumPy's passes over whole matrices are as fast as compiled loops.
"""

from typing import Any

import pytensor.tensor as pt
from pytensor import scalar
from pytensor.compile.mode import Mode
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.tensor.elemwise import Elemwise


@node_rewriter([Elemwise])
def _clip_as_bounds(fgraph: Any, node: Any) -> Any:
    """`Clip` as `Minimum` of `Maximum`, which NumPy has: it would call Python for every entry."""
    if not isinstance(node.op.scalar_op, scalar.Clip):
        return None
    x, low, high = node.inputs
    if high is x:  # PyMC's way to write no upper limit; Clip looks at the lower one first
        return [pt.maximum(x, low).astype(node.outputs[0].type.dtype)]
    return [pt.minimum(pt.maximum(x, low), high).astype(node.outputs[0].type.dtype)]


# Fused loops would run element by element here. The last position: rewrites make clips.
PLAIN = (
    Mode(linker="py", optimizer="fast_run")
    .excluding("fusion", "inplace")
    .register((dfs_rewriter(_clip_as_bounds), 99))
)
