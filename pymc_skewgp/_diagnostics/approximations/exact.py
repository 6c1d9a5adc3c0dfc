"""The exact posterior by its two samplers, and the two Gaussians that approximate it."""

from functools import cache

import numpy as np

from pymc_skewgp._diagnostics.approximations.drawn import from_draws
from pymc_skewgp._diagnostics.approximations.problem import (
    Approximation,
    Problem,
    function_tree,
    predicted_probability,
)
from pymc_skewgp._gaussian.truncated import truncated_mvn
from pymc_skewgp._posterior.gaussian_function import GaussianPosterior
from pymc_skewgp._posterior.gaussian_posterior import ep_posterior, laplace_posterior
from pymc_skewgp._posterior.latent_marginals import LatentMarginals


def exact(problem: Problem) -> Approximation:
    """Near-independent draws by the twisted sampler."""
    return _sampled(problem, "twisted")


def lin_ess(problem: Problem) -> Approximation:
    """A Markov chain by linear elliptical slice sampling."""
    _compile_lin_ess()
    return _sampled(problem, "lin_ess")


@cache
def _compile_lin_ess() -> None:
    """Let numba do its work before the seconds of drawing are counted."""
    truncated_mvn(np.eye(4), -0.5, None, n_draws=8, method="lin_ess")
    truncated_mvn(np.eye(4), 0.0, None, n_draws=8, method="lin_ess")


def _sampled(problem: Problem, method: str) -> Approximation:
    tree = problem.posterior.sample(
        problem.draws,
        problem.chains,
        method,  # type: ignore[arg-type]
        problem.seed,
        **problem.options,
    )
    attrs = dict(tree["sample_stats"].attrs)
    evidence = attrs.get("log_marginal_likelihood", np.nan)
    f = np.asarray(tree["posterior"].dataset["f"].values)
    return from_draws(
        problem,
        f.reshape(problem.chains, problem.draws, -1),  # several functions: all in a row
        attrs=attrs,
        evidence=evidence,
        evidence_se=attrs.get("log_marginal_likelihood_se", np.nan),
        drawing=attrs["sampling_time"],
    )


def ep(problem: Problem) -> Approximation:
    """Expectation propagation."""
    data = problem.X, problem.labels, problem.new, problem.likelihood
    found = ep_posterior(problem.prior, *data, **problem.options)
    return _gaussian(problem, found)


def laplace(problem: Problem) -> Approximation:
    """Laplace's approximation at the mode of f."""
    data = problem.X, problem.labels, problem.new, problem.likelihood
    found = laplace_posterior(problem.prior, *data, **problem.options)
    return _gaussian(problem, found)


def _gaussian(problem: Problem, found: GaussianPosterior) -> Approximation:
    k = problem.n_functions
    n = problem.X.shape[0] * k
    rng = np.random.default_rng(problem.seed)
    f = found.sample(problem.draws * problem.chains, rng)
    f = f.reshape(problem.chains, problem.draws, -1)
    start = n if problem.new.shape[0] else 0
    marginals = found.marginals()
    variance = marginals.variance[start:]
    covariance = None
    if k > 1:  # of the functions at each point
        blocks = found.cov[start:, start:].reshape(variance.size // k, k, -1, k)
        covariance = np.einsum("tktl->tkl", blocks)
    means, weight = found.mean[start:, None], np.ones(1)
    at = LatentMarginals(means, variance, weight, exact=True, covariance=covariance)
    return Approximation(
        marginals,
        predicted_probability(problem.likelihood, at),
        function_tree(
            problem.by_function(f[..., :n]),
            problem.by_function(f[..., n:]),
            {"log_marginal_likelihood": found.log_evidence},
            problem.likelihood,
        ),
        evidence=found.log_evidence,
    )
