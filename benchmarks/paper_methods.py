"""The four classifiers of the paper's tables, and what their differences come from.

All see the same standardised inputs, have one kernel family (RBF or arcsine, a lengthscale for
each input where `ard` is set) and flat priors, and maximise a marginal likelihood from the same
start and two further ones. What differs is which evidence is maximised and which posterior makes
the forecast:

========  =============================  ==============================  ======================
name      prior                          hyperparameters maximise        forecast by
========  =============================  ==============================  ======================
GP-L      GP, logistic link              Laplace's evidence              Laplace (scikit-learn)
GP-EP     GP                             EP's evidence                   EP
GPy-EP    GP                             GPy's EP evidence               GPy's EP
EP-1      GP                             EP's evidence, one start at 1   EP
EP@0      GP                             those of SkewGP0                EP
SkewGP0   GP                             the evidence                    the exact posterior
SkewGP2   SkewGP, two pseudo-points      the evidence                    the exact posterior
========  =============================  ==============================  ======================

GPy is asked for by name: its EP takes many times as long, and is there to check ours. By name as
well SkewGP0-P, which is SkewGP0 with weak priors in place of flat ones (a half-normal of scale 5 on
the standard deviation, a factor of e about the start on each lengthscale), and with it EP@0-P; and
SkewGP0-A, which averages over the hyperparameters instead of maximising, with EP-A: EP's forecasts
at the same 32 points of them, with the same weights.
Two more are not in the paper: SkewGP0 less EP@0 is the gain by the exact posterior, EP@0 less
GP-EP that by better hyperparameters, and GP-EP less EP-1 that by a search: EP-1 makes one ascent,
from a standard deviation and lengthscales of 1.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from paper_laplace import laplace_forecast
from paper_rows import ABOVE, forecasts_by_rows
from peers import fit_gpy
from scipy.special import ndtr
from sklearn.utils import check_random_state

import pymc_skewgp as sg
from pymc_skewgp._gaussian.covariance import FactoredCovariance
from pymc_skewgp._gaussian.ep import fit_ep
from pymc_skewgp._learn.optimizers import SearchSettings
from pymc_skewgp._learn.problem import TrainingData, learn
from pymc_skewgp._observations.binary import BernoulliProbit
from pymc_skewgp._posterior.conditioning import process_given

PEER = "GPy-EP"
SKEW = (("SkewGP0", 0), ("SkewGP2", 2))
# One search for all of them: GP-EP's, gone on from by SkewGP0, gone on from by SkewGP2.
TOGETHER = ("GP-EP", "SkewGP0", "EP@0", "SkewGP2")
TASKS = ("GP-L", "EP-1", "SkewGP2")
BY_NAME = (PEER, "SkewGP0-P", "SkewGP0-A")
# The methods of a task that does more than its own.
COME_WITH = {
    "SkewGP2": TOGETHER,
    "SkewGP0-P": ("SkewGP0-P", "EP@0-P"),
    "SkewGP0-A": ("SkewGP0-A", "EP-A"),
}
# As `SkewGPClassifier` searches, batches beyond so many rows included.
SEARCH = SearchSettings(n_restarts=2, hessian=False)
RESTARTS = SEARCH.n_restarts
# Of the exact posterior, where they are cheap: 1024 leave a probability of .001 without a digit,
# and it is the rare label that a score in bits is about.
DRAWS, FEW = 8192, 2000
MANY = 16 * DRAWS  # to see what those are off by


class Forecast(NamedTuple):
    """Probabilities of label 1 for the test rows, and what was seen on the way."""

    p: np.ndarray
    log_evidence: float
    seconds: float  # of a core: others may work on the machine as well
    skewness: float = np.nan  # largest size over the test rows
    p_sd: np.ndarray | None = None  # of Phi(f)
    relative_ess: float = np.nan  # of the weights of hyperparameters that are averaged over
    rung: float = np.nan  # of the ladder behind them


def forecasts(
    names: tuple[str, ...],
    X: np.ndarray,
    y: np.ndarray,
    new: np.ndarray,
    *,
    kernel: str = "rbf",
    ard: bool = True,
    seed: int = 0,
    search: SearchSettings = SEARCH,
) -> dict[str, Forecast]:
    """Fit the methods in `names` to X (n, d), y (n,) and forecast `new` (t, d)."""
    found: dict[str, Forecast] = {}
    start = _start(X, kernel, ard)
    by_ep = replace(search, method="ep", batch_size=search.batch_size_for(len(y)))
    if len(y) > ABOVE and (known := set(names) & {"EP-1", *TOGETHER}):
        gp = _gp(X.shape[1], kernel, ard)
        all_rows = replace(search, method="ep", batch_size=None)
        every = forecasts_by_rows(tuple(known), gp, X, y, new, start, all_rows, seed)
        return {name: Forecast(*row) for name, row in every.items()}
    if "GP-L" in names:
        found["GP-L"] = _laplace(X, y, new, kernel, start, seed, by_ep)
    if "GP-EP" in names and "SkewGP0" not in names:
        found["GP-EP"] = _ep(X, y, new, _gp(X.shape[1], kernel, ard), start, seed, by_ep)
    if PEER in names:
        found[PEER] = _gpy(X, y, new, kernel, start, seed)
    if "EP-1" in names:
        ones = {name: np.ones_like(value) for name, value in start.items()}
        once = replace(by_ep, n_restarts=0)
        found["EP-1"] = _ep(X, y, new, _gp(X.shape[1], kernel, ard), ones, seed, once)
    if "SkewGP0-P" in names:
        found |= _with_priors(X, y, new, start, seed)
    if "SkewGP0-A" in names:
        found |= _averaged(X, y, new, kernel, ard, seed)
    skew = [(name, count) for name, count in SKEW if name in names]
    if not skew:
        return found
    # Each goes on from the one before it, if there is one.
    model = sg.SkewGPClassifier(
        kernel, ard=ard, n_restarts=search.n_restarts, warm_start=True, random_state=seed
    )
    model._search = search
    seconds = 0.0
    for name, count in skew:
        model.set_params(n_pseudo_points=count)
        posterior, found[name], seconds = _exact(model, X, y, new, seed, seconds)
        if name == "SkewGP0":
            if "GP-EP" in names:
                prior = _best_by_ep(model.hyperparameters_, _gp(X.shape[1], kernel, ard), X, y)
                found["GP-EP"] = _ep_forecast(prior, X, y, new, np.nan)
            if "EP@0" in names:
                found["EP@0"] = _ep_forecast(posterior.prior, X, y, new, seconds)
    return found


def _with_priors(X, y, new, start, seed) -> dict[str, Forecast]:
    """SkewGP0, its hyperparameters no longer free to go wherever separable labels send them."""

    def kernel(d: int) -> Any:
        eta = pm.HalfNormal("eta", sigma=5.0)
        ls = pm.LogNormal("ls", mu=np.log(start["ls"]), sigma=1.0, shape=d)
        return eta**2 * pm.gp.cov.ExpQuad(d, ls=ls)

    model = sg.SkewGPClassifier(kernel, n_restarts=RESTARTS, random_state=seed)
    posterior, exact, seconds = _exact(model, X, y, new, seed)
    return {
        "SkewGP0-P": exact,
        "EP@0-P": _ep_forecast(posterior.prior, X, y, new, seconds),
    }


def _averaged(X, y, new, kernel, ard, seed) -> dict[str, Forecast]:
    """Hyperparameters averaged over: the exact posteriors at some points of them, and EP's."""
    began = time.process_time()
    model = sg.SkewGPClassifier(kernel, ard=ard, hyperparameters="average", random_state=seed)
    model.fit(X, y)
    learning = time.process_time() - began
    mixture = model.posterior_
    p = mixture.probability(new).value
    seconds = time.process_time() - began
    reached = model.hyperparameters_["posterior"].attrs
    by_ep = [_ep_forecast(part.prior, X, y, new, 0.0) for part in mixture.posteriors]
    of_ep = sum(w * part.p for w, part in zip(mixture.weights, by_ep, strict=True))
    evidence = model.log_marginal_likelihood_.value
    return {
        "SkewGP0-A": Forecast(
            p, evidence, seconds, relative_ess=reached["relative_ess"], rung=reached["rung"]
        ),
        "EP-A": Forecast(of_ep, np.nan, learning),
    }


def _exact(model, X, y, new, seed, so_far=0.0) -> tuple[Any, Forecast, float]:
    """The exact posterior by enough draws, its forecast, and the seconds of learning alone."""
    began = time.process_time()
    model.fit(X, y)
    learning = so_far + time.process_time() - began
    # Where the rows are few.
    posterior = model.posterior_ if len(y) > FEW else _drawn(model.posterior_.prior, X, y, seed)
    parts = [posterior.marginals(new[i : i + 1000]) for i in range(0, len(new), 1000)]
    p = np.concatenate([at.probability().value for at in parts])
    seconds = so_far + time.process_time() - began
    skewness = max(float(np.abs(at.moments.skewness).max()) for at in parts)
    p_sd = np.concatenate([at.probability_sd() for at in parts])
    evidence = model.log_marginal_likelihood_.value
    return posterior, Forecast(p, evidence, seconds, skewness, p_sd), learning


def _best_by_ep(fit: sg.HyperparameterFit, gp: sg.SkewGP, X: np.ndarray, y: np.ndarray) -> Any:
    """The prior where the first part of the search, which is GP-EP's, has ended."""
    by_ep = fit.runs["method"].values[fit.path["run"].values] == "ep"
    best = np.where(by_ep, fit.path["total"].values, -np.inf).argmax()
    x = fit.path["x"].values[best]  # logarithms
    values = dict(zip(fit.path["coordinate"].values, np.exp(x), strict=True))
    ls = [value for label, value in values.items() if label.startswith("ls[")]
    point = {name: values[name] for name in ("eta", "ls", "bias") if name in values}
    return gp.posterior(X, y, point=point | ({"ls": np.array(ls)} if ls else {})).prior


def _drawn(prior: Any, X: np.ndarray, y: np.ndarray, seed: int, n_draws: int = DRAWS) -> Any:
    """The same posterior by draws of its own."""
    signs: dict[str, Any] = {}
    if prior.n_pseudo_points:
        signs = {"pseudo_points": prior.pseudo_points, "phase": prior.phase}
    return sg.SkewGPPosterior(
        X, y, cov_func=prior.cov_func, **signs, n_draws=n_draws, random_seed=seed
    )


def drawn_again(
    X: np.ndarray, y: np.ndarray, new: np.ndarray, seed: int
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Number of draws, seed and forecast of SkewGP0, one fit; with no draws that of EP."""
    options = {"ard": True, "hyperparameters": "maximize", "n_restarts": RESTARTS}
    model = sg.SkewGPClassifier("rbf", **options, random_state=seed).fit(X, y)
    prior = model.posterior_.prior
    yield 0, 0, _ep_forecast(prior, X, y, new, 0.0).p
    for n_draws, repeats in ((DRAWS, 6), (MANY, 2)):
        for i in range(repeats):
            drawn = _drawn(prior, X, y, seed + i, n_draws)
            yield n_draws, i, drawn.marginals(new).probability().value


def _start(X: np.ndarray, kernel: str, ard: bool) -> dict[str, Any]:
    """Where `SkewGPClassifier` starts as well: distances between rows come out as 1 or so."""
    size = np.sqrt(np.mean(X**2, axis=0)) if kernel == "nn" else X.std(axis=0)
    varies = size > 0
    ls = np.where(varies, size, 1.0) * np.sqrt(max(varies.sum(), 1))
    if not ard:
        ls = float(np.sqrt((size**2).sum())) or 1.0
    start = {"eta": 2.0, "ls": ls / 2.0 if kernel == "nn" else ls}
    return start | ({"bias": 1.0} if kernel == "nn" else {})


def _gp(d: int, kernel: str, ard: bool) -> sg.SkewGP:
    with pm.Model():
        eta = pm.HalfFlat("eta")
        ls = pm.HalfFlat("ls", shape=d) if ard else pm.HalfFlat("ls")
        if kernel == "nn":
            cov = sg.cov.NeuralNetwork(d, ls=ls, bias=pm.HalfFlat("bias"))
        else:
            cov = pm.gp.cov.ExpQuad(d, ls=ls)
        return sg.SkewGP(cov_func=eta**2 * cov)


def _ep(X, y, new, gp, start, seed, search) -> Forecast:
    """Hyperparameters by EP's evidence, forecast by EP's Gaussian."""
    began = time.process_time()
    # What `SkewGPClassifier` makes of its random_state: the restarts begin at the same points.
    rng = np.random.default_rng(int(check_random_state(seed).randint(2**31 - 1)))
    # As `find_hyperparameters`, without its standard errors.
    order = np.lexsort((y, *X.T))  # the classifier learns from rows in this order
    run = learn(TrainingData(gp, X[order], y[order]), search, rng, start=start)
    prior = gp.posterior(X, y, point=run.values).prior
    return _ep_forecast(prior, X, y, new, time.process_time() - began)


def _ep_forecast(prior, X, y, new, so_far) -> Forecast:
    """EP's Gaussian for f at each new point: no joint covariance of thousands of them."""
    began = time.process_time()
    nothing = np.zeros(0)
    rows = BernoulliProbit().observations(y.astype(int), len(y))
    cov = FactoredCovariance.of_kernel(prior.covariance("X", X))
    given = process_given(cov, np.zeros(len(X)), nothing, nothing, rows)
    ep = fit_ep(given.cov, given.lower, given.upper, tol=1e-4)
    precision = given.cov.site_precision(ep.tau)
    p = np.empty(len(new))
    for start in range(0, len(new), 1000):
        part = slice(start, start + 1000)
        cross = prior.covariance("Xnew", X, new[part])
        variance = prior.covariance("Xnew", new[part], diag=True)
        variance -= np.einsum("ij,ij->j", cross, precision @ cross)
        p[part] = ndtr(cross.T @ ep.weights / np.sqrt(1.0 + np.maximum(variance, 0.0)))
    return Forecast(p, ep.log_prob, so_far + time.process_time() - began, 0.0)


def _gpy(X, y, new, kernel, start, seed) -> Forecast:
    """GPy's own search, restarts and forecast, from the same start."""
    if kernel != "rbf":
        raise ValueError("GPy is compared by its RBF kernel only.")
    began = time.process_time()
    fitted = fit_gpy(X, y, RESTARTS, seed, (start["eta"] ** 2, start["ls"]))
    # Its normal distribution function has 0 and 1 in its tails.
    p = np.clip(fitted.predict_proba(new), 1e-10, 1.0 - 1e-10)
    if not np.isfinite(p).all():
        raise ArithmeticError("GPy's forecasts are not finite.")
    return Forecast(p, fitted.log_evidence, time.process_time() - began, 0.0)


def _laplace(X, y, new, kernel, start, seed, search) -> Forecast:
    """scikit-learn's classifier. Its links and evidences are logistic."""
    if kernel != "rbf":
        raise ValueError("scikit-learn has no arcsine kernel.")
    began = time.process_time()
    p, evidence = laplace_forecast(X, y, new, start, search, seed)
    return Forecast(p, evidence, time.process_time() - began, 0.0)
