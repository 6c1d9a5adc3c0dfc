"""Random duels on test functions: exact posterior, EP and Laplace against a long Gibbs run.

"BoTorch" is its `PairwiseGP`, Laplace's approximation too, in an interpreter that has it.

After S. Takeno, M. Nomura & M. Karasuyama (2023), Towards practical preferential Bayesian
optimization with skew Gaussian processes, arXiv:2302.01513. Hyperparameters are fixed, and the same
for all: what differs is how the posterior is computed.
"""

import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from runner import append_rows, machine, read_rows
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_ndtr, ndtr, ndtri

import pymc_skewgp as sg
from pymc_skewgp._gaussian.covariance import DenseCovariance
from pymc_skewgp._gaussian.ep import fit_ep

N_DUELS, N_TEST, SEEDS, NOISES = 50, 1000, 10, (0.01, 0.1, 0.3, 1.0)
N_DRAWS = 4000
JITTER = 1e-8


def branin(x):
    a, b = 15.0 * x[:, 0] - 5.0, 15.0 * x[:, 1]
    bowl = (b - 5.1 / (4 * np.pi**2) * a**2 + 5.0 / np.pi * a - 6.0) ** 2
    return -(bowl + 10.0 * (1.0 - 1.0 / (8 * np.pi)) * np.cos(a) + 10.0)


def ackley(x):
    z = 10.0 * x - 5.0
    root = np.sqrt((z**2).mean(axis=1))
    return 20.0 * np.exp(-0.2 * root) + np.exp(np.cos(2 * np.pi * z).mean(axis=1)) - 20.0 - np.e


def hartmann(x):
    A = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    P = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    inner = (A * (x[:, None] - P) ** 2).sum(axis=2)
    return np.exp(-inner) @ np.array([1.0, 1.2, 3.0, 3.2])


FUNCTIONS = {"Branin": (branin, 2), "Ackley": (ackley, 4), "Hartmann": (hartmann, 6)}


class Problem(NamedTuple):
    """Duels among items, winners first, noise-free test duels, and the kernel's matrix."""

    X: np.ndarray
    duels: np.ndarray
    test: np.ndarray
    K: np.ndarray
    sigma: float


def lengthscale_of(d):
    return 0.25 * np.sqrt(d)


def kernel(d):
    lengthscale = lengthscale_of(d)

    def k(X, Xs=None, diag=False):
        if diag:
            return np.ones(len(X))
        Xs = X if Xs is None else Xs
        squared = (X**2).sum(1)[:, None] + (Xs**2).sum(1) - 2 * X @ Xs.T
        return np.exp(-0.5 * np.maximum(squared, 0) / lengthscale**2)

    return k


def problem(name, sigma, seed):
    function, d = FUNCTIONS[name]
    rng = np.random.default_rng([seed, d])
    wide = function(rng.random((10000, d)))
    X = rng.random((2 * N_DUELS, d))
    f = (function(X) - wide.mean()) / wide.std()
    pairs = np.arange(2 * N_DUELS).reshape(-1, 2)
    score = f[pairs] + sigma * rng.standard_normal(pairs.shape)
    duels = np.where(score[:, :1] > score[:, 1:], pairs, pairs[:, ::-1])
    test = np.array([rng.choice(len(f), 2, replace=False) for _ in range(N_TEST)])
    test = np.where((f[test[:, 0]] > f[test[:, 1]])[:, None], test, test[:, ::-1])
    return Problem(X, duels, test, kernel(d)(X), sigma)


# --- methods: draws of f, shape (N_DRAWS, 2 N_DUELS) ---------------------------------------------


def exact(p, seed):
    likelihood = sg.likelihoods.Preference(p.sigma)
    posterior = sg.SkewGPPosterior(
        p.X, p.duels, cov_func=kernel(p.X.shape[1]), likelihood=likelihood
    )
    f = posterior.sample(N_DRAWS // 4, 4, random_seed=seed)["posterior"]["f"].to_numpy()
    return f.reshape(N_DRAWS, -1)


def rows(p):
    """A, G = A K A' + 2 sigma^2 I."""
    n = len(p.duels)
    A = np.zeros((n, len(p.X)))
    A[np.arange(n), p.duels[:, 0]], A[np.arange(n), p.duels[:, 1]] = 1.0, -1.0
    return A, A @ p.K @ A.T + 2 * p.sigma**2 * np.eye(n)


def gaussian_draws(mean, cov, rng):
    values, vectors = np.linalg.eigh(cov)
    factor = vectors * np.sqrt(np.maximum(values, 0))
    return mean + rng.standard_normal((N_DRAWS, len(mean))) @ factor.T


def by_ep(p, seed):
    A, G = rows(p)
    n = len(G)
    ep = fit_ep(DenseCovariance(G), np.zeros(n), np.full(n, np.inf))
    cross = A @ p.K
    cov = p.K - cross.T @ DenseCovariance(G).site_precision(ep.tau) @ cross
    return gaussian_draws(cross.T @ ep.weights, cov, np.random.default_rng(seed))


def by_laplace(p, seed):
    """Mode and curvature, Newton's method with halved steps."""
    A, _ = rows(p)
    scale = np.sqrt(2.0) * p.sigma
    K = p.K + JITTER * np.eye(len(p.K))
    factor = cho_factor(K)

    def value(f):
        return log_ndtr(A @ f / scale).sum() - 0.5 * f @ cho_solve(factor, f)

    f = np.zeros(len(K))
    for _ in range(200):
        z = A @ f / scale
        ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
        weight = np.maximum(ratio * (z + ratio), 1e-12) / scale**2
        right = A.T @ (weight * (A @ f) + ratio / scale)
        KA = K @ A.T
        inner = A @ KA + np.diag(1.0 / weight)
        new = K @ right - KA @ np.linalg.solve(inner, A @ (K @ right))
        step = 1.0
        while value(f + step * (new - f)) < value(f) and step > 1e-6:
            step *= 0.5
        moved = step * (new - f)
        f = f + moved
        if np.abs(moved).max() < 1e-8:
            break
    cov = K - KA @ np.linalg.solve(inner, KA.T)
    return gaussian_draws(f, cov, np.random.default_rng(seed))


def by_botorch(python, problems):
    """Draws for each problem, and CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(
            given,
            X=[p.X for p in problems],
            duels=[p.duels for p in problems],
            sigma=problems[0].sigma,
            lengthscale=lengthscale_of(problems[0].X.shape[1]),
            n_draws=N_DRAWS,
        )
        script = Path(__file__).with_name("duels_peer.py")
        subprocess.run([python, script, given, out], check=True)
        with np.load(out) as found:
            return list(zip(found["f"].astype(float), found["seconds"], strict=True))


def gibbs(p, seed, chains=200):
    """Long Gibbs runs on the rows, one coordinate after the other; then f given them.

    Draws of one chain are `chains` apart.
    """
    # It mixes the more slowly the smaller the noise is.
    sweeps, thin = (9000, 60) if p.sigma < 0.05 else (3000, 25)
    A, G = rows(p)
    rng, n = np.random.default_rng([seed, 1]), len(G)
    precision = np.linalg.inv(G)
    sd = 1.0 / np.sqrt(precision.diagonal())
    weights = -precision * sd[:, None] ** 2
    weights[np.diag_indices(n)] = 0.0
    u = np.abs(rng.standard_normal((n, chains))) * np.sqrt(G.diagonal())[:, None]
    kept = []
    for sweep in range(sweeps):
        for i in range(n):
            centre = weights[i] @ u
            low = ndtr(-centre / sd[i])
            tail = rng.random(chains)
            z = -ndtri(np.maximum((1.0 - low) * tail, 1e-300))
            u[i] = np.maximum(centre + sd[i] * z, 1e-14)
        if sweep >= sweeps // 3 and sweep % thin == 0:
            kept.append(u.copy())
    u = np.concatenate(kept, axis=1)
    cross = A @ p.K
    solved = np.linalg.solve(G, cross)
    cov = p.K - cross.T @ solved
    values, vectors = np.linalg.eigh(cov)
    factor = vectors * np.sqrt(np.maximum(values, 0))
    return (solved.T @ u).T + rng.standard_normal((u.shape[1], len(cov))) @ factor.T


METHODS = {"exact": exact, "EP": by_ep, "Laplace": by_laplace}
ORDER = ("exact", "EP", "Laplace", "BoTorch", "Gibbs")
MEASURES = (
    "log_score", "contradict", "p_best", "duel_mean", "duel_largest", "seconds"
)  # fmt: skip


def wins(f, pairs, sigma):
    """P(first of each pair wins), averaged over draws."""
    scale = np.sqrt(2.0) * sigma
    return ndtr((f[:, pairs[:, 0]] - f[:, pairs[:, 1]]) / scale).mean(axis=0)


def best(f):
    return np.bincount(f.argmax(axis=1), minlength=f.shape[1]) / len(f)


def against(p, f, truth):
    """What draws of f say, and how far that is from other draws."""
    win, off = wins(f, p.test, p.sigma), wins(truth, p.test, p.sigma)
    lost = f[:, p.duels[:, 0]] < f[:, p.duels[:, 1]]
    return {
        "log_score": float(np.log(np.clip(win, 1e-4, 1.0)).mean()),
        "contradict": float(lost.any(axis=1).mean()),
        "p_best": float(np.abs(best(f) - best(truth)).max()),
        "duel_mean": float(np.abs(win - off).mean()),
        "duel_largest": float(np.abs(win - off).max()),
    }


def measure(name, noise, seeds, peer_python):
    """Rows of each seed, one a method; of Gibbs one half of its chains against the other half."""
    problems = [problem(name, noise, seed) for seed in seeds]
    peers = by_botorch(peer_python, problems) if peer_python else [None] * len(seeds)
    for method in METHODS.values():
        method(problems[0], 0)  # compiled
    for seed, p, peer in zip(seeds, problems, peers, strict=True):
        started = time.process_time()
        truth = gibbs(p, seed)
        seconds = time.process_time() - started
        half = np.arange(len(truth)) % 200 < 100
        found = {"Gibbs": against(p, truth[half], truth[~half]) | {"seconds": seconds}}
        for method, draw in METHODS.items():
            started = time.process_time()
            f = draw(p, seed)
            seconds = time.process_time() - started
            found[method] = against(p, f, truth) | {"seconds": seconds}
        if peer is not None:
            found["BoTorch"] = against(p, peer[0], truth) | {"seconds": peer[1]}
        what = {"function": name, "noise": noise, "seed": seed}
        yield [what | {"method": method} | row for method, row in found.items()]


def fill(path, name, noise, peer_python):
    """Whatever seeds the table does not have yet."""
    rows = [(r["function"], float(r["noise"]), int(r["seed"])) for r in read_rows(path)]
    left = [seed for seed in range(SEEDS) if (name, noise, seed) not in rows]
    if left:
        for found in measure(name, noise, left, peer_python):
            append_rows(path, found, machine())


def duels(path, peer_python=None):
    """50 duels, ten seeds, three functions: forecasts, contradictions, P(best), CPU seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in FUNCTIONS:
        for noise in NOISES:
            fill(path, name, noise, peer_python)
    found = read_rows(path)
    for noise in NOISES:
        for method in ORDER:
            own = [r for r in found if float(r["noise"]) == noise and r["method"] == method]
            if not own:
                continue
            mean = {k: np.mean([float(r[k]) for r in own]) for k in MEASURES}
            worst = max(float(r["duel_largest"]) for r in own)
            yield (
                f"noise sd {noise}, {method}: log score; draws that contradict a duel; off from "
                "Gibbs: P(best), largest; P(i beats j), mean, largest; CPU seconds",
                "",
                f"{mean['log_score']:.3f}; {100 * mean['contradict']:.0f} %; {mean['p_best']:.3f}; "
                f"{mean['duel_mean']:.4f}, {worst:.3f}; {mean['seconds']:.2f}",
            )
