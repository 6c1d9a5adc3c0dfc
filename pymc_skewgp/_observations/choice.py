"""Choices of one among several items."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.best_item import beats_all, effective_draws
from pymc_skewgp._observations.comparisons import (
    NOBODY,
    as_items,
    as_number,
    joined_items,
    larger,
    value_at,
)
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.winner import log_win_probability, win_probabilities
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class Choice(Likelihood):
    r"""Choices: item c was taken from a set of items, the one with the largest noisy utility.

    .. math:: f(x_c) + e_c > f(x_j) + e_j \text{ for all others } j, \qquad e \sim N(0, \sigma^2)

    X are the items, the alternatives of all choice sets one below the other (an item may be in
    several sets). y, of shape (n, k), has a row for each choice: row numbers of X, the chosen item
    first, then the others in any order, then -1 up to the end where a set is smaller.

    Parameters
    ----------
    sigma : float, default 1
        Standard deviation of the noise of one utility, in the units of f. In a PyMC model it may be
        a random variable, whose value ``point`` gives.

    Raises
    ------
    ValueError
        When used: noise that is not positive, items that X does not have, a set of one item, or
        with an item twice.

    Notes
    -----
    A choice between two items is a duel, `Preference` with the same `sigma`.

    Predictions are of a choice among all the new items: ``p_chosen``, with noise, and ``p_best``,
    that f is largest there.

    References
    ----------
    .. [1] J. A. Hausman & D. A. Wise (1978), A conditional probit model for qualitative choice,
       doi:10.2307/1913909.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> items = [[0.0], [1.0], [3.0]]
    >>> choices = [[1, 0, 2], [1, 2, -1]]  # the second of all three, and against the third
    >>> posterior = gp.posterior(items, choices, likelihood=sg.likelihoods.Choice(0.3))
    >>> new = posterior.predict(items, random_seed=1)["predictions_summary"]
    >>> new["p_chosen"].values.round(1)
    array([0.1, 0.8, 0.1])
    """

    sigma: Any = 1.0

    y_dim = "choice"
    y_inner_dims = ("alternative",)

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Rows of items, the chosen one first."""
        as_number("sigma", self.sigma)
        return as_items("y", y, n, least=2, kind="a choice")

    def observations(self, y: Data, n: int) -> Observations:
        """An interval for each item that was not chosen."""
        above, below = _chosen_and_others(y)
        return larger(above, below, y.ravel(), n, float(self.sigma))

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log probability of each choice."""
        values = value_at(f, y)
        values /= float(self.sigma)
        return log_win_probability(values[..., :1] - values[..., 1:])

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New choices from the same sets, the others in their old order."""
        values = value_at(f, y)
        values += float(self.sigma) * rng.standard_normal(values.shape)
        chosen = values.argmax(axis=-1)[..., None]
        # The chosen one goes to the front; those that were before it move on by one.
        position = np.arange(y.shape[1])
        source = np.where(position == 0, chosen, position - (position <= chosen))
        return np.take_along_axis(np.broadcast_to(y, values.shape), source, axis=-1)

    @property
    def duel(self) -> tuple[float, float]:
        """Variance of the noise of a difference, and what it has to be above."""
        return 2.0 * float(self.sigma) ** 2, 0.0

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Positions in a row of y."""
        return {"alternative": ["chosen", *range(1, y.shape[1])]}

    def joint_summary(self, f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_chosen`` and ``p_best``."""
        draws = f.reshape(-1, f.shape[-1])
        if draws.shape[1] < 2:
            return {}
        p = win_probabilities(draws / float(self.sigma))
        error = p.std(axis=0) / np.sqrt(effective_draws(len(p), mixture))
        return {"p_chosen": p.mean(axis=0), "p_chosen_se": error, **beats_all(f, mixture)}

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Choices among old and new items, numbered from the first old one."""
        return joined_items(y, self.as_data(new, n + n_new))


def _chosen_and_others(y: Data) -> tuple[IntArray, IntArray]:
    """Positions in the flat y of the chosen item and of each other one."""
    k = y.shape[1]
    row, column = np.nonzero(y[:, 1:] != NOBODY)
    return row * k, row * k + column + 1
