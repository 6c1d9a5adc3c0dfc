"""What an approximation's intervals hold: of the exact posterior, or of the truth."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from pymc_skewgp._diagnostics.distances import parts
from pymc_skewgp._diagnostics.marginals import (
    DrawnMarginals,
    Labelled,
    Marginals,
    drawn_variable,
    labelled_marginals,
)
from pymc_skewgp._validation import FloatArray, as_real_array

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
    points = labelled_marginals(source, var=var, group=group)
    reference = labelled_marginals(exact, var=var, group=group)
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


def _refuse_another_order(points: Labelled) -> None:
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


def _named(source: Any, points: Labelled) -> set[Hashable]:
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
    if isinstance(approximation, DrawnMarginals):
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
    array = drawn_variable(tree, var, "prior_sbc")
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
