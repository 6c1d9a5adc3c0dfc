"""What a posterior answers: draws, marginals, probabilities, updates, and its SUN."""

import numpy as np
import pymc as pm

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

from .harness import SEED, call, calls, drawn, estimate, moments, told

X = np.linspace(-2.0, 2.0, 8)[:, None]
GP = sg.SkewGP(cov_func=1.5**2 * pm.gp.cov.ExpQuad(1, ls=0.8), pseudo_points=[[0.5]])
LABELS = [0, 1, 0, 0, 1, 1, 0, 1]
VALUES = np.array([-0.4, 0.2, -1.1, 0.3, 0.9, 1.6, 0.1, 0.8])
COUNTS = [0, 1, 2, 0, 1, 4, 0, 3]
DUELS = [[0, 1], [2, 5], [5, 3], [7, 6], [4, 0], [5, 7]]


def fit(y=LABELS, likelihood=None, **more):
    return GP.posterior(X, y, likelihood=likelihood, random_seed=SEED, **more)


def sizes(group):
    return [f"{name} {size}" for name, size in group.sizes.items()]


def groups(tree):
    return sorted(f"{group}/{name}" for group in tree for name in tree[group].data_vars)


@call
def draws():
    """Many, so that a hundredth of their deviation shows."""
    tree = fit().sample(20_000, 4, random_seed=SEED)
    assert isinstance(fit(), sg.SkewGPPosterior)
    return drawn(tree["posterior"]["f"][..., [0, 5]])


@call
def draws_at_some_rows():
    tree = fit().sample(1000, 4, random_seed=SEED, rows=[1, 5])
    return drawn(tree["posterior"]["f"])


@call
def draws_by_lin_ess():
    tree = fit().sample(500, 4, "lin_ess", random_seed=SEED, thin=5)
    return drawn(tree["posterior"]["f"][..., 5])


@call
def draws_of_counts():
    tree = fit(COUNTS, of.Poisson()).sample(20_000, 4, random_seed=SEED)
    return drawn(tree["posterior"]["f"][..., 5])


@call
def draws_of_new_data():
    tree = fit(VALUES, of.Gaussian(0.5)).sample(1000, 4, random_seed=SEED)
    return drawn(tree["posterior_predictive"]["y"][..., 5])


@call
def log_likelihood_of_draws():
    tree = fit(COUNTS, of.Poisson()).sample(1000, 4, random_seed=SEED)
    return drawn(tree["log_likelihood"]["y"].sum("obs_id"))


@call
def what_draws_hold():
    tree = fit().sample(2, 1, random_seed=SEED)
    stats = tree["sample_stats"].attrs
    return {
        "groups": groups(tree),
        "sizes": sizes(tree["posterior"]),
        "attributes": sorted({"method", "relative_ess", "pareto_k", "sampling_time"} & set(stats)),
    }


@call
def what_a_forecast_holds():
    tree = fit().predict([[0.3], [1.0]], draws=2, chains=1, random_seed=SEED)
    return {"groups": groups(tree), "sizes": sizes(tree["predictions"])}


@call
def what_a_forecast_of_classes_holds():
    known = of.MultinomialProbit(categories=["a", "b", "c"])
    found = fit([0, 1, 0, 2, 1, 2, 2, 1], known).predict([[0.3]], draws=2, chains=1)
    return {"groups": groups(found), "sizes": sizes(found["predictions"])}


@call
def draws_of_a_forecast():
    tree = fit(COUNTS, of.Poisson()).predict([[0.3], [3.0]], random_seed=SEED)["predictions"]
    return drawn(tree["f"]) | {"y": drawn(tree["y"][..., 0])["mean"]}


@call
def quantiles_of_a_forecast():
    found = fit().predict([[0.3]], draws=0, quantiles=[0.05, 0.5, 0.99])["predictions_summary"]
    return {"quantile": (found["f_quantile"].values, found["f_quantile_se"].values)}


@call
def skewness_of_a_forecast():
    found = fit(np.ones(8)).predict([[3.0]], draws=0)["predictions_summary"]
    return {"skewness": (found["f_skewness"].values, found["f_skewness_se"].values)}


@call
def marginals_at_the_data():
    found = fit().marginals()
    assert isinstance(found, sg.LatentMarginals)
    assert isinstance(found.moments, sg.Moments)
    return moments(found) | {"size": found.size, "exact": found.exact}


@call
def marginals_of_noisy_rows():
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.8) + pm.gp.cov.WhiteNoise(0.5))
    found = gp.posterior(X, LABELS, random_seed=SEED)
    there, beside = moments(found.marginals()), moments(found.marginals(X))
    return {f"data_{k}": v for k, v in there.items()} | {f"new_{k}": v for k, v in beside.items()}


@call
def distribution_of_f():
    found = fit().marginals([[0.3], [2.5]])
    at = np.array([[0.0, 0.5], [1.0, 1.5]])
    probability = found.cdf(at)
    assert isinstance(probability, sg.Probability)
    off = np.abs(found.cdf_values(at) - probability.value).max()
    return {"cdf": estimate(probability), "same": bool(off < 1e-12)}


@call
def density_of_f():
    """Its error is about that of the distribution function over a standard deviation."""
    found = fit().marginals([[0.3]])
    return {"density": (found.density([[0.0], [0.5], [1.5]]), 0.005)}


@call
def quantiles_of_f():
    found = fit().marginals([[0.3], [2.5]])
    quantile = found.quantile([0.05, 0.5, 0.99])
    return {"quantile": (quantile, found.quantile_errors(quantile))}


@call
def probability_from_marginals():
    found = fit().marginals([[0.3]])
    return {"p": estimate(found.probability()), "sd": (found.probability_sd(), 0.003)}


@call
def marginals_of_two_parts():
    posterior = fit()
    found = posterior.marginals([[0.3]]).with_points(posterior.marginals([[1.0]]))
    return moments(found)


@call
def marginals_of_the_first_functions():
    found = fit([0, 1, 0, 2, 1, 2, 2, 1], of.MultinomialProbit()).marginals([[0.3]])
    return moments(found.first_functions(2)) | {"covariance": (found.covariance, 0.01)}


@call
def curvature_of_a_regression():
    gp = sg.SkewGP(cov_func=pm.gp.cov.Matern52(1, ls=1.0))
    found = gp.posterior(X, VALUES, likelihood=of.Gaussian(0.3))
    return moments(found.marginals([[0.3]], derivative=(0, 2)))


@call
def probability_of_winning():
    found = fit(DUELS, of.Preference(0.7)).preference_probability([[0.3], [1.0]], [[-1.0], [2.0]])
    return {"p": estimate(found)}


@call
def probability_of_winning_with_ties():
    ties = np.column_stack([DUELS, [0, 1, 0, 0, 1, 0]])
    found = fit(ties, of.Preference(0.7, threshold=0.4))
    return {"p": estimate(found.preference_probability([[0.3]], [[-1.0]]))}


@call
def updated_duels():
    found = fit(DUELS, of.Preference(0.7)).update([[0.3]], [[8, 5], [8, 1]])
    return told(found, [[0.3], [1.0]])


@call
def updated_by_name():
    data = {"values": (X, VALUES, of.Gaussian(0.3)), "labels": (X, LABELS, of.BernoulliProbit())}
    found = GP.posterior(data, random_seed=SEED).update([[0.3]], [0.1], name="values")
    return told(found)


@call
def as_unified_skew_normal():
    sun = GP.posterior(X[:3], LABELS[:3], random_seed=SEED).sun
    assert isinstance(sun, sg.SUN)
    return {"dims": sun.n_dims, "latent": sun.n_latent} | {
        "logpdf": estimate(sun.logpdf_estimate([0.1, 0.5, -0.2], random_seed=SEED))
    }


@call
def what_it_was_made_of():
    found = fit(COUNTS, of.Poisson())
    return {
        "likelihood": repr(found.likelihood),
        "several": [
            type(one).__name__
            for one in GP.posterior(
                [(X, LABELS, of.BernoulliProbit()), (X, COUNTS, of.Poisson())]
            ).likelihood
        ],
        "pseudo_points": GP.n_pseudo_points,
        "columns": GP.n_columns,
    }


@call
def latent_posterior_by_itself():
    def kernel(X, Xs=None, diag=False):
        return np.ones(len(X)) if diag else np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)

    found = sg.LatentPosterior(X, LABELS, cov_func=kernel, random_seed=SEED)
    return moments(found.marginals([[0.3]])) | {"evidence": estimate(found.log_marginal_likelihood)}


@call
def reliability_of_the_evidence():
    found = fit().log_marginal_likelihood
    assert isinstance(found, sg.Estimate)
    return {"ess": (found.relative_ess, 0.02), "heavy": bool(found.heavy_tailed)}


calls(
    slopes=lambda: moments(fit().marginals([[0.3], [2.5]], derivative=(0, 1))),
    probability=lambda: {"p": estimate(fit().probability([[0.3], [2.5]]))},
    probability_under_a_logit_link=lambda: {
        "p": estimate(fit(LABELS, of.BernoulliLogit()).probability([[0.3], [2.5]]))
    },
    updated=lambda: told(fit().update([[0.3], [2.5]], [1, 0])),
    updated_counts=lambda: told(fit(COUNTS, of.Poisson()).update([[0.3]], [6])),
    # Four times as many draws as by default.
    more_draws=lambda: told(fit(COUNTS, of.Poisson(), n_draws=4096)),
)
