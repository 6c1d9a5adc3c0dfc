r"""Few of many rows, with EP's Gaussian sites in place of all others.

Where labels are as good as separated, as those of a million rows often are, most rows say next to
nothing: their probability is near 1 wherever the coordinates may be. To temper, which takes
hundreds of passes over the rows, goes with those whose sites take a share of their predictors'
variance. The others come in again at the end, by weights that are nearly equal.
"""

from typing import Any

import numpy as np

from pymc_skewgp._gaussian.blocks.blocks import Blocks
from pymc_skewgp._gaussian.blocks.site_steps import SiteSums
from pymc_skewgp._validation import FloatArray

# Share of its variance that a rough row's site takes. The weights of all others, thousands of them
# together, are off by some hundredths.
_LEVEL = 1e-3
# Share of all rows that are rough, up to which they are set apart; and rows from which on.
_MOST_ROUGH, _MANY = 0.5, 2000


class RoughBlocks:
    """Rough rows as they are, and all others as the Gaussian sites that EP has found.

    Parameters
    ----------
    blocks : Blocks
        In this process, after EP. They keep their rough rows.
    """

    here = False  # rough rows of rough rows would be without the others

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.n_rows: int = blocks.total("n_rough", _LEVEL)
        self.rank = blocks.rank
        self._others: SiteSums = blocks.total("set_apart", _LEVEL)

    def total(self, method: str, *arguments: Any) -> Any:
        """See `Blocks`; of `log_prob` and `pair_log_probs`."""
        found = self._blocks.total("of_rough", method, *arguments)
        if method == "log_prob":
            return found + self._log_sites(*arguments)
        centre, off = arguments
        return found + [self._log_sites(centre[:, None] + x) for x in (off, -off)]

    def log_left_out(self, coordinates: FloatArray) -> FloatArray:
        """Log probability of all rows over that of these, for columns of coordinates."""
        return np.asarray(
            self._blocks.total("log_prob", coordinates) - self.total("log_prob", coordinates)
        )

    def _log_sites(self, coordinates: FloatArray) -> FloatArray:
        """Log of the product of the other sites."""
        gram, pull = self._others
        square = np.einsum("ij,ij->j", coordinates, gram @ coordinates)
        return np.asarray(pull @ coordinates - 0.5 * square)


def rough_blocks(blocks: Blocks) -> RoughBlocks | None:
    """Rough rows, where they are few among many."""
    if not (blocks.here and blocks.n_rows > _MANY):
        return None
    if blocks.total("n_rough", _LEVEL) > _MOST_ROUGH * blocks.n_rows:
        return None
    return RoughBlocks(blocks)
