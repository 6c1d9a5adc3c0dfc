"""A Gaussian times one factor: intervals and log p(y_i | eta_i), closed forms and quadrature."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.compiled.rows import LEAST_SHRINKAGE
from pymc_skewgp._gaussian.univariate import truncated_moments
from pymc_skewgp._validation import FloatArray

BoolArray = NDArray[np.bool_]


class Tilted(NamedTuple):
    """Moments of N(c_i, v_i) times factor i, each of shape (n,).

    `shift` and `spread` are mean less c_i and variance, in units of the Gaussian's deviation and
    variance. `taken` is 1 - spread where it is known with more digits than that difference has.
    """

    log_mass: FloatArray
    shift: FloatArray
    spread: FloatArray
    taken: FloatArray | None = None


class TiltedMoments(Protocol):
    """What makes tilted moments of cavities."""

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """Moments of N(mean_i, sd_i^2) times factor i."""
        ...


class Factors(TiltedMoments, Protocol):
    """Factors of a likelihood, one for each row of a Gaussian vector."""

    @property
    def active(self) -> BoolArray:
        """Which of them are not 1, shape (n,)."""
        ...

    def residual(self, mean_gap: FloatArray, variance_gap: FloatArray) -> float:
        """How far EP is from its fixed point.

        From the distances of means in deviations, and of log variances, of each tilted density from
        the Gaussian's marginal.
        """
        ...


# Fraction of a row's variance that its site may take: keeps tau finite and non-negative.
_SHRINKAGE = (LEAST_SHRINKAGE, 1.0 - LEAST_SHRINKAGE)


def cavity(
    mean: FloatArray, variance: FloatArray, tau: FloatArray, nu: FloatArray, least: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Means and variances of a Gaussian without each site in turn, of at least that precision."""
    # Round-off may leave a marginal at its site's variance: the cavity must stay proper.
    left = 1.0 / np.maximum(1.0 / variance - tau, least)
    return left * (mean / variance - nu), left


class NextSites(NamedTuple):
    """Sites that match the tilted moments, and distances of these from the marginals."""

    tau: FloatArray
    nu: FloatArray
    variance_gap: FloatArray  # of log variances
    cavity_mean: FloatArray
    cavity_var: FloatArray
    pull: FloatArray  # of the factor: tilted mean less the cavity's
    log_mass: FloatArray

    def mean_gap(self, mean: FloatArray, variance: FloatArray) -> FloatArray:
        """Distances of the tilted means from these marginals', in deviations."""
        gap: FloatArray = np.abs(self.cavity_mean + self.pull - mean) / np.sqrt(variance)
        return gap

    def log_scales(self, tau: FloatArray, nu: FloatArray) -> FloatArray:
        """Those of the sites before."""
        return log_scales(tau, nu, self.cavity_mean, self.cavity_var, self.log_mass)


def log_scales(
    tau: FloatArray, nu: FloatArray, mean: FloatArray, var: FloatArray, log_mass: FloatArray
) -> FloatArray:
    """Of sites: mass of the tilted over that of cavity, N(mean, var), times unscaled site."""
    ratio = 1.0 + tau * var
    quadratic = (mean**2 * tau - 2.0 * mean * nu - var * nu**2) / ratio
    found: FloatArray = log_mass + 0.5 * np.log(ratio) + 0.5 * quadratic
    return found


def next_sites(
    factors: TiltedMoments,
    mean: FloatArray,
    variance: FloatArray,
    tau: FloatArray,
    nu: FloatArray,
    least: FloatArray,
) -> NextSites:
    """Those of a Gaussian with these marginals, in which the sites tau and nu are."""
    centre, left = cavity(mean, variance, tau, nu, least)
    sd = np.sqrt(left)
    log_mass, shift, spread, known = factors.tilted(centre, sd)
    # A site never says more than this: stronger ones would leave no digits of the cavity.
    spread = np.maximum(spread, _SHRINKAGE[0])
    # Where features say almost nothing of a row its site takes a share of the variance that
    # 1 - spread has no digit of: over this variance that would be any number.
    if known is None:
        taken = np.clip(1.0 - spread, *_SHRINKAGE)
    else:
        taken = np.clip(known, 0.0, _SHRINKAGE[1])
    kept = left * np.where(spread < 0.5, spread, 1.0 - taken)
    pull = sd * shift
    return NextSites(
        taken / kept,
        (centre * taken + pull) / kept,
        np.abs(np.log(left * spread / variance)),
        centre,
        left,
        pull,
        log_mass,
    )


class Intervals:
    """Factors 1(lower < u < upper)."""

    def __init__(self, lower: FloatArray, upper: FloatArray) -> None:
        self._lower, self._upper = lower, upper
        self.active = np.isfinite(lower) | np.isfinite(upper)

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `Factors`."""
        return Tilted(*truncated_moments((self._lower - mean) / sd, (self._upper - mean) / sd))

    def residual(self, mean_gap: FloatArray, variance_gap: FloatArray) -> float:
        """The largest over the rows."""
        return float((mean_gap + variance_gap)[self.active].max(initial=0.0))


class Joined:
    """Factors of several kinds on the same vector, the rows of each kind one after another."""

    def __init__(self, parts: Sequence[Factors]) -> None:
        self._parts = parts
        self.active = np.concatenate([part.active for part in parts])
        ends = np.cumsum([part.active.size for part in parts])
        self._rows = [slice(end - p.active.size, end) for p, end in zip(parts, ends, strict=True)]

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `Factors`."""
        found = [p.tilted(mean[i], sd[i]) for p, i in zip(self._parts, self._rows, strict=True)]
        known = (moments[:3] for moments in found)
        return Tilted(*(np.concatenate(moments) for moments in zip(*known, strict=True)))

    def residual(self, mean_gap: FloatArray, variance_gap: FloatArray) -> float:
        """The largest over the kinds."""
        pairs = zip(self._parts, self._rows, strict=True)
        return max(part.residual(mean_gap[i], variance_gap[i]) for part, i in pairs)


# Moments of many densities side by side, each on a line of its own, by a trapezoid rule.
#
# The rule is in t, with :math:`x = c + s \sinh(t / 2) \cdot 2`: dense around a centre c on a scale
# s, and ever sparser in the tails, so that a density which is a hundred times narrower than what is
# known of its reach takes hardly more nodes. For analytic integrands it converges like
# :math:`e^{-C/h}`: halving the step h squares the error, so that the change from one step to the
# next says when to stop (L. N. Trefethen & J. A. C. Weideman 2014, doi:10.1137/130932132).

_STRETCH = 0.5  # spacings double every 1.4 of t
_NEGLIGIBLE = 37.0  # nats below the largest value
_WIDE = 32.0  # the same at the ends of a span that was taken over
_SCAN_NODES, _FIRST_NODES, _MOST_NODES = 17, 9, 2049

LogDensity = Callable[[FloatArray], FloatArray]
Span = tuple[FloatArray, FloatArray]
_LEAST_BEGUN, _MOST_BEGUN = 17, 65  # nodes that a rule has from another one


class Nodes(NamedTuple):
    """Of a rule: first and last t, each of shape (n,), and how many that would have done."""

    span: Span
    size: int


class LineMoments(NamedTuple):
    """Log of the integral, mean less the centre, and variance, of each density."""

    log_mass: FloatArray
    shift: FloatArray
    variance: FloatArray

    def change(self, other: "LineMoments") -> float:
        """Largest difference from `other`, relative, means in deviations."""
        gap = np.abs(self.log_mass - other.log_mass)
        gap += np.abs(self.shift - other.shift) / np.sqrt(self.variance)
        gap += np.abs(self.variance / other.variance - 1.0)
        return float(gap.max())


def line_moments(
    log_density: LogDensity,
    centre: FloatArray,
    scale: FloatArray,
    reach: FloatArray,
    change: float,
    known: Nodes | None = None,
) -> tuple[LineMoments, "LineRule"]:
    """Moments of n densities, and the rule that they are from.

    Parameters
    ----------
    log_density : callable
        Of points, shape (k, n), to as many values.
    centre, scale : ndarray, shape (n,)
        Where nodes are dense, and on which scale.
    reach : ndarray, shape (n,)
        Distance from the centre beyond which nothing is left of the density.
    change : float
        Of the moments from one step to the next at which to stop: the error left is its square.
    known : Nodes, optional
        That do for similar densities: where they do here, the density is asked for once.

    Returns
    -------
    LineMoments, LineRule
    """
    if known is not None:
        size = min(max(known.size, _LEAST_BEGUN), _MOST_BEGUN)
        rule = LineRule(log_density, centre, scale, known.span, size)
    if known is None or not rule.is_wide:
        span = _span(log_density, centre, scale, reach)
        rule = LineRule(log_density, centre, scale, span)
    found = rule.moments()
    if rule.size > _FIRST_NODES:
        changed = found.change(rule.moments(2))
        rule.enough = (rule.size + 1) // 2 if changed < change**2 else rule.size
        if changed < change:
            return found, rule
    while rule.size < _MOST_NODES:
        rule.refine()
        before, found = found, rule.moments()
        rule.enough = rule.size
        if found.change(before) < change:
            break
    return found, rule


def _span(
    log_density: LogDensity, centre: FloatArray, scale: FloatArray, reach: FloatArray
) -> Span:
    """The range of t beyond which each density is negligible."""
    turn = np.arcsinh(_STRETCH * reach / scale) / _STRETCH
    scan = np.linspace(-turn, turn, _SCAN_NODES)
    values = log_density(centre + np.sinh(_STRETCH * scan) * (scale / _STRETCH))
    seen = values > values.max(axis=0) - _NEGLIGIBLE
    last = _SCAN_NODES - 1
    start = np.maximum(seen.argmax(axis=0) - 1, 0)
    stop = np.minimum(last - seen[::-1].argmax(axis=0) + 1, last)
    column = np.arange(centre.size)
    return scan[start, column], scan[stop, column]


class LineRule:
    """The trapezoid rule on nodes that are doubled in number again and again."""

    def __init__(
        self,
        log_density: LogDensity,
        centre: FloatArray,
        scale: FloatArray,
        span: Span,
        size: int = _FIRST_NODES,
    ) -> None:
        self._log_density, self._centre, self._scale = log_density, centre, scale / _STRETCH
        self._span, self.enough = span, size
        self._start, self._length = span[0], span[1] - span[0]
        self._offset, self._jacobian, self._logs = self._at(np.linspace(0.0, 1.0, size))
        self._weigh()

    @property
    def where(self) -> Nodes:
        """Its nodes, for similar densities."""
        return Nodes(self._span, self.enough)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return self._logs.shape[0]

    @property
    def is_wide(self) -> bool:
        """Whether nothing is left of the densities at the ends."""
        ends = np.maximum(self._logs[0], self._logs[-1])
        return bool((ends < self._largest - _WIDE).all())

    def refine(self) -> None:
        """Halve the step."""
        new = self._at((np.arange(self.size - 1) + 0.5) / (self.size - 1))
        old = self._offset, self._jacobian, self._logs
        joined = (_interleaved(a, b) for a, b in zip(old, new, strict=True))
        self._offset, self._jacobian, self._logs = joined
        self._weigh()

    def moments(self, every: int = 1) -> LineMoments:
        """By the nodes that there are, or by every second one."""
        mass, offset = self._mass[::every], self._offset[::every]
        total = mass.sum(axis=0)
        shift = np.einsum("ij,ij->j", mass, offset) / total
        off = offset - shift
        off *= off
        variance = np.einsum("ij,ij->j", mass, off) / total
        step = self._length / (len(mass) - 1) * _STRETCH
        return LineMoments(self._largest + np.log(total * step * self._scale), shift, variance)

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Points and their shares of each density, both of shape (k, n)."""
        return self._centre + self._offset, self._mass / self._mass.sum(axis=0)

    def log_terms(self) -> tuple[FloatArray, FloatArray]:
        """Points, and logs of what adds up to the integral of each density."""
        step = self._length / (self.size - 1) * _STRETCH * self._scale
        return self._centre + self._offset, self._logs + np.log(self._jacobian * step)

    def _weigh(self) -> None:
        self._largest = self._logs.max(axis=0)
        self._mass = np.exp(self._logs - self._largest)
        self._mass *= self._jacobian

    def _at(self, share: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Distances from the centre, Jacobians and log densities at shares of the span."""
        turned = np.exp(_STRETCH * (self._start + share[:, None] * self._length))
        turned *= 0.5
        back = 0.25 / turned
        offset = turned - back
        offset *= self._scale
        return offset, turned + back, self._log_density(self._centre + offset)


def _sums(terms: FloatArray, z: FloatArray) -> FloatArray:
    """Of terms, of these times z, and times z^2, shape (3, n)."""
    first = terms * z
    return np.stack([terms.sum(axis=0), first.sum(axis=0), np.einsum("ij,ij->j", first, z)])


def _of_sums(sums: FloatArray) -> LineMoments:
    first, second = sums[1:] / sums[0]
    return LineMoments(np.log(sums[0]), first, second - first**2)


def _interleaved(nodes: FloatArray, between: FloatArray) -> FloatArray:
    joined = np.empty((nodes.shape[0] + between.shape[0], nodes.shape[1]))
    joined[::2], joined[1::2] = nodes, between
    return joined


# Factors p(y_i | eta_i) of any likelihood, for expectation propagation.

# Log p(y_i | eta_i) of n sites, of predictors of shape (..., n); its first and second derivative.
SiteFunction = Callable[[FloatArray], FloatArray]
SlopeFunction = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

_TAIL = 8.7  # deviations, beyond which a Gaussian has nothing left
_CHANGE = 1e-4  # see `line_moments`
_PEAK_NODES = 65
_WITHIN, _NODES_WITHIN = 6.0, 129  # deviations of the widest Gaussian, as in `modes`
_COARSER = 2.0  # a look from further away that is as good
_MAX_STEPS = 100
# Centre and scale only place the nodes: they need no digits.
_CENTRED = 0.05
_NEAR = 0.5  # the same for a step that is taken without another look
_NEWTON = 8.0  # deviations of the product up to which its curvature says where the mode is
_FARTHEST = 1e6  # deviations of the Gaussian between its mean and the mode
_ROUND_OFF = 1e-6  # of slopes
_LEAST_TAKEN = 1e-12  # of the Gaussian's variance by a factor
_LOG_SQRT_2PI = 0.5 * float(np.log(2.0 * np.pi))
_MOST_KEPT = 1 << 17  # nodes of a rule for all factors: a megabyte each of points and logs


class KnownProducts(NamedTuple):
    """Of factors and the Gaussians that were asked about, near which the next ones are.

    Attributes
    ----------
    mode : ndarray, shape (n,), or None
        Of a product that is near the last one.
    at_mode : tuple of ndarray, or None
        The factors' two derivatives there.
    nodes : Nodes or None
        That did for the last product.
    seen : tuple of ndarray, or None
        First and last predictors between which all factors were found log-concave.
    """

    mode: FloatArray | None = None
    at_mode: tuple[FloatArray, FloatArray] | None = None
    nodes: Nodes | None = None
    seen: Span | None = None

    def repeated(self, times: int) -> "KnownProducts":
        """For as many sets of such factors, one after the other."""
        return self._each(lambda x: np.tile(x, times))

    def part(self, own: slice) -> "KnownProducts":
        """Of some of the factors."""
        return self._each(lambda x: x[own])

    def _each(self, change: Callable[[FloatArray], FloatArray]) -> "KnownProducts":
        pairs = [self.at_mode, self.nodes and self.nodes.span, self.seen]
        slopes, span, seen = (x and (change(x[0]), change(x[1])) for x in pairs)
        nodes = Nodes(span, self.nodes.size) if self.nodes and span else None
        mode = None if self.mode is None else change(self.mode)
        return KnownProducts(mode, slopes, nodes, seen)

    def of_others(self) -> "KnownProducts":
        """What may be near for factors that are not quite the same."""
        return self._replace(at_mode=None, seen=None)


class SiteFactors:
    """Factors p(y_i | eta_i), eta = offset + u.

    Moments come from a trapezoid rule. Where log p is concave it is centred at the mode of the
    product with the Gaussian. Else the product may have two modes: there it is centred at the mode
    of p itself, the narrower of the two, and reaches to the Gaussian's tails.

    Parameters
    ----------
    log_prob : SiteFunction
    slopes : SlopeFunction
    offset : ndarray, shape (n,)
    """

    def __init__(self, log_prob: SiteFunction, slopes: SlopeFunction, offset: FloatArray) -> None:
        self._log_prob, self.slopes, self._offset = log_prob, slopes, offset
        self.active = np.ones(offset.size, dtype=bool)
        self._peak = np.full(offset.size, np.nan)  # of factors that are not log-concave
        self._concave = self.active
        self.looked = self.certain = False  # at how they curve; that all are log-concave
        self._about = offset, offset  # the last Gaussian
        self.known = KnownProducts()
        self._last_rule: tuple[FloatArray, FloatArray] | None = None

    @property
    def log_concave(self) -> bool:
        """Whether all factors are, within the reach of the first Gaussian that was asked about."""
        return bool(self._concave.all())

    def tilted(self, mean: FloatArray, sd: FloatArray) -> Tilted:
        """See `Factors`."""
        mean = self._offset + mean
        self._about = mean, sd
        again = self._by_last_rule(mean, sd)
        if again is not None:
            return again
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            centre, found, rule = self._product(mean, sd)
        if rule.size * mean.size <= _MOST_KEPT:
            at, logs = rule.log_terms()
            logs += 0.5 * ((at - mean) / sd) ** 2
            self._last_rule = at, logs
        log_mass = found.log_mass - np.log(sd) - _LOG_SQRT_2PI
        shift = (centre - mean + found.shift) / sd
        # A factor that is not log-concave may widen the Gaussian: no site of EP can do that.
        return Tilted(log_mass, shift, np.minimum(found.variance / sd**2, 1.0 - _LEAST_TAKEN))

    def _by_last_rule(self, mean: FloatArray, sd: FloatArray) -> Tilted | None:
        """By the nodes of the last rule, where the factors are known, if these still do."""
        if self._last_rule is None:
            return None
        nodes, logs = self._last_rule
        with np.errstate(all="ignore"):
            terms = (nodes - mean) / sd
            terms *= -0.5 * terms
            terms += logs
            best, column = terms.argmax(axis=0), np.arange(mean.size)
            top, centre = terms[best, column], nodes[best, column]
            if not (np.maximum(terms[0], terms[-1]) < top - _WIDE).all():  # or not a number
                return None
            terms -= top
            np.exp(terms, out=terms)
            z = (nodes - centre) / sd
            half, other = (_sums(terms[i::2], z[i::2]) for i in (0, 1))
            found = _of_sums(half + other)
            if not found.change(_of_sums(2.0 * half)) < _CHANGE:
                return None
        log_mass = top + found.log_mass - np.log(sd) - _LOG_SQRT_2PI
        shift = (centre - mean) / sd + found.shift
        return Tilted(log_mass, shift, np.minimum(found.variance, 1.0 - _LEAST_TAKEN))

    def nodes(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Predictors, shape (k, n), and their weights under N(mean_i, sd_i^2) times factor i."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self._product(self._offset + mean, sd)[2].nodes()

    def residual(self, mean_gap: FloatArray, variance_gap: FloatArray) -> float:
        """Of all rows together: many small gaps of one sign are as bad as a large one."""
        return float(variance_gap.sum() + mean_gap @ mean_gap)

    def _product(
        self, mean: FloatArray, sd: FloatArray
    ) -> tuple[FloatArray, LineMoments, LineRule]:
        """Centre of the rule, moments of N(mean_i, sd_i^2) times factor i, and the rule."""
        if not (self.looked or self.certain or self._has_seen(mean, sd)):
            self.look_around(mean - self._offset, sd)
        centre, curvature = self._mode_of_product(mean, sd)
        scale = 1.0 / np.sqrt(curvature)
        if not self._concave.all():
            # A narrow peak may tower so far above the rest that it is seen from beyond all tails.
            gain = np.maximum(self._log_prob(self._peak) - self._log_prob(mean), 0.0)
            near = np.abs(self._peak - mean) < np.sqrt(2.0 * (_NEGLIGIBLE + gain)) * sd
            peak = np.where(near, self._peak, mean)
            sharp = np.maximum(-self.slopes(peak)[1], 0.0) + sd**-2
            centre = np.where(self._concave, centre, peak)
            scale = np.where(self._concave, scale, 1.0 / np.sqrt(sharp))

        def log_product(eta: FloatArray) -> FloatArray:
            logs = (eta - mean) / sd
            logs *= -0.5 * logs
            logs += self._log_prob(eta)
            return logs

        reach = np.abs(centre - mean) + _TAIL * sd
        found, rule = line_moments(log_product, centre, scale, reach, _CHANGE, self.known.nodes)
        self.known = self.known._replace(nodes=rule.where)
        return centre, found, rule

    def look_around(self, mean: FloatArray, sd: FloatArray) -> None:
        """Which factors are log-concave within reach, and the modes of those that are not."""
        self.looked = True
        mean = self._offset + mean
        at = mean + sd * np.linspace(-_TAIL, _TAIL, _PEAK_NODES)[:, None]
        self._concave = self._concave_at(at, sd)
        if self._concave.all():
            self.known = self.known._replace(seen=(at[0], at[-1]))
            return
        logs = self._log_prob(at)
        best = np.where(np.isnan(logs), -np.inf, logs).argmax(axis=0)
        inside = (best > 0) & (best < _PEAK_NODES - 1)
        column = np.arange(mean.size)
        low = at[np.maximum(best - 1, 0), column]
        high = at[np.minimum(best + 1, _PEAK_NODES - 1), column]
        peak = at[best, column]
        for _ in range(_MAX_STEPS):
            first, second = self.slopes(peak)
            low, high = np.where(first > 0, peak, low), np.where(first > 0, high, peak)
            new = peak - first / second
            new = np.where((new > low) & (new < high) & (second < 0), new, 0.5 * (low + high))
            moved, peak = np.abs(new - peak) * np.sqrt(np.abs(second)), new
            if (moved[inside] < _CENTRED).all():
                break
        self._peak = np.where(inside, peak, np.nan)

    def log_concave_within(self, sd: FloatArray) -> bool:
        """Whether all are, from the last Gaussian to far out in N(0, sd_i^2) of u.

        A narrow Gaussian, such as that of one mode, does not reach to the next one; nor is a bend
        that is narrow beside a wide prior met by points that are equally far apart.
        """
        if self.certain or not self.log_concave:
            return self.log_concave
        centre, near = self._about
        near = np.minimum(near, sd)
        turn = np.arcsinh((np.abs(centre - self._offset) + _WITHIN * sd) / near)
        at = centre + near * np.sinh(turn * np.linspace(-1.0, 1.0, _NODES_WITHIN)[:, None])
        with np.errstate(all="ignore"):
            return bool(self._concave_at(at, sd).all())

    def _concave_at(self, at: FloatArray, sd: FloatArray) -> NDArray[np.bool_]:
        first, second = self.slopes(at)
        # Round-off of a second derivative that is almost 0 is no convexity; where a slope jumps up
        # it has none.
        rise = np.diff(first, axis=0) * sd - _ROUND_OFF * np.abs(first[1:] * sd)
        return np.asarray(~((second * sd**2 > 1e-9).any(axis=0) | (rise > _ROUND_OFF).any(axis=0)))

    def _has_seen(self, mean: FloatArray, sd: FloatArray) -> bool:
        """Whether all are known to be log-concave here, as finely as `look_around` would see it."""
        if self.known.seen is None:
            return False
        (low, high), reach = self.known.seen, _TAIL * sd
        inside = (low <= mean - reach) & (mean + reach <= high)
        return bool((inside & (high - low <= _COARSER * 2.0 * reach)).all())

    def _mode_of_product(self, mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mode of each log-concave product, roughly, and the curvature there.

        Newton's method near it, and bisection of the bracket that a concave function has: from the
        Gaussian's mean to where its pull alone would balance the factor's slope there.
        """
        precision = sd**-2.0
        x, slopes = self.known.mode, self.known.at_mode
        if x is not None and slopes is not None:
            curvature = precision - np.where(slopes[1] < 0, slopes[1], 0.0)
            step = (slopes[0] - (x - mean) * precision) / curvature
            if ((np.abs(step) * np.sqrt(curvature) < _NEAR) | ~self._concave).all():
                return x + step, curvature
        far = np.clip(self.slopes(mean)[0] / precision / sd, -_FARTHEST, _FARTHEST)
        far = mean + sd * np.where(np.isnan(far), 0.0, far)
        low, high = np.minimum(mean, far), np.maximum(mean, far)
        x, slopes = mean if x is None else np.clip(x, low, high), None
        for _ in range(_MAX_STEPS):
            first, second = self.slopes(x)
            slope = first - (x - mean) * precision
            slope = np.where(np.isnan(slope), mean - x, slope)
            curvature = precision - np.where(second < 0, second, 0.0)
            low, high = np.where(slope > 0, x, low), np.where(slope < 0, x, high)
            step = slope / curvature
            moved = np.abs(step) * np.sqrt(curvature)
            new = x + step
            inside = (new >= low) & (new <= high) & (moved < _NEWTON)
            near = (moved < _CENTRED) | (high - low <= 1e-9 * sd) | ~self._concave
            if near.all():
                slopes = first, second
                break
            x = np.where(inside, new, 0.5 * (low + high))
        self.known = self.known._replace(mode=x, at_mode=slopes)
        return x, curvature
