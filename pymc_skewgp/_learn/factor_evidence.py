r"""Evidence, gradient and draws of white coordinates c, c ~ N(0, I), under rows and sites.

Of the exact evidence derivatives are means over the posterior, with g and h the first two
derivatives of log p in the predictor :math:`\eta_i = a_i + F_i c`, and of rows the noise is in p:

.. math:: \partial_{F_i} = \mathrm E(g_i c), \quad \partial_{a_i} = \mathrm E(g_i), \quad
    \partial_{\sigma_i^2} = \tfrac12 \mathrm E(g_i^2 + h_i).
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.blocks.ep import (
    BlockEP,
    LocalBlocks,
    SideBySide,
    fit_blocks,
    fit_side_by_side,
    gaussian_of,
)
from pymc_skewgp._gaussian.blocks.pairs import BlockPairs
from pymc_skewgp._gaussian.blocks.rows import FactorGradient, Pattern, RowBlock, row_block
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.coordinates import SiteSampler
from pymc_skewgp._gaussian.linalg import low_rank_factor, symmetric
from pymc_skewgp._gaussian.tilted import KnownProducts, SiteFactors, Tilted
from pymc_skewgp._gaussian.weights import Estimate, IntArray, normalized_weights
from pymc_skewgp._observations.sites import SitesGiven, joined_sites
from pymc_skewgp._posterior.blocks_at import (
    LearntFunctions,
    LearntRows,
    LearntSites,
    slopes_of_limits,
)
from pymc_skewgp._posterior.evidence_gradient import (
    EP_TOLERANCE,
    EvidenceByEP,
    EvidenceGradient,
    EvidenceTerms,
)
from pymc_skewgp._posterior.site_evidence import NEGLIGIBLE, FactorTerms
from pymc_skewgp._validation import FloatArray

_MAX_SWEEPS = 100
# Where a factor is all but flat a step goes a million times too far.
_NEWTON_STEPS, _GAIN, _LEAST_STEP = 50, 1e-3, 1e-12
# Residual for a number, whose error goes with its square, or for a proposal.
VALUE_TOLERANCE = 1e-2
# Residual above which EP's number means nothing: beside non-concave factors it may be any.
_ROUGH = 1.0

# Terms at hyperparameters, with their sites.
Known = tuple[FactorTerms, SitesGiven | None]
# Tau and nu of each part.
Sites = list[tuple[FloatArray, FloatArray]]


class FactorStart(NamedTuple):
    """Where EP has ended, at these terms: where it begins at those of other hyperparameters.

    Attributes
    ----------
    terms : FactorTerms
    sites : list of (ndarray, ndarray)
        Tau and nu of each part.
    products : KnownProducts or None
        Of the functions, where there are any.
    patterns : list of Pattern or None
        Of each part's predictors.
    log_prob : float
        EP's log evidence, without the constant.
    """

    terms: FactorTerms
    sites: Sites
    products: KnownProducts | None
    patterns: list[Pattern | None]
    log_prob: float


# Of so many coordinates one: fewer save less than they cost.
_FEWEST = 4


class OwnCoordinates(NamedTuple):
    """Coordinates that move one predictor each, no two of them the same; none, where few do.

    Attributes
    ----------
    rows : ndarray of int, shape (m,)
        Predictor of each.
    order : ndarray of int, shape (r,)
        All coordinates, these first.
    noise : ndarray, shape (..., n)
        Variance of the predictors by them.
    """

    rows: IntArray
    order: IntArray
    noise: FloatArray

    @property
    def size(self) -> int:
        """Number m."""
        return self.rows.size

    @classmethod
    def of(cls, terms: FactorTerms) -> "OwnCoordinates":
        """Of terms, or of stacked ones; none of rows that stand for several."""
        n, r = terms.factor.shape[-2:]
        moved = (terms.factor != 0.0).reshape(-1, n, r).any(axis=0)
        repeated, k = np.zeros(n, dtype=bool), terms.value.shape[-1]
        if k and terms.counts.shape == terms.value.shape:
            repeated[:k] = (terms.counts != 1.0).reshape(-1, k).any(axis=0)
        alone = np.flatnonzero((moved.sum(axis=0) == 1) & ~repeated[moved.argmax(axis=0)])
        rows, first = np.unique(moved[:, alone].argmax(axis=0), return_index=True)
        most = r - 1 if _FEWEST * rows.size >= r else 0
        rows, columns = rows[:most], alone[first][:most]
        noise = np.zeros(terms.offset.shape)
        noise[..., rows] = terms.factor[..., rows, columns] ** 2
        return cls(rows, np.concatenate([columns, np.delete(np.arange(r), columns)]), noise)


# Of one less the share of a row's variance that its site takes: a site that takes all is a point.
_LEAST_SHARE = 1e-6


def through_noise(
    tau: FloatArray, nu: FloatArray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sites of predictors that noise of these variances is added to; of negative ones back."""
    ratio = np.maximum(1.0 + tau * noise, _LEAST_SHARE)
    return tau / ratio, nu / ratio


def _set_points(terms: FactorTerms, tau: FloatArray, nu: FloatArray) -> None:
    """Sites of values that are known, the first of all, also of stacked terms: they are exact."""
    k, point = terms.value.shape[-1], np.isfinite(terms.value)
    noise, value = terms.noise[point], (terms.value - terms.offset[..., :k])[point]
    tau[..., :k][point], nu[..., :k][point] = 1.0 / noise, value / noise


class FactorRows:
    """Predictors of coordinates under rows and sites, in blocks.

    EP goes without the coordinates that one row alone has, such as an effect of each row: to a
    row they are noise of its predictor. Draws have them first; see `OwnCoordinates`.

    Parameters
    ----------
    terms : FactorTerms
        Arrays.
    sites : SitesGiven or None
        On the last predictors.
    start : FactorStart, optional
        Of the same rows.
    """

    def __init__(
        self, terms: FactorTerms, sites: SitesGiven | None, start: FactorStart | None = None
    ) -> None:
        self.terms, self.sites = terms, sites
        self._start = start
        self.parts = parts = _parts_of(terms, sites, None if start is None else start.products)
        self.own = own = OwnCoordinates.of(terms)
        self._factor = terms.factor[:, own.order]
        patterns = [None] * len(parts) if start is None else start.patterns
        self._of_ep = [
            row_block(self._factor[rows, own.size :], part.with_noise(own.noise[rows]), pattern)
            for (rows, part), pattern in zip(parts, patterns, strict=True)
        ]

    @cached_property
    def _blocks(self) -> list[RowBlock]:
        """Of all coordinates."""
        if not self.own.size:
            return self._of_ep
        return [row_block(self._factor[rows], part) for rows, part in self.parts]

    @property
    def blocks(self) -> LocalBlocks:
        """Of all coordinates."""
        return LocalBlocks(self._blocks)

    def fit(self, tol: float) -> BlockEP:
        """EP, from the start or from Laplace's sites; Laplace's own Gaussian where EP fails."""
        if self._start is not None:
            ended = self._start.terms is self.terms
            found = self._ended(self._start) if ended else self._by_ep(self._start.sites, tol)
            if found is not None:
                return found
        self._begin_at_mode()
        found = self._by_ep([(block.tau, block.nu) for block in self._blocks], tol)
        return self._at_mode() if found is None else found

    def _begin(self, sites: Sites) -> LocalBlocks:
        each = zip(self._of_ep, self.parts, self._exact(sites), strict=True)
        for block, (rows, _), known in each:
            block.tau, block.nu = through_noise(*known, self.own.noise[rows])
        return LocalBlocks(self._of_ep)

    def _ended(self, start: FactorStart) -> BlockEP:
        """What EP would find by one more sweep, which says whether sites are log-concave."""
        blocks = self._begin(start.sites)
        gaussian = gaussian_of(blocks.total("sums"))
        known = self.sites is None or self.sites.log_concave
        blocks.total("place" if known else "tilt", gaussian.mean, gaussian.spread)
        return BlockEP(gaussian, start.log_prob, 0, VALUE_TOLERANCE)

    def _by_ep(self, sites: Sites, tol: float) -> BlockEP | None:
        """From these sites; None where it fails, as by cavities without a variance."""
        blocks = self._begin(sites)
        try:
            found = fit_blocks(blocks, tol=tol, max_sweeps=_MAX_SWEEPS)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return None
        return found if np.isfinite(found.log_prob) and found.residual < _ROUGH else None

    def found(self, ep: BlockEP) -> FactorStart:
        """After `fit`."""
        products = _products_of(self.parts)
        sites = [
            through_noise(block.tau, block.nu, -self.own.noise[rows])
            for block, (rows, _) in zip(self._of_ep, self.parts, strict=True)
        ]
        patterns = [block.pattern for block in self._of_ep]
        return FactorStart(self.terms, sites, products, patterns, ep.log_prob)

    def whole(self, ep: BlockEP) -> CoordinateGaussian:
        """EP's Gaussian of all coordinates; the blocks keep its marginals."""
        own, gaussian = self.own, ep.gaussian
        if not own.size:
            return gaussian
        if gaussian.mean.size < own.order.size:
            each = zip(self._of_ep, self.parts, strict=True)
            sites = [x.sites_before_noise(part, own.noise[rows]) for x, (rows, part) in each]
            self._set(sites)
            tau = np.concatenate([block.tau for block in self._blocks])[own.rows]
            nu = np.concatenate([block.nu for block in self._blocks])[own.rows]
            factor, first = self._factor[own.rows], np.arange(own.size)
            gaussian = gaussian.beside(factor[first, first], factor[:, own.size :], tau, nu)
        self.blocks.total("place", gaussian.mean, gaussian.spread)
        return gaussian

    def gradient(self, ep: BlockEP) -> tuple[FactorTerms, list[FloatArray]]:
        """Of EP's evidence, in the terms and in parameters of the sites.

        Where EP failed of the density at the mode.
        """
        if not ep.residual < _ROUGH:
            return self.gradient_by_draws(ep.gaussian.mean[None], np.ones(1))
        gaussian = self.whole(ep)
        found = [block.gradient(gaussian.mean, gaussian.spread) for block in self._blocks]
        numbers = [
            part.slopes_of_numbers(x) for (_, part), x in zip(self.parts, found, strict=True)
        ]
        return self._in_terms(found, numbers)

    def slopes(self, eta: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Two derivatives of log p of each row of each part, once, at predictors less offset.

        Of shape (N, n) each.
        """
        found = []
        for own, part in self.parts:
            if isinstance(part, LearntRows):
                found.append(part.slopes(slice(None), np.ascontiguousarray(eta[:, own])))
            else:
                assert self.sites is not None
                found.append(self.sites.slopes(eta[:, own] + self.terms.offset[own]))
        return found

    def gradient_by_draws(
        self, c: FloatArray, weights: FloatArray
    ) -> tuple[FactorTerms, list[FloatArray]]:
        """Of the exact evidence, by weighted draws of the coordinates, shape (N, r)."""
        eta = c @ self._factor.T
        found, numbers = [], []
        for (own, part), (first, second) in zip(self.parts, self.slopes(eta), strict=True):
            counts = part.counts
            pulled = weights[:, None] * first
            factor = (counts * pulled).T @ c
            offset = counts * pulled.sum(axis=0)
            noise = 0.5 * counts * (weights @ (first**2 + second))
            found.append(FactorGradient(factor, offset, noise, offset, offset))
            if isinstance(part, LearntRows):
                value = np.where(np.isnan(self.terms.value), 0.0, -offset)
                limits = [x - self.terms.offset[own] for x in (self.terms.lower, self.terms.upper)]
                deviation = np.sqrt(self.terms.noise)
                in_limits = slopes_of_limits(
                    limits[0], limits[1], self.terms.value, eta[:, own], deviation
                )
                moved = [counts * (weights @ x) for x in in_limits]
                numbers.append([*moved, value, noise])
            else:
                assert self.sites is not None
                at = eta[:, own] + self.terms.offset[own]
                shares = np.broadcast_to(weights[:, None], at.shape)
                known = self.sites.has_parameters
                numbers.append(self.sites.in_parameters(at, shares) if known else [])
        return self._in_terms(found, numbers)

    def _in_terms(
        self, found: list[FactorGradient], numbers: list[list[FloatArray]]
    ) -> tuple[FactorTerms, list[FloatArray]]:
        k = self.terms.value.size
        rows, parameters = [np.zeros(0)] * 4, []
        if k:
            rows = [np.where(np.isfinite(x), x, 0.0) for x in numbers[0]]
        if self.sites is not None:
            parameters = numbers[-1]
        factor = np.empty(self.terms.factor.shape)
        factor[:, self.own.order] = np.concatenate([x.factor for x in found])
        wrt = FactorTerms(
            factor,
            np.concatenate([x.offset for x in found]),
            rows[0],
            rows[1],
            rows[2],
            rows[3],
            np.zeros_like(self.terms.counts),
            np.float64(1.0),
        )
        return wrt, parameters

    def _at_mode(self) -> BlockEP:
        """Laplace's approximation, no fixed point of EP."""
        value = self._begin_at_mode()
        gaussian = gaussian_of(self.blocks.total("sums"))
        half_log_det = float(np.log(gaussian.chol.diagonal()).sum())
        return BlockEP(gaussian, value - half_log_det, _MAX_SWEEPS, np.inf)

    def _begin_at_mode(self) -> float:
        """Laplace's sites, and the log density at the mode.

        About a wide prior's mean quadrature would be of nothing.
        """
        F, c = self._factor, np.zeros(self._factor.shape[1])
        value = self._log_density(c)
        for _ in range(_NEWTON_STEPS):
            self._set(self._sites_about(F @ c))
            step, size = gaussian_of(self.blocks.total("sums")).mean - c, 1.0
            trial = self._log_density(c + step)
            while not trial >= value and size > _LEAST_STEP:
                size *= 0.5
                trial = self._log_density(c + size * step)
            if not trial > value + _GAIN:
                break
            c, value = c + size * step, trial
        return value

    def _set(self, sites: Sites) -> None:
        for block, (tau, nu) in zip(self._blocks, self._exact(sites), strict=True):
            block.tau, block.nu = tau, nu

    def _exact(self, sites: Sites) -> Sites:
        """Of points their own, which are exact."""
        found = [(tau.copy(), nu.copy()) for tau, nu in sites]
        _set_points(self.terms, *found[0])
        return found

    def _log_density(self, c: FloatArray) -> float:
        with np.errstate(all="ignore"):
            return float(self.blocks.total("log_prob", c[:, None])[0] - 0.5 * c @ c)

    def _sites_about(self, eta: FloatArray) -> Sites:
        """Second-order expansions of log p, those of curvature."""
        found = []
        with np.errstate(all="ignore"):
            slopes = self.slopes(eta[None])
        for (own, _), (first, second) in zip(self.parts, slopes, strict=True):
            tau = np.where(second[0] < 0.0, -second[0], 0.0)
            tau = np.where(np.isfinite(tau), tau, 0.0)
            pull = np.where(np.isfinite(first[0]), first[0], 0.0)
            found.append((tau, pull + tau * eta[own]))
        return found


def _parts_of(
    terms: FactorTerms, sites: SitesGiven | None, products: KnownProducts | None
) -> list[tuple[slice, LearntSites]]:
    """Rows, then functions, with their places; of stacked terms one after the other."""
    k = terms.value.shape[-1]
    parts: list[tuple[slice, LearntSites]] = []
    if k:
        counts = terms.counts.ravel() if terms.counts.shape == terms.value.shape else None
        columns = [x.ravel() for x in (terms.lower, terms.upper, terms.value, terms.noise)]
        offset = terms.offset[..., :k].ravel()
        parts.append((slice(0, k), LearntRows(columns, offset, np.zeros(offset.size), counts)))
    if sites is not None:
        offset = terms.offset[..., k:].ravel()
        sd = np.sqrt(np.einsum("...i,...i->...", *[terms.factor[..., k:, :]] * 2)).ravel()
        functions = LearntFunctions(sites, offset, np.zeros(offset.size), sd, products)
        parts.append((slice(k, None), functions))
    return parts


def _products_of(parts: list[tuple[slice, LearntSites]]) -> KnownProducts | None:
    last = parts[-1][1]
    return last.factors.known if isinstance(last, LearntFunctions) else None


class FactorEvidence:
    """EP's log evidence, begun each time where the last one ended.

    Parameters
    ----------
    tol : float, default 1e-4
        Residual at which EP stops where a gradient is asked for.

    Attributes
    ----------
    last : FactorStart or None
        Where it has ended.
    """

    def __init__(self, tol: float = EP_TOLERANCE) -> None:
        self._tol = tol
        self.last: FactorStart | None = None

    def __call__(self, terms: FactorTerms, sites: SitesGiven | None = None) -> EvidenceGradient:
        """Value and gradient; minus infinity and zeros where no evidence can be computed."""
        found = self._fit(terms, sites, self._tol)
        if found is None:
            return nothing(terms)
        rows, ep = found
        wrt, parameters = rows.gradient(ep)
        value = ep.log_prob + float(terms.log_constant)
        if not all(np.isfinite(x).all() for x in wrt):
            return nothing(terms)
        return EvidenceGradient(value, wrt, in_parameters=parameters)

    def value(self, terms: FactorTerms, sites: SitesGiven | None = None) -> float:
        """The value alone."""
        found = self._fit(terms, sites, VALUE_TOLERANCE)
        return -np.inf if found is None else found[1].log_prob + float(terms.log_constant)

    def values(self, known: Iterable[Known | None]) -> FloatArray:
        """Of many terms with sites, small ones side by side; minus infinity of None."""
        found, waiting, size = [], dict[int, Known](), 0
        for i, each in enumerate(known):
            found.append(-np.inf)
            if each is None or not _are_finite(each[0]):
                continue
            waiting[i], size = each, size or n_together(each[0])
            if len(waiting) >= size:
                self._add_values(waiting, found)
                waiting = {}
        self._add_values(waiting, found)
        return np.array(found)

    def _add_values(self, waiting: dict[int, Known], found: list[float]) -> None:
        while waiting and self.last is None:
            i = next(iter(waiting))
            found[i] = self.value(*waiting.pop(i))
        starts = self.last and together(list(waiting.values()), self.last)
        for (i, each), start in zip(waiting.items(), starts or [None] * len(waiting), strict=True):
            if start is None:
                found[i] = self.value(*each)
            else:
                found[i] = start.log_prob + float(each[0].log_constant)
                self.last = start

    def _fit(
        self, terms: FactorTerms, sites: SitesGiven | None, tol: float
    ) -> tuple[FactorRows, BlockEP] | None:
        if not _are_finite(terms):
            return None
        try:
            with no_warnings(), np.errstate(all="ignore"):
                start, self.last = self.last, None
                rows = FactorRows(terms, sites, start)
                ep = rows.fit(tol)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return None
        if not np.isfinite(ep.log_prob):
            return None
        self.last = rows.found(ep)
        return rows, ep


def _are_finite(terms: FactorTerms) -> bool:
    finite = all(np.isfinite(x).all() for x in (terms.factor, terms.offset, terms.log_constant))
    return finite and bool((terms.noise > 0).all())


# EP at many hyperparameters side by side, which takes a third to two thirds of the time: moments of
# a thousand rows are one call.

# Operations n r^2 of a sweep up to which it does, rows of all together, which stay in the cache,
# and sweeps: what they are not enough for goes on alone.
_MOST_OPERATIONS, _ROWS_TOGETHER, _SWEEPS_TOGETHER = 3 * 10**7, 1000, 20


def n_together(terms: FactorTerms) -> int:
    """Of how many such terms `together` is to be asked."""
    n, r = terms.factor.shape
    r -= OwnCoordinates.of(terms).size
    return max(2, _ROWS_TOGETHER // n) if n * r * r <= _MOST_OPERATIONS else 1


def together(known: Sequence[Known], start: FactorStart) -> list[FactorStart | None] | None:
    """Where EP ends, from one start; None where it has not, or nowhere."""
    if len(known) < 2:
        return None
    rows = _RowsTogether(known, start)
    try:
        with no_warnings(), np.errstate(all="ignore"):
            given = rows.factor, rows, rows.counts, rows.begun
            fits = fit_side_by_side(*given, tol=VALUE_TOLERANCE, max_sweeps=_SWEEPS_TOGETHER)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return None
    done = (fits.residual < VALUE_TOLERANCE) & np.isfinite(fits.log_prob)
    return [rows.start(fits, p, start.patterns) if ok else None for p, ok in enumerate(done)]


class _RowsTogether:
    """Rows and sites of several hyperparameters, one after the other: `TiltedMoments` of all."""

    def __init__(self, known: Sequence[Known], start: FactorStart) -> None:
        self._terms = each = [terms for terms, _ in known]
        n = len(known)
        most = max(t.factor.shape[1] for t in each)
        zeros = [np.zeros((len(t.factor), most - t.factor.shape[1])) for t in each]
        wide = [
            t._replace(factor=np.hstack([t.factor, x])) for t, x in zip(each, zeros, strict=True)
        ]
        terms = FactorTerms(*map(np.stack, zip(*wide, strict=True)))
        own, self.shape = OwnCoordinates.of(terms), terms.offset.shape
        self.factor, self._noise = terms.factor[..., own.order[own.size :]], own.noise
        sites = [own for _, own in known if own is not None]
        products = start.products and start.products.repeated(n)
        self._parts = [
            (rows, part.with_noise(own.noise[:, rows].ravel()))
            for rows, part in _parts_of(terms, joined_sites(sites) if sites else None, products)
        ]
        self.counts = np.ones(self.shape)
        self.counts[:, : terms.value.shape[1]] = terms.counts.reshape(n, -1)
        tau, nu = (np.concatenate(x) for x in zip(*start.sites, strict=True))
        begun = np.tile(tau, (n, 1)), np.tile(nu, (n, 1))
        _set_points(terms, *begun)
        self.begun = through_noise(*begun, own.noise)

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `TiltedMoments`."""
        found = np.empty((4, *self.shape))
        for own, part in self._parts:
            at = (x.reshape(self.shape)[:, own].ravel() for x in (mean, sd))
            found[:, :, own] = np.array(part.tilted(*at)).reshape(4, len(self.factor), -1)
        return Tilted(*found.reshape(4, -1))

    def start(self, fits: SideBySide, p: int, patterns: list[Pattern | None]) -> "FactorStart":
        """Where that at one of the hyperparameters has ended."""
        tau, nu = through_noise(fits.tau[p], fits.nu[p], -self._noise[p])
        sites = [(tau[own], nu[own]) for own, _ in self._parts]
        products = _products_of(self._parts)
        if products is not None:
            n = sites[-1][0].size
            products = products.part(slice(p * n, (p + 1) * n))
        return FactorStart(self._terms[p], sites, products, patterns, float(fits.log_prob[p]))


class SitesByEP(EvidenceByEP):
    """Of a covariance; many values of log-concave sites alone, without signs, by coordinates."""

    def __init__(self, tol: float) -> None:
        super().__init__(tol)
        self._factors = FactorEvidence(tol)

    def values(self, known: Iterable[tuple[EvidenceTerms, SitesGiven | None] | None]) -> FloatArray:
        """See `EvidenceByEP`."""
        waiting = iter(known)
        ahead = list(islice(waiting, 1))  # all are alike, and too large to be kept
        every = chain(ahead, waiting)
        if None in ahead or not all(_are_sites_alone(*x) for x in ahead if x):
            return super().values(every)
        return self._factors.values(each and _of_covariance(*each) for each in every)


def _are_sites_alone(terms: EvidenceTerms, sites: SitesGiven | None) -> bool:
    """Whether there are no rows beside log-concave sites, nor signs."""
    if sites is None or terms.lower.size > sites.size or terms.counts.size > 1:
        return False
    known = _of_covariance(terms, sites)
    return known is not None and go_by_factors(known[0].factor, -terms.lower, sites)


# Operations n r^2 of a sweep up to which coordinates as many as rows take no longer than the
# covariance of these.
_FEW_OPERATIONS = 2 * 10**6


def go_by_factors(factor: FloatArray, mean: FloatArray, sites: SitesGiven) -> bool:
    """Whether coordinates save time, and sites are log-concave within the prior's reach.

    Beside others EP's value depends on where it begins.
    """
    n, r = factor.shape
    if 2 * r > n and n * r * r > _FEW_OPERATIONS:
        return False
    if sites.log_concave:
        return True
    factors = SiteFactors(sites.log_prob, sites.slopes, mean)
    with np.errstate(all="ignore"):
        factors.tilted(np.zeros(n), np.sqrt(np.einsum("ij,ij->i", factor, factor)))
    return factors.log_concave


def _of_covariance(terms: EvidenceTerms, sites: SitesGiven | None) -> Known | None:
    if not np.isfinite(terms.cov).all():
        return None
    factor, none = low_rank_factor(symmetric(terms.cov), NEGLIGIBLE), np.zeros(0)
    own = FactorTerms(factor, -terms.lower, none, none, none, none, np.float64(1.0))
    return own._replace(log_constant=terms.log_constant), sites


def nothing(terms: FactorTerms) -> EvidenceGradient:
    """No evidence."""
    return EvidenceGradient(-np.inf, FactorTerms(*(np.zeros_like(x) for x in terms)))


def factor_start(terms: FactorTerms, sites: SitesGiven | None) -> FactorStart | None:
    """For EP at other hyperparameters; None where it fails at these."""
    evidence = FactorEvidence()
    evidence.value(terms, sites)
    return evidence.last


def factor_sampler(
    terms: FactorTerms, sites: SitesGiven | None, start: FactorStart | None = None
) -> tuple[FactorRows, SiteSampler]:
    """Pairs of coordinates in the order `rows.own`, and tempering where these are too few."""
    rows = FactorRows(terms, sites, start)
    gaussian = rows.whole(rows.fit(VALUE_TOLERANCE))
    return rows, SiteSampler(BlockPairs(gaussian, rows.blocks).with_modes())


def gaussian_draws(
    terms: FactorTerms, start: FactorStart | None, count: int, rng: np.random.Generator
) -> tuple[FactorRows, Estimate, FloatArray]:
    """Of rows that are all points, whose sites EP knows: log evidence, and draws (count, r)."""
    rows = FactorRows(terms, None, start)
    ep = rows.fit(VALUE_TOLERANCE)
    gaussian = rows.whole(ep)
    draws = gaussian.of_white(rng.standard_normal((gaussian.mean.size, count))).T
    return rows, Estimate(ep.log_prob, 0.0, 1.0, -np.inf), draws


def log_likelihood_at(terms: FactorTerms, sites: SitesGiven | None, c: FloatArray) -> float:
    """Of one c, but for what `terms` has in its constant."""
    rows = FactorRows(terms, sites)
    return float(rows.blocks.total("log_prob", c[rows.own.order, None])[0])


def factor_estimate(
    terms: FactorTerms, sites: SitesGiven | None, n_draws: int, seed: int
) -> Estimate:
    """Log evidence with its error."""
    sampler = factor_sampler(terms, sites)[1]
    found: Any = sampler.members(n_draws, np.random.default_rng(seed)).log_prob
    result: Estimate = found._replace(value=found.value + float(terms.log_constant))
    return result


def factor_by_pairs(
    terms: FactorTerms, sites: SitesGiven | None, n_draws: int, seed: int
) -> EvidenceGradient:
    """Exact log evidence by draws at fixed points, and the gradient by the same draws."""
    try:
        with no_warnings(), np.errstate(all="ignore"):
            rows, sampler = factor_sampler(terms, sites)
            draws = sampler.members(n_draws, np.random.default_rng(seed))
            weights = normalized_weights(draws.log_weights)
            wrt, parameters = rows.gradient_by_draws(draws.draws, weights)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return nothing(terms)
    assert draws.log_prob is not None
    noise = 0.0 if draws.method == "pairs" else draws.log_prob.std_error
    value = draws.log_prob.value + float(terms.log_constant)
    return EvidenceGradient(value, wrt, noise, parameters)
