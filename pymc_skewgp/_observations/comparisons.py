r"""Duels, choices and rankings of noisy values of items.

The noisy value ("utility") of an item is :math:`v = f(x) + e`. A comparison says that one is above
another; comparisons of one observation share the noise of the values that they compare:

.. math:: S = \sigma^2 W W^\top,

with a row of W for each comparison, 1 at the value above and -1 at the one below.

References
----------
.. [1] L. L. Thurstone (1927), A law of comparative judgment, doi:10.1037/h0070288.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations import likelihood as base
from pymc_skewgp._observations import probability
from pymc_skewgp._observations.likelihood import Data, Likelihood, Mixture
from pymc_skewgp._observations.observations import Noise, Observations, intervals
from pymc_skewgp._validation import FloatArray, refuse_masked, refuse_other_kinds

NOBODY = -1  # in place of an item, where an observation has fewer than others


def as_integers(name: str, value: ArrayLike) -> IntArray:
    """`value` as a new array of integers, shape (n, k)."""
    refuse_masked(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(
            f"{name} must have rows of one length, filled up with {NOBODY}: {error}."
        ) from error
    refuse_other_kinds(name, array)
    if array.ndim != 2 or array.shape[0] == 0:
        raise ValueError(
            f"{name} must have shape (n, k), a row of item numbers for each observation; got "
            f"{array.shape}."
        )
    with np.errstate(invalid="ignore"):
        whole = array.astype(np.intp)
    if array.dtype.kind not in "iub" and not (array == whole).all():
        raise ValueError(f"{name} must hold whole numbers, the rows of X that are compared.")
    return whole


def as_items(name: str, value: ArrayLike, n: int, *, least: int, kind: str) -> IntArray:
    """Rows of different items among `n`, at least so many, the rest `NOBODY` at the end of a row.

    `kind` is what a row is called in messages.
    """
    items = as_integers(name, value)
    there = items != NOBODY
    unknown = there & ((items < 0) | (items >= n))
    if unknown.any():
        i, j = np.argwhere(unknown)[0]
        raise ValueError(
            f"{name} names item {items[i, j]} in row {i}, and X has the {n} items 0 to {n - 1}."
        )
    gap = there[:, 1:] & ~there[:, :-1]
    if gap.any():
        raise ValueError(
            f"{NOBODY} must fill up the end of a row of {name}; row {np.argmax(gap.any(axis=1))} "
            "goes on after it."
        )
    few = there.sum(axis=1) < least
    if few.any():
        i = int(np.argmax(few))
        raise ValueError(
            f"{kind} needs at least {least} items; row {i} of {name} has {there[i].sum()}: drop it."
        )
    ordered = np.sort(np.where(there, items, n + np.arange(items.shape[1])), axis=1)
    same = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if same.any():
        i = int(np.argmax(same))
        raise ValueError(
            f"{kind} compares different items; row {i} of {name} repeats one: {items[i].tolist()}."
        )
    return items


def differences(above: IntArray, below: IntArray, size: int) -> Any:
    """Sparse rows with 1 at one of `size` values and -1 at another."""
    n_rows = above.size
    row = np.tile(np.arange(n_rows), 2)
    entries = np.repeat([1.0, -1.0], n_rows)
    return sparse.csr_array((entries, (row, np.concatenate([above, below]))), shape=(n_rows, size))


def larger(
    above: IntArray, below: IntArray, items: NDArray[np.intp], n: int, sigma: float
) -> Observations:
    """Rows that say that noisy values are above others, each with noise of its own.

    Parameters
    ----------
    above, below : ndarray of int, shape (m,)
        Among the noisy values.
    items : ndarray of int, shape (q,)
        Which of `n` items each noisy value is of.
    sigma : float
        Standard deviation of the noise of a value.
    """
    W = differences(above, below, items.size)
    zeros = np.zeros(above.size)
    return intervals(
        zeros, zeros + np.inf, (sigma**2 * W) @ W.T, A=differences(items[above], items[below], n)
    )


def value_at(f: FloatArray, items: IntArray) -> FloatArray:
    """F of items, shape (..., n, k); minus infinity for `NOBODY`."""
    found: FloatArray = f[..., items]
    found[..., items == NOBODY] = -np.inf
    return found


# Which of new items is best: what comparisons predict of items that are compared together.

MOST_ITEMS = 256  # whose every pair is compared: some 30000 of them


def beats_all(f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
    """``p_best``, the share of joint draws of f, (chain, draw, t), where an item is the largest."""
    draws = f.reshape(-1, f.shape[-1])
    share = np.bincount(draws.argmax(axis=1), minlength=draws.shape[1]) / draws.shape[0]
    n_effective = effective_draws(draws.shape[0], mixture)
    return {"p_best": share, "p_best_se": _share_error(share, draws.shape[0], n_effective)}


def with_error_of_shares(found: dict[str, FloatArray], n_draws: int) -> dict[str, FloatArray]:
    """With the least error of ``p_best``: batches of draws do not differ where no draws do."""
    if "p_best" in found:
        least = _share_error(found["p_best"], n_draws, n_draws)
        found["p_best_se"] = np.maximum(found["p_best_se"], least)
    return found


def _share_error(share: FloatArray, n_draws: int, n_effective: float) -> FloatArray:
    """Standard error of a share of draws; of 0 and 1 too: one more draw might be otherwise."""
    safe = (share * n_draws + 1.0) / (n_draws + 2.0)
    return np.asarray(np.sqrt(safe * (1.0 - safe) / n_effective))


def effective_draws(n_draws: int, mixture: Mixture) -> float:
    """How many of equal draws count, which are weighted ones resampled: by Kish's formula."""
    weights = mixture.weights
    return n_draws / (weights.size * float(weights @ weights))


def beats_each(mixture: Mixture, noise: float, threshold: float = 0.0) -> dict[str, FloatArray]:
    r"""``p_beats`` of all pairs of t items, shape (t, t); nothing for more than 256 of them.

    .. math:: P(i \text{ beats } j) = \mathrm E_u \Phi\left\{
        \frac{m_i - m_j - d}{(v_{ii} + v_{jj} - 2 v_{ij} + s)^{1/2}} \right\}

    with s the variance of the noise of the difference and d the threshold; where that is above 0
    also ``p_tie``, that the difference is between -d and d. On the diagonal are two items with the
    same inputs.
    """
    t, joint = mixture.means.shape[0], mixture.joint
    if joint is None or t > MOST_ITEMS:
        return {}
    names = ("p_beats", "p_tie") if threshold else ("p_beats",)
    found = {f"{name}{end}": np.empty((t, t)) for name in names for end in ("", "_se")}
    variance = joint.diagonal()
    for i in range(t):
        spread = variance[i] + variance - 2.0 * joint[i]
        between = _differences(mixture, mixture.means[i] - mixture.means, spread)
        # Of a tie an interval, which the difference is in.
        limits = {"p_beats": (threshold, np.inf), "p_tie": (-threshold, threshold)}
        for name in names:
            p = probability.interval_probability(between, *limits[name], noise)
            found[name][i], found[f"{name}_se"][i] = p
    return found


def pair_probability(mixture: Mixture, noise: float, threshold: float) -> probability.Probability:
    """Probability that the first item of a pair beats the second; `mixture` has them by turns."""
    covariance = mixture.covariance
    assert covariance is not None
    ahead = mixture.means[0::2] - mixture.means[1::2]
    spread = covariance[:, 0, 0] + covariance[:, 1, 1] - 2.0 * covariance[:, 0, 1]
    between = _differences(mixture, ahead, spread)
    return probability.interval_probability(between, threshold, np.inf, noise)


def _differences(mixture: Mixture, ahead: FloatArray, spread: FloatArray) -> Mixture:
    """Differences by their means given each draw of u, shape (t, S), and variances, shape (t,)."""
    return replace(mixture, means=ahead, variance=np.maximum(spread, 0.0), covariance=None)


# Comparisons of two items: which of them is better, or that neither is.

# Noise of a utility that each comparison has of its own: without other noise, or as a share of the
# noise of items; and the least beside that.
_NUGGET, _LEAST = 1e-4, 1e-6


class _OfItems(Likelihood):
    """What observations of several items each have in common."""

    sigma: Any
    filler: ClassVar[int] = NOBODY  # at the end of rows that are shorter than others

    @property
    def duel(self) -> tuple[float, float]:
        """Variance of the noise of a difference, and what it has to be above."""
        return 2.0 * float(self.sigma) ** 2, 0.0

    def joined(self, y: Data, n: int, new: ArrayLike, n_new: int) -> Data:
        """Observations of old and new items, numbered from the first old one."""
        both = y, self.as_data(new, n + n_new)
        width = max(x.shape[1] for x in both)
        rows = np.full((len(both[0]) + len(both[1]), width), self.filler)
        rows[: len(y), : y.shape[1]], rows[len(y) :, : both[1].shape[1]] = both
        return rows

    def replicate(
        self, y: Data, f: FloatArray, log_likelihood: FloatArray, rng: np.random.Generator
    ) -> Data:
        """New observations of the same items."""
        values = value_at(f, y)
        values += float(self.sigma) * rng.standard_normal(values.shape)
        return np.take_along_axis(np.broadcast_to(y, values.shape), self.order(values), axis=-1)

    def order(self, values: FloatArray) -> IntArray:
        """Items by their noisy values, in the order in which an observation names them."""
        return np.argsort(-values, axis=-1, kind="stable")

    def joint_summary(self, f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
        """Probabilities to be the best of all, and to be ahead of each other item."""
        return {**beats_all(f, mixture), **beats_each(mixture, *self.duel)}


@dataclass(frozen=True, eq=False)
class Preference(_OfItems):
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
    the first wins against the second, and with a threshold ``p_tie``, that neither does.
    `SkewGPPosterior.preference_probability` gives chosen pairs.

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

    filler = 0  # no tie
    y_dim = "comparison"
    y_inner_dims = ("role",)
    predicted_dims: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "p_beats": ("pred_id_other",),
        "p_tie": ("pred_id_other",),
    }

    def __post_init__(self) -> None:
        if self.noise not in ("fresh", "item"):
            raise ValueError(f'noise must be "fresh" or "item", got {self.noise!r}.')

    def as_data(self, y: ArrayLike, n: int) -> Data:
        """Pairs of items, the winner first, and perhaps whether it was a tie."""
        sigma = base.as_positive_parameter("sigma", self.sigma, or_zero=True)
        d = base.as_positive_parameter("threshold", self.threshold, or_zero=True)
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


# Choices of one among several items.


@dataclass(frozen=True, eq=False)
class Choice(_OfItems):
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
        base.as_positive_parameter("sigma", self.sigma)
        return as_items("y", y, n, least=2, kind="a choice")

    def observations(self, y: Data, n: int) -> Observations:
        """An interval for each item that was not chosen."""
        k = y.shape[1]
        row, column = np.nonzero(y[:, 1:] != NOBODY)
        return larger(row * k, row * k + column + 1, y.ravel(), n, float(self.sigma))

    def log_likelihood(self, y: Data, f: FloatArray) -> FloatArray:
        """Log probability of each choice."""
        values = value_at(f, y)
        values /= float(self.sigma)
        return probability.log_win_probability(values[..., :1] - values[..., 1:])

    def order(self, values: FloatArray) -> IntArray:
        """The chosen one, then the others in their old order."""
        chosen = values.argmax(axis=-1)[..., None]
        # The chosen one goes to the front; those that were before it move on by one.
        position = np.arange(values.shape[-1])
        return np.where(position == 0, chosen, position - (position <= chosen))

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Positions in a row of y."""
        return {"alternative": ["chosen", *range(1, y.shape[1])]}

    def joint_summary(self, f: FloatArray, mixture: Mixture) -> dict[str, FloatArray]:
        """``p_chosen`` and ``p_best``."""
        draws = f.reshape(-1, f.shape[-1])
        if draws.shape[1] < 2:
            return {}
        p = probability.win_probabilities(draws / float(self.sigma))
        error = p.std(axis=0) / np.sqrt(effective_draws(len(p), mixture))
        return {"p_chosen": p.mean(axis=0), "p_chosen_se": error, **beats_all(f, mixture)}


# Rankings of several items, from the best to the worst.


@dataclass(frozen=True, eq=False)
class Ranking(_OfItems):
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
        base.as_positive_parameter("sigma", self.sigma)
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
        return probability.log_order_probability(values)

    def coords(self, y: Data) -> dict[str, Sequence[Any]]:
        """Ranks, from 1."""
        return {"rank": range(1, y.shape[1] + 1)}
