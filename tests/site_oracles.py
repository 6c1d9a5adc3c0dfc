"""A Gaussian vector under any likelihood, by a trapezoid rule over the vector itself.

And likelihoods of sites for tests, written apart from those of the package.
"""

from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
from likelihood_oracles import function_grid
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import expit, gammaln, logsumexp, ndtr, ndtri, softmax

from pymc_skewgp._observations.sites import SiteLikelihood

FloatArray = NDArray[np.float64]


class SitePosterior(NamedTuple):
    """Log evidence, and moments of each value of f."""

    log_evidence: float
    mean: FloatArray
    sd: FloatArray
    skewness: FloatArray


def smooth_cov(x, variance=1.3, ls=0.8):
    """Squared exponential covariance of f at x."""
    x = np.ravel(x)
    return variance * np.exp(-0.5 * ((x[:, None] - x) / ls) ** 2)


def site_posterior(
    mean: ArrayLike,
    cov: ArrayLike,
    log_likelihood: Callable[[FloatArray], FloatArray],
    nodes: int = 141,
) -> SitePosterior:
    """f ~ N(mean, cov) with any log p(y | f), a function of f (n, N) with N values.

    Whitened f runs from -8.5 to 8.5. For integrands that are smooth on the scale of a step (.12 of
    a prior deviation) the rule's error is below 1e-10; halving the step is the check of it.
    """
    found = function_grid(mean, cov, lambda f: log_likelihood(f.T), nodes, 8.5)
    sd = np.sqrt(found.cov.diagonal())
    return SitePosterior(found.log_evidence, found.mean, sd, found.skewness)


def log_signs(f: FloatArray, cov: ArrayLike, n: int, shift: ArrayLike = 0.0) -> FloatArray:
    """Log P(the values after the first n, plus `shift`, are all positive | f), mean zero.

    One or two of them.
    """
    cov = np.asarray(cov, dtype=float)
    gain = np.linalg.solve(cov[:n, :n], cov[:n, n:])
    left = cov[n:, n:] - cov[n:, :n] @ gain
    sd = np.sqrt(left.diagonal())
    limit = (gain.T @ f + np.reshape(shift, (-1, 1))) / sd[:, None]
    with np.errstate(divide="ignore"):  # where there is no digit of the probability
        if sd.size == 1:
            return np.log(ndtr(limit[0]))
        rho = left[0, 1] / sd.prod()
        x, w = np.polynomial.legendre.leggauss(60)
        # The noise of the first value, above minus the limit.
        start = np.clip(-limit[0], -8.5, 8.5)
        half = 0.5 * (8.5 - start)[:, None]
        at = start[:, None] + half * (1.0 + x)
        inner = ndtr((limit[1][:, None] + rho * at) / np.sqrt(1.0 - rho**2))
        mass = half * w * np.exp(-0.5 * at**2) / np.sqrt(2 * np.pi)
        return np.log((mass * inner).sum(axis=1))


class _Sites(SiteLikelihood):
    """What the tests' likelihoods share."""

    def as_data(self, y, n):
        return np.asarray(y, dtype=float)

    def replicate(self, y, f, log_likelihood, rng):
        return np.broadcast_to(y, f.shape)

    def __repr__(self):
        return f"{type(self).__name__}()"


class Logit(_Sites):
    """P(y = 1) = 1 / (1 + exp(-f)), y 0 or 1."""

    def log_likelihood(self, y, f):
        return -np.logaddexp(0.0, (1.0 - 2.0 * y) * f)

    def slopes(self, y, f):
        p = expit(f)
        return y - p, -p * (1.0 - p)


class Counts(_Sites):
    """Poisson counts with the mean exp(f)."""

    def log_likelihood(self, y, f):
        with np.errstate(over="ignore"):
            return y * f - np.exp(f) - gammaln(y + 1.0)

    def slopes(self, y, f):
        with np.errstate(over="ignore"):
            rate = np.exp(f)
        return y - rate, -rate


class Student(_Sites):
    """y = f + scale t, with Student's t of 4 degrees of freedom."""

    def __init__(self, scale=0.3, df=4.0):
        self.scale, self.df = scale, df

    def log_likelihood(self, y, f):
        return stats.t.logpdf(y, self.df, f, self.scale)

    def slopes(self, y, f):
        off = (y - f) / self.scale
        below = self.df + off**2
        first = (self.df + 1.0) * off / below / self.scale
        second = (self.df + 1.0) * (off**2 - self.df) / below**2 / self.scale**2
        return first, second


class Kinds(_Sites):
    """y = f + shift + normal noise, of each value one of several kinds (share, shift, sd)."""

    def __init__(self, *kinds):
        self.share, self.shift, self.scale = np.array(kinds).T

    def _parts(self, y, f):
        off = (np.asarray(y - f)[..., None] - self.shift) / self.scale
        return off, stats.norm.logpdf(off) + np.log(self.share / self.scale)

    def log_likelihood(self, y, f):
        return logsumexp(self._parts(y, f)[1], axis=-1)

    def slopes(self, y, f):
        off, logs = self._parts(y, f)
        own = softmax(logs, axis=-1)
        first = (own * off / self.scale).sum(axis=-1)
        return first, (own * (off**2 - 1.0) / self.scale**2).sum(axis=-1) - first**2


class TwoNormals(Kinds):
    """y = f + apart or f - apart, each with its probability, plus normal noise."""

    def __init__(self, apart=1.5, scale=0.4, share=0.5):
        super().__init__((share, apart, scale), (1.0 - share, -apart, scale))
        self.apart, self.scale = apart, np.float64(scale)


class Lapses(_Sites):
    """P(y = 1) = lapse + (1 - 2 lapse) / (1 + exp(-steep f))."""

    def __init__(self, lapse=0.05, steep=3.0):
        self.lapse, self.steep = lapse, steep

    def _parts(self, y, f):
        sign = (2.0 * y - 1.0) * self.steep
        p = expit(sign * f)
        return sign, p, (1.0 - 2.0 * self.lapse) * p, self.lapse + (1.0 - 2.0 * self.lapse) * p

    def log_likelihood(self, y, f):
        return np.log(self._parts(y, f)[3])

    def slopes(self, y, f):
        sign, p, scaled, total = self._parts(y, f)
        first = sign * scaled * (1.0 - p) / total
        return first, first * sign * (1.0 - 2.0 * p) - first**2


def posterior_of_kinds(K: FloatArray, y: FloatArray, kinds: Kinds) -> SitePosterior:
    """f ~ N(0, K), by the sum over the kinds of all values."""
    every = np.array(list(product(range(kinds.share.size), repeat=y.size)))
    logs, means, squares = [], [], []
    for own in every:
        S, off = K + np.diag(kinds.scale[own] ** 2), y - kinds.shift[own]
        gain = np.linalg.solve(S, K)
        logs.append(np.log(kinds.share[own]).sum() + stats.multivariate_normal(cov=S).logpdf(off))
        means.append(off @ gain)
        squares.append(means[-1] ** 2 + K.diagonal() - np.einsum("ij,ij->j", K, gain))
    p, mean = softmax(logs), softmax(logs) @ np.array(means)
    sd = np.sqrt(p @ np.array(squares) - mean**2)
    return SitePosterior(float(logsumexp(logs)), mean, sd, np.full(sd.size, np.nan))


def posterior_of_chain(
    x: FloatArray, sd: float, length: float, log_likelihood: Callable[[FloatArray], FloatArray]
) -> SitePosterior:
    """An Ornstein-Uhlenbeck process at sorted places, forwards and backwards over a grid.

    `log_likelihood` is that of each value, for f of shape (N, n).
    """
    f = sd * np.linspace(-7.0, 7.0, 1201)
    logs = log_likelihood(np.repeat(f[:, None], x.size, axis=1))
    near = np.exp(-np.diff(x) / length)
    width = sd * np.sqrt(1.0 - near**2)
    steps = [stats.norm.pdf(f, rho * f[:, None], own) for rho, own in zip(near, width, strict=True)]
    total, forward, now = 0.0, [], stats.norm.pdf(f, scale=sd)
    for i, largest in enumerate(logs.max(axis=0)):
        now = np.exp(logs[:, i] - largest) * (now if i == 0 else now @ steps[i - 1] * (f[1] - f[0]))
        total += largest + np.log(now.sum() * (f[1] - f[0]))
        now = now / (now.sum() * (f[1] - f[0]))
        forward.append(now)
    backward = [np.ones(f.size)]
    for i in reversed(range(1, x.size)):
        left = steps[i - 1] @ (backward[0] * np.exp(logs[:, i] - logs[:, i].max()))
        backward.insert(0, left / left.max())
    p = np.array(forward) * backward
    p /= p.sum(axis=1, keepdims=True)
    mean = p @ f
    deviation = np.sqrt(p @ f**2 - mean**2)
    return SitePosterior(float(total), mean, deviation, np.full(x.size, np.nan))


def above(limit: float) -> Callable[[FloatArray], FloatArray]:
    """Coordinates whose first one is N(0, 1) above a limit, as a smooth function of N(0, I)."""

    def warp(c: FloatArray) -> FloatArray:
        return np.vstack([-ndtri(ndtr(-limit) * ndtr(-c[:1])), c[1:]])

    return warp


def posterior_of_coordinates(
    features: ArrayLike,
    log_likelihood: Callable[[FloatArray], FloatArray],
    warp: Callable[[FloatArray], FloatArray] = lambda c: c,
) -> SitePosterior:
    """f = features c, c ~ N(0, I) of one to three dimensions, by midpoints of ever smaller cells.

    Or f = features warp(c).

    Cells far below the highest one are left out, fewer nats below it the smaller the cells are.
    They halve until evidence, means and deviations change by less than 1e-5.
    """
    features = np.asarray(features, dtype=float)
    d = features.shape[1]
    half = 8.0 / {1: 2048, 2: 80, 3: 20}[d]
    axis = np.arange(-8.0 + half, 8.0, 2 * half)
    c = np.stack([g.ravel() for g in np.meshgrid(*[axis] * d, indexing="ij")])
    corners = np.stack(np.meshgrid(*[[-0.5, 0.5]] * d, indexing="ij")).reshape(d, -1)
    least, before = 800.0, None
    for _ in range(12):
        logs = -0.5 * (c**2).sum(axis=0) - 0.5 * d * np.log(2 * np.pi)
        for start in range(0, c.shape[1], 20_000):
            some = slice(start, start + 20_000)
            logs[some] += log_likelihood(features @ warp(c[:, some]))
        largest = logs.max()
        p = np.exp(logs - largest)
        total = p.sum()
        f = features @ warp(c)
        mean = f @ p / total
        sd = np.sqrt((f - mean[:, None]) ** 2 @ p / total)
        now = np.concatenate([[largest + np.log(total) + d * np.log(2 * half)], mean, sd])
        if before is not None and np.abs(now - before).max() < 1e-5:
            return SitePosterior(float(now[0]), mean, sd, np.full(sd.size, np.nan))
        before, kept = now, logs > largest - least
        c = (c[:, kept, None] + 2 * half * 0.5 * corners[:, None]).reshape(d, -1)
        half, least = 0.5 * half, max(0.25 * least, 30.0)
    raise ArithmeticError("the rule did not converge.")
