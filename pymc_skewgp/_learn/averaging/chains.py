"""PyMC's NUTS on the posterior of hyperparameters with EP's evidence, and that density's integral.

For many hyperparameters, or a posterior that mixtures do not fit.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from scipy.stats import chi2

from pymc_skewgp._gaussian.points import uniform_points
from pymc_skewgp._gaussian.weights import Estimate, normalized_weights
from pymc_skewgp._learn.averaging.bridge import bridge_estimate
from pymc_skewgp._learn.averaging.modes import Mode
from pymc_skewgp._learn.averaging.settings import ChainSettings
from pymc_skewgp._learn.averaging.student_mixture import StudentMixture
from pymc_skewgp._learn.averaging.weighted_points import WeightedPoints
from pymc_skewgp._learn.point import Function, Pattern, Point
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._validation import FloatArray

_PROPOSAL_DF, _WIDEN = 6.0, 1.2
_REPLICATES = 16
# Share of Laplace's mass from which a mode counts, and of its draws that are near it.
_LEAST_MASS, _NEAR = 0.01, 0.99


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
    """Chains for each pattern of binary values, from its highest mode.

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
    by_pattern: dict[Pattern, Mode] = {}
    for mode in modes:
        by_pattern.setdefault(mode.point.pattern, mode)
    parts = [_of_pattern(function, mode, settings, rng) for mode in by_pattern.values()]
    patterns = list(by_pattern)
    log_integrals = np.array([part.log_integral for part in parts])
    total = float(np.logaddexp.reduce(log_integrals))
    shares = np.exp(log_integrals - total)
    error = float(
        np.sqrt(sum((s * part.std_error) ** 2 for s, part in zip(shares, parts, strict=True)))
    )
    size = len(parts[0].x)
    x = np.concatenate([part.x for part in parts])
    log_target = np.concatenate([part.log_target for part in parts])
    which = np.repeat(np.arange(len(parts)), size)
    prior = [log_prior(Point(row, patterns[p])) for row, p in zip(x, which, strict=True)]
    log_weights = np.repeat(log_integrals + np.log(len(parts)), size)
    points = WeightedPoints(
        x,
        which,
        patterns,
        log_target,
        log_target - np.array(prior),
        log_weights,
        np.zeros(which.size, dtype=np.intp),
    )
    effective = float(shares @ [part.effective for part in parts])
    converged = all(part.converged for part in parts) and not _misses(
        modes, {pattern: part.x for pattern, part in zip(patterns, parts, strict=True)}
    )
    return ChainPoints(
        points, Estimate(total, error, min(effective / size, 1.0), -np.inf), converged
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


class _Part(NamedTuple):
    x: FloatArray
    log_target: FloatArray
    effective: float
    converged: bool
    log_integral: float
    std_error: float


def _of_pattern(
    function: Function, mode: Mode, settings: ChainSettings, rng: np.random.Generator
) -> _Part:
    from arviz_stats.base import array_stats  # a second of import

    chol = np.linalg.cholesky(mode.covariance)

    def density(z: FloatArray) -> tuple[float, FloatArray]:
        found = function(mode.point.at(mode.point.x + chol @ z))
        return found.total, chol.T @ found.gradient

    z, log_target = _nuts(density, chol.shape[0], settings, rng)
    r_hat = np.max(array_stats.rhat(z, chain_axis=0, draw_axis=1))
    effective = float(np.min(array_stats.ess(z, chain_axis=0, draw_axis=1)))
    converged = bool(r_hat < settings.largest_r_hat and effective >= settings.least_ess)
    x = mode.point.x + z @ chol.T
    # The first half of every chain makes the proposal that the second is compared with.
    half = x.shape[1] // 2
    first, second = x[:, :half].reshape(-1, x.shape[2]), x[:, half:].reshape(-1, x.shape[2])
    proposal = _fitted(first)
    count = -(-second.shape[0] // _REPLICATES)
    new = proposal.draw(uniform_points(proposal.n_uniforms, count, _REPLICATES, rng))
    of_new = np.array([function(mode.point.at(row)).total for row in new])
    log_integral, std_error = bridge_estimate(
        log_target[:, half:].ravel() - proposal.log_density(second),
        of_new - proposal.log_density(new),
        min(0.5 * effective, float(second.shape[0])),
    )
    flat = x.reshape(-1, x.shape[2])
    return _Part(flat, log_target.ravel(), effective, converged, log_integral, std_error)


def _fitted(x: FloatArray) -> StudentMixture:
    cov = np.atleast_2d(np.cov(x.T)) * _WIDEN * (_PROPOSAL_DF - 2.0) / _PROPOSAL_DF
    chol = np.linalg.cholesky(cov)
    return StudentMixture(np.ones(1), x.mean(axis=0)[None], chol[None], _PROPOSAL_DF)


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
