"""Mirrored pairs of coordinates under the sites of many rows; see `proposals.pairs`."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from pymc_skewgp._gaussian.blocks.blocks import Blocks
from pymc_skewgp._gaussian.blocks.rough_rows import rough_blocks
from pymc_skewgp._gaussian.proposals.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.proposals.pairs import GivenRows, Pairs, Surrogate, picked
from pymc_skewgp._gaussian.proposals.tabulated import TabulatedDensity
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class BlockPairs:
    """A proposal for coordinates under the sites of blocks, maybe with a rectangle drawn first.

    Attributes
    ----------
    gaussian : CoordinateGaussian
        N(0, I) times EP's sites of the blocks.
    blocks : Blocks
        After EP.
    rows : GivenRows or None
    """

    gaussian: CoordinateGaussian
    blocks: Blocks
    rows: GivenRows | None = None

    @property
    def first(self) -> TabulatedDensity | None:
        """No leading direction but that of the rows."""
        return None

    @property
    def n_modes(self) -> int:
        """Modes that it is about."""
        return 1

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw: of the rows, of x, and one to pick a member."""
        if self.rows is not None:
            return self.rows.proposal.n_dims + self.rows.spread.shape[1] + 1
        return self.gaussian.mean.size + 1

    @property
    def n_sites(self) -> int:
        """Of all blocks."""
        return self.blocks.n_rows

    def pairs(self, points: FloatArray) -> Pairs:
        """Both members of each pair: n r operations each, or half of it without a rectangle."""
        gaussian, rows = self.gaussian, self.rows
        if rows is None:
            white = np.asarray(ndtri(points[:-1]))
            off = gaussian.spread @ white
            plus, minus = gaussian.mean[:, None] + off, gaussian.mean[:, None] - off
            log_plus, log_minus = self.blocks.total("pair_log_probs", gaussian.mean, off)
            mirrored, log_rows = white, np.zeros(white.shape[1])
        else:
            m = rows.proposal.n_dims
            u, log_rows = rows.proposal.draw(points[:m])
            centre, off = rows.gain @ u, rows.spread @ np.asarray(ndtri(points[m:-1]))
            white, mirrored = centre + off, centre - off
            plus, minus = gaussian.of_white(white), gaussian.of_white(mirrored)
            log_plus, log_minus = (self.blocks.total("log_prob", c) for c in (plus, minus))
        log_plus = log_plus + gaussian.log_ratio(plus, white) + log_rows
        log_minus = log_minus + gaussian.log_ratio(minus, mirrored) + log_rows
        return Pairs(plus, minus, log_plus, log_minus)

    def draw(
        self, points: FloatArray, *, overwrite_points: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """One member of each pair as columns, picked by its weight, and the pairs' log weights."""
        pairs = self.pairs(points)
        return picked(pairs, points[-1]), pairs.log_weights

    def surrogate(self) -> Surrogate | None:
        """With the rows alone whose sites matter."""
        rough = rough_blocks(self.blocks)
        if rough is None:
            return None
        return Surrogate(replace(self, blocks=rough), rough.log_left_out)

    def unseen_share(self, n_draws: int) -> float:
        """Relative error of the evidence from tails that so many draws hardly meet."""
        rows = 0.0 if self.rows is None else self.rows.proposal.unseen_share(n_draws)
        return float(np.sqrt(self.blocks.total("missing", n_draws) + rows**2))
