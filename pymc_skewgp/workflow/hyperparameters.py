"""`find_hyperparameters`: the maximum of the collapsed marginal likelihood."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from pymc_skewgp.gp.process import as_input_graph
from pymc_skewgp.gp.skewgp import SkewGP
from pymc_skewgp.inference.arguments import as_inputs, as_signs
from pymc_skewgp.kernels.errors import (
    BoundaryOptimumWarning,
    FlatOptimumWarning,
    UnsettledOptimumWarning,
    warn,
)
from pymc_skewgp.kernels.truncated import Seed
from pymc_skewgp.kernels.validation import FloatArray, as_count
from pymc_skewgp.workflow.batches import random_batches
from pymc_skewgp.workflow.climb import Bounds, Top, climb, curvature, finish
from pymc_skewgp.workflow.collapsed import collapse_model, collapse_process
from pymc_skewgp.workflow.fit_report import HyperparameterFit, Journal, standard_errors
from pymc_skewgp.workflow.objective import Objective, Pattern, Value
from pymc_skewgp.workflow.phases import distinct_patterns

Method = Literal["twisted", "ep"]
METHODS: tuple[Method, ...] = ("twisted", "ep")

# Optima by EP that may be the best one by the twisted sampler: EP is off by less, as a rule.
_EP_DOUBT = 2.0
_SAME_OPTIMUM = 0.02
_MAX_ITERATIONS = 200
# Second derivatives that are worth their 2 k gradients.
_MOST_CURVED = 40
# An optimum along which the objective bends by less, in nats a squared unit of the unconstrained
# scale: a factor of e in a parameter costs less than a hundredth of a nat.
_FLAT = 0.02


def find_hyperparameters(
    model: pm.Model | SkewGP,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    method: Method = "twisted",
    batch_size: int | None = None,
    start: Mapping[str, Any] | None = None,
    n_restarts: int = 2,
    n_draws: int = 256,
    random_seed: Seed = 0,
    warnings: bool = True,
    progressbar: bool = True,
) -> HyperparameterFit:
    r"""Hyperparameters that maximise the marginal likelihood times their prior.

    .. math:: \hat\theta = \arg\max_\theta \; \log p(y \mid \theta) + \log p(\theta), \qquad
        p(y \mid \theta) = \Phi_{s+n}(\tilde\gamma_\theta; \tilde\Gamma_\theta)
        / \Phi_s(\gamma_\theta; \Gamma_\theta)

    The latent function is integrated out. Densities of priors are taken on the variables' own scale
    (no Jacobians, as in ``pm.find_MAP``), so that ``pm.HalfFlat`` and ``pm.Flat`` make it the
    maximum of the marginal likelihood alone (empirical Bayes, type II maximum likelihood).

    Everything that is a random variable is learnt: kernel parameters of any ``pm.gp.cov``
    expression, means, pseudo-points, truncation; binary variables, such as those behind a `phase`,
    by trying every value. Numbers stay as they are.

    Parameters
    ----------
    model : pymc.Model or SkewGP
        A model whose latent functions can be integrated out: with `SkewGP.marginal_likelihood`, or
        with `SkewGP.prior` under probit observations. Or a SkewGP made inside a model, with `X`
        and `y`.
    X, y : array_like, shapes (n, d) and (n,)
        Inputs and labels, for a SkewGP.
    method : {"twisted", "ep"}, default "twisted"
        L-BFGS climbs expectation propagation's evidence. "twisted" finishes on the evidence of the
        twisted sampler, right up to its standard error; "ep" stays where the climb ended.
    batch_size : int, optional
        For data too large for one factorisation: the composite likelihood
        :math:`\sum_b \log p(y_b \mid \theta)` of random batches of so many labels, in which labels
        of different batches count as independent. Needs a SkewGP.
    start : mapping, optional
        Values of random variables by name, on their own scale. Default the model's initial point.
    n_restarts : int, default 2
        Climbs from other starts, drawn from the priors, or around `start` where these are flat.
    n_draws : int, default 256
        Quasi-random draws behind "twisted".
    random_seed : int, Generator, SeedSequence or None, default 0
        Of restarts and batches.
    warnings : bool, default True
        Whether to warn of flat, unsettled and boundary optima; the report tells of them as well.
    progressbar : bool, default True
        Show the evidence reached so far.

    Returns
    -------
    HyperparameterFit
        ``point`` (as `SkewGP.posterior` takes it), ``log_marginal_likelihood`` with its standard
        error, ``std_error`` of the hyperparameters, ``runs``, ``path``.

    Raises
    ------
    ValueError
        A model without labels of that kind, nothing to learn, unknown names in `start`, more than
        three binary entries.

    Warns
    -----
    FlatOptimumWarning
        Where the objective hardly bends, so that a wide range of values does as well.
    BoundaryOptimumWarning
        Where a parameter went a thousandfold away from its start.
    UnsettledOptimumWarning
        Where the best climb ended before it was at a top.

    References
    ----------
    .. [1] C. E. Rasmussen & C. K. I. Williams (2006), Gaussian Processes for Machine Learning,
       chapter 5.
    .. [2] A. Benavoli, D. Azzimonti & D. Piga (2020), arXiv:2005.12987.
    .. [3] C. Varin, N. Reid & D. Firth (2011), An overview of composite likelihood methods,
       Statistica Sinica 21.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x = np.linspace(-3, 3, 40)[:, None]
    >>> y = (np.sin(2 * x[:, 0]) > 0.3).astype(int)
    >>> with pm.Model() as model:
    ...     ls = pm.InverseGamma("ls", alpha=3, beta=2)
    ...     gp = sg.SkewGP(cov_func=2.0**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    >>> fit = sg.find_hyperparameters(gp, x, y, progressbar=False)
    >>> print(f"ls {fit.point['ls']:.2f}")
    ls 0.83
    >>> posterior = gp.posterior(x, y, point=fit.point)
    """
    began = time.perf_counter()
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}.")
    as_count("n_draws", n_draws)
    rng = np.random.default_rng(random_seed)
    objective = _objective(model, X, y, batch_size, rng)
    origin = objective.start(start)
    bounds = objective.bounds(origin)
    n_restarts = as_count("n_restarts", n_restarts, 0)
    starts = [origin, *(objective.random_start(origin, rng) for _ in range(n_restarts))]
    seed = int(rng.integers(2**31))
    with Journal(objective, progressbar) as journal:
        climbs: list[tuple[Pattern, Top]] = []
        gp = model if isinstance(model, SkewGP) else None
        for pattern in distinct_patterns(objective, gp, origin):
            for x in starts:
                recorded = journal.run(pattern, "ep", objective.by_ep)
                climbs.append((pattern, climb(recorded, x, bounds, _MAX_ITERATIONS)))
        if not any(np.isfinite(top.value) for _, top in climbs):
            raise ValueError(
                "the marginal likelihood has no value at any start: check the priors, the scale of "
                "the inputs and start."
            )
        pattern, top = max(climbs, key=lambda found: found[1].value)
        twisted = partial(objective.by_twisting, n_draws=n_draws, seed=seed)
        if method == "twisted":
            pattern, top = _choose(journal, climbs, twisted)
        curved = None
        if 0 < top.x.size <= _MOST_CURVED:
            curved = curvature(lambda x: objective.by_ep(x, pattern)[::2], top.x, bounds)
        if method == "twisted":
            recorded = journal.run(pattern, "twisted", twisted)
            top = finish(recorded, top.x, bounds, np.eye(origin.size) if curved is None else curved)
    at_bound = [
        label
        for label, x, (low, high) in zip(objective.labels, top.x, bounds, strict=True)
        if min(x - low, high - x) < 1e-3
    ]
    flat = [] if curved is None else _flat_directions(curved, objective.labels, at_bound)
    if warnings:
        _warn(top, at_bound, flat)
    return HyperparameterFit(
        point=objective.point(top.x, pattern),
        log_marginal_likelihood=objective.estimate(top.x, pattern, 1024, seed),
        log_prior=objective.log_prior(top.x, pattern),
        std_error=standard_errors(objective, top.x, pattern, curved, _FLAT),
        kind="evidence" if batch_size is None else "composite",
        settled=top.settled,
        at_bound=at_bound,
        flat=flat,
        runs=journal.runs(),
        path=journal.path(),
        seconds=time.perf_counter() - began,
    )


def _objective(
    model: Any, X: Any, y: Any, batch_size: int | None, rng: np.random.Generator
) -> Objective:
    if isinstance(model, pm.Model):
        if X is not None or y is not None or batch_size is not None:
            raise ValueError(
                "X, y and batch_size go with a SkewGP: a model has its data in it. Use "
                "find_hyperparameters(gp, X, y, ...)."
            )
        return Objective(model, collapse_model(model))
    if not isinstance(model, SkewGP):
        raise TypeError(f"model must be a pm.Model or a SkewGP, got {type(model).__name__}.")
    if X is None or y is None:
        raise ValueError("a SkewGP needs its data: find_hyperparameters(gp, X, y).")
    if model.model is None:
        raise ValueError(
            "there is nothing to learn: the SkewGP was made outside of a model. Make it, and the "
            "random variables that its kernel is to depend on, inside ``with pm.Model():``."
        )
    inputs = as_input_graph("X", as_inputs("X", X), model.n_columns)
    sign = as_signs(np.asarray(y), inputs.shape[0])
    symbols = [pt.matrix("X"), pt.vector("sign")]
    batches = [(inputs, sign)]
    if batch_size is not None:
        parts = random_batches(sign, as_count("batch_size", batch_size), rng)
        batches = [(inputs[part], sign[part]) for part in parts]
    return Objective(
        model.model, collapse_process(model.model, model, *symbols), symbols, batches
    )


def _choose(
    journal: Journal,
    climbs: list[tuple[Pattern, Top]],
    twisted: Callable[[FloatArray, Pattern], Value],
) -> tuple[Pattern, Top]:
    """The best of the tops by the twisted sampler, where expectation propagation leaves doubt."""
    best = max(top.value for _, top in climbs)
    kept: list[tuple[Pattern, Top]] = []
    for pattern, top in sorted(climbs, key=lambda found: -found[1].value):
        near = top.value > best - _EP_DOUBT
        if near and not any(_same(pattern, top, *other) for other in kept):
            kept.append((pattern, top))
    if len(kept) == 1:
        return kept[0]
    return max(kept, key=lambda found: journal.run(found[0], "twisted", twisted)(found[1].x)[0])


def _same(pattern: Pattern, top: Top, other_pattern: Pattern, other: Top) -> bool:
    return (
        pattern == other_pattern
        and abs(top.value - other.value) < _SAME_OPTIMUM
        and bool(np.abs(top.x - other.x).max(initial=0.0) < 0.1)
    )


def _flat_directions(curved: FloatArray, labels: list[str], at_bound: list[str]) -> list[str]:
    """Coordinates that make up most of the directions along which the objective hardly bends."""
    values, vectors = np.linalg.eigh(curved)
    share = (vectors[:, values < _FLAT] ** 2).sum(axis=1)
    found = [label for label, part in zip(labels, share, strict=True) if part > 0.5]
    return [label for label in found if label not in at_bound]


def _warn(top: Top, at_bound: list[str], flat: list[str]) -> None:
    if at_bound:
        warn(
            f"{', '.join(at_bound)} went a thousandfold away from the start, and would go on: the "
            "data do not bound it. Give it a prior, or take it for what it is (an input without "
            "a say, labels that a step separates).",
            BoundaryOptimumWarning,
            stacklevel=3,
        )
    if flat:
        warn(
            f"the marginal likelihood hardly depends on {', '.join(flat)}: a factor of e costs less "
            "than a hundredth of a nat, so the value found is one of many. Give it a prior, or "
            "sample it.",
            FlatOptimumWarning,
            stacklevel=3,
        )
    if not top.settled:
        warn(
            "the best climb ended before it was at a top: raise n_restarts, or give a start.",
            UnsettledOptimumWarning,
            stacklevel=3,
        )
