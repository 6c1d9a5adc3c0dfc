"""The evidence and draws of f from one run of the sampler, for thousands of hyperparameters.

Where hyperparameters are drawn too, each of their values needs both: an unbiased estimate of the
evidence, by which it is weighted, and f given it. Weighted draws of the rectangle u give both.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian import covariance, twisted
from pymc_skewgp._gaussian import escalation as policy
from pymc_skewgp._gaussian.gaussian_sum import FEW, MOST
from pymc_skewgp._gaussian.weights import resample_together, systematic_resample
from pymc_skewgp._limits import few_blas_threads
from pymc_skewgp._observations.observations import Observations, intervals, points, stacked
from pymc_skewgp._observations.sites import Sites
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.fits import draw_latent, site_draws
from pymc_skewgp._sun.parameters import SunParameters
from pymc_skewgp._validation import FloatArray

# Behind the probability of the signs at pseudo-points, which every evidence is divided by.
SIGN_DRAWS = 1024


class DrawsWithEvidence(NamedTuple):
    """Draws of f at one value of the hyperparameters, and the evidence there.

    Attributes
    ----------
    log_evidence : float
        Log of an unbiased estimate, but for that of the signs at three or more pseudo-points.
    std_error : float
        Of `log_evidence`.
    relative_ess : float
        Of the weights behind it.
    f : ndarray, shape (count, q)
        Draws with equal weights.
    pareto_k : float
        Of the weights behind it.
    """

    log_evidence: float
    std_error: float
    relative_ess: float
    f: FloatArray
    pareto_k: float = -np.inf


class Case(NamedTuple):
    """Functions given data, at one value of the hyperparameters.

    Attributes
    ----------
    given : Conditioning
        Of z, of which the values after the first `n_pseudo_points` are wanted.
    n_pseudo_points : int
    log_prob_of_signs : float
        Of those at the pseudo-points under the prior, before any data.
    sites : Sites or None
        Observations that are no rows.
    """

    given: Conditioning
    n_pseudo_points: int
    log_prob_of_signs: float
    sites: Sites | None = None

    def by_factors(self) -> "Case":
        """The same with intervals that repeat as factors of their predictors, where some do."""
        given = self.given
        if self.sites is not None or not given.n_rows:
            return self
        kept = (np.arange(given.n_rows) < self.n_pseudo_points) | (given.intervals.variances <= 0.0)
        found = given.with_factors(np.ones(given.n_rows), kept, self.n_pseudo_points)
        return self if found is None else self._replace(given=found[0], sites=found[1])


# Times as many pairs where the posterior may have several modes: with few of them a filter, which
# takes a hundred times as long, would be asked for what more pairs give.
_OF_SEVERAL_MODES = 4


def draws_with_evidence(
    case: Case, count: int, n_candidates: int, rng: np.random.Generator
) -> DrawsWithEvidence:
    """`count` draws from `n_candidates` of u; under sites from as many mirrored pairs."""
    with few_blas_threads(case.given.n_rows):
        own, skip, size = case.by_factors(), case.n_pseudo_points, max(count, n_candidates)
        pairs = None
        if own.sites is not None:
            known = site_draws(own.given, own.sites, skip)
            known.most = FEW if count <= n_candidates else MOST
            pairs = known.sampler
            size *= 1 if known.log_concave else _OF_SEVERAL_MODES
        if pairs is None or (case.sites is None and pairs.collapsed):
            given = case.given
            sampler = policy.RectangleSampler(given.cov, given.lower, given.upper)
            latent = draw_latent(sampler, size, "twisted", rng, n_pseudo_points=skip)
            chosen = resample_together(latent.log_weights, count, rng)
            f = given.draw(latent.draws, rng, chosen, skip=skip)
        else:
            given, latent = own.given, pairs.singles(size, rng)
            chosen = resample_together(latent.log_weights, count, rng)
            f = latent.draws[chosen] @ given.factor[skip:].T + given.mean[skip:]
        found = latent.log_prob
        assert found is not None  # these samplers always know it
        log_evidence = given.log_density + found.value - case.log_prob_of_signs
        return DrawsWithEvidence(log_evidence, *found[1:3], f, found.pareto_k)


def sun_given(
    prior: SunParameters, observations: Observations, latent: FloatArray | None = None
) -> Conditioning:
    """A SUN vector given rows of it, and its latent variables, which are the first values.

    Given the latent variables too, where `latent` has their values.
    """
    s = prior.truncation.size
    if not s:
        cov = covariance.FactoredCovariance.of_kernel(prior.scale)
        return Conditioning(prior.mu, cov, observations)
    matrix = np.block([[prior.latent_cov, prior.cross_cov.T], [prior.cross_cov, prior.scale]])
    if latent is None:
        own = intervals(-prior.truncation, np.full(s, np.inf), np.zeros(s))
    else:
        own = points(latent, np.zeros(s))
    rows = stacked([own, observations], [s, prior.mu.size])
    mean = np.concatenate([np.zeros(s), prior.mu])
    return Conditioning(mean, covariance.FactoredCovariance.of_kernel(matrix), rows)


# Draws of f, with the evidence, at thousands of hyperparameters of one model.
#
# A few draws of each, many of them side by side: one alone would take most of its time in Python.
# Where EP's Gaussian alone does not give nearly equal weights, all of the sampler's policy follows.
# That is decided by draws that are not used again: to drop a run because it met the tail would be a
# bias.


# Cases in a group; fewest and most rows of them: beyond these Python is a small part of the time,
# or EP has another form.
_SIZE, _ROWS = 64, (3, 400)
# Draws of a case that decide, and the relative ESS that they must have: what the policy asks.
_JUDGING, _LEAST_ESS = 16, 0.5
# Draws of a case, mirrored pairs, of which an error can be had; they are enough up to this relative
# variance of the weights over their number, which the law of a draw is off by.
_FEW_DRAWS, _BIAS = 8, 0.002

# Applies a function to each of several arguments, here or in other processes.
_Given = tuple[Case, int, np.random.Generator]
Mapped = Callable[[Callable[..., Any], Iterator[tuple[Any, ...]]], Iterator[Any]]


def draws_of_many(
    cases: Iterator[Case],
    counts: Sequence[int],
    n_candidates: int,
    rngs: Sequence[np.random.Generator],
    mapped: Mapped,
) -> Iterator[DrawsWithEvidence]:
    """Results in the order of the cases, which are of one model.

    Parameters
    ----------
    cases : iterator of Case
    counts : sequence of int
        Draws wanted of each.
    n_candidates : int
        Weighted draws of u behind them, where their weights are not nearly equal.
    rngs : sequence of Generator
        One for each case.
    mapped : callable
        `map`, or the same in several processes.
    """
    arguments = zip(cases, counts, rngs, strict=True)
    first = next(arguments)
    every = chain([first], arguments)
    fewest, most = _ROWS
    if first[0].sites is not None or not fewest <= first[0].given.n_rows <= most:
        yield from mapped(_alone, ((*given, n_candidates) for given in every))
        return
    groups = iter(lambda: list(islice(every, _SIZE)), [])
    for found in mapped(_together, ((group, n_candidates) for group in groups)):
        yield from found


def _alone(
    case: Case, count: int, rng: np.random.Generator, n_candidates: int
) -> DrawsWithEvidence:
    with no_warnings():  # of single cases: the whole is judged by its weights
        return draws_with_evidence(case, count, n_candidates, rng)


def _together(group: list[_Given], n_candidates: int) -> list[DrawsWithEvidence]:
    """A group side by side; what does not go that way alone."""
    with few_blas_threads(group[0][0].given.n_rows), no_warnings():
        fitted = _fitted(group)
        judged = _drawn(group, fitted, _JUDGING)
        good = {i: x for i, (_, x) in judged.items() if x.relative_ess >= _LEAST_ESS}
        drawn: dict[int, DrawsWithEvidence] = {}
        for few in (True, False):
            own = {i: fitted[i] for i, x in good.items() if x.few_are_enough is few}
            wanted = max([group[i][1] for i in own], default=0)
            n_draws = max(_FEW_DRAWS if few else n_candidates, wanted)
            for i, (u, quality) in _drawn(group, own, n_draws).items():
                case, count, rng = group[i]
                chosen = systematic_resample(np.log(quality.weights), count, rng)
                f = case.given.draw(u.T, rng, chosen, skip=case.n_pseudo_points)
                log_evidence = case.given.log_density + quality.log_mean - case.log_prob_of_signs
                drawn[i] = DrawsWithEvidence(log_evidence, *quality[2:], f)
    return [
        drawn[i] if i in drawn else _alone(*given, n_candidates) for i, given in enumerate(group)
    ]


def _fitted(group: list[_Given]) -> dict[int, twisted.TwistedProposal]:
    """Proposals, rows in the same order; of the cases in which EP converges."""
    found: dict[int, twisted.TwistedProposal] = {}
    last: policy.Fitted | None = None
    n = group[0][0].given.n_rows
    for i, (case, _, _) in enumerate(group):
        given = case.given
        if given.n_rows != n or given.cov.jitter or case.by_factors() is not case:
            continue
        own = policy.twist_dense(
            given.cov.dense(),
            given.lower,
            given.upper,
            tol=policy.DEFAULT.ep_tolerance,
            order=None if last is None else last.proposal.order,
            start=None if last is None else last.ep,
        )
        if own is not None:
            last, found[i] = own, own.proposal
    return found


def _drawn(
    group: list[_Given], proposals: dict[int, twisted.TwistedProposal], n_draws: int
) -> dict[int, tuple[FloatArray, "_Quality"]]:
    """Draws of u of each case, and their weights; half of the points mirrors the other."""
    if not proposals:
        return {}
    shape = next(iter(proposals.values())).order.size, -(-n_draws // 2)
    half = np.stack([group[i][2].random(shape) for i in proposals], axis=1)
    np.clip(half, np.finfo(float).tiny, 1.0 - 2.0**-53, out=half)
    points = np.concatenate([half, 1.0 - half], axis=-1)
    u, log_weights = twisted.draw_side_by_side(list(proposals.values()), points)
    largest = log_weights.max(axis=1, keepdims=True)
    weights = np.exp(log_weights - largest)
    mean = weights.mean(axis=1, keepdims=True)
    weights /= mean
    log_mean = (largest + np.log(mean))[:, 0]
    pairs = weights.reshape(len(weights), 2, -1).mean(axis=1)
    errors = pairs.std(axis=1, ddof=1) / np.sqrt(pairs.shape[1])
    relative_ess = 1.0 / np.square(weights).mean(axis=1)
    columns = weights, log_mean.tolist(), errors.tolist(), relative_ess.tolist()
    return dict(zip(proposals, zip(u, map(_Quality, *columns), strict=True), strict=True))


class _Quality(NamedTuple):
    """Weights of a case over their mean, and what follows from them."""

    weights: FloatArray
    log_mean: float
    std_error: float
    relative_ess: float

    @property
    def few_are_enough(self) -> bool:
        """Whether few draws are, by these."""
        return 1.0 / self.relative_ess - 1.0 <= _BIAS * _FEW_DRAWS
