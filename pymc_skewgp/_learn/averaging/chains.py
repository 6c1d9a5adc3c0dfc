"""PyMC's NUTS on the posterior of hyperparameters with EP's evidence, and that density's integral.

For many hyperparameters, or a posterior that mixtures do not fit. Chains do not go from mode to
mode in proportion to these. But within a region around each mode their draws are those of the
density restricted to it: they share the region's integral, which bridge sampling knows [1]_ [2]_,
and the integral of all is the sum.

References
----------
.. [1] X.-L. Meng & W. H. Wong (1996), Simulating ratios of normalizing constants via a simple
   identity, Statistica Sinica 6.
.. [2] S. Fruehwirth-Schnatter (2004), Estimating marginal likelihoods for mixture and Markov
   switching models using bridge sampling techniques, doi:10.1111/j.1368-423X.2004.00125.x.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy.special import chdtri, logsumexp

from pymc_skewgp._errors import DoublePrecisionError
from pymc_skewgp._gaussian import weights
from pymc_skewgp._learn.averaging.importance import DF, IntegrationSettings, StudentMixture
from pymc_skewgp._learn.averaging.modes import Mode, by_pattern
from pymc_skewgp._learn.averaging.points import WeightedPoints, joined
from pymc_skewgp._learn.coordinates import Function, Point
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._validation import FloatArray

_ITERATIONS, _TOLERANCE = 1000, 1e-8
_WIDEN, _REPLICATES = 1.2, 16
# Draws of a region, in the second halves of the chains, below which there is no bridge to it.
_FEWEST = 20
# Share of Laplace's mass from which a mode counts, and of its draws that are near it.
_LEAST_MASS, _NEAR = 0.01, 0.99
# Fewer would not show whether chains agree.
_CHAINS_OF_A_MODE = 2
_TARGET_ACCEPT = 0.85


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

    def terms() -> tuple[FloatArray, FloatArray]:
        above = log_ratio_proposal - np.logaddexp(log_s[0] + log_ratio_proposal, log_s[1] + value)
        return above, -np.logaddexp(log_s[0] + log_ratio_target, log_s[1] + value)

    for _ in range(_ITERATIONS):
        above, below = terms()
        before, value = value, weights.log_mean_exp(above) - weights.log_mean_exp(below)
        if abs(value - before) < _TOLERANCE:
            break
    above, below = map(np.exp, terms())
    squared = above.var() / above.mean() ** 2 / n_q + below.var() / below.mean() ** 2 / effective
    return value, float(np.sqrt(squared))


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
        The weights' mean is the integral.
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


class _Pooled(NamedTuple):
    """Draws of all groups one below the other: the region of each; effective draws in regions."""

    x: FloatArray
    log_target: FloatArray
    region: weights.IntArray
    effective: FloatArray


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
    first = [_rows(group.x[:, :half]) for group in groups]
    widen = _WIDEN * (DF - 2.0) / DF
    proposals = _of_moments(
        [x.mean(axis=0) for x in first], [widen * np.atleast_2d(np.cov(x.T)) for x in first]
    )
    everything, second = (_pooled(groups, proposals, start) for start in (0, half))
    found = [_of_region(k, proposals, second, log_density, rng) for k in range(len(groups))]
    log_integrals, errors = np.transpose(found)
    known = np.isfinite(log_integrals)
    if not known.any():
        raise DoublePrecisionError(
            "the marginal likelihood has no value at any of the points that were drawn around the "
            "chains of NUTS: check the priors and the scale of the inputs."
        )
    total = float(logsumexp(log_integrals))
    shares = np.exp(log_integrals - total)
    counts = np.bincount(everything.region, minlength=len(groups))
    present = counts > 0
    with np.errstate(divide="ignore"):
        log_weights = (log_integrals + np.log(counts.sum()) - np.log(counts))[everything.region]
    return RegionDraws(
        everything.x,
        everything.log_target,
        log_weights,
        total,
        float(np.sqrt(((shares * errors) ** 2).sum())),
        float(1.0 / (shares[present] ** 2 / everything.effective[present]).sum()),
        bool((shares[~present] < least_share).all() and known[present].all()),
    )


def _of_moments(means: Sequence[FloatArray], covs: Sequence[FloatArray]) -> StudentMixture:
    """A component with equal weight for each region."""
    equal = np.full(len(means), 1.0 / len(means))
    return StudentMixture(equal, np.array(means), np.linalg.cholesky(np.array(covs)))


def _pooled(groups: list[Chains], proposals: StudentMixture, start: int) -> _Pooled:
    """Draws from `start` on of every chain; the largest proposal there makes the region."""
    x = [_rows(group.x[:, start:]) for group in groups]
    regions = [np.argmax(proposals.components(own)[0], axis=0) for own in x]
    inside = np.array([np.bincount(own, minlength=len(groups)) / own.size for own in regions])
    share = 1.0 - start / groups[0].x.shape[1]
    return _Pooled(
        np.concatenate(x),
        np.concatenate([group.log_target[:, start:].ravel() for group in groups]),
        np.concatenate(regions),
        np.maximum(share * np.array([group.effective for group in groups]) @ inside, 1.0),
    )


def _of_region(
    k: int,
    proposals: StudentMixture,
    second: _Pooled,
    log_density: Callable[[FloatArray], FloatArray],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Log integral over a region, and its standard error; -inf where no new point meets it."""
    n_regions, own = proposals.weights.size, second.region == k
    count = -(-len(second.x) // (n_regions * _REPLICATES))
    one = StudentMixture(np.ones(1), proposals.means[k : k + 1], proposals.chols[k : k + 1])
    new = one.draw(weights.uniform_points(one.n_uniforms, count, _REPLICATES, rng))
    inside = np.argmax(proposals.components(new)[0], axis=0) == k
    of_new = np.full(len(new), -np.inf)
    of_new[inside] = log_density(new[inside]) - one.log_density(new[inside])
    if not np.isfinite(of_new).any():
        return -np.inf, 0.0
    if own.sum() < _FEWEST:
        value = weights.log_mean_exp(of_new)
        return value, float(np.exp(of_new - value).std() / np.sqrt(of_new.size))
    ratio = second.log_target[own] - one.log_density(second.x[own])
    return bridge_estimate(ratio, of_new, min(float(second.effective[k]), float(ratio.size)))


def _rows(x: FloatArray) -> FloatArray:
    return x.reshape(-1, x.shape[2])


class _Density(Op):
    """Log density and its gradient in z, x = centre + scale z."""

    def __init__(self, function: Callable[[FloatArray], tuple[float, FloatArray]]) -> None:
        self._function = function

    def make_node(self, z: Any) -> Apply:
        return Apply(self, [pt.as_tensor_variable(z)], [pt.dscalar(), pt.dvector()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        value, gradient = self._function(inputs[0])
        outputs[0][0], outputs[1][0] = np.asarray(value), gradient

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        return [cotangents[0] * outputs[1]]


def points_by_chains(
    function: Function,
    log_prior: Callable[[Point], float],
    modes: list[Mode],
    settings: IntegrationSettings,
    rng: np.random.Generator,
) -> tuple[WeightedPoints, weights.Estimate, bool]:
    """Chains for each pattern of binary values, from its modes, and whether they have converged.

    The relative ESS of the estimate is that of the chains.

    Parameters
    ----------
    function : callable
        Log target, with its gradient.
    log_prior : callable
        What of it is no evidence.
    modes : list of Mode
        The largest first.
    settings : IntegrationSettings
    rng : numpy.random.Generator
    """
    parts, found, converged = [], [], True
    for own in by_pattern(modes):
        pattern = own[0].point.pattern
        draws, good = _of_pattern(function, own, settings, rng)
        prior = np.array([log_prior(Point(row, pattern)) for row in draws.x])
        replicate = np.zeros(prior.size, dtype=np.intp)
        known = draws.log_target, draws.log_target - prior, draws.log_weights
        parts.append(WeightedPoints.of(pattern, draws.x, *known, replicate))
        found.append((draws.log_integral, draws.std_error, draws.effective))
        converged &= good
    points = joined(parts)
    log_integrals, errors, effective = np.transpose(found)
    total = float(np.logaddexp.reduce(log_integrals))
    shares = np.exp(log_integrals - total)
    error = float(np.sqrt(((shares * errors) ** 2).sum()))
    ess = min(float(1.0 / (shares**2 / effective).sum()) / len(points.x), 1.0)
    converged = converged and not misses(modes, points)
    return points, weights.Estimate(total, error, ess, -np.inf), converged


def misses(modes: list[Mode], points: WeightedPoints) -> bool:
    """Whether a mode with a share of Laplace's mass has no draw near it."""
    shares = weights.normalized_weights(np.array([mode.log_mass for mode in modes]))
    for mode, share in zip(modes, shares, strict=True):
        own = points.pattern == points.patterns.index(mode.point.pattern)
        away = points.x[own] - mode.point.x
        distances = np.einsum("ni,ni->n", away, np.linalg.solve(mode.covariance, away.T).T)
        if share > _LEAST_MASS and distances.min() > chdtri(away.shape[1], 1.0 - _NEAR):
            return True
    return False


def _of_pattern(
    function: Function, modes: list[Mode], settings: IntegrationSettings, rng: np.random.Generator
) -> tuple[RegionDraws, bool]:
    """Chains from all modes that count, in proportion to their mass, two of each at least.

    And whether they have converged.
    """
    shares = weights.normalized_weights(np.array([mode.log_mass for mode in modes]))
    counting = [mode for mode, share in zip(modes, shares, strict=True) if share > _LEAST_MASS]
    fewest = settings.chains if len(counting) == 1 else _CHAINS_OF_A_MODE
    chains = []
    for mode, share in zip(modes, shares, strict=True):
        if share > _LEAST_MASS:
            n_chains = max(fewest, round(share * settings.chains))
            chains.append(_nuts(function, mode, n_chains, settings, rng))
    x, log_target = (np.concatenate(arrays) for arrays in zip(*chains, strict=True))
    # While it is tuned a chain may leave the mode that it was begun in: its home is that which most
    # of its draws are nearest to, in units of its curvature.
    around = _of_moments([m.point.x for m in counting], [m.covariance for m in counting])
    nearest = np.argmax(around.components(_rows(x))[0], axis=0).reshape(x.shape[:2])
    home = np.argmax((nearest[..., None] == np.arange(len(counting))).sum(axis=1), axis=1)
    found = [_judged(x[home == k], log_target[home == k], settings) for k in np.unique(home)]

    def log_density(x: FloatArray) -> FloatArray:
        return np.array([function(modes[0].point.at(row)).total for row in x])

    draws = draws_of_regions([group for group, _ in found], log_density, _LEAST_MASS, rng)
    return draws, all(good for _, good in found) and draws.complete


def _judged(
    x: FloatArray, log_target: FloatArray, settings: IntegrationSettings
) -> tuple[Chains, bool]:
    """Chains of one mode, and whether they have converged."""
    from arviz_stats.base import array_stats  # a second of import

    # One chain alone has to agree with itself.
    halves = np.concatenate(np.array_split(x[:, : x.shape[1] // 2 * 2], 2, axis=1))
    r_hat = np.max(array_stats.rhat(halves, chain_axis=0, draw_axis=1))
    effective = float(np.min(array_stats.ess(x, chain_axis=0, draw_axis=1)))
    least = settings.least_effective * min(len(x) / settings.chains, 1.0)
    converged = bool(r_hat < settings.largest_r_hat and effective >= least)
    return Chains(x, log_target, effective), converged


def _nuts(
    function: Function,
    mode: Mode,
    n_chains: int,
    settings: IntegrationSettings,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Chains begun in one mode, (chain, draw, D), and the log density there."""
    chol, d = np.linalg.cholesky(mode.covariance), mode.point.x.size

    def density(z: FloatArray) -> tuple[float, FloatArray]:
        found = function(mode.point.at(mode.point.x + chol @ z))
        return found.total, chol.T @ found.gradient

    starts: Sequence[Any] = [{"z": rng.standard_normal(d)} for _ in range(n_chains)]
    with pm.Model(model=None):  # and not a part of the user's
        z = pm.Flat("z", shape=d, initval=np.zeros(d))
        pm.Potential("density", _Density(density)(z)[0])
        idata = pm.sample(
            draws=settings.draws,
            tune=settings.tune,
            chains=n_chains,
            cores=1,
            nuts_sampler="pymc",
            init="adapt_diag",
            initvals=starts,
            target_accept=_TARGET_ACCEPT,
            random_seed=int(rng.integers(2**31)),
            compile_kwargs={"mode": PLAIN},
            compute_convergence_checks=False,
            progressbar=False,
            quiet=True,
        )
    drawn, stats = idata["posterior"]["z"].to_numpy(), idata["sample_stats"]
    return mode.point.x + drawn @ chol.T, stats["lp"].to_numpy()
