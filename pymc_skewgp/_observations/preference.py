"""Comparisons of two items: which of them is better, or that neither is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import log_ndtr

from pymc_skewgp._gaussian.univariate import log_ndtr_interval
from pymc_skewgp._observations.best_item import beats_all, beats_each
from pymc_skewgp._observations.comparisons import as_integers, as_items, as_number, differences
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.mixture import Mixture
from pymc_skewgp._observations.noise import Noise
from pymc_skewgp._observations.observations import Observations, intervals
from pymc_skewgp._validation import FloatArray

# Noise of a utility that each comparison has of its own: without other noise, or as a share of the
# noise of items; and the least beside that.
_NUGGET, _LEAST = 1e-4, 1e-6


@dataclass(frozen=True, eq=False)
class Preference(Likelihood):
    r"""Duels: item i, with inputs :math:`x_i`, was preferred to item j.

    Each item has a noisy utility. i wins where its own is larger by more than a threshold d (the
    just-noticeable difference), and there is a tie where neither is:

    .. math:: i \text{ over } j: \; f(x_i) - f(x_j) + e > d, \qquad
        \text{tie}: \; |f(x_i) - f(x_j) + e| < d

    X are the m items, and y, of shape (n, 2), says which of them were compared: row numbers of X,
    the winner first. Where there are ties y has a third column, 1 for a tie and 0 for a win; a
    threshold above 0 adds one of zeros to y, so that replicated data may have ties.

    Parameters
    ----------
    sigma : float, default 1
        Standard deviation of the noise of one utility, in the units of f, or 0; e has the variance
        :math:`2 \sigma^2`. In a PyMC model it may be a random variable; ``point`` gives its value.
    noise : {"fresh", "item"}
        "fresh": each comparison has noise of its own. "item": the noise of a utility stays with the
        item, the same in all its comparisons. Then comparisons are not independent given f, and
        ``log_likelihood`` has the probability of each by itself.
    threshold : float, default 0
        d, in the units of f. Ties need a positive one.

    Raises
    ------
    ValueError
        When used: negative noise or threshold, items that X does not have, an item compared with
        itself, ties without a threshold. Where an item has one utility in all comparisons (no
        noise, or noise of items): comparisons that contradict each other.

    Notes
    -----
    Predictions are of a comparison of new items with each other: ``p_best``, that f is largest
    there among all of them; and, for up to 256 items, ``p_beats`` (pred_id, pred_id_other), that
    the first wins against the second. `SkewGPPosterior.preference_probability` gives chosen pairs.

    With one utility an item, comparisons are more rows than there are utilities, and their
    covariance is singular. So each comparison keeps some noise of its own, as if utilities had
    noise of standard deviation 1e-4 where there is no other, and of 1e-4 `sigma`, but at least
    1e-6, beside noise of items. What is nearer than that is decided at random. Where f is of
    another size, give a small `sigma` instead of 0.

    References
    ----------
    .. [1] W. Chu & Z. Ghahramani (2005), Preference learning with Gaussian processes,
       doi:10.1145/1102351.1102369.
    .. [2] A. Benavoli, D. Azzimonti & D. Piga (2021), A unified framework for closed-form
       nonparametric regression, classification, preference and mixed problems with Skew Gaussian
       Processes, arXiv:2012.06846.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> items = [[0.0], [1.0], [3.0]]
    >>> duels = [[1, 0], [1, 2]]  # the second item won against the others
    >>> posterior = gp.posterior(items, duels, likelihood=sg.likelihoods.Preference(0.3))
    >>> new = posterior.predict(items, random_seed=1)["predictions_summary"]
    >>> new["p_best"].values.round(1)
    array([0.1, 0.9, 0.1])
    """

    sigma: Any = 1.0
    noise: Literal["fresh", "item"] = "fresh"
    threshold: Any = 0.0

    y_dim = "comparison"
    y_inner_dims = ("role",)
    predicted_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {"p_beats": ("pred_id_other",)}

    def __post_init__(self) -> None:
        if self.noise not in ("fresh", "item"):
            raise ValueError(f'noise must be "fresh" or "item", got {self.noise!r}.')

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Pairs of items, the winner first, and perhaps whether it was a tie."""
        sigma = as_number("sigma", self.sigma, or_zero=True)
        d = as_number("threshold", self.threshold, or_zero=True)
        rows = as_integers("y", y)
        if rows.shape[1] not in (2, 3):
            raise ValueError(
                "y must have shape (n, 2), winner and loser, or (n, 3) with 1 for a tie in the "
                f"last column; got {rows.shape}."
            )
        as_items("y", rows[:, :2], n, least=2, kind="a comparison")
        if rows.shape[1] == 3:
            if not np.isin(rows[:, 2], (0, 1)).all():
                raise ValueError("the last column of y must be 1 for a tie and 0 for a win.")
            if rows[:, 2].any() and d == 0.0:
                raise ValueError("y has ties, which have probability 0 unless threshold is > 0.")
        elif d > 0.0:  # ties were possible, and new data may have some
            rows = np.pad(rows, ((0, 0), (0, 1)))
        if self.noise == "item" or sigma == 0.0:
            _refuse_contradictions(rows[~_ties(rows)], n)
        return rows

    def observations(self, y: Data, n: int) -> Observations:
        """One interval a comparison."""
        sigma, d = self._numbers()
        tie = _ties(y)
        A = differences(y[:, 0], y[:, 1], n)
        noise: Noise = np.full(len(y), 2.0 * sigma**2)
        if self.noise == "item":
            nugget = max(_NUGGET * sigma, _LEAST)
            own = sparse.diags_array(np.full(len(y), 2.0 * nugget**2))
            noise = sparse.csr_array((sigma**2 * A) @ A.T + own)
        return intervals(np.where(tie, -d, d), np.where(tie, d, np.inf), noise, A=A)

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log probability of each comparison."""
        sigma, d = self._numbers()
        tie = _ties(y)
        ahead = f[..., y[:, 0]] - f[..., y[:, 1]]
        ahead /= np.sqrt(2.0) * sigma
        limit = d / (np.sqrt(2.0) * sigma)
        found = np.asarray(log_ndtr(ahead - limit))
        if tie.any():
            centre = ahead[..., tie]
            found[..., tie] = log_ndtr_interval(-limit - centre, limit - centre)
        return found

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New outcomes of the same comparisons."""
        sigma, d = self._numbers()
        if self.noise == "item":
            noisy = f + sigma * rng.standard_normal(f.shape)
            ahead = noisy[..., y[:, 0]] - noisy[..., y[:, 1]]
        else:
            ahead = f[..., y[:, 0]] - f[..., y[:, 1]]
            ahead += np.sqrt(2.0) * sigma * rng.standard_normal(ahead.shape)
        new = np.empty((*ahead.shape, y.shape[1]), dtype=np.intp)
        first = ahead > 0
        new[..., 0] = np.where(first, y[:, 0], y[:, 1])
        new[..., 1] = np.where(first, y[:, 1], y[:, 0])
        if y.shape[1] == 3:
            new[..., 2] = np.abs(ahead) < d
        return new

    @property
    def duel(self) -> tuple[float, float]:
        """Variance of the noise of a difference, and what it has to be above."""
        sigma, d = self._numbers()
        return 2.0 * sigma**2, d

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Roles of the columns of y."""
        return {"role": ["winner", "loser", "tie"][: y.shape[1]]}

    def joint_summary(self, f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_best`` and ``p_beats``."""
        return {**beats_all(f, mixture), **beats_each(mixture, *self.duel)}

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Comparisons of old and new items with each other, numbered from the first old one."""
        rows = self.as_data(new, n + n_new)
        width = max(y.shape[1], rows.shape[1])
        return np.concatenate([np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (y, rows)])

    def _numbers(self) -> tuple[float, float]:
        return float(self.sigma) or _NUGGET, float(self.threshold)


def _refuse_contradictions(wins: Data, n: int) -> None:
    """Refuse wins of which some lead from an item back to itself."""
    wins_of = sparse.csr_array((np.ones(len(wins)), (wins[:, 0], wins[:, 1])), shape=(n, n))
    _, circle = connected_components(wins_of, connection="strong")
    size = np.bincount(circle)
    if size.max() > 1:
        items = np.flatnonzero(circle == size.argmax())
        shown = ", ".join(map(str, items[:6])) + (", ..." if items.size > 6 else "")
        raise ValueError(
            f"items {shown} win against each other in a circle, which has probability 0 where an "
            'item has one utility: give positive noise with noise="fresh".'
        )


def _ties(y: Data) -> Data:
    return y[:, 2] == 1 if y.shape[1] == 3 else np.zeros(len(y), dtype=bool)
