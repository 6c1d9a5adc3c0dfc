"""Data under a likelihood as an observed variable of a PyMC model, for PyMC's own methods."""

from collections.abc import Callable, Mapping
from typing import Any

import pymc as pm
import pytensor.tensor as pt

from pymc_skewgp._diagnostics.approximations.problem import Problem
from pymc_skewgp._model.distributions import bernoulli_probit
from pymc_skewgp._observations.bernoulli_logit import BernoulliLogit
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._observations.binomial_logit import BinomialLogit
from pymc_skewgp._observations.gamma import Gamma
from pymc_skewgp._observations.laplace import Laplace
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.negative_binomial import NegativeBinomial
from pymc_skewgp._observations.ordered_logit import OrderedLogit
from pymc_skewgp._observations.poisson import Poisson
from pymc_skewgp._observations.student_t import StudentT

Parameters = Callable[[Any, Any], Mapping[str, Any]]

# PyMC's distribution, and its parameters for a likelihood and f.
_DISTRIBUTIONS: Mapping[type[Likelihood], tuple[Any, Parameters]] = {
    BernoulliProbit: (bernoulli_probit.BernoulliProbit, lambda known, f: {"eta": f}),
    BernoulliLogit: (pm.Bernoulli, lambda known, f: {"logit_p": f}),
    BinomialLogit: (pm.Binomial, lambda known, f: {"n": known.n, "logit_p": f}),
    OrderedLogit: (
        pm.OrderedLogistic,
        lambda known, f: {"eta": f, "cutpoints": known.cutpoints, "compute_p": False},
    ),
    Poisson: (pm.Poisson, lambda known, f: {"mu": known.exposure * pt.exp(f)}),
    NegativeBinomial: (
        pm.NegativeBinomial,
        lambda known, f: {"mu": known.exposure * pt.exp(f), "alpha": known.alpha},
    ),
    Gamma: (pm.Gamma, lambda known, f: {"alpha": known.alpha, "beta": known.alpha * pt.exp(-f)}),
    StudentT: (pm.StudentT, lambda known, f: {"nu": known.nu, "mu": f, "sigma": known.sigma}),
    Laplace: (pm.Laplace, lambda known, f: {"mu": f, "b": known.b}),
}


def observe(problem: Problem, f: Any) -> None:
    """The data, in the model of the context.

    Raises
    ------
    ValueError
        Where PyMC has no such variable.
    """
    known = problem.likelihood
    noisy_alike = isinstance(known, BernoulliProbit) and not known.independent
    if type(known) not in _DISTRIBUTIONS or noisy_alike:
        raise ValueError(
            f"PyMC's methods are compared on labels with noise of their own, and on likelihoods of "
            f"one distribution of PyMC; under {known!r} the methods 'exact', 'lin_ess', 'ep' and "
            "'laplace' are there."
        )
    distribution, parameters = _DISTRIBUTIONS[type(known)]
    y = known.as_data(problem.labels, problem.X.shape[0])
    distribution("y", **parameters(known, f), observed=y)
