"""Functions at the data and at new points, given draws: what forecasts ask of a fit."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._errors import ContradictoryConstraintsError, no_warnings
from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import ep_gradient, fit_ep
from pymc_skewgp._gaussian.escalation import RectangleSampler
from pymc_skewgp._gaussian.log_prob_gradient import LARGEST_EFFECT
from pymc_skewgp._gaussian.truncated import draws_by, lin_ess_draws_by
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate, IntArray, add_estimates, systematic_resample
from pymc_skewgp._observations.likelihood import Derivative, Values
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._posterior.conditioning import Conditioning, Regression, factored_process_given
from pymc_skewgp._posterior.prior import (
    Prior,
    covariance_of,
    factored_covariance_of,
    function_units,
    log_prob_of_signs,
    mean_of,
    variances_of,
)
from pymc_skewgp._sun.parameters import SunParameters, naming_the_labels
from pymc_skewgp._validation import FloatArray, Seed, as_generator

_PAIRS = 256  # of points, whose covariances are read off the diagonal of a matrix


class FunctionFit(ABC):
    """K functions at the pseudo-points, at the data and at new points, given the data.

    A latent vector is drawn, and given it the functions are Gaussian: the rectangle u where the
    data are rows, coordinates of the functions where they have sites.

    Parameters
    ----------
    prior : Prior
        Of each function; they are independent in the prior, but for its coregion.
    parts : sequence of Values
        What the data are about.

    Attributes
    ----------
    n_functions : int
        K, as many as the data are about.
    n_latent : int
        K times the number of pseudo-points.
    """

    def __init__(self, prior: Prior, parts: Sequence[Values]) -> None:
        self._prior, self._parts = prior, tuple(parts)
        self.n_functions = max(part.n_functions for part in parts)
        self.n_latent = prior.n_pseudo_points * self.n_functions
        self._everything = list(self._parts)
        if self.n_latent:
            self._everything.insert(0, Values(prior.pseudo_points, self.n_functions))

    @property
    @abstractmethod
    def conditioning(self) -> Conditioning:
        """Of f at the pseudo-points and at the data, given the rows."""

    @property
    @abstractmethod
    def fitted(self) -> bool:
        """Whether EP and its proposal are there: what is asked next only draws from them."""

    @abstractmethod
    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Weighted draws of the latent vector, and the log probability of all but the points."""

    @abstractmethod
    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, IntArray]:
        """Draws of the latent vector, and which of them to take, `shape` being (chains, draws)."""

    @abstractmethod
    def draw(
        self,
        latent: TruncatedDraws,
        chosen: IntArray,
        rng: np.random.Generator,
        rows: IntArray | None = None,
    ) -> FloatArray:
        """Draws of f at the data, all parts in a row, shape (chains, draws, q).

        Or, of data of one part, at the `rows` that are asked for.
        """

    @abstractmethod
    def sun(self) -> SunParameters:
        """Of f at the data; ValueError where that is no SUN."""

    @abstractmethod
    def _here(self, joint: bool, group: int) -> Regression:
        """On the latent vector, of f at the data."""

    @abstractmethod
    def _there(
        self, mean: FloatArray, variance: FloatArray, cross: FloatArray, joint: bool = False
    ) -> Regression:
        """The same at new points, from their prior moments: see `Conditioning.regression_at`."""

    @property
    def keeps_coordinates(self) -> bool:
        """Whether what is kept of draws is the latent vector, not f at the data."""
        return False

    @property
    def n_coordinates(self) -> int:
        """Length of the latent vector, where it is kept."""
        raise NotImplementedError

    def given_coordinates(
        self, coordinates: FloatArray, rng: np.random.Generator, rows: IntArray
    ) -> FloatArray:
        """Draws of f at some rows of data of one part, given rows of kept coordinates."""
        raise ValueError("the draws are not of this posterior, which keeps no coordinates.")

    def by_factors(self) -> "FunctionFit":
        """The same with intervals that repeat as factors of their predictors, where some do."""
        return self

    @property
    def of_single_rows(self) -> "FunctionFit":
        """The same with a latent value for each interval, also where intervals repeat."""
        return self

    def averaged(self, regression: Regression) -> Regression:
        """What `latent` has no draws of, averaged over: a regression on what it has."""
        return regression

    def averaged_joint(self, regression: Regression, joint: FloatArray) -> FloatArray:
        """Covariance of new points given the latent vector as one given what `latent` has."""
        return joint

    def evidence(self, joint: Estimate, signs: Estimate) -> Estimate:
        """Log evidence, from the probability of the rectangle and that of the prior's signs."""
        value, std_error, _, _ = add_estimates(self.conditioning.log_density, joint, signs)
        return joint._replace(value=value, std_error=std_error)

    def prior_log_prob(self, n_draws: int) -> Estimate:
        """Log probability of the signs at the pseudo-points, before any data."""
        return log_prob_of_signs(self._prior, self.n_functions, n_draws)

    def regression(
        self, new: FloatArray | None, *, joint: bool = False, derivative: Derivative | None = None
    ) -> Regression:
        """At new points; for None at the data, which are not new points at their inputs."""
        prior, _ = self._prior, self.conditioning  # first: what is wrong at the data is named
        if new is None:
            return self._here(joint, self.n_functions if len(self._parts) == 1 else 1)
        at = Values(new, self.n_functions, derivative)
        cross = covariance_of(prior, "Xnew", self._everything, [at])
        variance = variances_of(prior, "Xnew", at)
        return self._there(mean_of(prior, "Xnew", [at]), variance, cross, joint)

    def pair_regression(self, a: FloatArray, b: FloatArray) -> Regression:
        """Of the first function at pairs of points, rows of `a` and `b` by turns."""
        prior, _ = self._prior, self.conditioning
        at = Values(np.stack([a, b], axis=1).reshape(-1, a.shape[1]))
        covariance = np.zeros((a.shape[0], 2, 2))
        covariance[:, [0, 1], [0, 1]] = variances_of(prior, "Xnew", at).reshape(-1, 2)
        for start in range(0, a.shape[0], _PAIRS):
            block = slice(start, start + _PAIRS)
            between = covariance_of(prior, "Xnew", [Values(a[block])], [Values(b[block])])
            covariance[block, 0, 1] = covariance[block, 1, 0] = between.diagonal()
        cross = covariance_of(prior, "Xnew", self._everything, [at])
        return self._there(mean_of(prior, "Xnew", [at]), covariance, cross)

    def covariance_at(self, new: FloatArray, regression: Regression) -> FloatArray | None:
        """Of f at t new points given u, shape (t K, t K); None where it is too large to be kept."""
        assert regression.taken is not None
        at = [Values(new, self.n_functions)]
        return linalg.symmetric(covariance_of(self._prior, "Xnew", at) - regression.taken)

    def draw_at(
        self,
        regression: Regression,
        covariance: FloatArray | None,
        shape: tuple[int, int],
        rng: np.random.Generator,
    ) -> FloatArray:
        """Joint draws of f at t new points, shape (chains, draws, t K)."""
        assert covariance is not None
        latent, chosen = self.equal_draws(shape, "twisted", rng)
        units = function_units(self._prior, covariance.shape[0])
        if units is None:
            factor = linalg.low_rank_factor(covariance)
        else:
            measured = covariance / units / units[:, None]
            factor = units[:, None] * linalg.low_rank_factor(measured)
        f = regression.centre[:, None] + (latent.draws[chosen.ravel()] @ regression.solved).T
        f += factor @ rng.standard_normal((factor.shape[1], f.shape[1]))
        return f.T.reshape(*shape, -1)

    def _given(self, rows: Observations) -> Conditioning:
        """Of f at the pseudo-points and at the data, given these rows."""
        prior, k = self._prior, self.n_functions
        return factored_process_given(
            factored_covariance_of(prior, "X", self._everything),
            mean_of(prior, "X", self._parts),
            np.repeat(prior.phase, k),
            np.repeat(prior.truncation, k),
            rows,
        )


class CoordinateFit(FunctionFit):
    """The part of a fit whose latent vector is coordinates c, drawn in mirrored pairs."""

    @cached_property
    @abstractmethod
    def sampler(self) -> SiteSampler:
        """Proposals, which the evidence and all draws share."""

    @property
    def fitted(self) -> bool:
        """See `FunctionFit`."""
        return "sampler" in vars(self)

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Both members of `n_draws` pairs, columns c."""
        return self.sampler.members(n_draws, as_generator(random_seed))

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, IntArray]:
        """See `FunctionFit`; ValueError for another method than "twisted"."""
        refuse_method(method)
        return equal_singles(self.sampler, shape, rng)


def refuse_method(method: str) -> None:
    """Raise ValueError for a method that knows rows only."""
    if method != "twisted":
        raise ValueError(
            f"method={method!r} draws a number within limits for each row of the data, and here "
            'coordinates of f are drawn: leave method at its default, "twisted".'
        )


# Draws of u, the Gaussian within the limits that the observations are, and equal ones of them.

Method = Literal["twisted", "lin_ess"]

# Weighted draws that a chain is resampled from, at least: one draw alone would be the proposal's.
LEAST_WEIGHTED = 128
NOTHING_DRAWN = Estimate(0.0, 0.0, 1.0, -np.inf)


def draw_latent(
    sampler: RectangleSampler,
    n_draws: int,
    method: str,
    random_seed: Seed,
    *,
    n_pseudo_points: int,
    chains: int = 1,
    thin: int = 1,
) -> TruncatedDraws:
    """Draws of u: weighted and near-independent ones ("twisted"), or Markov chains ("lin_ess")."""
    if method not in ("twisted", "lin_ess"):
        raise ValueError(f'method must be "twisted" or "lin_ess", got {method!r}.')
    if not sampler.size:  # points only: f itself is Gaussian
        return TruncatedDraws(np.zeros((n_draws, 0)), np.zeros(n_draws), NOTHING_DRAWN, "exact")
    rng = as_generator(random_seed)
    with naming_the_labels(n_pseudo_points):
        if method == "twisted":
            return draws_by(sampler, n_draws, rng)
        return lin_ess_draws_by(sampler, n_draws, rng, n_chains=chains, thin=thin)


def equal_draws(
    sampler: RectangleSampler,
    shape: tuple[int, int],
    method: str,
    rng: np.random.Generator,
    *,
    n_pseudo_points: int,
    thin: int = 1,
) -> tuple[TruncatedDraws, NDArray[np.intp]]:
    """Draws of u, and which of them to take for equal weights, `shape` being (chains, draws)."""
    chains, draws = shape
    if method == "lin_ess" or not sampler.size:  # equal already, and the order of a chain matters
        latent = draw_latent(
            sampler,
            draws * chains,
            method,
            rng,
            n_pseudo_points=n_pseudo_points,
            chains=chains,
            thin=thin,
        )
        return latent, np.arange(draws * chains).reshape(chains, draws)
    size = max(draws, LEAST_WEIGHTED)
    latent = draw_latent(sampler, size * chains, method, rng, n_pseudo_points=n_pseudo_points)
    return latent, _resampled(latent, shape, rng)


def equal_singles(
    sampler: SiteSampler, shape: tuple[int, int], rng: np.random.Generator
) -> tuple[TruncatedDraws, NDArray[np.intp]]:
    """The same of coordinates, one member of each mirrored pair."""
    chains, draws = shape
    latent = sampler.singles(max(draws, LEAST_WEIGHTED) * chains, rng)
    chosen = _resampled(latent, shape, rng)
    # A coordinate of evenly spaced points goes up and down with their order: chains in no order,
    # but that copies stay side by side.
    place = rng.random(latent.log_weights.size)
    order = np.argsort(place[chosen], axis=1, kind="stable")
    return latent, np.take_along_axis(chosen, order, axis=1)


def _resampled(
    latent: TruncatedDraws, shape: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draws to take, each chain from its own part of the weighted ones."""
    chains, draws = shape
    blocks = latent.log_weights.reshape(chains, -1)
    size = blocks.shape[1]
    # Copies stay side by side, where the effective sample size of a chain sees them.
    chosen = [np.sort(systematic_resample(block, draws, rng)) for block in blocks]
    return np.stack([i * size + block for i, block in enumerate(chosen)])


# Constraints that hold only by their nugget: the log probability then is one of the nugget.

# Shares of the variances, added until a log probability can be computed, which is then too large.
_COARSE = (1e-10, 1e-8, 1e-6, 1e-4)
_CONVERGED = 1e-3


def refuse_contradictory_constraints(
    sampler: RectangleSampler, rows: IntArray, nugget: FloatArray
) -> None:
    r"""Refuse a rectangle whose log probability depends on the nugget of its constraints.

    The derivative of EP's log probability in the log of the nugget's variances is next to 0 where
    the constraints can hold without it, and at least a half for each row that they cannot.

    Parameters
    ----------
    sampler : RectangleSampler
    rows : ndarray of int, shape (c,)
        Which of its rows are constraints.
    nugget : ndarray, shape (c,)
        Variances of their noise.

    Raises
    ------
    ContradictoryConstraintsError
        It says how improbable the constraints are.
    """
    with no_warnings(), np.errstate(all="ignore"):
        try:
            slope = ep_gradient(sampler.cov, sampler.ep, sampler.lower, sampler.upper).cov
            effect = float(slope.diagonal()[rows] @ nugget)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            effect = np.inf
        # Below 0 where noise fills a narrow interval; far below only where EP has not converged.
        if -sampler.size < effect <= LARGEST_EFFECT:
            return
        known = _log_prob_below(sampler)
    raise ContradictoryConstraintsError(
        "the constraints contradict each other, the data or the pseudo-points: they hold only by "
        f"their nugget. The log probability of that {known}. Drop constraints that cannot hold "
        "together, check the signs and units of their limits, or choose a kernel with a larger "
        "variance or a shorter lengthscale."
    )


def _log_prob_below(sampler: RectangleSampler) -> str:
    """Of the rows with more noise than they have, which is more probable."""
    variances = sampler.cov.diagonal()
    for share in _COARSE:
        matrix = sampler.cov.dense().copy()
        matrix[np.diag_indices_from(matrix)] += share * variances
        try:
            ep = fit_ep(DenseCovariance(matrix), sampler.lower, sampler.upper, tol=_CONVERGED)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            continue
        if ep.residual < _CONVERGED and np.isfinite(ep.log_prob):
            return f"is below about {ep.log_prob:.3g}"
    return "is beyond double precision"
