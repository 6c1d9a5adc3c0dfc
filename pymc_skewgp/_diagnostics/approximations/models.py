"""What PyMC offers for the same model: NUTS, variational inference, basis functions."""

from typing import Any

import numpy as np
import pymc as pm

from pymc_skewgp._diagnostics.approximations.drawn import from_draws
from pymc_skewgp._diagnostics.approximations.observed import observe
from pymc_skewgp._diagnostics.approximations.problem import Approximation, Problem

# Basis functions of each input column, by the number of columns: their product is what counts.
BASIS = {1: 60, 2: 20, 3: 9}
_BOUNDARY = 1.5  # of the range of the inputs
_ITERATIONS = 30_000
_ELBO_SHARE = 10  # the bound is the mean over the last tenth of the iterations


def latent_model(problem: Problem) -> pm.Model:
    """`pm.gp.Latent` under the likelihood, hyperparameters as they are."""
    with pm.Model() as model:
        gp = pm.gp.Latent(mean_func=problem.mean_func(), cov_func=problem.cov_func())
        f = gp.prior("f", X=problem.X)
        observe(problem, f)
    return model


def latent_nuts(problem: Problem) -> Approximation:
    """`pm.gp.Latent` by NUTS."""
    return _nuts(problem, latent_model(problem))


def hsgp_nuts(problem: Problem) -> Approximation:
    """`pm.gp.HSGP` by NUTS: the kernel by basis functions.

    Options: ``m`` (basis functions of each column), ``c`` or ``L``, and others of ``pm.sample``.
    """
    options = dict(problem.options)
    basis = {name: options.pop(name) for name in ("m", "c", "L") if name in options}
    cov = problem.cov_func()
    if "m" not in basis:
        if cov.n_dims not in BASIS:
            raise ValueError(
                f"a basis for {cov.n_dims} input columns would need too many functions (their "
                f"number is a product over the columns); there are defaults for {sorted(BASIS)} "
                "columns, and options={'hsgp_nuts': {'m': [...]}} for others."
            )
        basis["m"] = [BASIS[cov.n_dims]] * cov.n_dims
    if "L" not in basis:
        basis.setdefault("c", _BOUNDARY)
    n = problem.X.shape[0]
    with pm.Model() as model:
        gp = pm.gp.HSGP(mean_func=problem.mean_func(), cov_func=cov, **basis)
        # At all points at once: f is linear in the coefficients, here and there.
        f = gp.prior("f", X=np.vstack([problem.X, problem.new]))
        observe(problem, f[:n])
    return _nuts(problem, model, options)


def advi(problem: Problem) -> Approximation:
    """Variational inference by a Gaussian with a diagonal covariance, of whitened f."""
    return _variational(problem, "advi")


def fullrank_advi(problem: Problem) -> Approximation:
    """Variational inference by a Gaussian with any covariance."""
    return _variational(problem, "fullrank_advi")


def _nuts(
    problem: Problem, model: pm.Model, options: dict[str, Any] | None = None
) -> Approximation:
    idata = pm.sample(
        draws=problem.draws,
        tune=problem.tune,
        chains=problem.chains,
        model=model,
        random_seed=problem.seed,
        progressbar=False,
        compute_convergence_checks=False,
        **(problem.options if options is None else options),
    )
    f = idata["posterior"]["f"].values
    n = problem.X.shape[0]
    attrs = {
        "divergences": int(idata["sample_stats"]["diverging"].sum()),
        "sampling_time": float(idata["posterior"].attrs.get("sampling_time", np.nan)),
    }
    new = f[..., n:] if f.shape[-1] > n else None
    return from_draws(problem, f[..., :n], new, attrs=attrs, drawing=attrs["sampling_time"])


def _variational(problem: Problem, method: str) -> Approximation:
    model = latent_model(problem)
    options = {"n": _ITERATIONS, **problem.options}
    with model:
        fit = pm.fit(method=method, random_seed=problem.seed, progressbar=False, **options)
        idata = fit.sample(problem.draws * problem.chains, random_seed=problem.seed)
    bound = -np.asarray(fit.hist)[-max(1, len(fit.hist) // _ELBO_SHARE) :]
    error = float(bound.std() / np.sqrt(bound.size))
    f = idata["posterior"]["f"].values.reshape(problem.chains, problem.draws, -1)
    attrs = {"elbo": float(bound.mean()), "elbo_se": error}
    return from_draws(problem, f, attrs=attrs, evidence=attrs["elbo"], evidence_se=attrs["elbo_se"])
