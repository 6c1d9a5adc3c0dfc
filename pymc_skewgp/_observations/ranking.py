"""Rankings of several items, from the best to the worst."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from pymc_skewgp._observations.best_item import beats_all, beats_each
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
from pymc_skewgp._observations.order_probability import log_order_probability
from pymc_skewgp._validation import FloatArray


@dataclass(frozen=True, eq=False)
class Ranking(Likelihood):
    r"""Rankings: items in the order of their noisy utilities, the best first.

    .. math:: f(x_1) + e_1 > f(x_2) + e_2 > \dots > f(x_k) + e_k, \qquad e \sim N(0, \sigma^2)

    X are the items. y, of shape (n, k), has a row for each ranking: row numbers of X, best first,
    then -1 up to the end where fewer items were ranked. Such a partial ranking says nothing of the
    items that are not in it.

    Parameters
    ----------
    sigma : float, default 1
        Standard deviation of the noise of one utility, in the units of f, drawn anew for each
        ranking. In a PyMC model it may be a random variable, whose value ``point`` gives.

    Raises
    ------
    ValueError
        When used: noise that is not positive, items that X does not have, a ranking of one item,
        or with an item twice.

    Notes
    -----
    A ranking of two items is a duel, `Preference` with the same `sigma`.

    Predictions are of new items: ``p_best``, that f is largest there among all of them; and, for up
    to 256 items, ``p_beats`` (pred_id, pred_id_other), that one is ranked above another.

    References
    ----------
    .. [1] L. L. Thurstone (1927), A law of comparative judgment, doi:10.1037/h0070288.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> items = [[0.0], [1.0], [3.0]]
    >>> rankings = [[1, 0, 2], [1, 2, -1]]  # of all three, and of the last two
    >>> posterior = gp.posterior(items, rankings, likelihood=sg.likelihoods.Ranking(0.3))
    >>> new = posterior.predict(items, random_seed=1)["predictions_summary"]
    >>> new["p_beats"].values.round(1)[0]  # the first against each
    array([0.5, 0.1, 0.8])
    """

    sigma: Any = 1.0

    y_dim = "ranking"
    y_inner_dims = ("rank",)
    predicted_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {"p_beats": ("pred_id_other",)}

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Rows of items, the best first."""
        as_number("sigma", self.sigma)
        return as_items("y", y, n, least=2, kind="a ranking")

    def observations(self, y: Data, n: int) -> Observations:
        """An interval for each step from one rank to the next."""
        row, column = np.nonzero(y[:, 1:] != NOBODY)
        above = row * y.shape[1] + column
        return larger(above, above + 1, y.ravel(), n, float(self.sigma))

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log probability of each ranking."""
        values: FloatArray = f[..., y] / float(self.sigma)
        values[..., y == NOBODY] = np.nan
        return log_order_probability(values)

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New rankings of the same items."""
        values = value_at(f, y)
        values += float(self.sigma) * rng.standard_normal(values.shape)
        order = np.argsort(-values, axis=-1, kind="stable")
        return np.take_along_axis(np.broadcast_to(y, values.shape), order, axis=-1)

    @property
    def duel(self) -> tuple[float, float]:
        """Variance of the noise of a difference, and what it has to be above."""
        return 2.0 * float(self.sigma) ** 2, 0.0

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Ranks, from 1."""
        return {"rank": range(1, y.shape[1] + 1)}

    def joint_summary(self, f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_best`` and ``p_beats``."""
        return {**beats_all(f, mixture), **beats_each(mixture, *self.duel)}

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Rankings of old and new items, numbered from the first old one."""
        return joined_items(y, self.as_data(new, n + n_new))
