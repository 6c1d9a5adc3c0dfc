"""Evidence, gradient and draws of white coordinates at one or many hyperparameters."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.blocks.conditional import block_sampler, is_alone
from pymc_skewgp._gaussian.blocks.ep import (
    BlockEP,
    SideBySide,
    fit_side_by_side,
    placed_side_by_side,
)
from pymc_skewgp._gaussian.blocks.pairs import singles_side_by_side
from pymc_skewgp._gaussian.blocks.rows import Pattern
from pymc_skewgp._gaussian.blocks.several import fit_several, sites_together
from pymc_skewgp._gaussian.coordinate_gaussian import (
    CoordinateGaussian,
    SiteMarginals,
    coordinate_gaussians,
)
from pymc_skewgp._gaussian.coordinates import LARGEST_UNSEEN, SiteSampler
from pymc_skewgp._gaussian.escalation import DEFAULT
from pymc_skewgp._gaussian.linalg import low_rank_factor, symmetric
from pymc_skewgp._gaussian.tilted import SiteFactors, Tilted
from pymc_skewgp._gaussian.weights import (
    Estimate,
    in_cells,
    log_mean_exp,
    normalized_weights,
    relative_ess,
    resample_together,
)
from pymc_skewgp._learn.factor_rows import (
    VALUE_TOLERANCE,
    FactorRows,
    FactorStart,
    Known,
    OwnCoordinates,
    parts_of,
    products_of,
    rows_of,
    set_points,
    through_noise,
)
from pymc_skewgp._observations.sites import SitesGiven, joined_sites
from pymc_skewgp._posterior.blocks_at import LearntSeveral
from pymc_skewgp._posterior.evidence_gradient import (
    EP_TOLERANCE,
    EvidenceByEP,
    EvidenceGradient,
    EvidenceTerms,
)
from pymc_skewgp._posterior.site_evidence import NEGLIGIBLE, FactorTerms, FieldTerms
from pymc_skewgp._validation import FloatArray

_TINY = 1e-300  # instead of 0


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
    ends : list of FactorStart or None
        At each of the last `values`.
    """

    def __init__(self, tol: float = EP_TOLERANCE) -> None:
        self._tol = tol
        self.last: FactorStart | None = None
        self.ends: list[FactorStart | None] = []

    def __call__(
        self, terms: FactorTerms | FieldTerms, sites: SitesGiven | None = None
    ) -> EvidenceGradient:
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

    def value(self, terms: FactorTerms | FieldTerms, sites: SitesGiven | None = None) -> float:
        """The value alone."""
        found = self._fit(terms, sites, VALUE_TOLERANCE)
        return -np.inf if found is None else found[1].log_prob + float(terms.log_constant)

    def values(self, known: Iterable[Known | None]) -> FloatArray:
        """Of many terms with sites, small ones side by side; minus infinity of None."""
        found, waiting, size = [], dict[int, Known](), 0
        self.ends = []
        for i, each in enumerate(known):
            found.append(-np.inf)
            self.ends.append(None)
            if each is None or not _are_finite(each[0]):
                continue
            waiting[i], size = each, size or n_together(*each)
            if len(waiting) >= size:
                self._add_values(waiting, found)
                waiting = {}
        self._add_values(waiting, found)
        return np.array(found)

    def _add_values(self, waiting: dict[int, Known], found: list[float]) -> None:
        while waiting and self.last is None:
            i = next(iter(waiting))
            found[i] = self.value(*waiting.pop(i))
            self.ends[i] = self.last
        known = _ends(list(waiting.values()), [self.last] * len(waiting))
        starts = known[0] if known else [None] * len(waiting)
        for (i, each), start in zip(waiting.items(), starts, strict=True):
            if start is None:
                found[i] = self.value(*each)
            else:
                found[i] = start.log_prob + float(each[0].log_constant)
                self.last = start
            self.ends[i] = self.last

    def _fit(
        self, terms: FactorTerms | FieldTerms, sites: SitesGiven | None, tol: float
    ) -> tuple[FactorRows, BlockEP] | None:
        if not _are_finite(terms):
            return None
        try:
            with no_warnings(), np.errstate(all="ignore"):
                start, self.last = self.last, None
                rows = rows_of(terms, sites, start)
                ep = rows.fit(tol)
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return None
        if not np.isfinite(ep.log_prob):
            return None
        self.last = rows.found(ep)
        return rows, ep


def _are_finite(terms: FactorTerms | FieldTerms) -> bool:
    finite = all(np.isfinite(x).all() for x in terms.finite)
    return finite and bool((terms.noise > 0).all())


# EP at many hyperparameters side by side, which takes a third to two thirds of the time: moments of
# a thousand rows are one call.

# Operations n r^2 of a sweep up to which it does, rows of all together, which stay in the cache,
# and sweeps: what they are not enough for goes on alone.
_MOST_OPERATIONS, _ROWS_TOGETHER, _SWEEPS_TOGETHER = 3 * 10**7, 1000, 20
_NUMBERS_TOGETHER = 2**18  # of the factors of points alone, which have no sweeps
# Draws at many hyperparameters together: a tail that these hardly meet is looked for.
_DRAWS = 1024
# Residual of EP for pairs, whose weights make up for it: they do not see a mean that is off.
_DRAW_TOLERANCE = 0.05
_OUTER = 2
# Hyperparameters side by side from which on modes are looked for at the outer ones first.
_FEWEST_SEARCHED = 6


def n_together(terms: FactorTerms | FieldTerms, sites: SitesGiven | None) -> int:
    """How many such terms go side by side."""
    if isinstance(terms, FieldTerms):
        return 1
    n, r = terms.factor.shape
    if sites is not None and sites.several:
        if not _of_one_kind(n, sites):
            return 1
    else:
        r -= OwnCoordinates.of(terms).size
    if sites is None and np.isfinite(terms.value).all():
        return max(1, _NUMBERS_TOGETHER // (n * max(r, 1)))
    return max(2, _ROWS_TOGETHER // n) if n * r * r <= _MOST_OPERATIONS else 1


def is_slow(terms: Any, sites: SitesGiven | None) -> bool:
    """Whether EP takes some ten milliseconds and more."""
    if isinstance(terms, FieldTerms):
        return True  # of hundreds of values at least
    if isinstance(terms, FactorTerms):
        return not (sites and sites.several) and n_together(terms, sites) == 1
    return int(terms.n_rows) ** 3 > _MOST_OPERATIONS


def _of_one_kind(n: int, sites: SitesGiven) -> bool:
    """Whether all of n predictors are of observations of several each, of one kind."""
    own = sites.several[0]
    return own.size > 1 and own.size * own.width == n


class Drawn(NamedTuple):
    """Draws of coordinates at some hyperparameters.

    Attributes
    ----------
    log_prob : Estimate
        Log evidence, without the constant.
    draws : ndarray, shape (N, r)
    log_weights : ndarray, shape (N,)
    """

    log_prob: Estimate
    draws: FloatArray
    log_weights: FloatArray

    def resampled(self, count: int, rng: np.random.Generator) -> FloatArray:
        """So many of them, with equal weights, in random order with copies side by side."""
        return self.draws[resample_together(self.log_weights, count, rng)]


def drawn_together(
    known: Sequence[Known],
    starts: Sequence[FactorStart],
    n_pairs: int,
    rngs: Sequence[np.random.Generator],
) -> tuple[list[FactorStart | None], list[Drawn | None]]:
    """Where EP ends, and one member of each of so many pairs.

    None where it has not ended, or where their weights ask for more.
    """
    found = _ends(known, starts, _DRAW_TOLERANCE, as_ends=True)
    nothing: list[Drawn | None] = [None] * len(known)
    if found is None:
        return [None] * len(known), nothing
    ends, rows, fits = found
    if isinstance(rows, _SeveralTogether):
        return rows.without_search(ends), nothing
    try:
        with no_warnings(), np.errstate(all="ignore"):
            drawn = rows.drawn(fits, n_pairs, rngs)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return ends, nothing
    return ends, [own if end else None for end, own in zip(ends, drawn, strict=True)]


def _ends(
    known: Sequence[Known],
    starts: Sequence[Any],
    tol: float = VALUE_TOLERANCE,
    *,
    as_ends: bool = False,
) -> tuple[list[FactorStart | None], "_RowsTogether | _SeveralTogether", SideBySide] | None:
    if len(known) < 2:
        return None
    several = known[0][1] is not None and known[0][1].several
    rows = (_SeveralTogether if several else _RowsTogether)(known, starts)
    ended = as_ends and all(
        start.terms is terms and (sites is None or sites.log_concave)
        for start, (terms, sites) in zip(starts, known, strict=True)
    )
    try:
        with no_warnings(), np.errstate(all="ignore"):
            fits = rows.placed() if ended and isinstance(rows, _RowsTogether) else rows.fit(tol)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return None
    done = (fits.residual < tol) & np.isfinite(fits.log_prob)
    ends = [rows.start(fits, p, starts[p].patterns) if ok else None for p, ok in enumerate(done)]
    return ends, rows, fits


def _stacked(each: Sequence[FactorTerms]) -> FactorTerms:
    """With one more axis, the first."""
    n, most = len(each[0].factor), max(t.factor.shape[1] for t in each)
    factor = np.zeros((len(each), n, most))
    for own, t in zip(factor, each, strict=True):
        own[:, : t.factor.shape[1]] = t.factor
    return FactorTerms(factor, *map(np.array, list(zip(*each, strict=True))[1:]))


def _drawn_exactly(
    gaussian: CoordinateGaussian, log_prob: float, rng: np.random.Generator, n_draws: int
) -> tuple[FloatArray, FloatArray, Estimate]:
    """Of rows that are all points, whose Gaussian is the posterior: draws, weights, evidence."""
    c = gaussian.of_white(rng.standard_normal((gaussian.mean.size, n_draws))).T
    return c, np.zeros(n_draws), Estimate(float(log_prob), 0.0, 1.0, -np.inf)


def _begun(starts: Sequence[FactorStart]) -> tuple[FloatArray, FloatArray]:
    """Tau and nu of all parts of each, (P, n)."""
    each = [[np.concatenate(x) for x in zip(*start.sites, strict=True)] for start in starts]
    tau, nu = map(np.array, zip(*each, strict=True))
    return tau, nu


class _RowsTogether:
    """Rows and sites of several hyperparameters, one after the other: `TiltedMoments` of all."""

    def __init__(self, known: Sequence[Known], starts: Sequence[FactorStart]) -> None:
        self._known, self._terms = known, [terms for terms, _ in known]
        n, start = len(known), starts[0]
        self._all = terms = _stacked(self._terms)
        self.own, self.shape = OwnCoordinates.of(terms), terms.offset.shape
        own = self.own
        self.factor = terms.factor[..., own.order]
        sites = [own for _, own in known if own is not None]
        products = start.products and start.products.repeated(n)
        self._exact = not sites and bool(np.isfinite(terms.value).all())
        self._whole = parts_of(terms, joined_sites(sites) if sites else None, products)
        self._parts = [
            (rows, part.with_noise(own.noise[:, rows].ravel())) for rows, part in self._whole
        ]
        self.counts = np.ones(self.shape)
        self.counts[:, : terms.value.shape[1]] = terms.counts.reshape(n, -1)
        begun = _begun(starts)
        set_points(terms, *begun)
        self.begun = through_noise(*begun, own.noise)
        self._gaussians: list[CoordinateGaussian] = []  # of points alone, after `fit`

    def fit(self, tol: float) -> SideBySide:
        """EP of all; of points alone in closed form."""
        if self._exact:
            return self._fit_exactly()
        given = self.factor[..., self.own.size :], self, self.counts, self.begun
        return fit_side_by_side(*given, tol=tol, max_sweeps=_SWEEPS_TOGETHER)

    def placed(self) -> SideBySide:
        """All with the sites that they begin with; marginals where `_tails` asks for them."""
        if self._exact:
            return self._fit_exactly()
        if self._are_alike:
            none = np.zeros(len(self.factor))
            return SideBySide(*self.begun, none, none, none, none)
        return placed_side_by_side(self.factor[..., self.own.size :], self.counts, self.begun)

    @property
    def _are_alike(self) -> bool:
        """Whether the outer ones say what tails all others have, as those between them."""
        return len(self._known) > _OUTER and not (self.own.size or self._exact)

    def _tails(self, fits: SideBySide) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sites of all coordinates' predictors, and the share of each evidence in tails."""
        if not self._are_alike:
            return self._before_noise(fits)
        ends = [(self._known[p], self.start(fits, p, [])) for p in (0, -1)]
        outer = _RowsTogether(*zip(*ends, strict=True))
        seen = outer._before_noise(outer.placed())[2].max()
        return fits.tau, fits.nu, np.full(len(fits.tau), seen)

    def _fit_exactly(self) -> SideBySide:
        tau, nu = self.begun
        scales = 0.5 * (np.log(tau / (2.0 * np.pi)) - nu**2 / tau)
        log_prob, none = (self.counts * scales).sum(axis=1), np.zeros(0)
        self._gaussians = self._gaussians_at(tau, nu)
        for p, own in enumerate(self._gaussians):
            pull = self.factor[p, :, self.own.size :].T @ (self.counts[p] * nu[p])
            log_prob[p] += own.log_integral(pull)
        return SideBySide(tau, nu, log_prob, np.zeros(len(tau)), none, none)

    def _gaussians_at(self, tau: FloatArray, nu: FloatArray) -> list[CoordinateGaussian]:
        """Without the coordinates that one row alone has."""
        factor = self.factor[..., self.own.size :]
        return coordinate_gaussians(factor, self.counts * tau, self.counts * nu)

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `TiltedMoments`."""
        found = np.empty((4, *self.shape))
        for own, part in self._parts:
            at = (x.reshape(self.shape)[:, own].ravel() for x in (mean, sd))
            found[:, :, own] = np.array(part.tilted(*at)).reshape(4, len(self.factor), -1)
        return Tilted(*found.reshape(4, -1))

    def start(self, fits: SideBySide, p: int, patterns: list[Pattern | None]) -> "FactorStart":
        """Where that at one of the hyperparameters has ended."""
        tau, nu = through_noise(fits.tau[p], fits.nu[p], -self.own.noise[p])
        sites = [(tau[own], nu[own]) for own, _ in self._parts]
        products = products_of(self._parts)
        if products is not None:
            n = sites[-1][0].size
            first = p % len(self._terms) * n  # of the last one, -1
            products = products.part(slice(first, first + n))
        return FactorStart(self._terms[p], sites, products, patterns, float(fits.log_prob[p]))

    def drawn(
        self, fits: SideBySide, n_pairs: int, rngs: Sequence[np.random.Generator]
    ) -> list[Drawn | None]:
        """See `drawn_together`."""
        if not all(part.log_concave for _, part in self._parts):
            return [None] * len(rngs)  # there may be several modes
        tau, nu, unseen = self._tails(fits)
        gaussians = self._gaussians or self._gaussians_at(fits.tau, fits.nu)
        if self.own.size:
            every = zip(gaussians, self.factor, tau, nu, strict=True)
            gaussians = [self.own.beside(*known) for known in every]
        drawn: Iterable[tuple[FloatArray, FloatArray, Estimate]]
        if self._exact:
            each = zip(gaussians, fits.log_prob, rngs, strict=True)
            drawn = (_drawn_exactly(*own, n_pairs) for own in each)
        else:
            drawn = singles_side_by_side(gaussians, self.factor, self._log_prob, n_pairs, rngs)
        every_one = list(drawn)
        # To leave out those that met a tail would be a bias: all are judged by the middle one.
        share = float(np.median([quality.relative_ess for *_, quality in every_one]))
        found: list[Drawn | None] = []
        for p, (c, log_weights, quality) in enumerate(every_one):
            draws = self.own.in_order(c)[:, : self._terms[p].factor.shape[1]]
            error = float(np.hypot(quality.std_error, unseen[p]))
            good = share >= DEFAULT.draws.accept and unseen[p] <= LARGEST_UNSEEN
            own = Drawn(quality._replace(std_error=error), draws, log_weights)
            found.append(own if good else None)
        return found

    def _log_prob(self, eta: FloatArray) -> FloatArray:
        """Of predictors, shape (N, P, n): of each problem, shape (N, P)."""
        total = np.zeros(eta.shape[:2])
        for own, part in self._whole:
            values = part.log_prob(slice(None), eta[:, :, own].reshape(len(eta), -1))
            total += (part.counts * values).reshape(*total.shape, -1).sum(axis=2)
        return total

    def _before_noise(self, fits: SideBySide) -> tuple[FloatArray, FloatArray, FloatArray]:
        tau, nu, missing = fits.tau.copy(), fits.nu.copy(), np.zeros(len(fits.tau))
        for own, part in [] if self._exact else self._whole:
            every = fits.mean, fits.variance, fits.tau, fits.nu
            found = SiteMarginals(*(x[:, own].ravel() for x in every))
            if self.own.size:
                found = found.before_noise(part, self.own.noise[:, own].ravel())
            tau[:, own], nu[:, own] = (x.reshape(len(tau), -1) for x in found[2:])
            lost = found.missing(partial(part.log_prob, slice(None)), _DRAWS)
            missing += (part.counts * lost**2).reshape(len(tau), -1).sum(axis=1)
        set_points(self._all, tau, nu)
        return tau, nu, np.sqrt(missing)


class _SeveralTogether:
    """Observations of several predictors of several hyperparameters, one after the other."""

    def __init__(self, known: Sequence[Known], starts: Sequence[FactorStart]) -> None:
        self._terms = [terms for terms, _ in known]
        self._factor = _stacked(self._terms).factor
        sites = [own.several[0] for _, own in known if own is not None]
        each = [LearntSeveral(x, t.offset) for x, t in zip(sites, self._terms, strict=True)]
        self._sites = sites_together(each, alike=not sites[0].has_parameters)
        self._begun, self._given = _begun(starts), [own for _, own in known]

    def fit(self, tol: float) -> SideBySide:
        """EP of all."""
        given = self._factor, self._sites, self._begun
        return fit_several(*given, tol=tol, max_sweeps=_SWEEPS_TOGETHER)

    def start(self, fits: SideBySide, p: int, patterns: list[Pattern | None]) -> FactorStart:
        """Where that at one of the hyperparameters has ended."""
        sites = [(fits.tau[p], fits.nu[p])]
        return FactorStart(self._terms[p], sites, None, patterns, float(fits.log_prob[p]))

    def without_search(self, ends: list[FactorStart | None]) -> list[FactorStart | None]:
        """Ends between two at which EP's Gaussian was enough, when modes were looked for.

        How many draws are enough depends on the weights of each: none are drawn together. To look
        for modes takes ten times as long as to draw.
        """
        known = [(end, sites) for end, sites in zip(ends, self._given, strict=True) if end]
        if len(known) < _FEWEST_SEARCHED:
            return ends
        try:
            with no_warnings(), np.errstate(all="ignore"):
                outer = [factor_sampler(end.terms, x, end)[1] for end, x in (known[0], known[-1])]
        except (np.linalg.LinAlgError, ArithmeticError, ValueError):
            return ends
        if not all(is_alone(sampler) for sampler in outer):
            return ends
        return [end and end._replace(is_enough=True) for end in ends]


class SitesByEP(EvidenceByEP):
    """Of a covariance; many values of log-concave sites alone, without signs, by coordinates."""

    def __init__(self, tol: float) -> None:
        super().__init__(tol)
        self._factors = FactorEvidence(tol)
        self.ends: list[FactorStart | None] = []  # covariances are too large to be kept

    def values(self, known: Iterable[tuple[EvidenceTerms, SitesGiven | None] | None]) -> FloatArray:
        """See `EvidenceByEP`."""
        waiting = iter(known)
        ahead = list(islice(waiting, 1))  # all are alike, and too large to be kept
        every = chain(ahead, waiting)
        if None in ahead or not all(_sites_alone(*x) for x in ahead if x):
            return super().values(every)
        return self._factors.values(each and _of_covariance(*each) for each in every)


def _sites_alone(terms: EvidenceTerms, sites: SitesGiven | None) -> Known | None:
    """`_of_covariance`; None where there are rows or signs beside sites that go by factors."""
    if sites is None or terms.lower.size > sites.size or terms.counts.size > 1:
        return None
    known = _of_covariance(terms, sites)
    return known if known and go_by_factors(known[0].factor, -terms.lower, sites) else None


# Operations n r^2 of a sweep up to which coordinates as many as rows take no longer than the
# covariance of these.
_FEW_OPERATIONS = 2 * 10**6


def go_by_factors(factor: FloatArray, mean: FloatArray, sites: SitesGiven | None) -> bool:
    """Whether coordinates save time, and sites are log-concave within the prior's reach.

    Beside others EP's value depends on where it begins.
    """
    n, r = factor.shape
    few = 2 * r <= n or n * r * r <= _FEW_OPERATIONS
    return few and (sites is None or _are_log_concave(factor, mean, sites))


def _are_log_concave(factor: FloatArray, mean: FloatArray, sites: SitesGiven) -> bool:
    if sites.log_concave:
        return True
    factors = SiteFactors(sites.log_prob, sites.slopes, mean)
    with np.errstate(all="ignore"):
        factors.tilted(np.zeros(mean.size), np.sqrt(np.einsum("ij,ij->i", factor, factor)))
    return factors.log_concave


# Operations for one row, whatever the number of coordinates: its factor at all draws.
_OF_A_ROW = 1000


def operations_of_draws(terms: Any, sites: SitesGiven | None) -> float:
    """About as many as EP and draws take, one of many side by side; infinite where none are."""
    if isinstance(terms, FieldTerms):
        return np.inf
    if isinstance(terms, EvidenceTerms):
        if sites is None:
            return float(max(terms.n_rows, 1)) ** 3
        alone = _sites_alone(terms, sites)
        if alone is None:
            return np.inf
        terms, sites = alone[0], None  # they are log-concave
    n, r = terms.factor.shape
    k = terms.value.size
    if sites and sites.several:
        return np.inf
    if sites and not _are_log_concave(terms.factor[k:], terms.offset[k:], sites):
        return np.inf
    return n * (r * r + _OF_A_ROW)


def _of_covariance(terms: EvidenceTerms, sites: SitesGiven | None) -> Known | None:
    if not np.isfinite(terms.cov).all():
        return None
    factor, none = low_rank_factor(symmetric(terms.cov), NEGLIGIBLE), np.zeros(0)
    own = FactorTerms(factor, -terms.lower, none, none, none, none, np.float64(1.0))
    return own._replace(log_constant=terms.log_constant), sites


def nothing(terms: FactorTerms | FieldTerms) -> EvidenceGradient:
    """No evidence."""
    return EvidenceGradient(-np.inf, type(terms)(*(np.zeros_like(x) for x in terms)))


def factor_start(terms: FactorTerms | FieldTerms, sites: SitesGiven | None) -> FactorStart | None:
    """For EP at other hyperparameters; None where it fails at these."""
    evidence = FactorEvidence()
    evidence.value(terms, sites)
    return evidence.last


def factor_sampler(
    terms: FactorTerms | FieldTerms, sites: SitesGiven | None, start: FactorStart | None = None
) -> tuple[FactorRows, SiteSampler]:
    """Pairs of coordinates in the order `rows.own`, and tempering where these are too few."""
    rows = rows_of(terms, sites, start)
    gaussian = rows.whole(rows.fit(VALUE_TOLERANCE))
    return rows, block_sampler(gaussian, rows.blocks, start is None or not start.is_enough)


def drawn_alone(
    terms: FactorTerms | FieldTerms,
    sites: SitesGiven | None,
    start: FactorStart | None,
    n_draws: int,
    rng: np.random.Generator,
    on_collapse: Callable[[], None] | None = None,
) -> Drawn:
    """So many draws with all that their weights ask for; of rows that are all points exactly.

    Where pairs under factors of several predictors weigh little alike `on_collapse` is called.
    """
    if sites is None and np.isfinite(terms.value).all():
        rows = rows_of(terms, None, start)
        ep = rows.fit(VALUE_TOLERANCE)
        c, log_weights, found = _drawn_exactly(rows.whole(ep), ep.log_prob, rng, n_draws)
    else:
        rows, sampler = factor_sampler(terms, sites, start)
        if on_collapse is not None and sites and sites.several and sampler.collapsed:
            on_collapse()
        return _drawn_by(sampler, rows, n_draws, rng)
    return Drawn(found, rows.own.in_order(c), log_weights)


# Draws of one point from which on errors of their variances are to be as they say: effective ones
# over these draws, of the predictor of which there are fewest among some, in so many runs at most.
_MANY, _EFFECTIVE, _SOME, _RUNS = 1000, 1.0, 256, 4


def _drawn_by(
    sampler: SiteSampler, rows: FactorRows, n_draws: int, rng: np.random.Generator
) -> Drawn:
    """Draws in the order of the terms.

    Of many both members of pairs, along cells: half of them are then as evenly spread as all.

    Weights that go with squares of a predictor leave fewer of these than of the draws, which are
    resampled to equal weights: ArviZ does not see it.
    """
    factor = rows.loadings[:: 1 + rows.terms.n_rows // _SOME]
    runs: list[Drawn] = []
    while not runs or (n_draws >= _MANY and len(runs) < _RUNS):
        new = (sampler.members if n_draws >= _MANY else sampler.singles)(n_draws, rng)
        assert new.log_prob is not None
        level = new.log_prob.value - log_mean_exp(new.log_weights)  # of tempered draws any
        order: Any = slice(None)
        if new.method == "pairs" and n_draws >= _MANY:
            # By what moves the predictors first; others have those of one ancestor together.
            moved = np.asarray(abs(rows.loadings).sum(axis=0)).ravel() * new.draws.std(axis=0)
            order = in_cells(new.draws[:, np.argsort(-moved)])
        runs.append(Drawn(new.log_prob, new.draws[order], new.log_weights[order] + level))
        c, log_weights = (np.concatenate(x) for x in list(zip(*runs, strict=True))[1:])
        weights = normalized_weights(log_weights)
        squares = c @ factor.T
        squares = (squares - weights @ squares) ** 2 * weights[:, None]
        # 3 for a Gaussian and equal weights: the fourth moment over the square of the second.
        share = 3.0 * squares.sum(axis=0) ** 2 / np.maximum((squares**2).sum(axis=0), _TINY)
        if share.min() >= _EFFECTIVE * len(new.draws):  # members of a pair have the same square
            break
    found = [run.log_prob for run in runs]
    error = float(np.linalg.norm([x.std_error for x in found])) / len(runs)
    k = max(x.pareto_k for x in found)
    share = min(relative_ess(log_weights), float(np.mean([x.relative_ess for x in found])))
    estimate = Estimate(log_mean_exp(log_weights), error, share, k)
    return Drawn(estimate if len(runs) > 1 else found[0], rows.own.in_order(c), log_weights)


# Deviations, or predictors, that are far from EP's mean, nats that an integrable evidence falls by
# at least from there to twice as far, and share of the wide prior from which on none is EP's.
_FAR, _LEAST_FALL, _LARGEST_SHARE = 15.0, 0.35, 0.1


def is_bounded(
    terms: FactorTerms,
    sites: SitesGiven,
    start: FactorStart | None,
    direction: FloatArray,
) -> bool:
    """Whether the evidence given one coordinate falls as this goes far, whose prior is flat."""
    rows = rows_of(terms, sites, start)
    gaussian = rows.whole(rows.fit(VALUE_TOLERANCE))
    along = terms.factor @ direction
    centre, sd = direction @ gaussian.mean, float(np.linalg.norm(gaussian.spread.T @ direction))
    if sd >= _LARGEST_SHARE:
        return False
    far = _FAR * max(1.0 / np.abs(along).max(), sd)
    others = terms._replace(factor=terms.factor - np.outer(along, direction))
    for sign in (-1.0, 1.0):
        ends = (centre + sign * far * np.array([1.0, 2.0]))[:, None] * along
        near, farther = (
            FactorEvidence().value(others._replace(offset=terms.offset + end), sites)
            for end in ends
        )
        if np.isfinite([near, farther]).all() and near - farther < _LEAST_FALL:
            return False
    return True


def log_likelihood_at(
    terms: FactorTerms | FieldTerms, sites: SitesGiven | None, c: FloatArray
) -> float:
    """Of one c, but for what `terms` has in its constant."""
    rows = rows_of(terms, sites)
    return float(rows.blocks.total("log_prob", c[rows.own.order, None])[0])


def factor_estimate(
    terms: FactorTerms | FieldTerms, sites: SitesGiven | None, n_draws: int, seed: int
) -> Estimate:
    """Log evidence with its error."""
    sampler = factor_sampler(terms, sites)[1]
    found: Any = sampler.members(n_draws, np.random.default_rng(seed)).log_prob
    result: Estimate = found._replace(value=found.value + float(terms.log_constant))
    return result


def factor_by_pairs(
    terms: FactorTerms | FieldTerms, sites: SitesGiven | None, n_draws: int, seed: int
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
