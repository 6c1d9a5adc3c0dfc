"""Mirrored pairs of coordinates under the sites of many rows, about one mode or several."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pymc_skewgp._errors import SeveralModesWarning, warn
from pymc_skewgp._gaussian import pairs as mirrored
from pymc_skewgp._gaussian.blocks.beside import RowsBeside
from pymc_skewgp._gaussian.blocks.ep import Blocks, LocalBlocks, rough_blocks
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian, coordinate_gaussian
from pymc_skewgp._gaussian.escalation import DEFAULT
from pymc_skewgp._gaussian.gaussian_sum import DrawnSum
from pymc_skewgp._gaussian.modes import POWER, Mode, Target, find_modes
from pymc_skewgp._gaussian.sparse import FieldGaussian
from pymc_skewgp._gaussian.weights import (
    Estimate,
    log_mean_exp,
    log_sum_exp,
    normalized_weights,
    relative_ess,
)
from pymc_skewgp._validation import FloatArray

# Mirrored pairs about several modes, for factors that are not log-concave.
#
# A component is chosen for each pair, EP's Gaussian with its tails, Laplace's at a mode, a wider
# one there, or the prior, and both members of the pair are weighed by the density of the mixture,
#
# .. math:: W(c) = \frac{\prod_i p(y_i \mid \eta_i)\, N(c; 0, I)}{\sum_k \pi_k\, q_k(c)}
#
# (Veach & Guibas 1995, doi:10.1145/218380.218498; Owen & Zhou 2000,
# doi:10.1080/01621459.2000.10473909): each component is symmetric about its mean, and the mean
# weight of a pair is unbiased whatever the modes are. The share of the prior bounds the weights
# where the factors are bounded.

# Shares of EP's Gaussian beside several modes, of the prior, and of a Gaussian about what others
# hardly meet, to begin with. Of the modes by evidence, but of none less than this part of equal
# shares; part of a mode's share that its wider Gaussian has.
_OF_EP, _OF_PRIOR, _OF_MISSED, _LEAST, _WIDE = 0.4, 0.1, 0.15, 0.4, 0.25
# Steps by which shares become those of the least variance, and what each keeps, and the prior. They
# are multiples of one over the last.
_STEPS, _KEPT, _KEPT_BY_PRIOR, _FRACTIONS = 30, 1.0 / 256.0, 1.0 / 16.0, 256
# Pairs by which mass is looked for that draws hardly meet, as many from the prior; times the mean
# weight that such draws weigh. What they hold of a predictor's fourth moment, in deviations, from
# which on the prior has its share, and from which on a Gaussian about them.
_PILOT, _HARDLY, _DEFENDED, _MATTERS = 512, 2.0, 0.002, 0.05
_ROUNDS = 6  # of looking for such mass
_PARTS = 64  # of the posterior, at most, beside its modes
# Second moment of EP's pairs over their squared mean up to which they are taken where there is one
# mode; how much less often than others they are drawn where they count by those, with what weight
# over the mean at most; share of the evidence in tails of single sites above which they are not.
_GOOD, _RARE, _LARGEST, _IN_TAILS = 1.4, 16.0, 1e4, 0.005
_TINY = 1e-100  # density of a mixture, where its square is a number
_PREDICTORS = 4096  # at most, whose moments are looked at

Given = Callable[[CoordinateGaussian], mirrored.GivenRows]
# Rows are drawn by a proposal that knows the weight of any of them.
_SETTINGS = replace(DEFAULT, first=DEFAULT.move_rungs[0])


@dataclass(frozen=True)
class ModePairs(mirrored.DrawnInPairs):
    """A mixture of proposals for coordinates under sites.

    Attributes
    ----------
    ep : EPPairs
        The first component.
    others : tuple of GaussianPairs
    shares : ndarray, shape (1 + len(others),)
        That sum to 1.
    modes : tuple of Mode
        And other parts of the posterior; none where it is about one.
    missed : float
        See `_Survey`.
    """

    ep: mirrored.EPPairs
    others: tuple[mirrored.GaussianPairs, ...]
    shares: FloatArray
    modes: tuple[Mode, ...] = ()
    missed: float = 0.0

    @property
    def covers(self) -> bool:
        """Not where large weights are few: replicates without them agree too well."""
        return self.missed < _MATTERS

    def in_place(self) -> DrawnSum | None:
        """See `DrawnInPairs`."""
        return self.ep.drawn_sum

    @property
    def n_modes(self) -> int:
        """Modes that it is about."""
        return max(1, sum(mode.is_peak for mode in self.modes))

    @property
    def n_dims(self) -> int:
        """Uniforms needed for one draw: which component, and those of its own."""
        return 1 + max(part.n_dims for part in (self.ep, *self.others))

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return self.ep.n_sites

    def members(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Coordinates of both members of each pair, not weighed, and their rows."""
        chosen = np.searchsorted(np.cumsum(self.shares)[:-1], points[0], side="right")
        parts, rows = (self.ep, *self.others), self.ep.rows
        plus, minus = np.empty((2, self.ep.gaussian.mean.size, chosen.size))
        u = None if rows is None else np.empty((rows.shift.size, chosen.size))
        for k, part in enumerate(parts):
            own = np.flatnonzero(chosen == k)
            found = part.members(points[1:, own])
            plus[:, own] = part.gaussian.of_white(found.plus)
            minus[:, own] = part.gaussian.of_white(found.minus)
            if u is not None:
                u[:, own] = found.rows
        return plus, minus, u

    def log_over_prior(self, coordinates: FloatArray, rows: FloatArray | None) -> FloatArray:
        """See `GaussianPairs`."""
        parts = self.log_of_parts(coordinates, rows)
        parts += np.log(self.shares[:, None])
        return log_sum_exp(parts, 0)

    def log_of_parts(self, coordinates: FloatArray, rows: FloatArray | None) -> FloatArray:
        """The same of each component, one after the other."""
        every = (self.ep, *self.others)
        return np.array([own.log_over_prior(coordinates, rows) for own in every])

    def pairs(self, points: FloatArray) -> mirrored.Pairs:
        """See `DrawnInPairs`."""
        plus, minus, u = self.members(points)
        logs = [self.ep.log_prob(c) - self.log_over_prior(c, u) for c in (plus, minus)]
        return mirrored.Pairs(plus, minus, *logs)

    def unseen_share(self, n_draws: int) -> float:
        """That of the rows: mass that EP's Gaussian lacks was looked for by other draws."""
        return self.ep.unseen_of_rows(n_draws)


def with_modes(
    proposal: mirrored.EPPairs, target: Target | None, beside: RowsBeside | None = None
) -> mirrored.EPPairs | ModePairs:
    """The proposal as it is, where the posterior has one mode that it covers; else a mixture.

    Parameters
    ----------
    proposal : EPPairs
    target : Target or None
        Of the sites; None where all of them are log-concave: there is one mode.
    beside : RowsBeside, optional
        Rows of the proposal.
    """
    if target is None:
        return proposal
    if beside is None and target.turned is None:
        proposal = replace(proposal, drawn_sum=DrawnSum(target.sites))
    given = None if beside is None else partial(beside.given, settings=_SETTINGS)
    everything = target if beside is None else Target.joined([target, beside.target()])
    ep = proposal if given is None else replace(proposal, rows=given(proposal.gaussian))
    modes = find_modes(everything, proposal.gaussian.mean)
    core, left = ModePairs(ep, (), np.ones(1)), []
    if modes:
        most = _PARTS + sum(mode.is_peak for mode in modes)
        modes, left = modes[:most], [mode.gaussian for mode in modes[most:]]
        peak = np.array([mode.is_peak for mode in modes])
        own = (1.0 - _OF_EP) * _shares(modes)
        shares = np.concatenate([[_OF_EP], own * (1.0 - _WIDE * peak), _WIDE * own[peak]])
        gaussians = [x.gaussian for x in modes] + [x.wide for x in modes if x.is_peak]
        if given is not None:
            gaussians = _without_rows(target, modes)
        core = ModePairs(ep, tuple(_part(x, given) for x in gaussians), shares, tuple(modes))
    prior = _part(CoordinateGaussian(np.zeros(n := ep.gaussian.mean.size), np.eye(n)), given)
    # What the core may miss is looked for by draws of the prior, and of parts that are left out.
    among = ModePairs(ep, (prior, *(_part(x, given) for x in left)), _among(len(left)))
    survey = _Survey(core, among, everything)
    if not modes and survey.missed <= _DEFENDED:
        return proposal
    alone = survey.second_moment(proposal)
    serves = core.n_modes == 1 and alone <= _GOOD
    # Tails that are met by none of the draws are no reason for EP's pairs; the modes' parts do.
    if proposal.unseen_share(4 * _PILOT) > _IN_TAILS:
        alone = np.inf
    elif serves:
        return proposal
    survey = _Survey(_with(core, prior, _OF_PRIOR), among, everything)
    for _ in range(0 if serves else _ROUNDS):
        if survey.missed < _MATTERS:
            break
        core = _with(survey.core, _part(survey.about(), given), _OF_MISSED)
        survey = _Survey(core, among, everything)
    shares = _rounded(survey.core.shares)
    found = replace(survey.core, shares=shares, missed=survey.missed)
    return proposal if alone <= survey.second_moment(found) else found


def _among(n_left: int) -> FloatArray:
    """Shares of EP's Gaussian, the prior, and parts that are left out."""
    return np.array([0.0, 0.5, *[0.5 / n_left] * n_left]) if n_left else np.array([0.0, 1.0])


def _with(core: ModePairs, part: mirrored.GaussianPairs, share: float) -> ModePairs:
    shares = np.append((1.0 - share) * core.shares, share)
    return replace(core, others=(*core.others, part), shares=shares)


def _part(gaussian: CoordinateGaussian, given: Given | None) -> mirrored.GaussianPairs:
    return mirrored.GaussianPairs(gaussian, rows=None if given is None else given(gaussian))


def _without_rows(target: Target, modes: list[Mode]) -> list[CoordinateGaussian]:
    """Gaussians of the modes under the sites alone, then those that are wider."""
    factor, found = target.sites.factor, []
    for power in (1.0, POWER):
        for mode in modes if power == 1.0 else [mode for mode in modes if mode.is_peak]:
            tau, nu = (x[: factor.shape[0]] for x in (mode.tau, mode.nu))
            mean = coordinate_gaussian(factor, tau, nu).mean
            found.append(
                CoordinateGaussian(mean, coordinate_gaussian(factor, power * tau, nu).chol)
            )
    return found


def _rounded(shares: FloatArray) -> FloatArray:
    """To fractions with which evenly spaced points have as many of each component every time."""
    counts = np.maximum(np.round(_FRACTIONS * shares), 1.0)
    counts[counts.argmax()] += _FRACTIONS - counts.sum()
    return np.asarray(counts / _FRACTIONS)


def _shares(modes: list[Mode]) -> FloatArray:
    if not modes:
        return np.zeros(0)
    share = normalized_weights(np.array([mode.log_evidence for mode in modes]))
    share = np.maximum(share, _LEAST / len(modes))
    return np.asarray(share / share.sum())


class _Survey:
    """Draws of a mixture and of another: which shares are best, and what they hardly meet.

    Attributes
    ----------
    core : ModePairs
        With shares by which the variance of its weights is least, as these draws say (Douc,
        Guillin, Marin & Robert 2007, doi:10.1051/ps:2007028).
    missed : float
        Posterior mass that it hardly meets, such as a plateau, by what this holds of a predictor's
        fourth moment.
    """

    def __init__(self, core: ModePairs, among: ModePairs, target: Target) -> None:
        ep, rng = core.ep, np.random.default_rng(len(core.others))
        plus, minus, u = core.members(rng.random((core.n_dims, _PILOT)))
        own, _, own_u = among.members(rng.random((among.n_dims, 2 * _PILOT)))
        c = np.hstack([plus, minus, own])
        rows = None if own_u is None or u is None else np.hstack([u, u, own_u])
        with np.errstate(all="ignore"):
            logs, parts = ep.log_prob(c), core.log_of_parts(c, rows)
            logs[np.isnan(logs)] = -np.inf
            log_core = log_sum_exp(parts + np.log(core.shares[:, None]), 0)
            log_drawn = np.logaddexp(log_core, among.log_over_prior(c, rows))
            log_weights = logs - log_drawn
        weights = normalized_weights(log_weights)
        off = self._deviations(c, weights, ep, target)
        kept = [_KEPT_BY_PRIOR if x is among.others[0] else _KEPT for x in (ep, *core.others)]
        squares = weights**2 * (1.0 + off.mean(axis=0))
        shares = _best_shares(core.shares, np.exp(parts - log_drawn), squares, kept)
        self.core = replace(core, shares=shares)
        log_core = log_sum_exp(parts + np.log(shares[:, None]), 0)
        with np.errstate(all="ignore"):
            hardly = logs - log_core > log_mean_exp(log_weights) + np.log(2.0 * _HARDLY)
        self._known = c, rows, log_drawn, weights
        self._c, weights, off = c[:, hardly], weights[hardly], off[:, hardly]
        self.missed = float((off**2 @ weights).max(initial=0.0))
        self._weights = weights * off.mean(axis=0)

    def second_moment(self, proposal: mirrored.EPPairs | ModePairs) -> float:
        """Of the weights of its pairs, over their squared mean.

        By pairs of its own, and by these draws where its own would be rare.
        """
        points = np.random.default_rng(_PILOT).random((proposal.n_dims, _PILOT))
        c, rows, log_drawn, weights = self._known
        with np.errstate(all="ignore"):
            own = relative_ess(proposal.pairs(points).log_weights)
            log_ratio = log_drawn - np.log(2.0) - proposal.log_over_prior(c, rows)
            log_weights = np.log(weights * weights.size) + log_ratio
        rare = (log_ratio > np.log(_RARE)) & (weights > 0.0)
        # Of pairs of which the other member weighs nothing.
        weighed = 0.5 * np.exp(np.minimum(log_weights[rare], np.log(_LARGEST)))
        return float(1.0 / own + weights[rare] @ weighed)

    @staticmethod
    def _deviations(
        c: FloatArray, weights: FloatArray, ep: mirrored.EPPairs, target: Target
    ) -> FloatArray:
        """Squares of the predictors less their means, over their variances."""
        factor = target.sites.factor[:: 1 + target.sites.offset.size // _PREDICTORS]
        off = factor @ (c - (c @ weights)[:, None])
        off **= 2
        # EP's variance, for where few draws have all of the weight.
        variance = np.einsum("ij,ij->i", *[factor @ ep.gaussian.spread] * 2)
        off /= np.maximum(off @ weights, variance)[:, None]
        return off

    def about(self) -> CoordinateGaussian:
        """A Gaussian of what is missed."""
        c, weights = self._c, self._weights / self._weights.sum()
        mean, spread = c @ weights, self.core.ep.gaussian.spread
        # Smoothed as a density of so many draws is (Silverman 1986).
        smooth = float(weights @ weights) ** (2.0 / (mean.size + 4.0))
        covariance = ((c - mean[:, None]) * weights) @ (c - mean[:, None]).T
        covariance += smooth * (covariance + spread @ spread.T)
        return CoordinateGaussian(mean, np.linalg.cholesky(np.linalg.inv(covariance)))


def _best_shares(
    shares: FloatArray, parts: FloatArray, squares: FloatArray, kept: list[float]
) -> FloatArray:
    """Of the least mean of `squares` over the mixture, given the parts over what was drawn from."""
    if shares.size == 1:
        return shares
    for _ in range(_STEPS):
        own = shares[:, None] * parts
        shares = own @ (squares / np.maximum(own.sum(axis=0), _TINY) ** 2)
        shares = np.maximum(shares / shares.sum(), kept)
        shares /= shares.sum()
    return shares


@dataclass(frozen=True)
class BlockPairs(mirrored.EPPairs):
    """With sites in blocks.

    Attributes
    ----------
    blocks : Blocks
        After EP.
    """

    blocks: Blocks

    @property
    def n_sites(self) -> int:
        """See `EPPairs`."""
        return self.blocks.n_rows

    def log_prob(self, coordinates: FloatArray) -> FloatArray:
        """See `EPPairs`."""
        return np.asarray(self.blocks.total("log_prob", coordinates))

    def pairs(self, points: FloatArray) -> mirrored.Pairs:
        """Both members of each pair: n r operations each, or half of it without a rectangle."""
        if self.rows is not None:
            return super().pairs(points)
        gaussian, white = self.gaussian, self.members(points).plus
        off = gaussian.spread @ white
        both = gaussian.mean[:, None] + off, gaussian.mean[:, None] - off
        logs = self.blocks.total("pair_log_probs", gaussian.mean, off)
        return mirrored.Pairs(*both, *(logs + [gaussian.log_ratio(c, white) for c in both]))

    def with_modes(self, beside: RowsBeside | None = None) -> mirrored.EPPairs | ModePairs:
        """See `mode_pairs.with_modes`.

        Warns
        -----
        SeveralModesWarning
            Where blocks are in other processes, or of a field, in which modes are not looked for.
        """
        blocks = self.blocks
        if not blocks.total("bent"):
            return self
        if not isinstance(blocks, LocalBlocks) or isinstance(self.gaussian, FieldGaussian):
            warn(
                "the likelihood is not log-concave, so that the posterior may have several modes, "
                "which are looked for neither on the workers of a cluster nor in a field with a "
                "sparse precision: draws are about one of them. Take part of the rows to see.",
                SeveralModesWarning,
                stacklevel=2,
            )
            return self
        return with_modes(self, Target.joined([x.target() for x in blocks.blocks]), beside)

    @classmethod
    def beside(
        cls, rows: RowsBeside, gaussian: CoordinateGaussian, blocks: Blocks
    ) -> mirrored.EPPairs | ModePairs:
        """Under a Gaussian of what the blocks say alone."""
        return cls(gaussian, blocks, rows=rows.given(gaussian)).with_modes(rows)

    def surrogate(self) -> mirrored.Surrogate | None:
        """With the rows alone whose sites matter."""
        rough = rough_blocks(self.blocks)
        if rough is None:
            return None
        return mirrored.Surrogate(replace(self, blocks=rough), rough.log_left_out)

    def missing(self, n_draws: int) -> float:
        """See `EPPairs`."""
        return float(self.blocks.total("missing", n_draws))


# Pairs of many problems with n rows each, side by side: log densities of all are one call.


def singles_side_by_side(
    gaussians: Sequence[CoordinateGaussian],
    factor: FloatArray,
    log_prob: Callable[[FloatArray], FloatArray],
    n_pairs: int,
    rngs: Sequence[np.random.Generator],
) -> Iterator[tuple[FloatArray, FloatArray, Estimate]]:
    """One member of each of so many pairs, picked by weight, for each of P problems.

    Parameters
    ----------
    gaussians : sequence of CoordinateGaussian
        EP's.
    factor : ndarray, shape (P, n, r)
    log_prob : callable
        Of predictors less their offset, shape (N, P, n): of all sites of each, shape (N, P).
    n_pairs : int
        Two at least.
    rngs : sequence of Generator

    Yields
    ------
    coordinates : ndarray, shape (n_pairs, r)
    log_weights : ndarray, shape (n_pairs,)
        Of the pairs.
    estimate : Estimate
        Log of their mean, by independent pairs; no Pareto k.
    """
    size, n, r = factor.shape
    eta, logs = np.empty((2, n_pairs, size, n)), np.empty((2, n_pairs, size))
    offs, uniform = [], np.empty((n_pairs, size))
    for p, (gaussian, rng) in enumerate(zip(gaussians, rngs, strict=True)):
        white = rng.standard_normal((r, n_pairs))
        uniform[:, p] = rng.random(n_pairs)
        mean, off = gaussian.mean[:, None], gaussian.spread @ white
        offs.append(off)
        for member, c in enumerate((mean + off, mean - off)):
            eta[member, :, p] = c.T @ factor[p].T
            logs[member, :, p] = gaussian.log_ratio(c, white)
    logs += log_prob(eta.reshape(-1, size, n)).reshape(logs.shape)
    plus = np.ones(())
    pairs = mirrored.Pairs(plus, -plus, *logs)
    log_weights, sign = pairs.log_weights.T, mirrored.picked(pairs, uniform).T
    sums = log_sum_exp(log_weights, 1)
    with np.errstate(all="ignore"):  # where nothing is possible
        shares = np.nan_to_num(np.exp(2.0 * sums - log_sum_exp(2.0 * log_weights, 1)) / n_pairs)
        errors = np.sqrt(np.maximum(1.0 / shares - 1.0, 0.0) / (n_pairs - 1))
    values = sums - np.log(n_pairs)
    quality = zip(values.tolist(), errors.tolist(), shares.tolist(), strict=True)
    each = zip(gaussians, offs, sign, log_weights, quality, strict=True)
    for gaussian, off, own, of_pairs, known in each:
        yield (gaussian.mean[:, None] + own * off).T, of_pairs, Estimate(*known, np.inf)
