"""What every approximation is given, and what it gives back."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from xarray import DataTree

from pymc_skewgp._diagnostics.marginals import Marginals
from pymc_skewgp._model.gp.at_point import CovarianceAtPoint, MeanAtPoint
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior.datatree import as_datatree
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray

_PSEUDO = ("pseudo_points", "phase", "truncation")


@dataclass(frozen=True)
class Problem:
    """Data, a prior, and how hard to work.

    Attributes
    ----------
    gp : SkewGP
        The prior as a model has it.
    point : mapping
        Values of the random variables among its hyperparameters.
    prior : Prior
        The same on arrays.
    X, new : ndarray, shape (n, d) and (t, d)
        Inputs with data, and those to predict at.
    labels : ndarray
        The data: 0 and 1, shape (n,), or what `likelihood` asks for.
    draws, chains, tune : int
        For each chain; of methods that draw.
    seed : int
    options : dict
        More arguments for the method.
    likelihood : Likelihood, default BernoulliProbit()
        Its parameters are numbers.
    """

    gp: SkewGP
    point: dict[str, Any]
    prior: Prior
    X: FloatArray
    labels: Any
    new: FloatArray
    draws: int = 1000
    chains: int = 4
    tune: int = 1000
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    likelihood: Likelihood = field(default_factory=BernoulliProbit)

    @cached_property
    def n_functions(self) -> int:
        """Number K of functions."""
        return self.likelihood.n_functions(self.labels)

    def by_function(self, f: FloatArray) -> FloatArray:
        """Values in a row, shape (.., n K), as (.., n, K) where K is more than 1."""
        k = self.n_functions
        return f if k == 1 else f.reshape(*f.shape[:-1], -1, k)

    @cached_property
    def posterior(self) -> SkewGPPosterior:
        """The exact posterior; its draws are not made before they are asked for."""
        prior = self.prior
        pseudo = {}
        if prior.n_pseudo_points:
            pseudo = {name: getattr(prior, name) for name in _PSEUDO}
        return SkewGPPosterior(
            self.X,
            self.labels,
            cov_func=prior.cov_func,
            mean_func=prior.mean_func,
            likelihood=self.likelihood,
            random_seed=self.seed,
            **pseudo,
        )

    def cov_func(self) -> Any:
        """Covariance function for a model in PyMC, which has no place for pseudo-points."""
        if self.prior.n_pseudo_points:
            raise ValueError(
                "a pm.gp process cannot be conditioned on its sign at pseudo_points: the methods "
                "'exact', 'lin_ess' and 'ep' take them."
            )
        cov = self.gp.cov_func
        return CovarianceAtPoint(cov, self.point) if self.point else cov

    def mean_func(self) -> Any:
        """Mean function for a model in PyMC."""
        mean = self.gp.mean_func
        return MeanAtPoint(mean, self.point) if self.point else mean


class Approximation(NamedTuple):
    """What a method says of f and of new data.

    Attributes
    ----------
    marginals : Marginals
        Of f at the data and then at the new points.
    probability : Probability
        P(y = 1), or what probabilities the likelihood predicts, shape (t,) or (t, k), at the new
        points; without any, at the data.
    tree : DataTree
        Draws: ``posterior`` with f at the data, and with new points ``predictions`` with f and p
        there.
    evidence, evidence_se : float
        Log evidence and its Monte Carlo standard error; for variational methods its lower bound.
        NaN where a method has none.
    drawing : float or None
        Seconds that the draws took, tuning included and compilation left out; None where draws are
        independent of each other and cost nothing next to the rest.
    """

    marginals: Marginals
    probability: Probability
    tree: DataTree
    evidence: float = np.nan
    evidence_se: float = np.nan
    drawing: float | None = None


def predicted_probability(likelihood: Likelihood, at: LatentMarginals) -> Probability:
    """The probabilities that a likelihood predicts at each point, (t,) or (t, k); k may be 0."""
    found = likelihood.predictive_summary(at)
    names = [name for name in found if name.startswith("p_") and f"{name}_se" in found]
    if len(names) == 1:
        return Probability(found[names[0]], found[f"{names[0]}_se"])
    nothing = np.zeros((at.size, 0))
    value, error = (
        np.column_stack([nothing, *(found[f"{name}{suffix}"] for name in names)])
        for suffix in ("", "_se")
    )
    return Probability(value, error)


def function_tree(
    f: FloatArray, new: FloatArray, attrs: dict[str, Any], likelihood: Likelihood
) -> DataTree:
    """DataTree of draws of f at the data and at new points, (chain, draw, n) and (.., t).

    For several functions, (.., n, K) and (.., t, K).
    """
    groups = {"posterior": {"f": f}}
    inner = [likelihood.function_dim] if f.ndim == 4 else []
    if new.shape[2]:
        groups["predictions"] = {"f": new}
        if isinstance(likelihood, BernoulliProbit):
            groups["predictions"]["p"] = ndtr(new)
    return as_datatree(
        groups,
        dims={"f": ["obs_id", *inner]},
        pred_dims={"f": ["pred_id", *inner], "p": ["pred_id"]},
        coords={
            "obs_id": np.arange(f.shape[2]),
            "pred_id": np.arange(new.shape[2]),
            **{dim: np.arange(f.shape[3]) for dim in inner},
        },
        attrs=attrs,
    )
