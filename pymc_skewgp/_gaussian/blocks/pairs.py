"""Mirrored pairs of coordinates under the sites of many rows; see `proposals.pairs`."""

from dataclasses import dataclass, replace

from pymc_skewgp._errors import SeveralModesWarning, warn
from pymc_skewgp._gaussian.blocks.blocks import Blocks, LocalBlocks
from pymc_skewgp._gaussian.blocks.rough_rows import rough_blocks
from pymc_skewgp._gaussian.proposals.mode_pairs import ModePairs, RowsBeside, with_modes
from pymc_skewgp._gaussian.proposals.modes import Target
from pymc_skewgp._gaussian.proposals.pairs import EPPairs, Pairs, Surrogate
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True)
class BlockPairs(EPPairs):
    """With sites in blocks.

    Attributes
    ----------
    blocks : Blocks
        After EP.
    """

    blocks: Blocks

    @property
    def n_sites(self) -> int:
        """See `EPPairs`."""
        return self.blocks.n_rows

    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """See `EPPairs`."""
        found: FloatArray = self.blocks.total("log_prob", coordinates)
        return found

    def pairs(self, points: FloatArray) -> Pairs:
        """Both members of each pair: n r operations each, or half of it without a rectangle."""
        gaussian, own = self.gaussian, self.members(points)
        if self.rows is None:
            off = gaussian.spread @ own.plus
            plus, minus = gaussian.mean[:, None] + off, gaussian.mean[:, None] - off
            log_plus, log_minus = self.blocks.total("pair_log_probs", gaussian.mean, off)
        else:
            plus, minus = gaussian.of_white(own.plus), gaussian.of_white(own.minus)
            log_plus, log_minus = self.log_prob(plus), self.log_prob(minus)
        log_plus = log_plus + gaussian.log_ratio(plus, own.plus) + own.log_plus
        log_minus = log_minus + gaussian.log_ratio(minus, own.minus) + own.log_minus
        return Pairs(plus, minus, log_plus, log_minus)

    def with_modes(self, beside: RowsBeside | None = None) -> EPPairs | ModePairs:
        """See `mode_pairs.with_modes`.

        Warns
        -----
        SeveralModesWarning
            Where blocks are in other processes, in which modes are not looked for.
        """
        blocks = self.blocks
        if not blocks.total("bent"):
            return self
        if not isinstance(blocks, LocalBlocks):
            warn(
                "the likelihood is not log-concave, so that the posterior may have several modes, "
                "which are not looked for on the workers of a cluster: draws are about one of "
                "them. Without a client modes are looked for; or take part of the rows to see.",
                SeveralModesWarning,
                stacklevel=2,
            )
            return self
        return with_modes(self, Target.joined([x.target() for x in blocks.blocks]), beside)

    def surrogate(self) -> Surrogate | None:
        """With the rows alone whose sites matter."""
        rough = rough_blocks(self.blocks)
        if rough is None:
            return None
        return Surrogate(replace(self, blocks=rough), rough.log_left_out)

    def missing(self, n_draws: int) -> float:
        """See `EPPairs`."""
        return float(self.blocks.total("missing", n_draws))
