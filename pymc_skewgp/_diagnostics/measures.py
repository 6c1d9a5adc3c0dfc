"""What `compare_approximations` measures: coverage, distances, scores, skewness."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import entr, xlogy
from xarray import Dataset, DataTree

from pymc_skewgp._diagnostics import marginals as marginal
from pymc_skewgp._diagnostics.approximations import Approximation, predicted_probability
from pymc_skewgp._diagnostics.marginals import Marginals
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.binary import BernoulliProbit
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior.output import LatentMarginals
from pymc_skewgp._validation import FloatArray, as_real_array

if TYPE_CHECKING:
    from pandas import DataFrame, Series


# How far marginal distributions are from the exact ones, with Monte Carlo errors.

_GRID = 120
_REACH = 6.0  # standard deviations, of the wider one
_BLOCKS = 8
_MEAN_ABSOLUTE = float(np.sqrt(2.0 / np.pi))  # of a standard normal


class Distance(NamedTuple):
    """A mean over points of what is never negative.

    Attributes
    ----------
    value : float
    std_error : float
        Its Monte Carlo standard error.
    noise : float
        Its mean where there is nothing but Monte Carlo error: what as many effective draws of the
        exact posterior show. 0 without draws.
    """

    value: float
    std_error: float
    noise: float

    @property
    def is_noise(self) -> bool:
        """Whether Monte Carlo error alone explains it."""
        return self.value <= self.bound

    @property
    def bound(self) -> float:
        """What Monte Carlo error alone hardly exceeds: its mean and two standard errors."""
        return self.noise + 2.0 * self.std_error


def wasserstein(approximation: Marginals, exact: Marginals) -> Distance:
    r"""Mean 1-Wasserstein distance of marginals to the exact ones, in exact standard deviations.

    .. math:: W_1(x) = \int |F_a(z) - F(z)|\, dz \;/\; \mathrm{sd}(x)

    by the trapezoidal rule; 0 where f is known exactly beforehand. Draws of the exact posterior
    itself are not at distance 0 but on average at

    .. math:: \sqrt{2 / (\pi\, \mathrm{ESS})} \int \sqrt{F(z) (1 - F(z))}\, dz
        \;/\; \mathrm{sd}(x),

    which is the noise: a share of draws below z is nearly normal around F(z).
    """
    (ours, our_sd, _), (theirs, sd, _) = approximation.moments, exact.moments
    low = np.minimum(ours - _REACH * our_sd, theirs - _REACH * sd)
    high = np.maximum(ours + _REACH * our_sd, theirs + _REACH * sd)
    grid = low + np.linspace(0.0, 1.0, _GRID)[:, None] * (high - low)
    step = (high - low) / (_GRID - 1)
    true = exact.cdf_values(grid)

    def summary(marginals: Marginals) -> FloatArray:
        # With the deviation, whose own noise counts where draws are behind the exact marginals.
        cdf = true if marginals is exact else marginals.cdf_values(grid)
        return np.vstack([cdf, marginals.moments.sd])

    def integral(a: FloatArray, b: FloatArray) -> FloatArray:
        area, unit = np.trapezoid(np.abs(a[:-1] - b[:-1]), axis=0) * step, b[-1]
        return np.where(unit > 0, area / np.where(unit > 0, unit, 1.0), 0.0)

    noise = 0.0
    if isinstance(approximation, marginal.DrawnMarginals):
        below = np.clip(true, 0.0, 1.0)  # round-off
        area = np.trapezoid(np.sqrt(below * (1.0 - below)), axis=0) * step
        relative = np.where(sd > 0, area / np.where(sd > 0, sd, 1.0), 0.0)
        noise = float((_MEAN_ABSOLUTE * relative / np.sqrt(approximation.ess)).mean())
    return _mean_distance(approximation, exact, summary, integral, noise)


def skewness_error(approximation: Marginals, exact: Marginals) -> Distance:
    """Mean absolute difference of the skewness of marginals to that of the exact ones."""
    noise = 0.0
    if isinstance(approximation, marginal.DrawnMarginals):
        noise = float(_MEAN_ABSOLUTE * approximation.moment_errors.skewness.mean())
    return _mean_distance(
        approximation, exact, lambda m: m.moments.skewness, lambda a, b: np.abs(a - b), noise
    )


def probability_error(found: Probability, exact: Probability) -> Distance:
    """Mean absolute difference of probabilities; as they share draws, errors are not averaged.

    NaN where there are none.
    """
    if not found.value.size:
        return Distance(np.nan, np.nan, np.nan)
    error = np.hypot(found.std_error, exact.std_error)
    noise = float(_MEAN_ABSOLUTE * found.std_error.mean())
    return Distance(float(np.abs(found.value - exact.value).mean()), float(error.mean()), noise)


def _mean_distance(
    approximation: Marginals,
    exact: Marginals,
    summary: Callable[[Marginals], FloatArray],
    measure: Callable[[FloatArray, FloatArray], FloatArray],
    noise: float,
) -> Distance:
    """Mean of `measure` over the points; the error is from the spread over parts of the draws.

    Parts of the draws behind the approximation, and of those behind the exact posterior, are taken
    one after the other. The error does not hold the bias that a distance between two clouds of
    draws has, which is `noise`.
    """
    ours, theirs = summary(approximation), summary(exact)
    variance = 0.0
    for means in (
        [measure(summary(part), theirs).mean() for part in parts(approximation)],
        [measure(ours, summary(part)).mean() for part in parts(exact)],
    ):
        if means:
            variance += float(np.var(means, ddof=1)) / len(means)
    return Distance(float(measure(ours, theirs).mean()), float(np.sqrt(variance)), noise)


def parts(marginals: Marginals) -> Iterator[Marginals]:
    """Marginals from parts of the draws that hardly depend on each other; none without draws."""
    if isinstance(marginals, marginal.DrawnMarginals):
        n_chains, n_draws, _ = marginals.draws.shape
        stretches = -(-_BLOCKS // n_chains)
        if n_draws >= 4 * stretches:
            for piece in np.array_split(marginals.draws, stretches, axis=1):
                for chain in piece:
                    yield marginal.DrawnMarginals(chain[None])
    elif marginals.weights.size >= 4 * _BLOCKS:
        for chosen in _blocks(marginals):
            weights = marginals.weights[chosen]
            yield LatentMarginals(
                marginals.means[:, chosen], marginals.variance, weights / weights.sum()
            )


def _blocks(marginals: LatentMarginals) -> list[IntArray]:
    """Of draws, those of one replicate together; of independent ones eight blocks."""
    if marginals.replicate is None:
        n = marginals.weights.size
        index = np.arange(n) * _BLOCKS // n
    else:
        index = np.unique(marginals.replicate, return_inverse=True)[1]
    blocks = [np.flatnonzero(index == i) for i in range(index.max() + 1)]
    # The last may have been cut off: few draws are far from everything.
    return [block for block in blocks if 2 * block.size >= blocks[0].size]


# What an approximation's intervals hold: of the exact posterior, or of the truth.

PROBS = (0.5, 0.8, 0.89, 0.95)


def coverage(
    source: Any,
    exact: Any = None,
    *,
    probs: Sequence[float] = PROBS,
    var: str = "f",
    group: str = "posterior",
) -> Dataset:
    r"""Coverage of central intervals, for each latent point and on average.

    Two kinds, by what is given:

    * ``coverage(approximation, exact)``: the probability that the *exact posterior* gives to the
      approximation's central interval, :math:`F(q_{(1+p)/2}) - F(q_{(1-p)/2})` with F the exact
      distribution function and q the approximation's quantiles. One data set is enough. It is p
      at every point for an approximation that is right.
    * ``coverage(sbc(...))``: the share of simulations in which the interval covered the *true
      function* that the data were simulated from. It is p on average for every method that is
      right on average over the prior; errors that cancel from one data set to the next do not show
      in f. They do with ``var="log_likelihood"``.

    Parameters
    ----------
    source : DataTree, LatentMarginals or SkewGPPosterior
        The approximation; or the result of `sbc`.
    exact : SkewGPPosterior, LatentMarginals or DataTree, optional
        The exact posterior at the same points, for the first kind. A SkewGPPosterior stands for its
        data, noise of the kernel included.
    probs : sequence of float, default (0.5, 0.8, 0.89, 0.95)
        Nominal probabilities of the intervals.
    var, group : str
        The latent variable where a DataTree holds draws, and its group. Of the result of `sbc`
        also its other quantities.

    Returns
    -------
    Dataset
        ``coverage`` and its standard error ``coverage_se`` (prob and the dimensions of the
        variable), ``mean`` and ``mean_se`` over the points (prob). Standard errors are of Monte
        Carlo: that of an interval from draws with nominal probability p is taken to be
        :math:`\{p (1 - p) / \mathrm{ESS}\}^{1/2}`. All points share draws, so in the first kind
        ``mean_se`` is from the spread over eight parts of the draws (of fewer than 32, the mean of
        the points' errors, an upper bound). In the second kind errors are binomial, with two hits
        and two misses added (Agresti & Coull 1998), and ``mean_se`` is from the spread over
        simulations.

    Raises
    ------
    ValueError
        For different numbers of points, or coordinates that two DataTrees do not share,
        probabilities outside (0, 1), no draws.
    KeyError
        When a DataTree has not the group, or the group not the variable.
    TypeError
        For other objects, and when `exact` is missing and `source` is not the result of `sbc`.

    References
    ----------
    .. [1] A. Agresti & B. A. Coull (1998), Approximate is better than "exact" for interval
       estimation of binomial proportions, doi:10.1080/00031305.1998.10480550.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior(np.array([[0.0], [1.0], [3.0]]), [1, 1, 1])
    >>> draws = posterior.sample(draws=1000, chains=4, random_seed=1)
    >>> sg.coverage(draws, posterior, probs=[0.5, 0.8])["mean"].values.round(1)
    array([0.5, 0.8])
    """
    levels = _levels(probs)
    if exact is None:
        return _of_the_truth(source, levels, var)
    if isinstance(source, DataTree) and "prior_sbc" in source.children:
        raise ValueError(
            "the first argument is the result of sbc, which knows the truth: give it alone, "
            "without an exact posterior."
        )
    points = marginal.labelled_marginals(source, var=var, group=group)
    reference = marginal.labelled_marginals(exact, var=var, group=group)
    if points.shape != reference.shape:
        raise ValueError(
            "the approximation and the exact posterior are at different points: they have "
            f"{dict(zip(points.dims, points.shape, strict=True))} and "
            f"{dict(zip(reference.dims, reference.shape, strict=True))}."
        )
    for name in _named(source, points) & _named(exact, reference):
        ours, theirs = np.asarray(points.coords[name]), np.asarray(reference.coords[name])
        if not np.array_equal(ours, theirs):
            raise ValueError(
                f"the approximation and the exact posterior differ in the coordinate {name!r}: "
                f"{ours[:3]}... and {theirs[:3]}...; select the same points of both."
            )
    for one in (points, reference):
        _refuse_another_order(one)
    pair = points.marginals, reference.marginals
    value, error = interval_coverage(*pair, levels)
    mean, mean_error = mean_coverage(*pair, levels)
    result = points.dataset({"prob": levels}, coverage=value, coverage_se=error)
    return result.assign(mean=("prob", mean), mean_se=("prob", mean_error))


def _refuse_another_order(points: marginal.Labelled) -> None:
    """Rows that are numbered, but not in order, were moved after they were drawn."""
    for name, coordinate in points.coords.items():
        numbers = np.asarray(coordinate)
        if numbers.ndim == 1 and numbers.dtype.kind in "iu" and numbers.size > 1:
            right = np.arange(numbers.size)
            if np.array_equal(np.sort(numbers), right) and not np.array_equal(numbers, right):
                raise ValueError(
                    f"the coordinate {name!r} numbers the points, but out of order "
                    f"({numbers[:3]}...): bring both into the order of the data first."
                )


def _named(source: Any, points: marginal.Labelled) -> set[Hashable]:
    """Coordinates that somebody gave; those of objects without names are only numbers."""
    return set(points.coords) if isinstance(source, DataTree) else set()


def interval_coverage(
    approximation: Marginals, exact: Marginals, probs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Exact probability of the approximation's central intervals, and its error, (prob, t) each."""
    ends = _ends(approximation, probs)
    value, error = exact.cdf(ends)
    low, high = np.split(value, 2)
    # Errors of the two ends: as if independent, which they are nearly, far apart in the cdf.
    variance = np.square(error).reshape(2, *low.shape).sum(axis=0)
    if isinstance(approximation, marginal.DrawnMarginals):
        # The probability between two order statistics has a beta distribution, whatever F.
        variance += (probs * (1.0 - probs))[:, None] / approximation.ess
    else:
        # Quantiles are off by what their own distribution function is; a Gaussian's are exact.
        own = approximation.cdf(ends).std_error
        variance += np.square(own).reshape(2, *low.shape).sum(axis=0)
    return high - low, np.sqrt(variance)


def mean_coverage(
    approximation: Marginals, exact: Marginals, probs: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean over the points of the exact probability of intervals, and its error, (prob,) each.

    Points share draws, so the error is from the spread over parts of the draws.
    """
    value = _covered(approximation, exact, probs)
    variance = np.zeros(probs.size)
    n_parts = 0
    for shares in (
        [_covered(part, exact, probs) for part in parts(approximation)],
        [_covered(approximation, part, probs) for part in parts(exact)],
    ):
        if shares:
            variance += np.mean(shares, axis=2).var(axis=0, ddof=1) / len(shares)
            n_parts += len(shares)
    if n_parts:
        return value.mean(axis=1), np.sqrt(variance)
    # Too few draws for that: the mean of the points' errors, an upper bound.
    return value.mean(axis=1), interval_coverage(approximation, exact, probs)[1].mean(axis=1)


def _ends(approximation: Marginals, probs: FloatArray) -> FloatArray:
    """Lower ends of the central intervals, then upper ones, (2 prob, t)."""
    return approximation.quantile(np.concatenate([0.5 - 0.5 * probs, 0.5 + 0.5 * probs]))


def _covered(approximation: Marginals, exact: Marginals, probs: FloatArray) -> FloatArray:
    """Exact probability of each central interval, (prob, t)."""
    ends = _ends(approximation, probs)
    low, high = np.split(exact.cdf_values(ends), 2)
    return high - low


def _of_the_truth(tree: Any, probs: FloatArray, var: str) -> Dataset:
    """Hit rates in simulations, from the truth's place in each posterior."""
    if not isinstance(tree, DataTree) or "prior_sbc" not in tree.children:
        raise TypeError(
            "coverage needs the exact posterior as its second argument, or the result of sbc as "
            f"its only one; got one argument, {_found(tree)}."
        )
    array = marginal.drawn_variable(tree, var, "prior_sbc")
    points = array.isel(chain=0, draw=0, drop=True)
    place = array.values.reshape(-1, *points.shape)
    hit = np.abs(place - 0.5) <= 0.5 * probs.reshape(-1, 1, *(1 for _ in points.shape))
    n = hit.shape[1]
    rate = hit.mean(axis=1)
    cautious = (hit.sum(axis=1) + 2.0) / (n + 4.0)
    each = hit.reshape(*hit.shape[:2], -1).mean(axis=2)
    # One simulation has no spread.
    spread = each.std(axis=1, ddof=1) if n > 1 else np.full(probs.size, np.inf)
    dims = ("prob", *points.dims)
    return Dataset(
        {
            "coverage": (dims, rate),
            "coverage_se": (dims, np.sqrt(cautious * (1.0 - cautious) / (n + 4.0))),
            "mean": ("prob", each.mean(axis=1)),
            "mean_se": ("prob", spread / np.sqrt(n)),
        },
        coords={**points.coords, "prob": probs},
    )


def _found(tree: Any) -> str:
    if isinstance(tree, DataTree):
        return f"a DataTree with the groups {sorted(tree.children)}"
    return f"a {type(tree).__name__}"


def _levels(probs: Sequence[float]) -> FloatArray:
    levels = np.atleast_1d(as_real_array("probs", probs))
    if levels.ndim != 1 or not levels.size or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"probs must be probabilities strictly between 0 and 1, got {probs!r}.")
    return levels


# Scores of probabilities for binary labels.

# A label missed with certainty costs 40 bits, not infinitely many.
SMALLEST_PROBABILITY = 1e-12


def information_score(labels: FloatArray, p: FloatArray, base_rate: float) -> float:
    r"""Bits that a label gives away less than under the base rate, on average.

    .. math:: \frac1n \sum_i \{y_i \log_2 p_i + (1 - y_i) \log_2 (1 - p_i)\} + H(\pi)

    with the entropy H of the share :math:`\pi` of 1 among the labels that were learnt from: 0 for
    a forecast of that share, H (1 for even classes) for a perfect one, negative for a forecast
    that knows less than nothing (Kuss & Rasmussen 2005, Journal of Machine Learning Research 6,
    1679-1704).

    Parameters
    ----------
    labels : ndarray, shape (n,)
        0 and 1.
    p : ndarray, shape (n,)
        Forecast probabilities of 1, kept 1e-12 off 0 and 1.
    base_rate : float

    Returns
    -------
    float
        In bits.
    """
    p = np.clip(p, SMALLEST_PROBABILITY, 1.0 - SMALLEST_PROBABILITY)
    entropy = entr(base_rate) + entr(1.0 - base_rate)
    return float((np.mean(xlogy(labels, p) + xlogy(1.0 - labels, 1.0 - p)) + entropy) / np.log(2))


def brier_score(labels: FloatArray, p: FloatArray) -> float:
    """Mean squared difference of label and forecast (Brier 1950): 0 is best, .25 a coin toss."""
    return float(np.mean((labels - p) ** 2))


DISTANCES = ("wasserstein", "skewness_error", "p_error")
_LEVELS = tuple(f"coverage_{prob * 100:.0f}" for prob in PROBS)
_NOTHING = "-"


class Standard(NamedTuple):
    """What methods are measured by.

    Attributes
    ----------
    marginals : LatentMarginals
        Exact ones, at the data and then at the new points.
    labels : ndarray
        y of the data.
    test : ndarray, shape (t,), or None
        Labels at the new points.
    likelihood : Likelihood
    """

    marginals: LatentMarginals
    labels: Any
    test: FloatArray | None
    likelihood: Likelihood = BernoulliProbit()


def measured(found: Approximation, exact: Standard) -> dict[str, float]:
    """A row of the table."""
    row: dict[str, float] = {"evidence": found.evidence, "evidence_se": found.evidence_se}
    covered, error = mean_coverage(found.marginals, exact.marginals, np.array(PROBS))
    for name, value, se in zip(_LEVELS, covered, error, strict=True):
        row |= {name: value, f"{name}_se": se}
    p = found.probability
    whole = predicted_probability(exact.likelihood, exact.marginals)
    p_exact = Probability(*(part[-p.value.shape[0] :] for part in whole))
    distances = (
        wasserstein(found.marginals, exact.marginals),
        skewness_error(found.marginals, exact.marginals),
        probability_error(p, p_exact),
    )
    for name, distance in zip(DISTANCES, distances, strict=True):
        for suffix, value in zip(("", "_se", "_noise"), distance, strict=True):
            row[f"{name}{suffix}"] = value
    if exact.test is not None:
        row["information"] = information_score(exact.test, p.value, float(exact.labels.mean()))
        row["brier"] = brier_score(exact.test, p.value)
    if found.drawing and isinstance(found.marginals, marginal.DrawnMarginals):
        n = found.tree["posterior"].dataset["f"][0, 0].size
        row["ess_per_second"] = float(found.marginals.ess[:n].min()) / found.drawing
    return row


def as_table(rows: dict[str, dict[str, Any]]) -> DataFrame:
    """Rows by method as a data frame with all columns, whether anything is in them or not."""
    import pandas as pd

    columns = [c for name in ("evidence", *_LEVELS) for c in (name, f"{name}_se")]
    columns += [f"{name}{suffix}" for name in DISTANCES for suffix in ("", "_se", "_noise")]
    columns += ["information", "brier", "ess_per_second", "seconds", "failure"]
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(columns=columns)
    table.index.name = "method"
    return table


def as_summary(table: DataFrame) -> DataFrame:
    """The columns that matter most, each with its Monte Carlo error, as text."""
    shown = {
        "log marginal likelihood": lambda row: with_error(row, "evidence"),
        "coverage 50 %": lambda row: with_error(row, "coverage_50"),
        "coverage 95 %": lambda row: with_error(row, "coverage_95"),
        "Wasserstein / sd": lambda row: _or_noise(row, "wasserstein"),
        "|error of p|": lambda row: _or_noise(row, "p_error"),
        "seconds": lambda row: f"{row['seconds']:.2f}",
    }
    summary = table[[]].copy()
    for name, text in shown.items():
        summary[name] = [text(row) for _, row in table.iterrows()]
    return summary


def with_error(row: Series, name: str) -> str:
    """A value, and its Monte Carlo standard error where it has one."""
    value, se = row[name], row[f"{name}_se"]
    if np.isnan(value):
        return _NOTHING
    if np.isnan(se) or se == 0.0:
        return f"{value:.3f}"
    digits = _digits(se)
    return f"{value:.{digits}f} ± {se:.{digits}f}"


def _or_noise(row: Series, name: str) -> str:
    """The same, or what a value that is mere Monte Carlo error is below."""
    if np.isnan(row[name]):
        return _NOTHING
    distance = Distance(*(row[f"{name}{suffix}"] for suffix in ("", "_se", "_noise")))
    if not distance.is_noise:
        return with_error(row, name)
    digits = int(np.clip(1 - np.floor(np.log10(distance.bound)), 0, 5)) if distance.bound else 0
    upwards = np.ceil(distance.bound * 10**digits) / 10**digits
    return f"< {upwards:.{digits}f}"


def _digits(error: float) -> int:
    """Decimal places that show one digit of an error, two where the first is 1."""
    if not 0.0 < error < np.inf:
        return 3
    return int(np.clip(-np.floor(np.log10(error / 2.0)), 0, 5))


# How skewed the posterior of a latent function is, point by point.


def posterior_skewness(source: Any, *, var: str = "f", group: str = "posterior") -> Dataset:
    r"""Skewness of a latent function at each point, with its Monte Carlo standard error.

    .. math:: \mathrm{SS}(x) = \frac{\mathrm E[(f(x) - \mathrm E f(x))^3]}
        {\mathrm E[(f(x) - \mathrm E f(x))^2]^{3/2}}

    0 for every Gaussian approximation; the sign says which tail is the longer one. From a
    posterior it is that of the exact mixture of Gaussians over the draws of u, less noisy than the
    sample skewness of as many draws of f.

    Parameters
    ----------
    source : DataTree, SkewGPPosterior or LatentMarginals
        Draws, as ``pm.sample`` or ``posterior.sample`` return them; a posterior, at its data (noise
        of the kernel included); or ``posterior.marginals(Xnew)``, at new points.
    var : str, default "f"
        The latent variable of a DataTree.
    group : str, default "posterior"
        Its group; "predictions" for new points.

    Returns
    -------
    Dataset
        ``skewness`` and its Monte Carlo standard error ``skewness_se`` over the dimensions of the
        variable, with its coordinates.

    Raises
    ------
    KeyError
        When the DataTree has not the group, or the group not the variable.
    ValueError
        Without draws, or for draws that are not finite.
    TypeError
        For other objects.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       doi:10.1007/s10994-020-05906-3, arXiv:2005.12987.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> posterior = gp.posterior(np.array([[0.0], [1.0], [3.0]]), [1, 1, 1])
    >>> found = sg.posterior_skewness(posterior)
    >>> bool((found["skewness"] > 5 * found["skewness_se"]).all())
    True
    """
    points = marginal.labelled_marginals(source, var=var, group=group)
    if group != "posterior" and not isinstance(source, DataTree):
        raise ValueError(
            f"group={group!r} names a group of a DataTree, got a {type(source).__name__}: for new "
            "points give posterior.marginals(Xnew)."
        )
    marginals = points.marginals
    error = marginals.moment_errors.skewness
    return points.dataset(skewness=marginals.moments.skewness, skewness_se=error)
