"""`find_hyperparameters`: the maximum of the collapsed marginal likelihood."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from pymc_skewgp._errors import (
    BoundaryOptimumWarning,
    FlatOptimumWarning,
    UnsettledOptimumWarning,
    warn,
)
from pymc_skewgp._gaussian.truncated import Seed
from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.batches import random_batches
from pymc_skewgp._learn.climb import Bounds
from pymc_skewgp._learn.fit_report import HyperparameterFit, Journal, standard_errors
from pymc_skewgp._learn.objective import Batch, Objective
from pymc_skewgp._learn.phases import distinct_patterns, parted
from pymc_skewgp._learn.search import METHODS, Found, Method, coarse_part, search, spread_out
from pymc_skewgp._model.gp.process import as_input_graph
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.graph.collapsed import collapse_model, collapse_process
from pymc_skewgp._observations.arguments import as_inputs, as_signs
from pymc_skewgp._validation import FloatArray, as_count, as_generator

# Draws behind the reported evidence.
_DRAWS = 1024
# An optimum along which the objective bends by less, in nats a squared unit of the unconstrained
# scale: a factor of e in a parameter costs less than a hundredth of a nat.
_FLAT = 0.02
_AT_BOUND = 1e-3


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
        Inputs and labels, for a SkewGP. Then only the priors, and potentials, of what the SkewGP
        depends on are counted. To count other observations too, pass the model.
    method : {"twisted", "ep"}, default "twisted"
        L-BFGS climbs the evidence of expectation propagation, an approximation. "twisted" finishes
        on the evidence of the sampler that draws the posterior (importance sampling, twisted by
        expectation propagation), right up to its standard error; "ep" stays where the climb ended.
    batch_size : int, optional
        For data too large for one factorisation: the composite likelihood
        :math:`\sum_b \log p(y_b \mid \theta)` of random batches of so many labels, in which labels
        of different batches count as independent. Needs a SkewGP. Not for pseudo-points that are
        to be learnt: what they tell would count once for each batch.
    start : mapping, optional
        Values of random variables by name, on their own scale. Default the model's initial point.
    n_restarts : int, default 2
        Extra climbs. Sixteen candidates for each are drawn from the priors, or within a factor of
        twenty of `start` where a prior is flat; the best of them start a climb.
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
    ls 0.53
    >>> posterior = gp.posterior(x, y, point=fit.point)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}.")
    as_count("n_draws", n_draws)
    learnt = learn(
        model,
        X,
        y,
        method=method,
        batch_size=batch_size,
        start=start,
        n_restarts=as_count("n_restarts", n_restarts, 0),
        n_draws=n_draws,
        rng=as_generator(random_seed),
        curved=True,
        progressbar=progressbar,
    )
    if warnings:
        _warn(learnt)
    return learnt.report(learnt.estimate())


def learn(
    model: pm.Model | SkewGP,
    X: ArrayLike | None,
    y: ArrayLike | None,
    *,
    method: Method,
    batch_size: int | None,
    start: Mapping[str, Any] | None,
    n_restarts: int,
    n_draws: int,
    rng: np.random.Generator,
    curved: bool,
    progressbar: bool,
    held: "Learnt | None" = None,
    centre: Mapping[str, Any] | None = None,
) -> "Learnt":
    """`find_hyperparameters` for checked options, without the evidence's own estimate.

    The continuous variables of `held` stay as it has found them. The box lies around `centre`,
    `start` where none is given: a search that goes on from another is not to leave its box.
    """
    began = time.perf_counter()
    objective, part = _objective(model, X, y, batch_size, rng)
    origin = objective.start(start)
    coarse = None if part is None else (objective.on([part.batch]), part.share)
    gp = model if isinstance(model, SkewGP) else None
    if gp is not None:
        origin = parted(objective, gp, origin, rng)
    middle = origin if centre is None else objective.start(centre)
    bounds = objective.bounds(middle, held.point if held else ())
    origin = np.clip(origin, *np.transpose(bounds)) if bounds else origin
    starts = spread_out(coarse[0] if coarse else objective, origin, n_restarts, rng)
    seed = int(rng.integers(2**31))
    for pattern in objective.patterns():
        objective.refuse_other_phases(origin, pattern, gp is not None)
    patterns = distinct_patterns(objective if coarse is None else coarse[0], gp, origin)
    with Journal(objective, progressbar) as journal:
        found = search(
            objective,
            coarse,
            patterns,
            starts,
            bounds,
            journal,
            method=method,
            n_draws=n_draws,
            seed=seed,
            curved=curved,
        )
    seconds = time.perf_counter() - began
    return Learnt(objective, found, bounds, journal, batch_size is not None, seed, seconds, held)


@dataclass(frozen=True)
class Learnt:
    """A search that has ended, and the one before it whose findings it held."""

    objective: Objective
    found: Found
    bounds: Bounds
    journal: Journal
    in_batches: bool
    seed: int
    seconds: float
    held: "Learnt | None" = None

    @property
    def point(self) -> dict[str, Any]:
        """The optimum by name."""
        return self.objective.point(self.found.top.x, self.found.pattern)

    @property
    def at_bound(self) -> list[str]:
        """Coordinates at the edge of the box."""
        rows = zip(self.objective.labels, self.found.top.x, self.bounds, strict=True)
        own = [
            label
            for label, x, (low, high) in rows
            if low < high and min(x - low, high - x) < _AT_BOUND
        ]
        return own + (self.held.at_bound if self.held else [])

    @property
    def flat(self) -> list[str]:
        """Coordinates that make up most of the directions in which the objective hardly bends."""
        before = self.held.flat if self.held else []
        if self.found.curved is None:
            return before
        values, vectors = np.linalg.eigh(self.found.curved)
        share = (vectors[:, values < _FLAT] ** 2).sum(axis=1)
        labels = zip(self.objective.labels, share, strict=True)
        at_bound = self.at_bound
        own = [label for label, part in labels if part > 0.5 and label not in at_bound]
        return own + before

    @property
    def settled(self) -> bool:
        """Whether it ended at a top, and what it held did."""
        return self.found.top.settled and (self.held is None or self.held.settled)

    def estimate(self) -> Estimate:
        """Log evidence, or composite likelihood, at the optimum, from draws of its own."""
        return self.objective.estimate(self.found.top.x, self.found.pattern, _DRAWS, self.seed)

    def report(self, log_marginal_likelihood: Estimate) -> HyperparameterFit:
        """All of it, in the user's terms."""
        x, pattern, curved = self.found.top.x, self.found.pattern, self.found.curved
        # Batches are not independent, as a composite likelihood has it: its curvature would promise
        # three times too much.
        errors = {}
        if not self.in_batches:
            errors = standard_errors(self.objective, x, pattern, curved, _FLAT)
        return HyperparameterFit(
            point=self.point,
            log_marginal_likelihood=log_marginal_likelihood,
            log_prior=self.objective.log_prior(x, pattern),
            std_error=errors,
            kind="composite" if self.in_batches else "evidence",
            settled=self.settled,
            at_bound=self.at_bound,
            flat=self.flat,
            runs=self.journal.runs(),
            path=self.journal.path(),
            seconds=self.seconds + (self.held.seconds if self.held else 0.0),
        )


class _Part(NamedTuple):
    """Some of the data, and what share of all they are."""

    batch: Batch
    share: float


def _objective(
    model: Any, X: Any, y: Any, batch_size: int | None, rng: np.random.Generator
) -> tuple[Objective, _Part | None]:
    """The objective, and a part of the data to begin with where these are many."""
    if isinstance(model, pm.Model):
        if X is not None or y is not None or batch_size is not None:
            raise ValueError(
                "X, y and batch_size go with a SkewGP: a model has its data in it. Use "
                "find_hyperparameters(gp, X, y, ...)."
            )
        root = model.root
        return Objective(root, collapse_model(root)), None
    if not isinstance(model, SkewGP):
        raise TypeError(f"model must be a pm.Model or a SkewGP, got {type(model).__name__}.")
    objective, (inputs, sign) = objective_of_process(model, X, y, batch_size, rng)
    part = coarse_part(sign, batch_size, rng)
    if part is None:
        return objective, None
    return objective, _Part((inputs[part], sign[part]), part.size / sign.size)


def objective_of_process(
    gp: SkewGP, X: Any, y: Any, batch_size: int | None, rng: np.random.Generator
) -> tuple[Objective, tuple[FloatArray, FloatArray]]:
    """The objective of a SkewGP and its data, and the data: inputs and signs."""
    if X is None or y is None:
        raise ValueError("a SkewGP needs its data: find_hyperparameters(gp, X, y).")
    if gp.model is None:
        raise ValueError(
            "there is nothing to learn: the SkewGP was made outside of a model. Make it, and the "
            "random variables that its kernel is to depend on, inside ``with pm.Model():``."
        )
    inputs = as_input_graph("X", as_inputs("X", X), gp.n_columns)
    sign = as_signs(y, inputs.shape[0])
    batches = [(inputs, sign)]
    if batch_size is not None:
        parts = random_batches(sign, as_count("batch_size", batch_size), rng)
        batches = [(inputs[part], sign[part]) for part in parts]
    symbols = [pt.matrix("X"), pt.vector("sign")]
    model = gp.model.root  # a nested model's variables are the root's as well
    collapsed = collapse_process(model, gp, *symbols)
    return Objective(model, collapsed, symbols, batches), (inputs, sign)


def _warn(learnt: Learnt) -> None:
    at_bound, flat = learnt.at_bound, learnt.flat
    if at_bound:
        warn(
            f"{', '.join(at_bound)} went a thousandfold away from the start (or as near to an end "
            "of the support), and would go on: neither data nor prior set a bound. It may be "
            "an irrelevant input, or labels that are perfectly separable. A prior helps.",
            BoundaryOptimumWarning,
            stacklevel=3,
        )
    if flat:
        warn(
            f"the marginal likelihood hardly depends on {', '.join(flat)}: a factor of e costs "
            "less than a hundredth of a nat, so the value found is one of many. Give a prior, or "
            "use pm.sample.",
            FlatOptimumWarning,
            stacklevel=3,
        )
    if not learnt.settled:
        warn(
            "the best climb ended before it was at a top: raise n_restarts, or give a start.",
            UnsettledOptimumWarning,
            stacklevel=3,
        )
