"""The prior of hyperparameters as a proposal: importance sampling draws a share from it for good.

A target over its prior is the likelihood, which is bounded: no tail of it has large weights.
"""

import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import compile as compile_graph
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from pytensor.graph.replace import clone_replace

from pymc_skewgp._learn.compiled import CompiledLogPrior
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Pattern
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._validation import FloatArray

# A prior is drawn from where so many draws are all finite.
_TRIED = 32


class PriorDraws:
    """Draws of the continuous coordinates given binary ones, and their density.

    Potentials and other observations are no part of it.

    Parameters
    ----------
    coordinates : Coordinates
    pattern : tuple
        Of the binary ones.
    rng : numpy.random.Generator

    Raises
    ------
    NotImplementedError
        For a prior that cannot be drawn from.
    """

    def __init__(
        self, coordinates: Coordinates, pattern: Pattern, rng: np.random.Generator
    ) -> None:
        model, self._pattern = coordinates.model, pattern
        rvs = [model.values_to_rvs[value] for value in coordinates.continuous]
        self._log_prior = CompiledLogPrior(coordinates, model.logp(vars=rvs, jacobian=True))
        each = zip(rvs, (model.rvs_to_transforms[rv] for rv in rvs), strict=True)
        free = [rv if t is None else t.forward(rv, *rv.owner.inputs) for rv, t in each]
        binary = [model.values_to_rvs[value] for value in coordinates.binary]
        values = zip(binary, coordinates.binary_values(pattern), strict=True)
        known = {rv: pt.constant(value, dtype=rv.dtype) for rv, value in values}
        drawn = clone_replace(free, known)
        self._rng, self._generators = rng, find_rng_nodes(drawn)
        self._draw = compile_graph([], drawn, random_seed=int(rng.integers(2**31)), mode=PLAIN)

    def draw(self, count: int) -> FloatArray:
        """Rows; the few that are not finite are drawn again."""
        rows: list[FloatArray] = []
        while len(rows) < count:
            row = self.row()
            if np.isfinite(row).all():
                rows.append(row)
        return np.array(rows).reshape(count, -1)

    def row(self) -> FloatArray:
        """One draw; not finite where a vague prior is beyond double precision."""
        try:
            return np.concatenate([np.ravel(x) for x in self._draw()], dtype=np.float64)
        except (ArithmeticError, ValueError):  # of one that divides by a draw, or cannot use it
            # The call that failed has left the generators where they were.
            reseed_rngs(self._generators, int(self._rng.integers(2**31)))
            return np.full(1, np.nan)

    def log_density(self, x: FloatArray) -> FloatArray:
        """At rows."""
        return self._log_prior.values_at_rows(x, self._pattern)


def prior_draws(
    coordinates: Coordinates, pattern: Pattern, rng: np.random.Generator
) -> PriorDraws | None:
    """None where the prior cannot be drawn from, or has draws that are not finite."""
    try:
        found = PriorDraws(coordinates, pattern, rng)
        tried = [found.row() for _ in range(_TRIED)]
    except NotImplementedError:
        return None
    if not all(np.isfinite(row).all() for row in tried):
        return None
    return found if np.isfinite(found.log_density(np.array(tried))).all() else None
