"""Choices among alternatives, and rankings: forecasts of the first place, cross-validated.

Alternatives have features; which one it is counts as one of them. Against a conditional logit
(linear utilities), against independent GPs (each alternative against the rest, from all features of
the person's alternatives), and against the frequencies alone.
"""

import time

import numpy as np
from fold_scores import SEED, FoldScores
from gaussian_forecasts import largest_by_ep
from scipy.optimize import minimize
from scipy.special import logsumexp

import pymc_skewgp as sg
from pymc_skewgp._observations.probability import win_probabilities

LARGEST = 400  # people in a training part: 1200 rows


def conditional_logit(X, orders, new, penalty=1e-3):
    """Linear utilities under a softmax, ridge-penalised; of rankings, one choice a place.

    X has shape (n, k, d); orders (n, k), the first place first, or (n, 1) where only that is known.
    """
    n, k, d = X.shape
    here = np.arange(n)
    free = np.ones((n, k), dtype=bool)
    sets = []
    for place in range(min(orders.shape[1], k - 1)):
        sets.append((free.copy(), orders[:, place]))
        free[here, orders[:, place]] = False

    def loss(b):
        eta = X @ b
        value, slope = -penalty * b @ b, -2 * penalty * b
        for left, chosen in sets:
            log_p = np.where(left, eta, -np.inf)
            log_p = log_p - logsumexp(log_p, axis=1, keepdims=True)
            value += log_p[here, chosen].sum()
            slope = slope + (X[here, chosen] - np.einsum("nk,nkd->nd", np.exp(log_p), X)).sum(0)
        return -value, -slope

    eta = new @ minimize(loss, np.zeros(d), jac=True).x
    return np.exp(eta - logsumexp(eta, axis=1, keepdims=True))


def utility_kernel(d, scale, variance, slope):
    """Covariance of utilities: smooth of all features, plus linear."""

    def kernel(A, B=None, diag=False):
        if diag:
            return variance + slope * (A * A).sum(axis=1)
        B = A if B is None else B
        squared = (A**2).sum(1)[:, None] + (B**2).sum(1) - 2 * A @ B.T
        return variance * np.exp(-0.5 * np.maximum(squared, 0) / scale**2) + slope * A @ B.T

    return kernel


def gp(likelihood, X, orders, new):
    """First-place probabilities of a GP utility, exact and by EP.

    Its lengthscale and variances maximise its own evidence times weak priors.
    """
    started = time.process_time()
    n, k, d = X.shape
    y = orders + k * np.arange(n)[:, None]

    def posterior(point):
        scale, variance, slope = np.exp(point)
        kernel = utility_kernel(d, scale, variance, slope / d)
        return sg.SkewGPPosterior(
            X.reshape(-1, d), y, cov_func=kernel, likelihood=likelihood, n_draws=256
        )

    # Weak priors, normal on logarithms: the same that the estimators have, about.
    start = np.log([2.0 * np.sqrt(d), 1.0, 1.0])
    found = minimize(
        lambda t: -posterior(t).log_marginal_likelihood.value + 0.125 * np.sum((t - start) ** 2),
        start, method="Nelder-Mead",
        options={"maxfev": 40, "initial_simplex": start + np.vstack([np.zeros(3), np.eye(3)])},
    )  # fmt: skip
    best = posterior(found.x)
    flat = new.reshape(-1, d)
    f = best.predict(flat, draws=250, quantiles=())["predictions"]["f"].to_numpy()
    p = win_probabilities(f.reshape(-1, *new.shape[:2])).mean(axis=0)
    return {
        "exact": (p, time.process_time() - started),
        "EP": largest_by_ep(best, (X.reshape(-1, d), y), flat, k),
    }


def independent_gps(X, first, new):
    """Each alternative against the rest, from all features."""
    varying = X.reshape(len(X), -1).std(axis=0) > 0
    flat = [Z.reshape(len(Z), -1)[:, varying] for Z in (X, new)]
    return sg.SkewGPClassifier(random_state=SEED).fit(flat[0], first).predict_proba(flat[1])


def function_each(X, first, new):
    """Multinomial probit, exact: each alternative has a function of all features."""
    varying = X.reshape(len(X), -1).std(axis=0) > 0
    flat = [Z.reshape(len(Z), -1)[:, varying] for Z in (X, new)]
    model = sg.SkewGPClassifier(multi_class="exact", random_state=SEED)
    return model.fit(flat[0], first).predict_proba(flat[1])


def frequencies(k):
    def fit(X, first, new):
        share = (np.bincount(first, minlength=k) + 0.5) / (len(first) + 0.5 * k)
        return np.tile(share, (len(new), 1))

    return fit


def with_names(X):
    """Features, standardised together, and which alternative it is."""
    n, k, d = X.shape
    flat = X.reshape(-1, d)
    X = ((flat - flat.mean(axis=0)) / flat.std(axis=0)).reshape(n, k, d)
    return np.concatenate([X, np.broadcast_to(np.eye(k), (n, k, k))], axis=2)


def chosen_first(first, k):
    """The alternative chosen, then the others."""
    return np.array([[c, *(j for j in range(k) if j != c)] for c in first])


def choices(data, folder):
    """Travel mode and fishing, five folds: log loss against a logit and independent GPs."""
    table = FoldScores(folder / "likelihood_folds.csv", "choices")
    for name in ("travel_mode", "fishing"):
        with np.load(data / "choice" / f"{name}.npz", allow_pickle=True) as file:
            X, y = with_names(file["X"].astype(float)), file["y"].astype(int)
        k = X.shape[1]
        methods = {
            "exact + EP": lambda X, y, new, k=k: gp(
                sg.likelihoods.Choice(1.0), X, chosen_first(y, k), new
            ),
            "conditional logit": lambda X, y, new: conditional_logit(X, y[:, None], new),
            "independent GPs": independent_gps,
            "exact, a function an alternative": function_each,
            "frequencies": frequencies(k),
        }
        table.measure(name, (X, y), methods, largest=LARGEST, scale=False)
        yield from table.report(name, len(y), "exact")


def rankings(data, folder):
    """91 people rank six platforms, five folds: log loss of who is first."""
    with np.load(data / "choice" / "game_rankings.npz", allow_pickle=True) as file:
        rank, own = file["rank"].astype(int), file["own"].astype(float)
    n, k = rank.shape
    order = np.argsort(rank, axis=1)
    # Who has the platform, which one it is, and, for the folds only, the person's number.
    X = np.concatenate([own[:, :, None], np.broadcast_to(np.eye(k), (n, k, k))], axis=2)
    people = np.broadcast_to(np.arange(n)[:, None, None], (n, k, 1))
    X = np.concatenate([X, people], axis=2)

    def whole(method):
        """Of full rankings: those of the people whose first places are given."""
        return lambda X, first, new: method(
            X[:, :, :-1], order[X[:, 0, -1].astype(int)], new[:, :, :-1]
        )

    methods = {
        "exact + EP": whole(lambda X, y, new: gp(sg.likelihoods.Ranking(1.0), X, y, new)),
        "exact, first places only": lambda X, y, new: gp(
            sg.likelihoods.Choice(1.0), X[:, :, :-1], chosen_first(y, k), new[:, :, :-1]
        )["exact"][0],
        "exploded logit": whole(conditional_logit),
        "independent GPs": lambda X, y, new: independent_gps(X[:, :, :-1], y, new[:, :, :-1]),
        "frequencies": frequencies(k),
    }
    table = FoldScores(folder / "likelihood_folds.csv", "rankings")
    table.measure("game_rankings", (X, order[:, 0]), methods, scale=False)
    yield from table.report("game_rankings", n, "exact")
