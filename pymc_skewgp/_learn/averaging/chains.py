"""PyMC's NUTS on the posterior of hyperparameters with EP's evidence, and that density's integral.

For many hyperparameters, or a posterior that mixtures do not fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy.special import logsumexp
from scipy.stats import chi2

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    log_mean_exp,
    normalized_weights,
    uniform_points,
)
from pymc_skewgp._learn.averaging.points import WeightedPoints
from pymc_skewgp._learn.averaging.problem import Mode
from pymc_skewgp._learn.averaging.settings import ChainSettings, StudentMixture
from pymc_skewgp._learn.coordinates import Function, Pattern, Point
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._validation import FloatArray

# The integral of a density of which there are draws: bridge sampling.
#
# References
# ----------
# .. [1] X.-L. Meng & W. H. Wong (1996), Simulating ratios of normalizing constants via a simple
#    identity, Statistica Sinica 6.
# .. [2] S. Fruehwirth-Schnatter (2004), Estimating marginal likelihoods for mixture and Markov
#    switching models using bridge sampling techniques, doi:10.1111/j.1368-423X.2004.00125.x.

_ITERATIONS, _TOLERANCE = 1000, 1e-8


def bridge_estimate(
    log_ratio_target: FloatArray, log_ratio_proposal: FloatArray, effective: float
) -> tuple[float, float]:
    r"""Log integral of an unnormalised density p, and its standard error.

    With q the density of a proposal, and :math:`s_1, s_2` the shares of the draws of p and of q,
    the fixed point of

    .. math:: r = \frac{\mathrm E_q \, p / (s_1 p + s_2 r q)}{\mathrm E_p \, q / (s_1 p + s_2 r q)}

    Parameters
    ----------
    log_ratio_target, log_ratio_proposal : ndarray
        log p - log q at draws of p, and at draws of q.
    effective : float
        Effective number of the draws of p.
    """
    n_q = log_ratio_proposal.size
    log_s = np.log(np.array([effective, n_q]) / (effective + n_q))
    value = float(np.median(log_ratio_target))
    for _ in range(_ITERATIONS):
        above = log_ratio_proposal - _log_sum(log_s, log_ratio_proposal, value)
        below = -_log_sum(log_s, log_ratio_target, value)
        found = log_mean_exp(above) - log_mean_exp(below)
        change, value = abs(found - value), found
        if change < _TOLERANCE:
            break
    above = np.exp(log_ratio_proposal - _log_sum(log_s, log_ratio_proposal, value))
    below = np.exp(value - _log_sum(log_s, log_ratio_target, value))
    squared = above.var() / above.mean() ** 2 / n_q + below.var() / below.mean() ** 2 / effective
    return value, float(np.sqrt(squared))


def _log_sum(log_s: FloatArray, log_ratio: FloatArray, value: float) -> FloatArray:
    found: FloatArray = logsumexp(
        np.stack([log_s[0] + log_ratio, np.full(log_ratio.size, log_s[1] + value)]), axis=0
    )
    return found


# Draws of chains that were begun in several posterior modes, and the integral of their density.
#
# Chains do not go from mode to mode in proportion to these. But within a region around each mode
# their draws are those of the density restricted to it: they share the region's integral, which
# bridge sampling knows, and the integral of all is the sum.

_PROPOSAL_DF, _WIDEN = 6.0, 1.2
_REPLICATES = 16
# Draws of a region, in the second halves of the chains, below which there is no bridge to it.
_FEWEST = 20


class Chains(NamedTuple):
    """Chains that were begun in one mode.

    Attributes
    ----------
    x : ndarray, shape (chain, draw, D)
    log_target : ndarray, shape (chain, draw)
    effective : float
        Number of effective draws.
    """

    x: FloatArray
    log_target: FloatArray
    effective: float


class RegionDraws(NamedTuple):
    """All draws, with weights.

    Attributes
    ----------
    x : ndarray, shape (N, D)
    log_target, log_weights : ndarray, shape (N,)
        The weights' sum is the integral.
    log_integral, std_error : float
    effective : float
    complete : bool
        Whether every region with a share of the integral has draws, and every one with draws a
        share that is known.
    """

    x: FloatArray
    log_target: FloatArray
    log_weights: FloatArray
    log_integral: float
    std_error: float
    effective: float
    complete: bool


class _Draws(NamedTuple):
    """Draws one below the other, and the region of each."""

    x: FloatArray
    log_target: FloatArray
    region: IntArray


def draws_of_regions(
    groups: list[Chains],
    log_density: Callable[[FloatArray], FloatArray],
    least_share: float,
    rng: np.random.Generator,
) -> RegionDraws:
    """Combine the chains of several modes.

    Parameters
    ----------
    groups : list of Chains
        One for each mode.
    log_density : callable
        Of the target at rows.
    least_share : float
        Of the integral, from which a region without draws counts.
    rng : numpy.random.Generator
    """
    # The first half of every chain makes the proposals that the second is compared with.
    half = groups[0].x.shape[1] // 2
    proposals = [_fitted(_rows(group.x[:, :half])) for group in groups]
    everything, second = _joined(groups, proposals, 0), _joined(groups, proposals, half)
    found = [_of_region(k, proposals, second, groups, log_density, rng) for k in range(len(groups))]
    log_integrals = np.array([value for value, _ in found])
    known = np.isfinite(log_integrals)
    if not known.any():
        raise DoublePrecisionError(
            "the marginal likelihood has no value at any of the points that were drawn around the "
            "chains of NUTS: check the priors and the scale of the inputs."
        )
    total = float(logsumexp(log_integrals))
    shares = np.exp(log_integrals - total)
    counts = np.bincount(everything.region, minlength=len(groups))
    effective = np.array([_effective(k, everything, groups) for k in range(len(groups))])
    present = counts > 0
    with np.errstate(divide="ignore"):
        log_weights = (log_integrals - np.log(counts))[everything.region]
    return RegionDraws(
        everything.x,
        everything.log_target,
        log_weights,
        total,
        float(np.sqrt(((shares * [error for _, error in found]) ** 2).sum())),
        float(1.0 / (shares[present] ** 2 / effective[present]).sum()),
        bool((shares[~present] < least_share).all() and known[present].all()),
    )


def _joined(groups: list[Chains], proposals: list[StudentMixture], start: int) -> _Draws:
    """Draws from `start` on of every chain."""
    x = np.concatenate([_rows(group.x[:, start:]) for group in groups])
    log_target = np.concatenate([group.log_target[:, start:].ravel() for group in groups])
    return _Draws(x, log_target, _regions(x, proposals))


def _regions(x: FloatArray, proposals: list[StudentMixture]) -> IntArray:
    """Which proposal has the largest density."""
    return np.argmax([proposal.log_density(x) for proposal in proposals], axis=0)


def _of_region(
    k: int,
    proposals: list[StudentMixture],
    second: _Draws,
    groups: list[Chains],
    log_density: Callable[[FloatArray], FloatArray],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Log integral over a region, and its standard error; -inf where no new point meets it."""
    proposal, own = proposals[k], second.region == k
    count = -(-len(second.x) // (len(groups) * _REPLICATES))
    new = proposal.draw(uniform_points(proposal.n_uniforms, count, _REPLICATES, rng))
    inside = _regions(new, proposals) == k
    of_new = np.full(len(new), -np.inf)
    of_new[inside] = log_density(new[inside]) - proposal.log_density(new[inside])
    if not np.isfinite(of_new).any():
        return -np.inf, 0.0
    if own.sum() < _FEWEST:
        value = log_mean_exp(of_new)
        return value, float(np.exp(of_new - value).std() / np.sqrt(of_new.size))
    ratio = second.log_target[own] - proposal.log_density(second.x[own])
    effective = min(_effective(k, second, groups), float(ratio.size))
    return bridge_estimate(ratio, of_new, effective)


def _effective(k: int, draws: _Draws, groups: list[Chains]) -> float:
    """Effective draws in a region: of each group as many as it has of its draws there."""
    sizes = [group.log_target.size for group in groups]
    share = len(draws.x) / sum(sizes)
    bounds = np.cumsum([round(size * share) for size in sizes])[:-1]
    inside = [np.mean(part == k) for part in np.split(draws.region, bounds)]
    parts = zip(inside, groups, strict=True)
    return max(float(sum(part * share * group.effective for part, group in parts)), 1.0)


def _rows(x: FloatArray) -> FloatArray:
    return x.reshape(-1, x.shape[2])


def _fitted(x: FloatArray) -> StudentMixture:
    cov = np.atleast_2d(np.cov(x.T)) * _WIDEN * (_PROPOSAL_DF - 2.0) / _PROPOSAL_DF
    chol = np.linalg.cholesky(cov)
    return StudentMixture(np.ones(1), x.mean(axis=0)[None], chol[None], _PROPOSAL_DF)


# Share of Laplace's mass from which a mode counts, and of its draws that are near it.
_LEAST_MASS, _NEAR = 0.01, 0.99
# Fewer would not show whether chains agree.
_CHAINS_OF_A_MODE = 2
_DF = 6.0


class ChainPoints(NamedTuple):
    """Draws of chains, as points with weights.

    Attributes
    ----------
    points : WeightedPoints
    log_integral : Estimate
        Its relative ESS is that of the chains.
    converged : bool
    """

    points: WeightedPoints
    log_integral: Estimate
    converged: bool


class _Density(Op):
    """Log density and its gradient in z, x = centre + scale z."""

    __props__ = ()

    def __init__(self, function: Callable[[FloatArray], tuple[float, FloatArray]]) -> None:
        self._function = function

    def make_node(self, z: Any) -> Apply:
        return Apply(self, [pt.as_tensor_variable(z)], [pt.dscalar(), pt.dvector()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        value, gradient = self._function(inputs[0])
        outputs[0][0], outputs[1][0] = np.asarray(value), gradient

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        return [cotangents[0] * outputs[1]]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def points_by_chains(
    function: Function,
    log_prior: Callable[[Point], float],
    modes: list[Mode],
    settings: ChainSettings,
    rng: np.random.Generator,
) -> ChainPoints:
    """Chains for each pattern of binary values, from its modes.

    Parameters
    ----------
    function : callable
        Log target, with its gradient.
    log_prior : callable
        What of it is no evidence.
    modes : list of Mode
        The largest first.
    settings : ChainSettings
    rng : numpy.random.Generator
    """
    by_pattern: dict[Pattern, list[Mode]] = {}
    for mode in modes:
        by_pattern.setdefault(mode.point.pattern, []).append(mode)
    parts = [_of_pattern(function, own, settings, rng) for own in by_pattern.values()]
    patterns, draws = list(by_pattern), [part for part, _ in parts]
    log_integrals = np.array([part.log_integral for part in draws])
    total = float(np.logaddexp.reduce(log_integrals))
    shares = np.exp(log_integrals - total)
    error = float(np.sqrt(sum((shares * [part.std_error for part in draws]) ** 2)))
    x = np.concatenate([part.x for part in draws])
    log_target = np.concatenate([part.log_target for part in draws])
    which = np.repeat(np.arange(len(draws)), [len(part.x) for part in draws])
    prior = [log_prior(Point(row, patterns[p])) for row, p in zip(x, which, strict=True)]
    log_weights = np.concatenate([part.log_weights for part in draws]) + np.log(len(x))
    points = WeightedPoints(
        x,
        which,
        patterns,
        log_target,
        log_target - np.array(prior),
        log_weights,
        np.zeros(which.size, dtype=np.intp),
    )
    effective = 1.0 / sum(shares**2 / [part.effective for part in draws])
    converged = all(good for _, good in parts) and not _misses(
        modes, {pattern: part.x for pattern, part in zip(patterns, draws, strict=True)}
    )
    return ChainPoints(
        points, Estimate(total, error, min(effective / len(x), 1.0), -np.inf), converged
    )


def _misses(modes: list[Mode], x: dict[Pattern, FloatArray]) -> bool:
    """Whether a mode with a share of Laplace's mass has no draw near it."""
    shares = normalized_weights(np.array([mode.log_mass for mode in modes]))
    for mode, share in zip(modes, shares, strict=True):
        away = x[mode.point.pattern] - mode.point.x
        distances = np.einsum("ni,ni->n", away, np.linalg.solve(mode.covariance, away.T).T)
        if share > _LEAST_MASS and distances.min() > chi2.ppf(_NEAR, away.shape[1]):
            return True
    return False


def _of_pattern(
    function: Function, modes: list[Mode], settings: ChainSettings, rng: np.random.Generator
) -> tuple[RegionDraws, bool]:
    """Chains from all modes that count, in proportion to their mass, two of each at least.

    And whether they have converged.
    """
    shares = normalized_weights(np.array([mode.log_mass for mode in modes]))
    counting = [(mode, s) for mode, s in zip(modes, shares, strict=True) if s > _LEAST_MASS]
    chains = []
    for mode, share in counting:
        fewest = settings.chains if len(counting) == 1 else _CHAINS_OF_A_MODE
        n_chains = max(fewest, round(share * settings.chains))
        chains.append(_of_mode(function, mode, replace(settings, chains=n_chains), rng))
    x, log_target = (np.concatenate(arrays) for arrays in zip(*chains, strict=True))
    # While it is tuned a chain may leave the mode that it was begun in.
    home = _nearest(x, [mode for mode, _ in counting])
    found = [_judged(x[home == k], log_target[home == k], settings) for k in np.unique(home)]
    groups, converged = [group for group, _ in found], all(good for _, good in found)

    def log_density(x: FloatArray) -> FloatArray:
        return np.array([function(modes[0].point.at(row)).total for row in x])

    draws = draws_of_regions(groups, log_density, _LEAST_MASS, rng)
    return draws, converged and draws.complete


def _of_mode(
    function: Function, mode: Mode, settings: ChainSettings, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Chains begun in one mode, (chain, draw, D), and the log density there."""
    chol = np.linalg.cholesky(mode.covariance)

    def density(z: FloatArray) -> tuple[float, FloatArray]:
        found = function(mode.point.at(mode.point.x + chol @ z))
        return found.total, chol.T @ found.gradient

    z, log_target = _nuts(density, chol.shape[0], settings, rng)
    return mode.point.x + z @ chol.T, log_target


def _nearest(x: FloatArray, modes: list[Mode]) -> IntArray:
    """The mode that most draws of each chain are nearest to, in units of its curvature."""
    joint = [
        StudentMixture(
            np.ones(1), mode.point.x[None], np.linalg.cholesky(mode.covariance)[None], _DF
        ).log_density(x.reshape(-1, x.shape[2]))
        for mode in modes
    ]
    each = np.argmax(joint, axis=0).reshape(x.shape[:2])
    counts = (each[..., None] == np.arange(len(modes))).sum(axis=1)
    return np.argmax(counts, axis=1)


def _judged(x: FloatArray, log_target: FloatArray, settings: ChainSettings) -> tuple[Chains, bool]:
    """Chains of one mode, and whether they have converged."""
    from arviz_stats.base import array_stats  # a second of import

    # One chain alone has to agree with itself.
    halves = np.concatenate(np.array_split(x[:, : x.shape[1] // 2 * 2], 2, axis=1))
    r_hat = np.max(array_stats.rhat(halves, chain_axis=0, draw_axis=1))
    effective = float(np.min(array_stats.ess(x, chain_axis=0, draw_axis=1)))
    least = settings.least_ess * min(len(x) / settings.chains, 1.0)
    converged = bool(r_hat < settings.largest_r_hat and effective >= least)
    return Chains(x, log_target, effective), converged


def _nuts(
    density: Callable[[FloatArray], tuple[float, FloatArray]],
    n_coordinates: int,
    settings: ChainSettings,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draws z, (chain, draw, D), and the log density there."""
    starts: Sequence[Any] = [
        {"z": rng.standard_normal(n_coordinates)} for _ in range(settings.chains)
    ]
    with pm.Model():
        z = pm.Flat("z", shape=n_coordinates, initval=np.zeros(n_coordinates))
        pm.Potential("density", _Density(density)(z)[0])
        idata = pm.sample(
            draws=settings.draws,
            tune=settings.tune,
            chains=settings.chains,
            cores=1,
            nuts_sampler="pymc",
            init="adapt_diag",
            initvals=starts,
            target_accept=settings.target_accept,
            random_seed=int(rng.integers(2**31)),
            compile_kwargs={"mode": PLAIN},
            compute_convergence_checks=False,
            progressbar=False,
            quiet=True,
        )
    return idata["posterior"]["z"].to_numpy(), idata["sample_stats"]["lp"].to_numpy()
