r"""EP of white coordinates c, c ~ N(0, I), under rows and sites, with the gradient.

Of the exact evidence derivatives are means over the posterior, with g and h the first two
derivatives of log p in the predictor :math:`\eta_i = a_i + F_i c`, and of rows the noise is in p:

.. math:: \partial_{F_i} = \mathrm E(g_i c), \quad \partial_{a_i} = \mathrm E(g_i), \quad
    \partial_{\sigma_i^2} = \tfrac12 \mathrm E(g_i^2 + h_i).
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._gaussian.blocks.ep import BlockEP, LocalBlocks, fit_blocks, gaussian_of
from pymc_skewgp._gaussian.blocks.rows import FactorGradient, FieldBlock, SiteSums, row_block
from pymc_skewgp._gaussian.blocks.several import SeveralBlock, SeveralGradient
from pymc_skewgp._gaussian.coordinate_gaussian import CoordinateGaussian
from pymc_skewgp._gaussian.sparse import FieldPattern, FieldPrior
from pymc_skewgp._gaussian.tilted import KnownProducts
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.sites import SitesGiven
from pymc_skewgp._posterior.blocks_at import (
    LearntFunctions,
    LearntRows,
    LearntSeveral,
    LearntSites,
    slopes_of_limits,
)
from pymc_skewgp._posterior.site_evidence import FactorTerms, FieldTerms
from pymc_skewgp._validation import FloatArray

_MAX_SWEEPS = 100
# Where a factor is all but flat a step goes a million times too far.
_NEWTON_STEPS, _GAIN, _LEAST_STEP = 50, 1e-3, 1e-12
# Residual for a number, whose error goes with its square, or for a proposal.
VALUE_TOLERANCE = 1e-2
# Residual above which EP's number means nothing: beside non-concave factors it may be any.
_ROUGH = 1.0

# Terms at hyperparameters, with their sites.
Known = tuple[Any, SitesGiven | None]
# Tau and nu of each part.
Sites = list[tuple[FloatArray, FloatArray]]


class FactorStart(NamedTuple):
    """Where EP has ended, at these terms: where it begins at those of other hyperparameters.

    Attributes
    ----------
    terms : FactorTerms or FieldTerms
    sites : list of (ndarray, ndarray)
        Tau and nu of each part.
    products : KnownProducts or None
        Of the functions, where there are any.
    patterns : list of Pattern, FieldPattern or None
        Of each part's predictors.
    log_prob : float
        EP's log evidence, without the constant.
    is_enough : bool
        Whether EP's Gaussian alone is the proposal at neighbouring hyperparameters on both sides,
        so that no modes are looked for.
    """

    terms: FactorTerms | FieldTerms
    sites: Sites
    products: KnownProducts | None
    patterns: list[Any]
    log_prob: float
    is_enough: bool = False


# Prior deviations of predictors, within which quadrature finds the factors.
_NARROW = 10.0


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
    def of(cls, terms: FactorTerms, several: bool = False) -> "OwnCoordinates":
        """Of terms, or of stacked ones; none of rows that stand for several, or see several."""
        n, r = terms.factor.shape[-2:]
        moved = (terms.factor != 0.0).reshape(-1, n, r).any(axis=0)
        repeated, k = np.zeros(n, dtype=bool), terms.value.shape[-1]
        if k and terms.counts.shape == terms.value.shape:
            repeated[:k] = (terms.counts != 1.0).reshape(-1, k).any(axis=0)
        alone = np.flatnonzero((moved.sum(axis=0) == 1) & ~repeated[moved.argmax(axis=0)])
        rows, first = np.unique(moved[:, alone].argmax(axis=0), return_index=True)
        most = r - 1 if _FEWEST * rows.size >= r and not several else 0
        rows, columns = rows[:most], alone[first][:most]
        noise = np.zeros(terms.offset.shape)
        noise[..., rows] = terms.factor[..., rows, columns] ** 2
        return cls(rows, np.concatenate([columns, np.delete(np.arange(r), columns)]), noise)

    def in_order(self, c: FloatArray) -> FloatArray:
        """Draws (N, r) of coordinates in this order, in that of the terms."""
        found = np.empty(c.shape)
        found[:, self.order] = c
        return found

    def beside(
        self, others: CoordinateGaussian, factor: FloatArray, tau: FloatArray, nu: FloatArray
    ) -> CoordinateGaussian:
        """All coordinates, in this order as those of `factor`, under sites of all predictors."""
        own, first = factor[self.rows], np.arange(self.size)
        known = tau[self.rows], nu[self.rows]
        return others.beside(own[first, first], own[:, self.size :], *known)


# Of one less the share of a row's variance that its site takes: a site that takes all is a point.
_LEAST_SHARE = 1e-6


def through_noise(
    tau: FloatArray, nu: FloatArray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sites of predictors that noise of these variances is added to; of negative ones back."""
    ratio = np.maximum(1.0 + tau * noise, _LEAST_SHARE)
    return tau / ratio, nu / ratio


def set_points(terms: FactorTerms | FieldTerms, tau: FloatArray, nu: FloatArray) -> None:
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
        self.parts = parts = parts_of(terms, sites, None if start is None else start.products)
        self.own = own = OwnCoordinates.of(terms, sites is not None and bool(sites.several))
        self.loadings = terms.factor[:, own.order]
        patterns = [None] * len(parts) if start is None else start.patterns
        self._of_ep: list[Any] = []  # RowBlock or SeveralBlock
        for (rows, part), pattern in zip(parts, patterns, strict=True):
            factor = self.loadings[rows, own.size :]
            if isinstance(part, LearntSeveral):
                self._of_ep.append(SeveralBlock(factor, part))
            else:
                part = part.with_noise(own.noise[rows]) if own.size else part
                self._of_ep.append(row_block(factor, part, pattern))

    @cached_property
    def _blocks(self) -> list[Any]:
        """Of all coordinates."""
        if not self.own.size:
            return self._of_ep
        return [row_block(self.loadings[rows], part) for rows, part in self.parts]

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
        if self._begins_at_prior:
            found = self._by_ep([(0.0 * x.tau, 0.0 * x.nu) for x in self._blocks], tol)
            if found is not None:
                return found
        self._begin_at_mode()
        found = self._by_ep([(block.tau, block.nu) for block in self._blocks], tol)
        return self._at_mode() if found is None else found

    @property
    def _begins_at_prior(self) -> bool:
        """Whether all predictors are of factors of several, and quadrature finds these there.

        Where such factors have spikes, as a density with its own scale has, the mode is at one.
        """
        for rows, part in self.parts:
            if not isinstance(part, LearntSeveral):
                return False
            variance = (self.terms.factor[rows] ** 2).sum(axis=1).reshape(part.shape)
            if part.gaussian_in is not None:
                variance = np.delete(variance, part.gaussian_in, axis=1)
            if variance.max() > _NARROW**2:
                return False
        return True

    def _begin(self, sites: Sites) -> LocalBlocks:
        each = zip(self._of_ep, self.parts, self._exact(sites), strict=True)
        for block, (rows, _), known in each:
            block.tau, block.nu = self._through(known, self.own.noise[rows])
            block.finish()  # what failed steps have left may be no numbers
            if isinstance(block, SeveralBlock):
                block.forget_nodes()
        return LocalBlocks(self._of_ep)

    def _through(
        self, sites: tuple[FloatArray, FloatArray], noise: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        return through_noise(*sites, noise) if self.own.size else sites

    def _ended(self, start: FactorStart) -> BlockEP:
        """What EP would find by one more sweep, which says whether sites are log-concave."""
        blocks = self._begin(start.sites)
        gaussian = self._times(blocks.total("sums"))
        known = self.sites is None or self.sites.log_concave
        blocks.total("place" if known else "tilt", gaussian.mean, gaussian.spread)
        return BlockEP(gaussian, start.log_prob, 0, VALUE_TOLERANCE)

    def _by_ep(self, sites: Sites, tol: float) -> BlockEP | None:
        """From these sites; None where it fails, as by cavities without a variance."""
        blocks = self._begin(sites)
        try:
            found = fit_blocks(blocks, tol=tol, max_sweeps=_MAX_SWEEPS, times=self._times)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return None
        return found if np.isfinite(found.log_prob) and found.residual < _ROUGH else None

    def found(self, ep: BlockEP) -> FactorStart:
        """After `fit`."""
        products = products_of(self.parts)
        sites = [
            self._through((block.tau, block.nu), -self.own.noise[rows])
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
            known = [x.marginals.before_noise(part, own.noise[rows]) for x, (rows, part) in each]
            self._set([(x.tau, x.nu) for x in known])
            tau = np.concatenate([block.tau for block in self._blocks])
            nu = np.concatenate([block.nu for block in self._blocks])
            gaussian = own.beside(gaussian, self.loadings, tau, nu)
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

        Of shape (N, n) each; of several predictors (N, n K), and second ones (N, n, K, K).
        """
        found = []
        for own, part in self.parts:
            if isinstance(part, LearntSeveral):
                found.append(part.slopes(eta[:, own]))
            elif isinstance(part, LearntRows):
                found.append(part.slopes(slice(None), np.ascontiguousarray(eta[:, own])))
            else:
                assert self.sites is not None
                found.append(self.sites.slopes(eta[:, own] + self.terms.offset[own]))
        return found

    def gradient_by_draws(
        self, c: FloatArray, weights: FloatArray
    ) -> tuple[FactorTerms, list[FloatArray]]:
        """Of the exact evidence, by weighted draws of the coordinates, shape (N, r)."""
        eta = c @ self.loadings.T
        found: list[FactorGradient | SeveralGradient] = []
        numbers = []
        for (own, part), (first, second) in zip(self.parts, self.slopes(eta), strict=True):
            counts = part.counts
            pulled = weights[:, None] * first
            factor = self._factor_by_draws(counts * pulled, c, own)
            offset = counts * pulled.sum(axis=0)
            found.append(FactorGradient(factor, offset, offset, offset, offset))
            if isinstance(part, LearntSeveral):
                every = np.broadcast_to(weights[:, None], (len(c), part.shape[0]))
                numbers.append(part.in_parameters(eta[:, own], every))
            elif isinstance(part, LearntRows):
                noise = 0.5 * counts * (weights @ (first**2 + second))
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
        self, found: list[FactorGradient | SeveralGradient], numbers: list[list[FloatArray]]
    ) -> tuple[FactorTerms, list[FloatArray]]:
        k = self.terms.value.size
        rows = [np.where(np.isfinite(x), x, 0.0) for x in numbers[0]] if k else [np.zeros(0)] * 4
        parameters = [x for own in numbers[int(k > 0) :] for x in own]
        offset = np.concatenate([x.offset for x in found])
        known = offset, *rows, np.zeros_like(self.terms.counts), np.float64(1.0)
        return self._with_rows([x.factor for x in found], known), parameters

    def _with_rows(self, factors: list[FloatArray], known: tuple[FloatArray, ...]) -> Any:
        """Derivatives in the terms, of which the last are `known`."""
        factor = np.empty(self.terms.factor.shape)
        factor[:, self.own.order] = np.concatenate(factors)
        return FactorTerms(factor, *known)

    def _factor_by_draws(self, pulled: FloatArray, c: FloatArray, own: slice) -> FloatArray:
        return pulled.T @ c

    def _at_mode(self) -> BlockEP:
        """Laplace's approximation, no fixed point of EP."""
        value = self._begin_at_mode()
        gaussian = self._times(self.blocks.total("sums"))
        return BlockEP(gaussian, value - gaussian.half_log_det, _MAX_SWEEPS, np.inf)

    def _begin_at_mode(self) -> float:
        """Laplace's sites, and the log density at the mode.

        About a wide prior's mean quadrature would be of nothing.
        """
        F, c = self.loadings, np.zeros(self.loadings.shape[1])
        value = self._log_density(c)
        for _ in range(_NEWTON_STEPS):
            self._set(self._sites_about(F @ c))
            step, size = self._times(self.blocks.total("sums")).mean - c, 1.0
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
        if self.terms.value.size:
            set_points(self.terms, *found[0])
        return found

    def _log_density(self, c: FloatArray) -> float:
        with np.errstate(all="ignore"):
            return float(self.blocks.total("log_prob", c[:, None])[0]) + self._log_prior(c)

    def _times(self, sums: SiteSums) -> CoordinateGaussian:
        """The prior times sites with these sums."""
        return gaussian_of(sums)

    def _log_prior(self, c: FloatArray) -> float:
        return -0.5 * float(c @ c)

    def _sites_about(self, eta: FloatArray) -> Sites:
        """Second-order expansions of log p, those of curvature."""
        found = []
        with np.errstate(all="ignore"):
            slopes = self.slopes(eta[None])
        each = zip(self.parts, self._blocks, slopes, strict=True)
        for (own, _), block, (first, second) in each:
            if isinstance(block, SeveralBlock):
                found.append(block.about(eta[own]))
                continue
            tau = np.where(second[0] < 0.0, -second[0], 0.0)
            tau = np.where(np.isfinite(tau), tau, 0.0)
            pull = np.where(np.isfinite(first[0]), first[0], 0.0)
            found.append((tau, pull + tau * eta[own]))
        return found


class FieldRows(FactorRows):
    """Predictors of a field, in its own coordinates; see `FieldTerms`."""

    terms: Any

    def __init__(
        self, terms: FieldTerms, sites: SitesGiven | None, start: FactorStart | None = None
    ) -> None:
        self.terms, self.sites, self._start = terms, sites, start
        self.parts = parts_of(terms, sites, None if start is None else start.products)
        places = terms.of_design.astype(np.intp), terms.of_precision.astype(np.intp)
        shape = (terms.offset.size, terms.slope.size)
        pattern = start.patterns[0] if start else None
        if pattern is None or not pattern.is_of(*places):
            pattern = FieldPattern(*places, shape)
        self._pattern = pattern
        nothing = np.zeros(0, dtype=np.intp)
        self.own = OwnCoordinates(nothing, np.arange(shape[1]), np.zeros(shape[0]))
        self.loadings = pattern.design(terms.design)
        self._prior = FieldPrior(
            pattern, pattern.precision(terms.precision), terms.slope, terms.ties
        )
        self._of_ep = [FieldBlock(terms.design, pattern, *part) for part in self.parts]

    def fit(self, tol: float) -> BlockEP:
        """See `FactorRows`; NotPositiveDefiniteError where the prior is no density."""
        self._prior.refuse_improper()
        return super().fit(tol)

    def gradient(self, ep: BlockEP) -> tuple[Any, list[FloatArray]]:
        """See `FactorRows`."""
        found = super().gradient(ep)
        if not ep.residual < _ROUGH:
            return found  # by draws
        i, j = self._pattern.of_precision
        mean, chol, ties = ep.gaussian.mean, ep.gaussian.spread, self.terms.ties
        tied = chol.solve(ties.T.copy()).T + np.outer(ties @ mean, mean)
        return _with_moments(found, mean, chol.entries(i, j) + mean[i] * mean[j], tied)

    def gradient_by_draws(self, c: FloatArray, weights: FloatArray) -> tuple[Any, list[FloatArray]]:
        """See `FactorRows`."""
        found = super().gradient_by_draws(c, weights)
        i, j = self._pattern.of_precision
        squares = np.einsum("n,nk,nk->k", weights, c[:, i], c[:, j])
        tied = (weights[:, None] * (c @ self.terms.ties.T)).T @ c
        return _with_moments(found, weights @ c, squares, tied)

    def _times(self, sums: SiteSums) -> CoordinateGaussian:
        return self._prior.times(sums)

    def _log_prior(self, c: FloatArray) -> float:
        return self._prior.log_prob(c)

    def _with_rows(self, factors: list[FloatArray], known: tuple[FloatArray, ...]) -> FieldTerms:
        of_prior = (np.zeros_like(x) for x in self.terms[1:6])
        return FieldTerms(np.concatenate(factors), *of_prior, *known)

    def _factor_by_draws(self, pulled: FloatArray, c: FloatArray, own: slice) -> FloatArray:
        some = slice(*self._pattern.starts[[own.start, own.stop]])
        rows, columns = self._pattern.of_design[:, some]
        found: FloatArray = np.einsum("nk,nk->k", pulled[:, rows - own.start], c[:, columns])
        return found


def _with_moments(
    found: tuple[Any, list[FloatArray]], mean: FloatArray, squares: FloatArray, tied: FloatArray
) -> tuple[Any, list[FloatArray]]:
    """With derivatives in the prior: by E(c), E(c_i c_j) where Q has entries, and E(U c c')."""
    wrt, parameters = found
    return wrt._replace(slope=mean, precision=-0.5 * squares, ties=-tied), parameters


def rows_of(
    terms: FactorTerms | FieldTerms, sites: SitesGiven | None, start: FactorStart | None = None
) -> FactorRows:
    """Of terms of either kind."""
    if isinstance(terms, FieldTerms):
        return FieldRows(terms, sites, start)
    return FactorRows(terms, sites, start)


def parts_of(
    terms: FactorTerms | FieldTerms, sites: SitesGiven | None, products: KnownProducts | None
) -> list[tuple[slice, Any]]:
    """Rows, then functions, with their places; of stacked terms one after the other."""
    k = terms.value.shape[-1]
    parts: list[tuple[slice, LearntSites | LearntSeveral]] = []
    if k:
        counts = terms.counts.ravel() if terms.counts.shape == terms.value.shape else None
        columns = [x.ravel() for x in (terms.lower, terms.upper, terms.value, terms.noise)]
        offset = terms.offset[..., :k].ravel()
        parts.append((slice(0, k), LearntRows(columns, offset, np.zeros(offset.size), counts)))
    if sites is None:
        return parts
    end = terms.offset.shape[-1] - sum(own.size * own.width for own in sites.several)
    if end > k:
        offset = terms.offset[..., k:end].ravel()
        sd = terms.deviations(slice(k, end)).ravel()
        functions = LearntFunctions(sites, offset, np.zeros(offset.size), sd, products)
        parts.append((slice(k, end), functions))
    for own in sites.several:
        rows = slice(end, end := end + own.size * own.width)
        parts.append((rows, LearntSeveral(own, terms.offset[rows])))
    return parts


def products_of(parts: list[tuple[slice, Any]]) -> KnownProducts | None:
    known = [part.factors.known for _, part in parts if isinstance(part, LearntFunctions)]
    return known[0] if known else None
