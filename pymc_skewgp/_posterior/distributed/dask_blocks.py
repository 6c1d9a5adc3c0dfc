r"""Row blocks on the workers of a dask cluster.

The rows and the state of EP stay on the workers. A sweep sends each of them the mean of the
coordinates and the factor of their covariance, and gets back as much: with W groups of blocks some
:math:`16 W r^2` bytes, whatever the number of rows.

A worker that is lost takes its blocks with it. They are built again from their inputs on another
worker, and all calls that changed them so far are repeated there, so that EP goes on where it was:
what comes out is the same to the bit.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pymc_skewgp._gaussian.blocks.blocks import added
from pymc_skewgp._posterior.distributed.dask_groups import DaskGroups, Group
from pymc_skewgp._posterior.distributed.kept_blocks import Call, KeptBlocks

if TYPE_CHECKING:
    from distributed import Client

# Methods of `RowBlock` after which it is another one.
_CHANGING = frozenset({"tilt", "move", "back", "forget", "finish"})


class DaskBlocks(DaskGroups):
    """Blocks in groups, each kept by one worker.

    Sums are over the blocks of a group in their order, then over the groups: they do not depend on
    which worker keeps what, nor on workers that are lost.

    Parameters
    ----------
    client : distributed.Client
    groups : sequence of Group
    """

    def __init__(self, client: "Client", groups: Sequence[Group]) -> None:
        self.here = False
        self._calls: list[Call] = []
        super().__init__(client, groups, KeptBlocks)
        self.n_rows = sum(n for n, _, _ in self.built)
        self.rank: int = self.built[0][1]
        self.log_constant: float = sum(constant for _, _, constant in self.built)

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`."""
        found = added(self.ask("total", method, arguments))
        if method in _CHANGING:
            self._calls.append((method, arguments))
        return found

    def restore(self, i: int) -> None:
        """Repeat all calls that changed the blocks."""
        for call in self._calls:
            self._waited(self._actors[i].repeat(*call)).unwrap()
