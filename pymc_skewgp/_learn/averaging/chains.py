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
from scipy.stats import chi2

from pymc_skewgp._gaussian.weights import Estimate, IntArray, normalized_weights
from pymc_skewgp._learn.averaging.modes import Mode
from pymc_skewgp._learn.averaging.regions import Chains, RegionDraws, draws_of_regions
from pymc_skewgp._learn.averaging.settings import ChainSettings
from pymc_skewgp._learn.averaging.student_mixture import StudentMixture
from pymc_skewgp._learn.averaging.weighted_points import WeightedPoints
from pymc_skewgp._learn.point import Function, Pattern, Point
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._validation import FloatArray

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
    patterns, draws = list(by_pattern), [part.draws for part in parts]
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
    converged = all(part.converged for part in parts) and not _misses(
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


class _Part(NamedTuple):
    draws: RegionDraws
    converged: bool


def _of_pattern(
    function: Function, modes: list[Mode], settings: ChainSettings, rng: np.random.Generator
) -> _Part:
    """Chains from all modes that count, in proportion to their mass, two of each at least."""
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
    return _Part(draws, converged and draws.complete)


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
