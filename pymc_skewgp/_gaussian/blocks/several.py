r"""EP for factors of several predictors each, :math:`p(y_i \mid \eta_{i1}, \dots, \eta_{iK})`.

The site of a factor is a Gaussian of its K predictors, :math:`\exp(h^\top \eta - \eta^\top T \eta /
2)`, under which their marginal has mean and covariance of cavity times factor (Minka 2001,
arXiv:1301.2294). These are found by a tensor rule of Gauss and Hermite about the mode of that
product, in units of its curvature there (Naylor & Smith 1982, doi:10.2307/2347999). Of two
predictors the rule is of one, and at each of its nodes another of the second one given it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian import linalg
from pymc_skewgp._gaussian.blocks.ep import SideBySide, Swept, damped, white_marginals
from pymc_skewgp._gaussian.blocks.groups import (
    PREDICTORS,
    DenseRows,
    GroupBlock,
    OfPredictors,
    slices_of,
)
from pymc_skewgp._gaussian.blocks.rows import Tilts
from pymc_skewgp._gaussian.compiled.rows import LEAST_CAVITY, LEAST_SHRINKAGE
from pymc_skewgp._gaussian.coordinate_gaussian import SiteLogDensity
from pymc_skewgp._gaussian.linalg import times
from pymc_skewgp._gaussian.modes import Target
from pymc_skewgp._gaussian.tilted import SiteFunction
from pymc_skewgp._validation import FloatArray

# First derivatives in all predictors, (..., n K), and second ones, (..., n, K, K).
SeveralSlopes = Callable[[FloatArray], tuple[FloatArray, FloatArray]]

# Place of the derivatives among the functions of sites.
_SLOPES = 1
# Nodes an axis by the number of predictors, and of others up to the last number.
_NODES, _FEWER, _MOST = {3: 5}, 3, 6
# Nodes of one predictor beside another, about the cavity and about its own moments; of that other.
_FIRST, _THEN, _WITHIN = 21, 9, 7
# Newton steps to a mode, at first and then, their length at which they end, and halvings of one.
_STEPS, _AGAIN, _SHORT, _HALVINGS = 20, 2, 0.1, 12
_INNER_STEPS = 6  # to that of one predictor given others
# Variance that makes a singular covariance regular, as a share of the predictors'.
_RIDGE = 1e-10
# Of second derivatives, relative to the largest: by less a factor bends by round-off.
_ROUND_OFF = 1e-8
# Draws of the prior at whose tangents factors are looked at.
_TANGENTS = 32


class SeveralSites:
    """Factors of K predictors each; these are less their offset, observation after observation.

    Parameters
    ----------
    log_prob : SiteFunction
        Of predictors (..., n K): log p of each observation, (..., n).
    slopes : SeveralSlopes
    first : SiteFunction
        First derivatives alone, (..., n K).
    offset : ndarray, shape (n K,)
    width : int
        Number K.
    gaussian_in : int, optional
        Which of the K predictors log p is quadratic in, given the others.
    """

    def __init__(
        self,
        log_prob: SiteFunction,
        slopes: SeveralSlopes,
        first: SiteFunction,
        offset: FloatArray,
        width: int,
        gaussian_in: int | None = None,
    ) -> None:
        self.functions: tuple[Callable[[FloatArray], Any], ...] = (log_prob, slopes, first)
        self.offset = offset
        self.gaussian_in = gaussian_in
        self.shape = offset.size // width, width

    def log_prob(self, eta: FloatArray) -> FloatArray:
        """Log p of each observation, for predictors of shape (N, n K)."""
        with np.errstate(all="ignore"):
            return np.asarray(self.functions[0](self.offset + eta))

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Its derivatives."""
        with np.errstate(all="ignore"):
            found: tuple[FloatArray, FloatArray] = self.functions[_SLOPES](self.offset + eta)
            return found

    def first(self, eta: FloatArray) -> FloatArray:
        """The first of them alone."""
        with np.errstate(all="ignore"):
            return np.asarray(self.functions[2](self.offset + eta))

    def log_probs(self, groups: slice, eta: FloatArray) -> FloatArray:
        """Of all observations, shape (n, N), for predictors of shape (n, K, N)."""
        return self.log_prob(np.ascontiguousarray(eta.reshape(-1, eta.shape[2]).T)).T

    def slopes_at(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient and minus second derivatives at (..., n, K); 0 where they are no numbers."""
        first, second = self.slopes(eta.reshape(-1, self.offset.size))
        first, bends = first.reshape(eta.shape), -second.reshape(*eta.shape, eta.shape[-1])
        return np.where(np.isfinite(first), first, 0.0), np.where(np.isfinite(bends), bends, 0.0)


def sites_together(each: Sequence[SeveralSites], alike: bool) -> SeveralSites:
    """Those of one problem after the other; `alike` where they differ by their offsets alone."""
    n, k = each[0].shape
    offset = np.concatenate([own.offset for own in each])

    def joined(place: int) -> Callable[[FloatArray], Any]:
        def call(eta: FloatArray) -> Any:
            rows = eta.reshape(-1, len(each), n * k)
            if alike:
                known = [each[0].functions[place](rows.reshape(-1, n * k))]
            else:
                own = rows.swapaxes(0, 1).copy()
                known = [x.functions[place](y) for x, y in zip(each, own, strict=True)]
            if place != _SLOPES:
                return _of_all(known, len(rows))
            return tuple(_of_all(x, len(rows)) for x in zip(*known, strict=True))

        return call

    return SeveralSites(joined(0), joined(1), joined(2), offset, k, each[0].gaussian_in)


def _of_all(parts: Sequence[FloatArray], n: int) -> FloatArray:
    """Values (n, ...) of each problem, or (n P, ...) of all of them, as one array."""
    found = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
    rest = parts[0].shape[2:]
    return found.reshape(n, -1, *rest)


class SeveralGradient(NamedTuple):
    """Derivatives of EP's log evidence in F and in the predictors' offsets, and the tilted nodes.

    Attributes
    ----------
    factor : ndarray, shape (n K, r)
    offset : ndarray, shape (n K,)
    nodes : ndarray, shape (J, n K)
        Predictors less their offset under cavity times factor.
    weights : ndarray, shape (J, n)
        Of these, of sum 1.
    """

    factor: FloatArray
    offset: FloatArray
    nodes: FloatArray
    weights: FloatArray


class _Cavity(NamedTuple):
    """N(mean, root root') of each observation's predictors, the marginals' covariance in white.

    Attributes
    ----------
    mean : ndarray, shape (n, K)
    root, inverse : ndarray, shape (n, K, K)
    marginal : ndarray, shape (n, K)
        Diagonal of the marginal's covariance in coordinates ``inverse @ (eta - mean)``.
    """

    mean: FloatArray
    root: FloatArray
    inverse: FloatArray
    marginal: FloatArray


class _Tilted(NamedTuple):
    """Cavity times factor in the cavity's white coordinates, and nodes of the predictors."""

    log_mass: FloatArray
    mean: FloatArray
    cov: FloatArray
    nodes: FloatArray
    weights: FloatArray

    @classmethod
    def of(cls, nodes: FloatArray, logs: FloatArray) -> "_Tilted":
        """Nodes (J, n, K) and the logs of their weights, which are nothing where no numbers."""
        log_mass, weights = _shares(logs)
        mean, off = _centred(weights, nodes)
        cov = np.einsum("jnk,jnl->nkl", weights[:, :, None] * off, off)
        return cls(log_mass, mean, cov, nodes, weights)


class _Given(NamedTuple):
    """One predictor given others at J nodes of these: log mass, mean and variance, shape (J, n).

    And nodes with their shares, shape (I, J, n).
    """

    log_mass: FloatArray
    mean: FloatArray
    variance: FloatArray
    nodes: FloatArray
    shares: FloatArray


class _Step(NamedTuple):
    """Of each observation: see `Tilts`."""

    gap: FloatArray
    pull: FloatArray
    log_scales: FloatArray


class SeveralBlock(GroupBlock):
    """Observations of several predictors each under factors, with EP's approximation of these.

    Parameters
    ----------
    factor : ndarray, shape (n K, r)
        F, the predictors of the first observation, of the second, and so on.
    sites : SeveralSites

    Attributes
    ----------
    width : int
        Number K.
    gaussian_in : int or None
        Which of the predictors factors are Gaussian in, given the others.
    """

    pattern = None

    def __init__(self, factor: FloatArray, sites: SeveralSites) -> None:
        n, k = sites.shape
        super().__init__(DenseRows(factor, k), sites)
        self.width, self.gaussian_in = k, sites.gaussian_in
        self.tau, self.nu = np.zeros(n * k * k), np.zeros(n * k)
        self.forget_nodes()

    def forget_nodes(self) -> None:
        """EP begins from other sites."""
        # In later sweeps nodes are about where they were: a mode, or moments, of the last one.
        self._mode: FloatArray | None = None
        self._last: tuple[FloatArray, FloatArray] | None = None
        # Of two predictors the one that is integrated out given the other.
        self._inner: int | None = None
        self._modes: FloatArray | None = None  # of it, at nodes of the other

    @property
    def precisions(self) -> FloatArray:
        """Of the sites in each predictor, shape (n, K)."""
        n, k = self._sites.shape
        return np.einsum("ijj->ij", self.tau.reshape(n, k, k))

    @property
    def log_concave(self) -> bool:
        """Whether all factors are, as far as two deviations about the marginals tell, and tangents.

        Between two modes a factor may be bent in a thin layer alone, which is met by no derivative;
        but it is above a tangent beyond.
        """
        some = product((-2.0, 0.0, 2.0), repeat=min(self.width, 3))
        off = np.array([np.resize(signs, self.width) for signs in some])
        sd = np.sqrt(np.einsum("ijj->ij", self._cov))
        values = np.linalg.eigvalsh(self._sites.slopes_at(self._mean + off[:, None] * sd)[1])
        bent = values[..., 0] < -_ROUND_OFF * np.abs(values).max(axis=-1)
        return not (bent.any() or self._above_tangents())

    def _above_tangents(self) -> bool:
        rows = self.predictors.rows()
        draws = rows @ np.random.default_rng(0).standard_normal((rows.shape[1], _TANGENTS))
        eta = np.concatenate([self._mean[None], draws.T.reshape(-1, *self._sites.shape)])
        with np.errstate(all="ignore"):
            value = self._sites.log_prob(eta.reshape(len(eta), -1))
            slope = self._sites.first(eta.reshape(len(eta), -1)).reshape(eta.shape)
            tangent = value + ((self._mean - eta) * slope).sum(axis=-1)
            return bool((value[0] > tangent + _ROUND_OFF * (1.0 + np.abs(value))).any())

    def bends_given(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient and minus second derivatives in the predictor `gaussian_in`, shape (N, n).

        At predictors (N, n K).
        """
        first, bends = self._sites.slopes_at(eta.reshape(-1, *self._sites.shape))
        place = self.gaussian_in
        return first[..., place], bends[..., place, place]

    def levels_given(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log p, and the same gradient."""
        first = self._sites.first(eta)[:, self.gaussian_in :: self.width]
        return self._sites.log_prob(eta), np.where(np.isfinite(first), first, 0.0)

    def slopes(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient of log p and its second derivatives, at predictors (..., n, K)."""
        first, bends = self._sites.slopes_at(eta)
        return first, -bends

    def place(self, mean: FloatArray, spread: FloatArray) -> None:
        """Find the marginals of N(mean, spread spread')."""
        self.set_marginals(self.predictors.rows() @ mean, self.predictors.covariances(spread))

    def set_marginals(self, mean: FloatArray, cov: FloatArray) -> None:
        """Means of the predictors, in any shape, and covariances of those of each observation."""
        self._mean, self._cov = mean.reshape(self._sites.shape), cov
        variance = np.einsum("ijj->ij", self._cov)
        ridge = _RIDGE * variance.mean(axis=1, keepdims=True) + 1e-300
        np.einsum("ijj->ij", self._cov)[:] += ridge
        self._variance = np.einsum("ijj->ij", self._cov).ravel()

    def tilt(self, mean: FloatArray, spread: FloatArray) -> Tilts:
        """See `RowBlock`; the moments of an observation's predictors are those of all together."""
        self.place(mean, spread)
        step = self.step()
        pull = self.predictors.pull(step.pull)
        return Tilts(float(step.gap.sum()), pull, float(step.log_scales.sum()), self.remember())

    @property
    def marginals(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances of the predictors."""
        return self._mean, self._variance

    @property
    def next(self) -> tuple[FloatArray, FloatArray]:
        """Tau and nu that the last step has found."""
        return self._new

    def step(self) -> _Step:
        """Find the next sites, from the marginals as they are."""
        old, cavity = self._of_predictors(self.tau, self.nu), self._cavity()
        tilted = self._tilted(cavity)
        precision, shift = _matching(cavity, tilted)
        self._new = precision.ravel(), shift.ravel()
        pull = shift - old.shift - times(precision - old.precision, self._mean)
        scale = np.sqrt(cavity.marginal)
        relative = tilted.cov / (scale[:, :, None] * scale[:, None, :])
        gap = np.abs(np.log(linalg.eigh(relative)[0])).sum(axis=1)
        # Mass of the cavity times the unscaled site.
        centre, marginal = (times(cavity.inverse, x) for x in (cavity.mean, self._mean))
        log_mass = np.log(cavity.marginal) + old.shift * self._mean + centre * (marginal - centre)
        return _Step(gap, pull, tilted.log_mass - 0.5 * log_mass.sum(axis=1))

    def target(self) -> Target:
        """See `SiteSteps`: log p of an observation is shared out among its predictors.

        Second derivatives are bounds of the Hessian, by the sums of its rows.
        """
        k, sites = self._sites.shape[1], self._sites

        def log_prob(eta: FloatArray) -> FloatArray:
            return np.repeat(sites.log_prob(eta) / k, k, axis=-1)

        def slopes(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            first, second = sites.slopes(eta)
            return first, -np.abs(second).sum(axis=-1).reshape(first.shape)

        def turned(eta: FloatArray) -> tuple[FloatArray, FloatArray]:
            values, vectors = np.linalg.eigh(sites.slopes_at(eta.reshape(sites.shape))[1])
            rows = vectors.swapaxes(1, 2) @ self.predictors.rows().reshape(*sites.shape, -1)
            return rows.reshape(self.predictors.rows().shape), values.ravel()

        density = SiteLogDensity(
            log_prob, np.zeros(len(self.predictors.rows())), self.predictors.rows()
        )
        return Target(density, slopes, turned, sites.first)

    def gradient(self, mean: FloatArray, spread: FloatArray) -> SeveralGradient:  # type: ignore[override]
        """Of EP's log evidence at its fixed point; see `RowBlock`."""
        self.place(mean, spread)
        sites, cavity = self._of_predictors(self.tau, self.nu), self._cavity()
        offset = sites.shift - times(sites.precision, self._mean)
        assert isinstance(self.predictors, DenseRows)
        factor = self.predictors.gradient(offset, sites.precision, mean, spread)
        tilted = self._tilted(cavity)
        flat = (
            factor.reshape(self.predictors.rows().shape),
            offset.ravel(),
            tilted.nodes.reshape(len(tilted.nodes), -1),
        )
        return SeveralGradient(*flat, tilted.weights)

    def about(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Tau and nu of the second-order expansions of log p at predictors, those of curvature."""
        at = eta.reshape(self._sites.shape)
        first, bends = self._sites.slopes_at(at)
        precision = _clipped(bends, 0.0, np.inf)
        return precision.ravel(), (first + times(precision, at)).ravel()

    def _cavity(self) -> _Cavity:
        sites, chol = self._of_predictors(self.tau, self.nu), linalg.cholesky_of_many(self._cov)
        taken = linalg.product(chol.swapaxes(1, 2), linalg.product(sites.precision, chol))
        values, vectors = linalg.eigh(taken)
        left = np.maximum(1.0 - values, LEAST_CAVITY)
        turned = linalg.product(chol, vectors)
        inverse = linalg.product(vectors.swapaxes(1, 2), linalg.inverse(chol))
        white = times(inverse, self._mean) - times(turned.swapaxes(1, 2), sites.shift)
        root = np.sqrt(left)[:, None]
        mean = times(turned, white / left)
        return _Cavity(mean, turned / root, inverse * root.swapaxes(1, 2), left)

    def _tilted(self, cavity: _Cavity) -> _Tilted:
        if self._sites.shape[0] == 1 and self.width > _MOST:
            found = self._by_laplace(cavity)
        else:
            found = self._by_nodes(cavity)
        # A site has no negative precision.
        return found._replace(cov=_clipped(found.cov, LEAST_SHRINKAGE, 1.0 - LEAST_SHRINKAGE))

    def _by_laplace(self, cavity: _Cavity) -> _Tilted:
        """Of one factor that couples many predictors: the Gaussian of its curvature at the mode."""
        mode, root = self._mode_of(cavity)
        nodes, logs = _nodes_about(mode, root)
        value = self._value(cavity, mode[None])[0] + linalg.log_size(root)
        cov, weights = root @ root.swapaxes(1, 2), np.full(logs.shape, 1.0 / len(logs))
        return _Tilted(value, mode, cov, cavity.mean + times(cavity.root, nodes), weights)

    def _by_nodes(self, cavity: _Cavity) -> _Tilted:
        """By a rule about the mode of all, or of one predictor given others."""
        if self.gaussian_in is not None:
            return self._given_others(cavity, self.gaussian_in)
        if self.width == 2 and self._inner is not None:
            return self._given_others(cavity, self._inner)
        mode, root = self._mode_of(cavity)
        if self.width == 2:
            # The mode may be that of a spike, where a scale is next to 0 and a location is at the
            # datum: of two predictors the one that is narrowest there goes given the other.
            ratio = np.linalg.norm(linalg.product(cavity.root, root), axis=2)
            ratio /= np.linalg.norm(cavity.root, axis=2)
            self._inner = int(ratio.min(axis=0).argmin())
            return self._given_others(cavity, self._inner)
        nodes, logs = _nodes_about(mode, root)
        eta = cavity.mean + times(cavity.root, nodes)
        found = _Tilted.of(nodes, logs + self._sites.log_prob(eta.reshape(len(eta), -1)))
        return found._replace(nodes=eta)

    def _given_others(self, cavity: _Cavity, place: int) -> _Tilted:
        """By nodes of the other predictors, and of this one given them.

        About the cavity's mean first, and then about the moments that these nodes find; in later
        sweeps about those of the last one, where they are near.
        """
        k = self.width
        others = [i for i in range(k) if i != place]
        cov = linalg.product(cavity.root, cavity.root.swapaxes(1, 2))
        between, along = cov[:, others][:, :, others], cov[:, others, place]
        gain = times(linalg.inverse(between), along)
        variance = cov[:, place, place] - (gain * along).sum(axis=1)
        chol = linalg.cholesky_of_many(between)
        centre, root = np.zeros((len(cov), k - 1)), np.broadcast_to(np.eye(k - 1), chol.shape)
        sizes = [_FIRST, _THEN]
        if self._last is not None:
            white = linalg.inverse(chol)
            centre = times(white, self._last[0] - cavity.mean[:, others])
            root, sizes = linalg.product(white, self._last[1]), sizes[1:]
        for size in sizes:
            nodes, logs = _nodes_about(centre, root, size if k == 2 else None)
            eta = np.empty((len(nodes), *cavity.mean.shape))
            eta[..., others] = off = times(chol, nodes)
            eta[..., place] = times(gain[:, None], off)[..., 0]
            eta += cavity.mean
            given = self._within(eta, place, variance)
            found = _Tilted.of(nodes, logs + given.log_mass)
            new = found.mean, linalg.cholesky_of_many(found.cov + _RIDGE * np.eye(k - 1))
            if size == _THEN and self._last is not None and _are_apart((centre, root), new):
                self._last = None
                return self._given_others(cavity, place)
            centre, root = new
        self._last = cavity.mean[:, others] + times(chol, centre), linalg.product(chol, root)
        return self._of_all(cavity, place, eta, found, given)

    def _of_all(
        self,
        cavity: _Cavity,
        place: int,
        eta: FloatArray,
        others: _Tilted,
        given: _Given,
    ) -> _Tilted:
        """Moments of all predictors, from those of the one given others at their nodes."""
        weights = others.weights
        eta[..., place] = given.mean
        mean, off = _centred(weights, eta - cavity.mean)
        cov = np.einsum("jnk,jnl->nkl", weights[:, :, None] * off, off)
        cov[:, place, place] += (weights * given.variance).sum(axis=0)
        nodes = np.repeat(eta[None], len(given.nodes), axis=0)
        nodes[..., place] = given.nodes
        nodes = nodes.reshape(-1, *cavity.mean.shape)
        cov = linalg.product(cavity.inverse, linalg.product(cov, cavity.inverse.swapaxes(1, 2)))
        shares = (weights * given.shares).reshape(len(nodes), -1)
        return _Tilted(others.log_mass, times(cavity.inverse, mean), cov, nodes, shares)

    def _within(self, eta: FloatArray, place: int, variance: FloatArray) -> _Given:
        """One predictor given others, about its mode given them; `eta` (J, n, K) has its mean."""
        mean, quadratic = eta[..., place].copy(), place == self.gaussian_in
        if not quadratic:
            assert self._mode is not None
            begun, last = self._mode[:, place], self._modes
            if last is not None and last.shape == mean.shape:
                begun = np.where(np.isfinite(last), last, begun)
            eta[..., place] = begun
        for _ in range(1 if quadratic else _INNER_STEPS):
            first, bends = self._sites.slopes_at(eta)
            left = variance / (1.0 + variance * np.maximum(bends[..., place, place], 0.0))
            step = left * (first[..., place] - (eta[..., place] - mean) / variance)
            eta[..., place] += step
            if not (np.abs(step) > _SHORT * np.sqrt(left)).any():
                break
        middle = eta[..., place]
        # Three nodes have the moments of a Gaussian.
        x, log_shares = _rule(1, 3 if quadratic else _WITHIN)
        nodes = middle + np.sqrt(left) * x[:, :, None]
        log_scale = 0.5 * np.log(left / variance)
        if quadratic:  # at its middle: far from it differences would have no digits
            value = self._sites.log_prob(eta.reshape(len(eta), -1))
            log_mass = log_scale - 0.5 * (middle - mean) ** 2 / variance + value
            return _Given(log_mass, middle, left, nodes, np.exp(log_shares)[:, None, None])
        self._modes = middle.copy()
        eta = np.repeat(eta[None], len(x), axis=0)
        eta[..., place] = nodes
        logs = log_shares[:, None, None] + 0.5 * (x**2)[:, :, None] + log_scale
        logs -= 0.5 * (nodes - mean) ** 2 / variance
        values = self._sites.log_prob(eta.reshape(len(x) * eta.shape[1], -1))
        log_mass, shares = _shares(logs + values.reshape(logs.shape))
        mean, off = _centred(shares, nodes)
        return _Given(log_mass, mean, (shares * off**2).sum(axis=0), nodes, shares)

    def _value(self, cavity: _Cavity, white: FloatArray) -> FloatArray:
        """Log of cavity times factor, the cavity being 1 in its middle, for (J, n, K)."""
        eta = cavity.mean + times(cavity.root, white)
        found = self._sites.log_prob(eta.reshape(len(eta), -1)) - 0.5 * (white**2).sum(axis=2)
        return np.where(np.isnan(found), -np.inf, found)

    def _mode_of(self, cavity: _Cavity) -> tuple[FloatArray, FloatArray]:
        """Mode in white coordinates, and a root of Laplace's covariance there."""
        begun = self._mean if self._mode is None else self._mode
        u, turn = times(cavity.inverse, begun - cavity.mean), cavity.root.swapaxes(1, 2)
        value = self._value(cavity, u[None])[0]
        # Later sweeps go on where the last one ended.
        for _ in range(_STEPS if self._mode is None else _AGAIN):
            gradient, bends = self._sites.slopes_at(cavity.mean + times(cavity.root, u))
            values, vectors = np.linalg.eigh(turn @ bends @ cavity.root)
            values = 1.0 + np.maximum(values, 0.0)
            along = times(vectors.swapaxes(1, 2), times(turn, gradient) - u) / values
            step = times(vectors, along)
            if not (np.abs(step) > _SHORT).any():
                break
            for _ in range(_HALVINGS):
                trial = self._value(cavity, (u + step)[None])[0]
                worse = ~(trial >= value)
                if not worse.any():
                    break
                step[worse] *= 0.5
            better = trial > value
            if not better.any():
                break
            u[better], value[better] = (u + step)[better], trial[better]
        self._mode = cavity.mean + times(cavity.root, u)
        return u, vectors / np.sqrt(values)[:, None]

    def _of_predictors(self, tau: FloatArray, nu: FloatArray) -> OfPredictors:
        n, k = self._sites.shape
        return OfPredictors(tau.reshape(n, k, k), nu.reshape(n, k), np.zeros(0))

    def _proper(self, tau: FloatArray) -> NDArray[np.bool_]:
        n, k = self._sites.shape
        proper = np.linalg.eigvalsh(tau.reshape(n, k, k))[:, 0] >= 0.0
        kept = super()._proper(tau)[: tau.size].reshape(n, k, k)
        proper &= kept.diagonal(axis1=1, axis2=2).all(axis=1)
        return np.concatenate([np.repeat(proper, k * k), np.repeat(proper, k)])

    def _scales(self) -> tuple[FloatArray, FloatArray]:
        sd = np.sqrt(self._variance).reshape(self._sites.shape)
        return (sd[:, :, None] * sd[:, None, :]).ravel(), sd.ravel()

    def _tiles(self, n_draws: int) -> list[tuple[slice, slice]]:
        size = max(1, PREDICTORS // max(len(self.predictors.rows()), 1))
        return [(slice(None), draws) for draws in slices_of(n_draws, size)]

    def _slices(self, n_draws: int) -> list[slice]:
        return [slice(None)]


def fit_several(
    factor: FloatArray,
    sites: SeveralSites,
    begun: tuple[FloatArray, FloatArray],
    *,
    tol: float,
    max_sweeps: int,
) -> SideBySide:
    """See `fit_side_by_side`; `sites` are those of all problems.

    Parameters
    ----------
    factor : ndarray, shape (P, n K, r)
    sites : SeveralSites
    begun : tuple of ndarray, shape (P, n K^2) and (P, n K)
    tol, max_sweeps
        See `fit_blocks`.
    """
    size, rows, r = factor.shape
    k = sites.shape[1]
    block = SeveralBlock(factor.reshape(-1, r), sites)

    def sweep(tau: FloatArray, nu: FloatArray) -> Swept:
        block.tau, block.nu = tau.ravel(), nu.ravel()
        each = factor.reshape(size, -1, k, r)
        weighted = (tau.reshape(size, -1, k, k) @ each).reshape(factor.shape)
        mean, constant, white = np.empty((size, rows)), np.empty(size), np.empty(factor.shape)
        for p, (loadings, other) in enumerate(zip(factor, weighted, strict=True)):
            own, mean[p], constant[p] = white_marginals(loadings, loadings.T @ other, nu[p])
            white[p] = own.T
        groups = white.reshape(-1, k, r)
        block.set_marginals(mean, groups @ groups.swapaxes(1, 2))
        found = block.step()
        step = (found.pull.reshape(size, 1, -1) @ white)[:, 0]
        gap, log_scales = (x.reshape(size, -1).sum(axis=1) for x in (found.gap, found.log_scales))
        new_tau, new_nu = (x.reshape(size, -1) for x in block.next)
        return Swept(new_tau, new_nu, gap + (step**2).sum(axis=1), log_scales + constant)

    ended = damped(sweep, *begun, tol=tol, max_sweeps=max_sweeps)
    return SideBySide(*ended, *(x.reshape(size, rows) for x in block.marginals))


def _matching(cavity: _Cavity, tilted: _Tilted) -> tuple[FloatArray, FloatArray]:
    """Precision and shift of the sites by which cavity times site has the tilted moments."""
    inverse = linalg.inverse(tilted.cov)
    taken = inverse - np.eye(inverse.shape[1])
    back = cavity.inverse.swapaxes(1, 2)
    taken = 0.5 * (taken + taken.swapaxes(1, 2))
    precision = linalg.product(back, linalg.product(taken, cavity.inverse))
    shift = times(precision, cavity.mean) + times(back, times(inverse, tilted.mean))
    return precision, shift


def _clipped(matrices: FloatArray, least: float, most: float) -> FloatArray:
    """Symmetric matrices with eigenvalues within limits."""
    values, vectors = linalg.eigh(matrices)
    values = np.clip(values, least, most)
    return linalg.product(vectors * values[:, None], vectors.swapaxes(1, 2))


def _shares(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Log of the sum of the first axis, and shares of it; of no numbers none."""
    logs = np.where(np.isnan(logs), -np.inf, logs)
    most = np.maximum(logs.max(axis=0), -1e300)  # none where all are nothing
    shares = np.exp(logs - most)
    total = shares.sum(axis=0)
    with np.errstate(divide="ignore"):
        return most + np.log(total), shares / np.maximum(total, 1e-300)


def _centred(weights: FloatArray, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean of x over the first axis, by weights of as many axes or one less, and x less it."""
    mean = (weights * x if weights.ndim == x.ndim else weights[..., None] * x).sum(axis=0)
    return mean, x - mean


def _are_apart(one: tuple[FloatArray, FloatArray], other: tuple[FloatArray, FloatArray]) -> bool:
    """Whether any of two rows of Gaussians, by means and roots, are more than a deviation apart."""
    off = times(linalg.inverse(one[1]), other[0] - one[0])
    ratio = linalg.log_size(other[1]) - linalg.log_size(one[1])
    return bool((np.abs(off) > 1.0).any() or (np.abs(ratio) > np.log(2.0)).any())


def _nodes_about(
    mean: FloatArray, root: FloatArray, size: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Nodes (J, n, k) for N(mean, root root'), and the logs of their weights; see `_rule`.

    By these a function is integrated times the standard normal density.
    """
    x, log_shares = _rule(mean.shape[1], size)
    nodes = mean + times(root, x[:, None])
    logs = (log_shares + 0.5 * (x**2).sum(axis=1))[:, None] - 0.5 * (nodes**2).sum(axis=2)
    return nodes, logs + linalg.log_size(root)


@lru_cache
def _rule(k: int, size: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Nodes (J, k) of the standard normal, so many an axis, and the logs of their shares.

    Of many predictors two an axis, by which moments up to the third are exact.
    """
    if k > _MOST and size is None:
        ends = np.sqrt(k) * np.eye(k)
        return np.vstack([ends, -ends]), np.full(2 * k, -np.log(2.0 * k))
    x, mass = np.polynomial.hermite_e.hermegauss(size or _NODES.get(k, _FEWER))
    log_mass = np.log(mass / mass.sum())
    nodes = np.array(list(product(x, repeat=k)))
    return nodes, np.array([sum(own) for own in product(log_mass, repeat=k)])
