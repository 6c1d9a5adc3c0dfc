"""The paper's methods on sets of many rows: f of finite rank, by 300 inducing points.

Hyperparameters are learnt from all rows, by EP's evidence: some hundred rows first, then up to
5000, then all, with as many starts and from the same start as for few rows. At this size the exact
evidence would choose no others, so those of SkewGP0 are GP-EP's. The two pseudo-points of SkewGP2
are learnt on one batch of 500 rows with the kernel fixed, as for sets that are learnt in batches.
"""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import ndtr

import pymc_skewgp as sg
from pymc_skewgp._learn.estimator import Kernel, _with_pseudo_points
from pymc_skewgp._learn.problem import TrainingData, learn
from pymc_skewgp.approximations import Inducing

# Rows to learn from, above which it is done so.
ABOVE = 2600
POINTS, DRAWS = 300, 4096
AT_ONCE = 1000


def search_for(gp: Any, X: np.ndarray, y: np.ndarray, search: Any, start: Any, seed: int) -> Any:
    """A search by EP's evidence of all rows."""
    order = np.lexsort((y, *X.T))
    rng = np.random.default_rng(seed)
    return learn(TrainingData(gp, X[order], y[order]), search, rng, start=start)


def approximated(gp: sg.SkewGP, **signs: Any) -> sg.SkewGP:
    """The same process of finite rank."""
    approximation = Inducing(POINTS)
    with gp.model:
        return sg.SkewGP(cov_func=gp.cov_func, approximation=approximation, **signs)


def exact_by_rows(gp: sg.SkewGP, X: np.ndarray, y: np.ndarray, point: Any, seed: int) -> Any:
    """The posterior under this prior, by mirrored pairs."""
    return gp.posterior(X, y, point=point, n_draws=DRAWS, random_seed=seed)


def ep_by_rows(posterior: Any, new: np.ndarray) -> np.ndarray:
    """EP's Gaussian for f at each new point."""
    fit = posterior._fit
    gaussian, features = fit.ep.gaussian, fit._features.single
    p = np.empty(len(new))
    for start in range(0, len(new), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        phi, rest = features.at(new[part])
        variance = rest + np.square(phi @ gaussian.spread).sum(axis=1)
        p[part] = ndtr(phi @ gaussian.mean / np.sqrt(1.0 + variance))
    return p


def pseudo_points_by_batch(
    gp: sg.SkewGP, X: np.ndarray, y: np.ndarray, run: Any, start: Any, search: Any, seed: int
) -> tuple[sg.SkewGP, Any]:
    """The process with two pseudo-points and where they are, the kernel as it was learnt."""
    in_batches = replace(search, batch_size=search.auto_batch_size)
    kernel = Kernel("rbf", True, None)
    rng = np.random.default_rng(seed)
    known = {name: value for name, value in run.values.items() if name in start}
    found, learnt = _with_pseudo_points(
        TrainingData(gp, X, y), kernel, in_batches, 2, known, start, run, rng
    )
    signs = {"pseudo_points": found.pseudo_points, "phase": found.phase}
    return approximated(found, **signs), learnt.values


def forecasts_by_rows(
    names: tuple[str, ...],
    gp: sg.SkewGP,
    X: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    start: Any,
    search: Any,
    seed: int,
) -> dict[str, tuple[np.ndarray, float, float, float]]:
    """Forecast, log evidence, seconds and skewness of each method."""
    found: dict[str, tuple[np.ndarray, float, float, float]] = {}
    low_rank = approximated(gp)
    if "EP-1" in names:
        began = time.process_time()
        ones = {name: np.ones_like(value) for name, value in start.items()}
        run = search_for(low_rank, X, y, replace(search, n_restarts=0), ones, seed)
        posterior = exact_by_rows(low_rank, X, y, run.values, seed)
        p = ep_by_rows(posterior, new)
        evidence = posterior._fit.ep_log_evidence
        found["EP-1"] = p, evidence, time.process_time() - began, 0.0
    if not {"GP-EP", "SkewGP0", "EP@0", "SkewGP2"} & set(names):
        return found
    began = time.process_time()
    run = search_for(low_rank, X, y, search, start, seed)
    posterior = exact_by_rows(low_rank, X, y, run.values, seed)
    p = ep_by_rows(posterior, new)
    seconds = time.process_time() - began
    for name in {"GP-EP", "EP@0"} & set(names):
        found[name] = p, posterior._fit.ep_log_evidence, seconds, 0.0
    if "SkewGP0" in names:
        found["SkewGP0"] = _exact_forecast(posterior, new, began)
    if "SkewGP2" in names:
        skewed, values = pseudo_points_by_batch(gp, X, y, run, start, search, seed)
        posterior = exact_by_rows(skewed, X, y, values, seed)
        found["SkewGP2"] = _exact_forecast(posterior, new, began)
    return found


def _exact_forecast(
    posterior: Any, new: np.ndarray, began: float
) -> tuple[np.ndarray, float, float, float]:
    parts = [posterior.marginals(new[i : i + AT_ONCE]) for i in range(0, len(new), AT_ONCE)]
    p = np.concatenate([at.probability().value for at in parts])
    seconds = time.process_time() - began
    skewness = max(float(np.abs(at.moments.skewness).max()) for at in parts)
    return p, posterior.log_marginal_likelihood.value, seconds, skewness
