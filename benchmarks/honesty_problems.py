"""Random rectangle probabilities with known answers, in families: the problems of `honesty.py`.

Answers come from `tests/rectangle_oracles.py` and `tests/oracles.py`, never from the package.
"""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import few_rows
import numpy as np
from scipy.special import gammaln, log_ndtr

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import oracles
import rectangle_oracles as exact
import site_oracles as sites

import pymc_skewgp as sg

INF, LOG_SQRT_2PI = np.inf, 0.5 * np.log(2.0 * np.pi)


class Problem(NamedTuple):
    """log P(lower < u < upper), u ~ N(0, cov), or the evidence of a SkewGP where `prior` is set.

    Or what `estimate` gives for a seed, where that is set.
    """

    lower: np.ndarray
    upper: np.ndarray
    cov: np.ndarray
    answer: Callable[[], float]
    prior: dict | None = None  # of SkewGPPosterior: its arguments
    whole: Callable[[], sites.SitePosterior] | None = None  # with moments of f at the data
    estimate: Callable[[int], sg.Estimate] | None = None


def _size(rng, least, most):
    return int(np.exp(rng.uniform(np.log(least), np.log(most))))


def _limits(rng, kind, sd):
    """Upper, mixed (upper, lower, two-sided) or far-tail limits, given standard deviations."""
    n = sd.size
    if kind == "upper":
        return np.full(n, -INF), sd * rng.normal(rng.uniform(-0.5, 1.5), 0.7, n)
    if kind == "far":
        # One to three deviations out everywhere, and a few rows at four to six.
        limit = rng.uniform(1.0, 3.0, n)
        limit[rng.random(n) < 0.1] = rng.uniform(4.0, 6.0)
        return sd * limit, np.full(n, INF)
    centre = sd * rng.normal(0.0, 0.7, n)
    width = sd * (0.3 + rng.exponential(1.5, n))
    side = rng.integers(3, size=n)
    lower = np.where(side == 1, -INF, centre - 0.5 * width)
    upper = np.where(side == 2, INF, centre + 0.5 * width)
    return lower, upper


def factors(rng, r, kind):
    n = _size(rng, 20, 120) if r < 3 else _size(rng, 8, 24)
    strength = rng.uniform(0.5, 0.8)  # the correlation that one factor alone would give
    directions = np.abs(rng.normal(1.0, 0.25, (n, r)))
    if r > 1:  # rows that load on all factors in different shares
        directions = rng.normal(size=(n, r)) + (2.0 if rng.random() < 0.5 else 0.0) * np.eye(r)[0]
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    loadings = np.sqrt(strength) * directions
    noise = np.sqrt(1.0 - strength) * np.ones(n)
    cov = loadings @ loadings.T + np.diag(noise**2)
    lower, upper = _limits(rng, kind, np.sqrt(cov.diagonal()))
    return Problem(lower, upper, cov, lambda: exact.factor_log_prob(lower, upper, loadings, noise))


def block(rng):
    sizes = rng.integers(2, 25, size=rng.integers(2, 6))
    rhos = rng.uniform(0.1, 0.9, sizes.size)
    n = int(sizes.sum())
    cov, starts = np.zeros((n, n)), np.append(0, np.cumsum(sizes))
    for start, size, rho in zip(starts, sizes, rhos, strict=False):
        cov[start : start + size, start : start + size] = oracles.equicorrelated_cov(size, rho)
    lower, upper = _limits(rng, rng.choice(["upper", "mixed"]), np.ones(n))

    def answer():
        cuts = [slice(a, b) for a, b in pairwise(starts)]
        return sum(
            exact.factor_log_prob(
                lower[cut],
                upper[cut],
                np.full((size, 1), rho**0.5),
                np.full(size, (1 - rho) ** 0.5),
            )
            for cut, size, rho in zip(cuts, sizes, rhos, strict=True)
        )

    return Problem(lower, upper, cov, answer)


def _ar1(rng, r):
    log_r = np.append(0.0, np.cumsum(np.log(np.abs(r))))
    sign = np.append(1.0, np.cumprod(np.sign(r)))
    correlation = np.exp(-np.abs(log_r[:, None] - log_r)) * sign * sign[:, None]
    lower, upper = _limits(rng, rng.choice(["upper", "mixed", "far"]), np.ones(sign.size))
    order = rng.permutation(sign.size)
    return Problem(
        lower[order],
        upper[order],
        correlation[np.ix_(order, order)],
        lambda: exact.chain_log_prob(r, lower, upper),
    )


def ar1(rng):
    return _ar1(rng, np.full(_size(rng, 8, 80) - 1, rng.uniform(0.3, 0.95)))


def ou_probit(rng):
    n = _size(rng, 15, 150)
    x = rng.standard_normal(n)
    lengthscale, variance = rng.uniform(0.1, 2.0), np.exp(rng.uniform(np.log(0.5), np.log(60.0)))
    kernel = oracles.ou_cov(x, lengthscale, variance)
    f = np.linalg.cholesky(kernel + 1e-10 * np.eye(n)) @ rng.standard_normal(n)
    y = (f + rng.standard_normal(n) > 0).astype(int)
    if rng.random() < 0.15:
        y[:] = 1
    sign = 2.0 * y - 1.0
    cov = sign[:, None] * kernel * sign + np.eye(n)
    return Problem(
        np.zeros(n),
        np.full(n, INF),
        cov,
        lambda: oracles.ou_probit_log_evidence(x, y, lengthscale, variance),
    )


def wishart(rng):
    n = int(rng.integers(2, 4))
    root = rng.normal(size=(n, n + int(rng.integers(0, 4))))
    cov = root @ root.T
    lower, upper = _limits(rng, rng.choice(["upper", "mixed", "far"]), np.sqrt(cov.diagonal()))
    scale = np.sqrt(cov.diagonal())
    correlation = cov / scale / scale[:, None]
    if np.linalg.eigvalsh(correlation)[0] < 0.02:  # beyond what nested quadrature resolves
        return wishart(rng)
    return Problem(
        lower,
        upper,
        cov,
        lambda: oracles.brute_log_prob(lower / scale, upper / scale, correlation),
    )


def near_duplicates(rng):
    n = _size(rng, 4, 30)
    loading = np.sqrt(rng.uniform(0.1, 0.7)) * rng.choice([1.0, 1.0, -1.0], n)
    noise = np.sqrt(1.0 - loading**2)
    gap = float(10.0 ** rng.uniform(-5, -1))
    upper = rng.normal(0.7, 0.7, n)
    twin = upper + rng.choice([gap, 0.2, 1.0]) * rng.normal(size=n)
    one = np.outer(loading, loading) + np.diag(noise**2)
    cov = np.block([[one, one], [one, one + gap**2 * np.eye(n)]])
    order = rng.permutation(2 * n)
    return Problem(
        np.full(2 * n, -INF),
        np.append(upper, twin)[order],
        cov[np.ix_(order, order)],
        lambda: exact.duplicated_factor_log_prob(upper, twin, loading, noise, gap),
    )


def singular(rng):
    """Rank one or two and 1e-12 to 1e-9 on the diagonal: an interval or a polygon."""
    n, r = _size(rng, 3, 12), int(rng.integers(1, 3))
    loadings = rng.choice([-1.0, 1.0], (n, 1)) if r == 1 else rng.normal(size=(n, 2))
    if r == 2 or rng.random() < 0.5:
        loadings = loadings * rng.uniform(0.5, 2.0, (n, 1))
    hair = float(10.0 ** rng.uniform(-12, -9))
    cov = loadings @ loadings.T + hair * np.eye(n)
    sd = np.sqrt(cov.diagonal())
    far = rng.random() < 0.5
    upper = sd * (rng.uniform(2.0, 5.0, n) if far else rng.uniform(0.3, 2.5, n))
    if rng.random() < 0.3:
        upper[0] = rng.normal() * sd[0]
    lower = np.full(n, -INF)
    answer = exact.plane_log_prob(lower, upper, loadings)
    if not answer > -30.0:
        return singular(rng)
    return Problem(lower, upper, cov, lambda: answer)


def scales(rng):
    inner = [
        lambda: factors(rng, 1, "mixed"),
        lambda: ou_probit(rng),
        lambda: singular(rng),
        lambda: ar1(rng),
    ][rng.integers(4)]()
    d = 10.0 ** rng.uniform(-8, 8, inner.lower.size)
    if rng.random() < 0.3:
        d = 10.0 ** rng.choice([-8.0, 0.0, 8.0], inner.lower.size)
    return Problem(d * inner.lower, d * inner.upper, d[:, None] * inner.cov * d, inner.answer)


def narrow_boxes(rng):
    n = _size(rng, 3, 40)
    strength = rng.uniform(0.2, 0.8)
    loadings = np.sqrt(strength) * rng.normal(1.0, 0.4, (n, 1))
    noise = np.full(n, np.sqrt(1.0 - strength))
    cov = loadings @ loadings.T + np.diag(noise**2)
    centre = np.sqrt(cov.diagonal()) * rng.normal(0.0, 1.0, n)
    width = 10.0 ** (rng.uniform(-10, -1) + rng.uniform(-0.5, 0.5, n))
    lower, upper = centre - 0.5 * width, centre + 0.5 * width
    return Problem(lower, upper, cov, lambda: exact.factor_log_prob(lower, upper, loadings, noise))


def negative(rng):
    if rng.random() < 0.5:
        return _ar1(rng, -np.full(_size(rng, 5, 60) - 1, rng.uniform(0.2, 0.9)))
    n = _size(rng, 3, 14)
    c = rng.uniform(0.2, 0.9) / (n - 1)
    cov = (1.0 + c) * np.eye(n) - c
    lower, upper = _limits(rng, rng.choice(["upper", "mixed"]), np.ones(n))
    return Problem(
        lower, upper, cov, lambda: exact.negative_equicorrelated_log_prob(lower, upper, c)
    )


class OUKernel:
    """Ornstein-Uhlenbeck kernel as `SkewGPPosterior` takes it."""

    def __init__(self, lengthscale, variance):
        self.lengthscale, self.variance = lengthscale, variance

    def __call__(self, X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), self.variance)
        gap = np.abs(X - (X if Xs is None else Xs).T)
        return self.variance * np.exp(-gap / self.lengthscale)


class RBFKernel(OUKernel):
    """The squared exponential one."""

    def __call__(self, X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), self.variance)
        gap = (X - (X if Xs is None else Xs).T) / self.lengthscale
        return self.variance * np.exp(-0.5 * gap**2)


def skewgp(rng):
    """Labels and signs at pseudo-points along a line, all of one OU process."""
    n, s = _size(rng, 6, 60), int(rng.integers(1, 6))
    lengthscale, variance = rng.uniform(0.3, 2.0), np.exp(rng.uniform(0.0, np.log(50.0)))
    # Gaps that keep neighbours' correlations below what the filter resolves.
    x = np.cumsum(lengthscale * rng.uniform(0.05, 0.3, n + s))
    pseudo = np.zeros(n + s, dtype=bool)
    pseudo[rng.choice(n + s, s, replace=False)] = True
    y = (rng.random(n) < 0.5).astype(int)
    phase = rng.choice([-1.0, 1.0], s)
    truncation = rng.normal(0.0, 0.7, s)
    kernel = OUKernel(lengthscale, variance)

    def answer():
        r = np.exp(-np.diff(x) / lengthscale)
        low, high = np.full(n + s, -INF), np.full(n + s, INF)
        low[np.flatnonzero(pseudo)[phase > 0]] = -truncation[phase > 0]
        high[np.flatnonzero(pseudo)[phase < 0]] = truncation[phase < 0]
        sign = np.zeros(n + s)
        sign[~pseudo] = 2.0 * y - 1.0
        sd = np.sqrt(variance)
        factors = [
            None if w == 0 else (lambda g, w=w: np.asarray(log_ndtr(w * sd * g))) for w in sign
        ]
        return exact.chain_log_prob(r, low, high, factors, 72) - exact.chain_log_prob(
            np.exp(-np.diff(x[pseudo]) / lengthscale), low[pseudo], high[pseudo], None, 72
        )

    order = rng.permutation(n)
    prior = {
        "X": x[~pseudo][order],
        "y": y[order],
        "cov_func": kernel,
        "pseudo_points": x[pseudo],
        "phase": phase,
        "truncation": truncation,
    }
    return Problem(np.zeros(0), np.zeros(0), np.zeros((0, 0)), answer, prior)


def pooled(rng):
    """Trials or single labels at one or two places, of one kind or mixed: by a fine grid."""
    d, sd, lengthscale = int(rng.integers(1, 3)), np.exp(rng.uniform(-0.7, 3.0)), 1.0
    x = np.array([0.0, rng.uniform(0.5, 3.0)])[:d]
    kernel = RBFKernel(lengthscale, sd**2)
    single = rng.random() < 0.4
    n = np.exp(rng.uniform(0.0, np.log(500 if single else 5000), d)).astype(int)
    share = rng.choice([0.0, 1.0, rng.uniform()], d)
    y = np.round(share * n).astype(int)

    def answer():
        # Thousands of trials of both kinds make a factor as narrow as .02.
        step = 0.02 / max(sd, 1.0)
        # Opposite data of thousands of trials pull a value given the other far out of its prior.
        end = 9.0 + 10.0 / sd
        f = sd * np.arange(-end, end, step)
        log_l = [y[i] * log_ndtr(f) + (n[i] - y[i]) * log_ndtr(-f) for i in range(d)]
        log_p = log_l[0] - 0.5 * (f / sd) ** 2 - LOG_SQRT_2PI + np.log(step)
        if d == 1:
            return float(np.logaddexp.reduce(log_p))
        rho = kernel(x[:, None])[0, 1] / sd**2
        left = sd * np.sqrt(1.0 - rho**2)
        log_l[1] += np.log(step * sd / left) - LOG_SQRT_2PI
        total = -INF
        for i in np.argsort(-log_p):
            if log_p[i] < total - 45.0:  # ten thousand values, each with less than exp(-45)
                break
            given = log_l[1] - 0.5 * ((f - rho * f[i]) / left) ** 2
            most = given.max()
            total = np.logaddexp(total, log_p[i] + most + np.log(np.exp(given - most).sum()))
        return float(total)

    if single:
        labels = np.repeat(np.tile([1, 0], d), np.stack([y, n - y], axis=1).ravel())
        prior = {"X": np.repeat(x, n), "y": labels, "cov_func": kernel}
        return Problem(np.zeros(0), np.zeros(0), np.zeros((0, 0)), answer, prior)
    known = sg.likelihoods.BinomialProbit(n)
    orders = (gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)).sum()
    prior = {"X": x, "y": y, "cov_func": kernel, "likelihood": known}
    nothing = np.zeros(0)
    return Problem(nothing, nothing, np.zeros((0, 0)), lambda: answer() + orders, prior)


class FeatureKernel:
    """Kernel of f = c_1 + c_2 x + c_3 (x^2 - 1) up to so many terms, c ~ N(0, diag(sd^2))."""

    def __init__(self, sd):
        self.sd = sd

    def features(self, X):
        x = np.asarray(X)[:, 0]
        return np.stack([np.ones_like(x), x, x**2 - 1.0], axis=1)[:, : self.sd.size] * self.sd

    def __call__(self, X, Xs=None, diag=False):
        own = self.features(X)
        if diag:
            return (own**2).sum(axis=1)
        return own @ (own if Xs is None else self.features(Xs)).T


def many_modes(rng):
    """Factors that are not log-concave, of one to three coordinates."""
    d, n = int(rng.integers(1, 4)), _size(rng, 8, 60)
    kernel = FeatureKernel(rng.uniform(0.7, 2.5, d))
    x = rng.uniform(-1.5, 1.5, (n, 1))
    f = kernel.features(x) @ rng.standard_normal(d)
    kind = rng.choice(["Student", "two normals", "lapses"])
    if kind == "Student":
        scale = rng.uniform(0.15, 0.6)
        likelihood = sites.Student(scale, float(rng.integers(1, 5)))
        other = kernel.features(x) @ rng.standard_normal(d)
        f = np.where(rng.random(n) < rng.uniform(0.2, 0.52), other, f)
        y = f + scale * rng.standard_normal(n)
    elif kind == "two normals":
        likelihood = sites.TwoNormals(rng.uniform(0.5, 2.0), rng.uniform(0.3, 0.7), 0.5)
        # In groups that have one sign, as in a mixture that was not mixed, or each with its own.
        sign = rng.choice([-1.0, 1.0], n) if rng.random() < 0.5 else rng.choice([-1.0, 1.0])
        y = f + sign * likelihood.apart + likelihood.scale * rng.standard_normal(n)
    else:
        likelihood = sites.Lapses()
        p = np.exp(likelihood.log_likelihood(np.ones(n), f))
        y = (rng.random(n) < p).astype(float)

    def answer():
        return sites.posterior_of_coordinates(
            kernel.features(x), lambda f: likelihood.log_likelihood(y, f.T).sum(axis=-1)
        )

    prior = {"X": x, "y": y, "cov_func": kernel, "likelihood": likelihood}
    nothing = np.zeros(0)
    # f whole: its means and deviations are known as well.
    return Problem(nothing, nothing, np.zeros((0, 0)), lambda: answer().log_evidence, prior, answer)


def few_rows_integrated(rng):
    """Hyperparameters integrated out: `few_rows.py`'s problems and answers, these with errors."""
    name = str(rng.choice(list(few_rows.PROBLEMS)))

    def estimate(seed):
        found = few_rows.estimate(name, seed)["posterior"].attrs
        error = np.hypot(found["log_evidence_se"], few_rows.truth(name)[1])
        return sg.Estimate(found["log_evidence"], error, found["relative_ess"], found["pareto_k"])

    nothing = np.zeros(0)
    square = np.zeros((0, 0))
    return Problem(nothing, nothing, square, lambda: few_rows.truth(name)[0], estimate=estimate)


FAMILIES: dict[str, Callable[[np.random.Generator], Problem]] = {
    **{
        f"{name} factor{'s' * (r > 1)}, {kind}": (lambda rng, r=r, kind=kind: factors(rng, r, kind))
        for r, name in ((1, "one"), (2, "two"), (3, "three"))
        for kind in ("upper", "mixed", "far")
    },
    "block": block,
    "AR(1)": ar1,
    "OU-probit": ou_probit,
    "Wishart": wishart,
    "near-duplicates": near_duplicates,
    "singular": singular,
    "scales": scales,
    "narrow boxes": narrow_boxes,
    "negative correlation": negative,
    "SkewGP": skewgp,
    "pooled": pooled,
    "many modes": many_modes,
    "few rows integrated": few_rows_integrated,
}


def problem(family: str, index: int) -> Problem:
    """Problem number `index` of a family, the same at every call."""
    return FAMILIES[family](np.random.default_rng([index, *family.encode()]))
