"""Every choice and threshold of an integral over hyperparameters; mixtures and annealing."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Self

import numpy as np
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import gammaincinv, gammaln, logsumexp, ndtri

from pymc_skewgp._gaussian.linalg import symmetric
from pymc_skewgp._gaussian.tilted import BoolArray
from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    log_mean_exp,
    relative_ess,
    systematic_resample,
    uniform_points,
)
from pymc_skewgp._learn.optimizers import OptimizerSettings, StartSettings
from pymc_skewgp._validation import FloatArray

# What an integral over hyperparameters is doing, for whom it may concern.


class Stages:
    """A line of progress: what is done now, and how much of it.

    Parameters
    ----------
    progressbar : bool
    """

    def __init__(self, progressbar: bool) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, disable=not progressbar)
        self._task = self._progress.add_task("Posterior modes of the hyperparameters", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int | None = None) -> None:
        """Another stage, of so many steps."""
        self._progress.reset(self._task, description=what, total=total)

    def tick(self) -> None:
        """One step."""
        self._progress.advance(self._task)


# Mixtures of multivariate Student t distributions: density, draws, and one step of fitting them.
#
# The update is the Rao-Blackwellised one of adaptive importance sampling: the mixture that is
# nearest to weighted points in Kullback-Leibler divergence, by EM.
#
# References
# ----------
# .. [1] O. Cappe, R. Douc, A. Guillin, J.-M. Marin & C. P. Robert (2008), Adaptive importance
#    sampling in general mixture classes, doi:10.1007/s11222-008-9059-x.

# Smallest eigenvalue of a covariance, relative to the largest.
_LEAST_EIGENVALUE = 1e-8
# Quantiles beyond which a scale of 0 or infinity would come out.
_EDGE = 1e-12


@dataclass(frozen=True, eq=False)
class StudentMixture:
    """Components t(df, mean_k, L_k L_k') with weights.

    Attributes
    ----------
    weights : ndarray, shape (K,)
        They sum to one.
    means : ndarray, shape (K, D)
    chols : ndarray, shape (K, D, D)
        Lower triangular.
    df : float
        Degrees of freedom.
    """

    weights: FloatArray
    means: FloatArray
    chols: FloatArray
    df: float

    @property
    def n_uniforms(self) -> int:
        """Uniform numbers behind one draw: the component, the scale, and each coordinate."""
        return self.means.shape[1] + 2

    def log_density(self, x: FloatArray) -> FloatArray:
        """At the rows of `x`."""
        found: FloatArray = logsumexp(self._joint(x), axis=0)
        return found

    def slope(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log density at the rows of `x`, and its gradient."""
        d, df = self.means.shape[1], self.df
        joint = self._joint(x)
        value = logsumexp(joint, axis=0)
        factors = np.exp(joint - value) * (df + d) / (df + self._distances(x))
        pairs = zip(factors, self.means, self.chols, strict=True)
        gradient = sum(-f[:, None] * cho_solve((c, True), (x - m).T).T for f, m, c in pairs)
        return value, np.asarray(gradient)

    def draw(self, uniforms: FloatArray) -> FloatArray:
        """Rows, one for each column of `uniforms`, (D + 2, N)."""
        edges = np.cumsum(self.weights[:-1])
        component = np.searchsorted(edges, uniforms[0], side="right")
        # Chi squared over its degrees of freedom.
        scale = gammaincinv(0.5 * self.df, np.clip(uniforms[1], _EDGE, 1.0 - _EDGE))
        scale *= 2.0 / self.df
        white = ndtri(uniforms[2:]).T / np.sqrt(scale)[:, None]
        return self.means[component] + np.einsum("nij,nj->ni", self.chols[component], white)

    def fitted(
        self, x: FloatArray, weights: FloatArray, *, widen: float, least_share: float, steps: int
    ) -> "StudentMixture":
        """The mixture after some steps of EM towards weighted points.

        Parameters
        ----------
        x : ndarray, shape (N, D)
        weights : ndarray, shape (N,)
            Normalised.
        widen : float
            Factor of the covariances of the last step.
        least_share : float
            Weight below which no component falls.
        steps : int
        """
        mixture = self
        for step in range(steps):
            mixture = mixture._step(x, weights, widen if step == steps - 1 else 1.0, least_share)
        return mixture

    def _joint(self, x: FloatArray) -> FloatArray:
        """Log of weight times density of each component, (K, N)."""
        d, df = self.means.shape[1], self.df
        constant = gammaln(0.5 * (df + d)) - gammaln(0.5 * df) - 0.5 * d * np.log(df * np.pi)
        log_dets = np.log(np.einsum("kii->ki", self.chols)).sum(axis=1)
        heads = np.log(self.weights) + constant - log_dets
        bodies = np.log1p(self._distances(x) / df)
        joint: FloatArray = heads[:, None] - 0.5 * (df + d) * bodies
        return joint

    def _distances(self, x: FloatArray) -> FloatArray:
        """Squared Mahalanobis distances, (K, N)."""
        rows = [
            np.square(solve_triangular(chol, (x - mean).T, lower=True, check_finite=False)).sum(0)
            for mean, chol in zip(self.means, self.chols, strict=True)
        ]
        return np.array(rows)

    def _step(
        self, x: FloatArray, weights: FloatArray, widen: float, least_share: float
    ) -> "StudentMixture":
        d = x.shape[1]
        joint = self._joint(x)
        shares = np.exp(joint - logsumexp(joint, axis=0)) * weights
        sums = shares.sum(axis=1)
        # Given its component a point's precision is a Gamma variable with this mean.
        scaled = shares * (self.df + d) / (self.df + self._distances(x))
        centre = weights @ x
        whole = _scatter(x - centre, weights)
        effective = sums**2 / np.maximum((shares**2).sum(axis=1), 1e-300)
        means, chols = self.means.copy(), self.chols.copy()
        for k in range(sums.size):
            if effective[k] < 1.0:
                continue
            means[k] = scaled[k] @ x / scaled[k].sum()
            own = _scatter(x - means[k], scaled[k]) / sums[k]
            # As many points more as there are coordinates, of the covariance of all.
            pull = (d + 2.0) / (effective[k] + d + 2.0)
            chols[k] = _root(widen * ((1.0 - pull) * own + pull * whole))
        found = np.maximum(sums, least_share)
        return StudentMixture(found / found.sum(), means, chols, self.df)


def _scatter(difference: FloatArray, weights: FloatArray) -> FloatArray:
    return (difference * weights[:, None]).T @ difference


def _root(matrix: FloatArray) -> FloatArray:
    """Cholesky factor, of a matrix with its smallest eigenvalues raised."""
    values, vectors = np.linalg.eigh(symmetric(matrix))
    raised = np.maximum(values, max(_LEAST_EIGENVALUE * values[-1], 1e-12))
    factor: FloatArray = np.linalg.cholesky(symmetric((vectors * raised) @ vectors.T))
    return factor


# Draws from a density that is cheap for many points at once, with its integral, by annealing.
#
# Points of a mixture of Student t distributions q, whose density is known, are led to the density
# exp(f) through q^(1-b) exp(b f), b from 0 to 1: each step weights, resamples and moves them by
# Hamiltonian Monte Carlo. The product of the mean weights estimates the integral without bias (but
# for b and the moves being tuned on the points themselves).
#
# References
# ----------
# .. [1] P. Del Moral, A. Doucet & A. Jasra (2006), Sequential Monte Carlo samplers,
#    doi:10.1111/j.1467-9868.2006.00553.x.

# Value and gradient at rows.
Rows = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
_TARGET_ACCEPT, _LEAST_SHARE = 0.8, 1e-6
_BISECTIONS = 40
# Standard deviations in one step.
_FARTHEST = 30.0


@dataclass(frozen=True)
class AnnealingSettings:
    """How points are led from the mixture to the density.

    Attributes
    ----------
    ess : float
        Relative ESS of each step's weights.
    moves, last_moves : int
        Of every point at each step, and at the last one.
    leaps : int
        Leapfrog steps of a move, at most.
    most_steps : int
    """

    ess: float = 0.7
    moves: int = 2
    last_moves: int = 4
    leaps: int = 6
    most_steps: int = 60


class Annealed(NamedTuple):
    """Draws in independent groups.

    Attributes
    ----------
    x : ndarray, shape (R, M, D)
    log_density : ndarray, shape (R, M)
        f there.
    log_integral : ndarray, shape (R,)
        Of exp(f), by each group.
    """

    x: FloatArray
    log_density: FloatArray
    log_integral: FloatArray


@dataclass
class _Points:
    """Points with both log densities and their gradients."""

    x: FloatArray
    start: tuple[FloatArray, FloatArray]
    end: tuple[FloatArray, FloatArray]

    def density(self, power: float) -> tuple[FloatArray, FloatArray]:
        """Log of q^(1-b) exp(b f), with its gradient."""
        pairs = zip(self.start, self.end, strict=True)
        value, gradient = ((1.0 - power) * a + power * b for a, b in pairs)
        return value, gradient


def annealed(
    density: Rows,
    proposal: StudentMixture,
    n_groups: int,
    n_points: int,
    settings: AnnealingSettings,
    rng: np.random.Generator,
) -> Annealed:
    """Draws from exp(f).

    Parameters
    ----------
    density : callable
        f, finite, with its gradient.
    proposal : StudentMixture
    n_groups, n_points : int
        Points in each group.
    settings : AnnealingSettings
    rng : numpy.random.Generator
    """

    def at(x: FloatArray) -> _Points:
        return _Points(x, proposal.slope(x), density(x))

    points = at(proposal.draw(uniform_points(proposal.n_uniforms, n_points, n_groups, rng)))
    log_integral = np.zeros(n_groups)
    power, stride = 0.0, float(points.x.shape[1]) ** -0.25
    for step in range(settings.most_steps):
        log_ratio = points.end[0] - points.start[0]
        last = step == settings.most_steps - 1
        added = 1.0 - power if last else _added(log_ratio, 1.0 - power, settings.ess)
        power += added
        log_weights = added * log_ratio.reshape(n_groups, n_points)
        log_integral += [log_mean_exp(own) for own in log_weights]
        chosen = np.concatenate(
            [
                g * n_points + systematic_resample(own, n_points, rng)
                for g, own in enumerate(log_weights)
            ]
        )
        points = _chosen(points, chosen)
        done = power >= 1.0
        for _ in range(settings.last_moves if done else settings.moves):
            points, accepted = _moved(points, at, power, stride, settings.leaps, rng)
            stride *= float(np.exp(accepted - _TARGET_ACCEPT))
        if done:
            break
    shape = (n_groups, n_points)
    return Annealed(points.x.reshape(*shape, -1), points.end[0].reshape(shape), log_integral)


def _added(log_ratio: FloatArray, most: float, ess: float) -> float:
    """The step of the power after which weights are as unequal as is allowed."""
    if relative_ess(most * log_ratio) >= ess:
        return most
    low, high = 0.0, most
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if relative_ess(middle * log_ratio) >= ess else (low, middle)
    return high


def _chosen(points: _Points, index: IntArray) -> _Points:
    start, end = ((value[index], slope[index]) for value, slope in (points.start, points.end))
    return _Points(points.x[index], start, end)


def _moved(
    points: _Points,
    at: Callable[[FloatArray], _Points],
    power: float,
    stride: float,
    leaps: int,
    rng: np.random.Generator,
) -> tuple[_Points, float]:
    """Every point by one trajectory, in coordinates in which all of them are white."""
    n, d = points.x.shape
    cov = np.atleast_2d(np.cov(points.x.T))
    chol = np.linalg.cholesky(cov + _LEAST_SHARE * np.trace(cov) / d * np.eye(d))
    length = stride * rng.uniform(0.7, 1.3, (n, 1))
    speed = rng.standard_normal((n, d))
    value, gradient = points.density(power)
    energy = value - 0.5 * np.square(speed).sum(axis=1)
    new, lost = points, np.zeros(n, dtype=bool)
    # Trajectories that leave for infinity end there.
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(int(rng.integers(1, leaps + 1))):
            half = speed + 0.5 * length * (gradient @ chol)
            step = length * (half @ chol.T)
            lost |= ~(np.abs(step) < _FARTHEST * np.sqrt(np.diagonal(cov))).all(axis=1)
            new = at(np.where(lost[:, None], points.x, new.x + step))
            value, gradient = new.density(power)
            speed = half + 0.5 * length * (gradient @ chol)
        gain = value - 0.5 * np.square(speed).sum(axis=1) - energy
        probability = np.where(lost, 0.0, np.nan_to_num(np.exp(np.minimum(gain, 0.0))))
    accept = rng.random(n) < probability
    mixed = _Points(
        np.where(accept[:, None], new.x, points.x),
        _either(accept, new.start, points.start),
        _either(accept, new.end, points.end),
    )
    return mixed, float(probability.mean())


def _either(
    first: BoolArray, a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    return np.where(first, a[0], b[0]), np.where(first[:, None], a[1], b[1])


Method = Literal["auto", "importance", "surrogate", "nuts"]
METHODS: tuple[Method, ...] = ("auto", "importance", "surrogate", "nuts")


@dataclass(frozen=True)
class ModeSettings:
    """Where the posterior modes of the hyperparameters are looked for.

    With a lengthscale for each input there are as many modes as ways to explain the data by some of
    the inputs, and few ascents end in the one with the mass.

    Attributes
    ----------
    fewest_restarts, most_restarts : int
        Ascents besides that from the model's initial point: one for each coordinate, within these.
    above : float
        Nats by which a point of the importance sampling has to be above every mode to begin an
        ascent of its own.
    margin : float
        Nats of Laplace's log evidence below the best mode within which another one counts.
    same_value, same_place : float
        Within which two modes are one.
    least_curvature : float
        Least eigenvalue of the negative Hessian: no proposal is wider than three units by it.
    boxes : int
        How often an ascent that has ended at an end of its box goes on in one around that.
    start : StartSettings
    optimizer : OptimizerSettings
        A mode only begins the importance sampling: a tenth of a nat is near enough.
    """

    fewest_restarts: int = 2
    most_restarts: int = 8
    above: float = 1.0
    margin: float = 9.0
    same_value: float = 0.1
    same_place: float = 0.2
    least_curvature: float = 0.1
    boxes: int = 6
    start: StartSettings = field(default_factory=lambda: StartSettings(candidates=8))
    optimizer: OptimizerSettings = field(
        default_factory=lambda: OptimizerSettings(
            max_iterations=60, tolerance=1e-2, gradient_tolerance=5e-2, first_step=1.0
        )
    )

    @property
    def farthest(self) -> float:
        """From the origin of an ascent: where it gets in all its boxes but the last."""
        return (self.boxes - 1) * self.start.half_width

    def restarts(self, n_coordinates: int) -> int:
        """How many."""
        return min(max(n_coordinates, self.fewest_restarts), self.most_restarts)


@dataclass(frozen=True)
class ImportanceSettings:
    """Rounds of adaptive importance sampling, and when they are enough.

    Attributes
    ----------
    n_points, points_per_coordinate : int
        Points of a round: the first, or the second times the number of coordinates if that is more.
    n_replicates : int
        Independent randomisations in each round, whose spread is the standard error.
    df : float
        Degrees of freedom of the proposal's components: tails heavier than the target's.
    widen : float
        Factor of the covariances that are learnt.
    spread_modes : float
        Distance, in standard deviations, of the further components of each mode at the start.
    least_share : float
        Weight that no component of the mixture falls below.
    em_steps : int
        Of the mixture's weights, means and covariances after each round.
    prior_share : float
        Of each round's points, drawn from the prior whatever was learnt: tails that no round has
        seen have bounded weights.
    enough : int
        Effective sample size at which no further round is made, in place of the points at which
        the evidence is corrected where these are more.
    rounds, more_rounds : int
        On the first rung, and on the second.
    least_ess : float
        Relative ESS below which a rung is not accepted.
    least_exact_ess : float
        Relative ESS of the exact evidences over EP's below which a warning says so: the rungs are
        climbed by EP's alone, and nothing else would.
    promising : float
        Relative ESS of the last round below which more rounds are not tried.
    """

    n_points: int = 192
    points_per_coordinate: int = 48
    n_replicates: int = 16
    df: float = 6.0
    widen: float = 1.1
    spread_modes: float = 0.8
    least_share: float = 0.02
    em_steps: int = 3
    prior_share: float = 0.1
    enough: int = 320
    rounds: int = 4
    more_rounds: int = 12
    least_ess: float = 0.15
    least_exact_ess: float = 0.3
    promising: float = 0.01

    def points_of_round(self, n_coordinates: int) -> int:
        """A multiple of the replicates."""
        wanted = max(self.n_points, self.points_per_coordinate * n_coordinates)
        return -(-wanted // self.n_replicates) * self.n_replicates

    def accepts(self, estimate: Estimate) -> bool:
        """Whether weights are good enough to be used."""
        return estimate.relative_ess >= self.least_ess and not estimate.heavy_tailed


@dataclass(frozen=True)
class SurrogateSettings:
    """A surrogate of the log evidence, and how many points it learns from.

    Attributes
    ----------
    points_per_coordinate, fewest_points : int
        Of the first fit: the first times the number of coordinates, no fewer than the second.
    n_groups : int
        Independent groups of draws from the surrogate, whose spread is the standard error.
    points_of_group : int
        Points that each of them adds in a round.
    cloud, final_cloud : int
        Draws in a group, while the surrogate is learnt and after that.
    good : float
        Relative ESS of a round's points below which there is another one.
    margin : float
        Nats by which the bound on the density is above all that is known.
    portion : int
        Of the last draws of each group, evaluated at once.
    most_points : int
        From which on no further round is made.
    widen, least_share, em_steps
        Of the mixture from which the next draws begin, as of `ImportanceSettings`.
    annealing : AnnealingSettings
    """

    points_per_coordinate: int = 2
    fewest_points: int = 32
    n_groups: int = 16
    points_of_group: int = 3
    cloud: int = 16
    final_cloud: int = 64
    portion: int = 8
    good: float = 0.25
    margin: float = 2.0
    most_points: int = 400
    widen: float = 1.2
    least_share: float = 0.02
    em_steps: int = 2
    annealing: AnnealingSettings = field(default_factory=AnnealingSettings)

    def first_points(self, n_coordinates: int) -> int:
        """Of the first fit."""
        return max(self.points_per_coordinate * n_coordinates, self.fewest_points)


@dataclass(frozen=True)
class ChainSettings:
    """NUTS on the posterior with EP's evidence, where importance sampling does not do.

    Attributes
    ----------
    chains, tune, draws : int
        Chains are shared out among the modes in proportion to their mass, two to each at least.
    target_accept : float
    largest_r_hat : float
        From here on the chains have not converged.
    least_ess : int
        Effective draws that they must have, at least.
    """

    chains: int = 4
    tune: int = 250
    draws: int = 250
    target_accept: float = 0.85
    largest_r_hat: float = 1.05
    least_ess: int = 100


@dataclass(frozen=True)
class IntegrationSettings:
    """Of `integrate`.

    Attributes
    ----------
    n_evidences : int
        Points at which the exact evidence is estimated, and f drawn.
    quick_evidences, quick_rows : int
        In place of it where draws at many hyperparameters are made side by side, up to so many
        rows; for more rows fewer, so that the time stays about the same.
    many_rows_evidences : int
        In place of it with many rows, each of which has a posterior of its own.
    n_candidates : int
        Weighted draws of u behind each of these evidences, and draws of f.
    spare : float
        Draws of f at each point over what equal weights would ask for.
    most_binary : int
        Binary entries whose values are all tried.
    method : {"auto", "importance", "surrogate", "nuts"}
        Which rungs of the ladder are tried.
    most_coordinates : int
        Above it importance sampling from mixtures is not tried, unless it is asked for.
    most_of_surrogate : int
        Above it the surrogate is not tried, unless it is asked for.
    most_rows_of_chains : int
        Above it NUTS is not tried, unless it is asked for: some thousands of evaluations of EP with
        its gradient, each of which costs as the cube of the rows.
    modes : ModeSettings
    importance : ImportanceSettings
    surrogate : SurrogateSettings
    chains : ChainSettings
    """

    n_evidences: int = 256
    quick_evidences: int = 1024
    quick_rows: int = 100
    many_rows_evidences: int = 32
    n_candidates: int = 64
    spare: float = 1.5
    most_binary: int = 3
    method: Method = "auto"
    most_coordinates: int = 5
    most_of_surrogate: int = 80
    most_rows_of_chains: int = sys.maxsize
    modes: ModeSettings = field(default_factory=ModeSettings)
    importance: ImportanceSettings = field(default_factory=ImportanceSettings)
    surrogate: SurrogateSettings = field(default_factory=SurrogateSettings)
    chains: ChainSettings = field(default_factory=ChainSettings)

    def for_many_rows(self) -> "IntegrationSettings":
        """With few points: an evaluation takes a second, and many rows have a normal posterior."""
        importance = replace(
            self.importance,
            n_points=64,
            points_per_coordinate=16,
            enough=64,
            more_rounds=8,
            least_ess=0.1,
        )
        return replace(
            self,
            n_evidences=self.many_rows_evidences,
            most_rows_of_chains=0,
            importance=importance,
            surrogate=replace(self.surrogate, good=0.15, most_points=192, portion=4),
        )

    def evaluations(self, n_coordinates: int) -> int:
        """Of EP, about as many as the importance sampling takes where all goes well."""
        if n_coordinates <= self.most_coordinates:
            return 2 * self.importance.points_of_round(n_coordinates)
        learnt = self.surrogate.first_points(n_coordinates) + self.surrogate.most_points // 2
        return learnt + 2 * max(self.importance.enough, self.n_evidences)

    def evidences(self, n_rows: int, side_by_side: bool) -> int:
        """How many, where nothing is asked for."""
        if not side_by_side:
            return self.n_evidences
        share = min(1.0, (self.quick_rows / max(n_rows, 1)) ** 2)
        return max(self.n_evidences, int(share * self.quick_evidences))
