"""The exact evidence at points of hyperparameters, and draws of the latent functions there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pymc_skewgp._errors import ImproperPriorError, listed, no_warnings
from pymc_skewgp._gaussian.weights import (
    Estimate,
    IntArray,
    in_cells,
    log_mean_exp,
    normalized_weights,
    pareto_k,
    relative_ess,
    replicate_estimate,
    short_path,
    systematic_resample,
)
from pymc_skewgp._learn.coordinates import Pattern, Point
from pymc_skewgp._learn.factor_evidence import (
    Drawn,
    drawn_alone,
    drawn_together,
    factor_start,
    go_by_factors,
    is_bounded,
    log_likelihood_at,
    n_together,
)
from pymc_skewgp._learn.factor_rows import FactorStart
from pymc_skewgp._learn.objective import Ends
from pymc_skewgp._limits import few_blas_threads, steps
from pymc_skewgp._model.graph.fields import Field
from pymc_skewgp._model.graph.members import JointGaussian
from pymc_skewgp._observations.sites import SitesGiven, joined_sites
from pymc_skewgp._posterior.draws_with_evidence import (
    Case,
    DrawsWithEvidence,
    draws_of_many,
    draws_with_evidence,
)
from pymc_skewgp._posterior.evidence_gradient import EvidenceTerms, evidence_estimate
from pymc_skewgp._posterior.fits import site_log_density
from pymc_skewgp._posterior.site_evidence import FactorTerms, FieldTerms
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pymc_skewgp._learn.averaging.integration import PosteriorFunctions
    from pymc_skewgp._learn.averaging.model_functions import ModelFunctions
    from pymc_skewgp._learn.averaging.problem import ProcessFunctions

# The latent functions of a model, as a function of its hyperparameters: `tasks` at points, of which
# the evidence is the product, and draws with equal weights as a `tree`.
type LatentFunctions = ModelFunctions | ProcessFunctions | PosteriorFunctions

# What is computed at one point of the hyperparameters, here or in another process.

# Weighted draws of u behind each evidence, and draws of f.
N_CANDIDATES = 64
# Of the deviation in place of a flat prior, beyond which a draw is not bounded by the data.
_LARGEST_SHARE = 0.1
_TINY = 1e-300  # instead of 0


# The evidence of some of the data, and draws of the functions that they are about: a conditioned
# vector, or what is called with the number of draws, that of candidates, and a generator.
Task = Case | Callable[[int, int, np.random.Generator], DrawsWithEvidence]


def evidence_alone(
    terms: EvidenceTerms,
    sites: SitesGiven | None,
    count: int,
    n_candidates: int,
    rng: np.random.Generator,
) -> DrawsWithEvidence:
    """Of data whose functions nobody asks for; `sites` on the last rows."""
    seed = int(rng.integers(2**31))
    found = evidence_estimate(terms, n_candidates, seed, sites=sites)
    return DrawsWithEvidence(*found[:3], np.zeros((count, 0)), found.pareto_k)


@dataclass(frozen=True, eq=False)
class FactorTask:
    """Of a block of white coordinates c.

    Attributes
    ----------
    terms : FactorTerms or FieldTerms
    sites : SitesGiven or None
    joint : JointGaussian or Field
        Its vector, of arrays.
    labels : sequence of str
        Of the entries of the vector.
    start : FactorStart, Drawn or None
        Of EP, or all that is wanted.
    """

    terms: FactorTerms | FieldTerms
    sites: SitesGiven | None
    joint: JointGaussian | Field
    labels: Sequence[str] = ()
    start: FactorStart | Drawn | None = None

    def __call__(
        self, count: int, n_candidates: int, rng: np.random.Generator
    ) -> DrawsWithEvidence:
        """See `Task`."""
        found = self.start
        if not isinstance(found, Drawn):
            size = max(count, n_candidates)
            with few_blas_threads(self.terms.n_factorised):
                given = self.terms, self.sites, found
                refuse = partial(self._refuse_plateaus, found) if len(self.joint.flat) else None
                found = drawn_alone(*given, size, rng, refuse)
        z = self.joint.of_white(found.resampled(count, rng))
        self._refuse_unbounded(z)
        value, std_error, share, k = found.log_prob
        return DrawsWithEvidence(value + float(self.terms.log_constant), std_error, share, z, k)

    def log_likelihood(self, z: FloatArray) -> float:
        """Of a vector; the coordinates left open by it move no predictor."""
        c = self.joint.white(z)
        constant = float(self.terms.log_constant - self.joint.log_constant)
        return constant + log_likelihood_at(self.terms, self.sites, c)

    def _refuse_unbounded(self, z: FloatArray) -> None:
        """Draws as wide as the Gaussian that stands for density 1."""
        flat = self.joint.flat
        if not len(flat):
            return
        far = (np.abs(z @ flat.T) > _LARGEST_SHARE).any(axis=0)
        if far.any():
            self._refuse(z)

    def refuse_scaled(
        self, near: FloatArray, far: FloatArray, of_prior: float, distance: float
    ) -> None:
        """Directions of flat priors whose slopes fall with a scale, the prior of it no faster."""
        assert isinstance(self.joint, JointGaussian)
        rise = np.log(np.maximum(near, _TINY) / np.maximum(far, _TINY))
        scaled = (near > 0.0) & (rise > 0.5 * distance) & (rise + of_prior > -0.1 * distance)
        for own in np.flatnonzero(scaled):
            self._refuse((self.joint.factor @ (self.joint.flat[own] @ self.joint.factor))[None])

    def _refuse_plateaus(self, start: FactorStart | None) -> None:
        """Where the evidence does not fall, as by a log deviation of values that f may meet."""
        assert self.sites is not None
        assert isinstance(self.joint, JointGaussian)
        assert isinstance(self.terms, FactorTerms)
        for own in self.joint.flat @ self.joint.factor:
            if not is_bounded(self.terms, self.sites, start, own):
                self._refuse((self.joint.factor @ own)[None])

    def _refuse(self, z: FloatArray) -> None:
        flat = self.joint.flat
        own = np.flatnonzero(flat.any(axis=0))
        # Which of the coefficients move by the most, in what the data can say of them alone.
        moved = np.abs(z[:, own]).max(axis=0) * np.abs(flat[:, own]).max(axis=0)
        names = listed([self.labels[own[k]] for k in np.flatnonzero(moved > 0.1 * moved.max())])
        raise ImproperPriorError(
            f"the data do not bound {names}, which have flat priors, so that the posterior is "
            "improper: labels are separated, as where all at one level are alike, or counts are "
            "all zero there, or columns of the design are collinear, or a mean meets all values "
            "so that their deviation may be 0, or areas of pm.ICAR are islands, whose level is "
            "free. Give them a proper prior, such as pm.Normal."
        )


# Fewest and most noisy intervals that go as factors of coordinates.
_ROWS = (3, 400)


def _is_of_factors(task: Task) -> bool:
    """Whether it is of log-concave sites alone, without rows or signs; or of several functions.

    Or of noisy intervals alone, not many of them of one predictor.
    """
    if not isinstance(task, Case):
        return isinstance(task, FactorTask)
    given, sites, none = task.given, task.sites, np.zeros(0)
    if sites is None:
        noise, (fewest, most) = given.intervals.S, _ROWS
        noisy = noise.ndim == 1 and bool((noise > 0.0).all()) and fewest <= noise.size <= most
        if not noisy or task.n_pseudo_points or task.by_factors() is not task:
            return False
        return go_by_factors(given.row_factor, none, None)
    if given.n_rows:
        return False
    if sites.width > 1:
        return True
    density = site_log_density(given, sites, 0)
    return go_by_factors(density.factor, density.offset, sites.known)


def _of_factors(case: Case, known: SitesGiven | None) -> FactorTask:
    """As sites, or noisy intervals, of white coordinates."""
    given, rows, none = case.given, case.given.intervals, np.zeros(0)
    constant = np.float64(given.log_density - case.log_prob_of_signs)
    if case.sites is None:
        own = given.row_factor, given.centre, rows.lower, rows.upper, rows.value, rows.S
    else:
        density = site_log_density(given, case.sites, 0)
        own = density.factor, density.offset, none, none, none, none
    terms = FactorTerms(*own, log_constant=constant)
    nothing = np.zeros((0, given.mean.size))
    joint = JointGaussian(given.mean, given.factor, nothing, np.float64(0.0))
    return FactorTask(terms, known, joint)


def _as_factors(tasks: Sequence[Case | FactorTask]) -> list[FactorTask]:
    """Those at many points, whose sites are often the same ones."""
    every = {id(x.sites): x.sites for x in tasks if isinstance(x, Case) and x.sites is not None}
    known = {}
    for key, sites in every.items():
        own = replace(sites.known, has_parameters=len(every) > 1, log_concave=sites.width == 1)
        known[key] = joined_sites([own])
    return [_of_factors(x, known.get(id(x.sites))) if isinstance(x, Case) else x for x in tasks]


# Points at which EP runs before it is taken as known between them.
_ENOUGH_ENDS = 128
# A point, tasks there, and what is wanted of each: draws, and a generator.
_Wanted = tuple[Point, list[Task], int, np.random.Generator]


class _SideBySide:
    """Tasks of factors drawn side by side at many points, or with EP begun where it ends.

    Attributes
    ----------
    kinds : list of bool
        Which of a point's tasks are of factors.
    """

    def __init__(self, n_candidates: int) -> None:
        self._n_candidates = n_candidates
        self.kinds: list[bool] = []
        self._ends = Ends()

    def each(self, every: Iterator[_Wanted]) -> Iterator[_Wanted]:
        """One point after the other, with draws in place of tasks."""
        waiting: list[_Wanted] = []
        size = 0
        for given in every:
            if not size:
                parts = given[1]
                self.kinds = [_is_of_factors(x) for x in parts]  # as at all other points
                own: Any = [x for x, kind in zip(parts, self.kinds, strict=True) if kind]
                size = max((n_together(x.terms, x.sites) for x in _as_factors(own)), default=1)
            waiting.append(given)
            if len(waiting) >= size:
                yield from self._drawn(waiting)
                waiting = []
        yield from self._drawn(waiting)

    def _drawn(self, waiting: list[_Wanted]) -> list[_Wanted]:
        n_pairs = max([self._n_candidates // 2, *(given[2] for given in waiting)])
        for i in range(len(waiting[0][1]) if waiting else 0):
            own = [given for given in waiting if isinstance(given[1][i], Case | FactorTask)]
            if own and self.kinds[i]:
                self._draw(i, own, n_pairs)
        return waiting

    def _draw(self, i: int, waiting: list[_Wanted], n_pairs: int) -> None:
        before: list[Any] = [given[1][i] for given in waiting]
        tasks, points = _as_factors(before), [given[0] for given in waiting]
        begun: list[FactorStart | None] = []
        first: FactorStart | None = None
        with few_blas_threads(tasks[0].terms.n_factorised):
            between = self._ends.count(i) >= _ENOUGH_ENDS
            known = [(task.terms, task.sites) for task in tasks]
            near = self._ends.near(i, points, known)
            for task, there in zip(tasks, near, strict=True):
                start: Any = task.start or there
                if start is None:  # of the first ones
                    start = first = first or factor_start(task.terms, task.sites)
                elif task.start is None and not between:  # not an end yet
                    start = start._replace(terms=None)
                begun.append(start)
            ends: Sequence[FactorStart | None] = [None] * len(tasks)
            drawn: Sequence[Drawn | None] = [None] * len(tasks)
            if all(begun):
                starts, rngs = [x for x in begun if x], [given[3] for given in waiting]
                ends, drawn = drawn_together(known, starts, n_pairs, rngs)
        # Of intervals the twisted sampler has more equal weights, where coordinates are many.
        are_rows = isinstance(before[0], Case) and before[0].sites is None
        if are_rows and first and 2 * sum(map(bool, drawn)) < len(drawn):
            self.kinds[i] = False
            return
        each = zip(waiting, before, tasks, begun, ends, drawn, strict=True)
        for (point, parts, *_), old, task, start, end, new in each:
            if not (between or task.start):
                self._ends.add(i, point, end)
            lost = are_rows and new is None
            parts[i] = old if lost else replace(task, start=new or end or start)


def run_tasks(
    latent: LatentFunctions,
    points: Sequence[Point],
    counts: Sequence[int],
    n_candidates: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Iterator[DrawsWithEvidence]:
    """Results in the order of the points, each with a generator of its own."""
    rngs = rng.spawn(len(counts))
    mapped = partial(_mapped, n_jobs=n_jobs)
    wanted = zip(points, latent.tasks(points), counts, rngs, strict=True)
    together = _SideBySide(n_candidates)
    every = together.each(wanted)
    first = next(every)
    every = chain([first], every)
    parts = first[1]
    if len(parts) == 1 and isinstance(parts[0], Case) and not together.kinds[0]:
        cases = (case for (_, (case,), *_) in every if isinstance(case, Case))
        yield from draws_of_many(cases, counts, n_candidates, rngs, mapped)
        return
    yield from mapped(_run, ((*given[1:], n_candidates) for given in every))


def _mapped(
    function: Callable[..., Any], arguments: Iterator[tuple[Any, ...]], n_jobs: int | None
) -> Iterator[Any]:
    if n_jobs in (None, 1):
        yield from starmap(function, arguments)
        return
    from joblib import Parallel, delayed  # comes with scikit-learn, which is optional

    parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    yield from parallel(delayed(function)(*given) for given in arguments)


def _run(
    parts: list[Task], count: int, rng: np.random.Generator, n_candidates: int
) -> DrawsWithEvidence:
    with no_warnings():  # of single points: the whole is judged by its weights
        found = [
            draws_with_evidence(part, count, n_candidates, rng)
            if isinstance(part, Case)
            else part(count, n_candidates, rng)
            for part in parts
        ]
    if len(found) == 1:
        return found[0]
    return DrawsWithEvidence(
        sum(x.log_evidence for x in found),
        float(np.sqrt(sum(x.std_error**2 for x in found))),
        min(x.relative_ess for x in found),
        np.concatenate([x.f for x in found], axis=1),
        max(x.pareto_k for x in found),
    )


# Points of hyperparameters with importance weights.

# Of plain Monte Carlo's error: a dozen points a replicate save no more, and the spread of sixteen
# replicates is far too small by chance now and then, and sees nothing of errors of interpolation.
_LEAST_SHARE = 0.6
# Ways of resampling, of which that with the nearest means is taken.
_CHOICES = 64


@dataclass(frozen=True, eq=False)
class WeightedPoints:
    """Points, what the target is there, and their weights.

    Attributes
    ----------
    x : ndarray, shape (N, D)
    pattern : ndarray of int, shape (N,)
        Which of `patterns` each has.
    patterns : list of tuples
    log_target : ndarray, shape (N,)
        Log prior plus EP's log evidence, on the unconstrained scale.
    log_evidence : ndarray, shape (N,)
        By EP.
    log_weights : ndarray, shape (N,)
        Their mean estimates the integral of the target, where that is known.
    replicate : ndarray of int, shape (N,)
        Which of the independent randomisations each comes from.
    log_ratio : ndarray, shape (N,), optional
        Log of the target over what each point was drawn from alone, where that was known before:
        NaN for the points that do not count. Their mean has no bias, while weights by mixtures that
        are fitted to the same points are a little too small. Default the weights.
    """

    x: FloatArray
    pattern: IntArray
    patterns: Sequence[Pattern]
    log_target: FloatArray
    log_evidence: FloatArray
    log_weights: FloatArray
    replicate: IntArray
    log_ratio: FloatArray | None = None

    @classmethod
    def of(cls, pattern: Pattern, x: FloatArray, *arrays: Any) -> "WeightedPoints":
        """Those of one pattern, from the arrays in their order."""
        return cls(x, np.zeros(len(x), dtype=np.intp), [pattern], *arrays)

    def point(self, i: int) -> Point:
        """One of them."""
        return Point(self.x[i], self.patterns[self.pattern[i]])

    @property
    def weights(self) -> FloatArray:
        """Normalised."""
        return normalized_weights(self.log_weights)

    def estimate(self) -> Estimate:
        """Log integral of the target, from the replicates, with relative ESS and Pareto k.

        Where no point has any weight nothing is known: an infinite error.
        """
        if not self.log_weights.max() > -np.inf:
            return Estimate(-np.inf, np.inf, 0.0, np.inf)
        ratio = self.log_weights if self.log_ratio is None else self.log_ratio
        counted = np.flatnonzero(~np.isnan(ratio))
        order = counted[np.argsort(self.replicate[counted], kind="stable")]
        found = replicate_estimate(ratio[order], int(self.replicate.max()) + 1)
        # Points where nothing can be computed have no weight, and are no part of a tail.
        tail = pareto_k(self.log_weights[self.log_weights > -np.inf])
        ess = relative_ess(self.log_weights)
        plain = float(np.sqrt(max(1.0 / ess - 1.0, 0.0) / counted.size))
        error = max(found.std_error, _LEAST_SHARE * plain)
        return found._replace(std_error=error, pareto_k=tail, relative_ess=ess)

    def resampled(self, count: int, rng: np.random.Generator) -> IntArray:
        """Indices of `count` of them with equal weights, as evenly spread as they are.

        Of some choices that of which the means are nearest to the weighted ones.
        """
        order = in_cells(self.x)
        order = order[np.argsort(self.pattern[order], kind="stable")]
        log_weights, weights = self.log_weights[order], self.weights
        off = self.x - weights @ self.x
        off /= np.maximum(np.sqrt(weights @ off**2), 1e-300)
        moments = np.hstack([off, off**2 - 1.0])
        every = [order[systematic_resample(log_weights, count, rng)] for _ in range(_CHOICES)]
        far = [np.square(moments[chosen].mean(axis=0)).sum() for chosen in every]
        return every[int(np.argmin(far))]


def joined(parts: Sequence[WeightedPoints]) -> WeightedPoints:
    """Those of several patterns, one each: the integral is the sum over them."""
    sizes = np.array([len(part.x) for part in parts])
    shares = np.log(sizes.sum() / sizes)
    ratios = [part.log_ratio for part in parts]
    log_ratio = [r + share for r, share in zip(ratios, shares, strict=True) if r is not None]
    return WeightedPoints(
        np.concatenate([part.x for part in parts]),
        np.repeat(np.arange(len(parts)), sizes),
        [pattern for part in parts for pattern in part.patterns],
        np.concatenate([part.log_target for part in parts]),
        np.concatenate([part.log_evidence for part in parts]),
        np.concatenate([p.log_weights + own for p, own in zip(parts, shares, strict=True)]),
        np.concatenate([part.replicate for part in parts]),
        np.concatenate(log_ratio) if log_ratio else None,
    )


# Draws of f at points, so many at each.
MoreDraws = Callable[[Sequence[Point], Sequence[int]], list[FloatArray]]


class EqualDraws(NamedTuple):
    """Draws with equal weights.

    Attributes
    ----------
    point : ndarray of int, shape (chain, draw)
        Which of the points each has.
    f : ndarray, shape (chain, draw, q)
        Draws of the latent functions.
    log_evidence, relative_ess : ndarray, shape (chain, draw)
        At the point: by its own weighted draws, and how unequal these are.
    """

    point: IntArray
    f: FloatArray
    log_evidence: FloatArray
    relative_ess: FloatArray


class ExactPoints(NamedTuple):
    """Points with the exact evidence over EP's.

    Attributes
    ----------
    entries : ndarray of int, shape (P,)
        Which of the different points each of the P equal-weight ones under EP's evidence is.
    points : list of Point
        The different ones.
    log_ratio : ndarray, shape (U,)
        Log of the exact evidence over EP's, at these.
    found : list of DrawsWithEvidence
    """

    entries: IntArray
    points: list[Point]
    log_ratio: FloatArray
    found: list[DrawsWithEvidence]

    @property
    def log_weights(self) -> FloatArray:
        """Of the different points, under the exact evidence."""
        found: FloatArray = np.log(np.bincount(self.entries)) + self.log_ratio
        return found

    def correction(self) -> Estimate:
        """Log of the exact evidence of the model over EP's, with the weights' quality."""
        log_weights = self.log_ratio[self.entries]
        value = log_mean_exp(log_weights)
        if len(self.points) == 1:  # the draws there are all that is weighted
            own = self.found[0]
            return Estimate(value, own.std_error, own.relative_ess, own.pareto_k)
        shares = np.bincount(self.entries) / self.entries.size
        ratio = np.exp(self.log_ratio - value)
        own = shares * ratio * np.array([x.std_error for x in self.found])
        # Few points may agree by chance: no less than the points' own errors, part of the spread.
        error = float(np.sqrt(own @ own))
        if self.points[0].x.size:  # otherwise they are all the points there are, and no sample
            error = max(error, _error_of_mean(ratio, shares))
        tail = pareto_k(self.log_ratio[self.log_ratio > -np.inf])
        return Estimate(value, error, relative_ess(log_weights), tail)

    def equal_draws(
        self, chains: int, draws: int, more: "MoreDraws", rng: np.random.Generator
    ) -> EqualDraws:
        """Draws with equal weights; those that share their point stand side by side.

        Each has f of its own: where a point's correction is so large that those at hand do not
        suffice, `more` are made.
        """
        blocks = _dealt(self.entries, chains, rng)
        index = np.empty((chains, draws), dtype=np.intp)
        for row, block in zip(index, blocks, strict=True):
            order = np.argsort(block)  # along the path: see `WeightedPoints.resampled`
            chosen = order[systematic_resample(self.log_ratio[block[order]], draws, rng)]
            row[:] = block[np.sort(chosen)]
        at_hand = [x.f for x in self.found]
        wanted = np.bincount(index.ravel(), minlength=len(self.points))
        lacking = wanted - [len(own) for own in at_hand]
        few = np.flatnonzero(lacking > 0)
        new = more([self.points[u] for u in few], lacking[few].tolist())
        for u, own in zip(few, new, strict=True):
            at_hand[u] = np.concatenate([at_hand[u], own])
        f: FloatArray = np.empty((index.size, at_hand[0].shape[1]))
        order = np.argsort(index.ravel(), kind="stable")
        for own, rows in zip(at_hand, np.split(order, np.cumsum(wanted)[:-1]), strict=True):
            f[rows] = own[: rows.size]
        f = f.reshape(*index.shape, -1)
        log_evidence = np.array([x.log_evidence for x in self.found])
        ess = np.array([x.relative_ess for x in self.found])
        return EqualDraws(index, f, log_evidence[index], ess[index])


def _dealt(entries: IntArray, chains: int, rng: np.random.Generator) -> list[IntArray]:
    """Those of each chain, in an order by chance: neighbours go to different halves of chains.

    Few points dealt by chance make chains that differ, as of a sampler that has not converged.
    """
    halves = 2 * chains
    along = np.sort(entries if entries.size >= halves else np.tile(entries, halves))
    rounds = np.tile(np.arange(halves), (-(-along.size // halves), 1))
    half = rng.permuted(rounds, axis=1).ravel()[: along.size]
    own = [rng.permutation(along[half == i]) for i in range(halves)]
    return [np.concatenate(own[i : i + 2]) for i in range(0, halves, 2)]


def _error_of_mean(ratio: FloatArray, shares: FloatArray) -> float:
    """Standard error of a mean of one by independent values with weights.

    Copies of a point share one estimate. Points are spread more evenly than independent ones: an
    upper bound.
    """
    squared = float(shares @ shares)
    variance = float(shares @ (ratio - 1.0) ** 2) / (1.0 - squared)
    return float(np.sqrt(variance * squared))


def exact_points(
    latent: LatentFunctions,
    weighted: WeightedPoints,
    n_evidences: int,
    n_draws: float,
    n_candidates: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> ExactPoints:
    """Exact evidences at points drawn with equal weights under EP's evidence.

    Parameters
    ----------
    latent : LatentFunctions
    weighted : WeightedPoints
    n_evidences : int
        Points with equal weights; those that are the same are visited once.
    n_draws : float
        Draws of f, at all points together.
    n_candidates : int
    rng : numpy.random.Generator
    n_jobs : int, optional
        Of joblib.
    """
    chosen = weighted.resampled(n_evidences, rng)
    different = np.unique(chosen)
    # The sampler begins from the last point's.
    different = different[short_path(weighted.x[different])]
    place = np.empty(len(weighted.x), dtype=np.intp)
    place[different] = np.arange(different.size)
    entries = place[chosen]
    share = np.bincount(entries) / chosen.size
    counts = np.ceil(n_draws * share).astype(np.intp) + 1
    points = [weighted.point(i) for i in different]
    # Those to begin with are everywhere.
    every, step = np.arange(different.size), max(1, different.size // _ENOUGH_ENDS)
    order = np.concatenate([every[::step], np.delete(every, np.s_[::step])])
    in_order = [points[i] for i in order], counts[order].tolist()
    runs = run_tasks(latent, *in_order, n_candidates, rng, n_jobs)
    drawn = list(steps(runs, "Exact evidences, and draws of f", len(points)))
    found = [drawn[i] for i in np.argsort(order)]
    exact = np.array([x.log_evidence for x in found])
    return ExactPoints(entries, points, exact - weighted.log_evidence[different], found)


def more_draws(latent: LatentFunctions, rng: np.random.Generator) -> MoreDraws:
    """At points that were visited before: independent of what was found there."""

    def draw(points: Sequence[Point], counts: Sequence[int]) -> list[FloatArray]:
        if not points:
            return []
        found = run_tasks(latent, points, counts, N_CANDIDATES, rng)
        return [x.f for x in found]

    return draw
