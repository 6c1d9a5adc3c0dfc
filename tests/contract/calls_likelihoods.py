"""Every likelihood: evidence, and forecasts at 0.3, from eight rows and a kernel with numbers."""

import numpy as np
import pymc as pm

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

from .harness import SEED, call, calls, summary, told

X = np.linspace(-2.0, 2.0, 8)[:, None]
GP = sg.SkewGP(cov_func=1.5**2 * pm.gp.cov.ExpQuad(1, ls=0.8))
LABELS = [0, 1, 0, 0, 1, 1, 0, 1]
VALUES = np.array([-0.4, 0.2, -1.1, 0.3, 0.9, 1.6, 0.1, 0.8])
COUNTS = [0, 1, 2, 0, 1, 4, 0, 3]
POSITIVE = [0.3, 1.2, 0.1, 0.8, 2.5, 4.0, 0.6, 1.1]
LEVELS = [0, 1, 0, 2, 1, 2, 2, 1]
TRIALS = [3, 2, 5, 1, 4, 6, 2, 3]
DUELS = [[0, 1], [2, 5], [5, 3], [7, 6], [4, 0], [5, 7]]
SETS = [[5, 0, 1], [4, 2, 3], [7, 6, -1], [5, 7, 4], [1, 0, -1]]
SD = np.array([0.3, 0.5, 0.2, 0.8, 1.0, 0.4, 0.3, 0.6])


def fit(y, likelihood=None, **more):
    return GP.posterior(X, y, likelihood=likelihood, random_seed=SEED, **more)


@call
def labels_sharing_noise():
    noise = 0.5 * np.eye(8) + 0.5
    return told(fit(LABELS, of.BernoulliProbit(noise_cov=noise)))


@call
def levels_by_name():
    names = ["low", "middle", "high"]
    y = [names[k] for k in LEVELS]
    return told(fit(y, of.OrderedProbit([-0.5, 0.6], sigma=0.7, categories=names)))


@call
def intervals():
    between = np.column_stack([VALUES - SD, VALUES + 2 * SD])
    between[0, 0], between[3, 1] = -np.inf, np.inf
    return told(fit(between, of.CensoredGaussian(0.3)))


@call
def selected_outcomes():
    y = np.where(np.array(LABELS) == 1, VALUES, np.nan)
    return told(fit(y, of.Selection(sigma=0.4, rho=0.6), coregion=np.diag([0.5, 1.0])))


@call
def selected_outcomes_of_functions_that_depend():
    y = np.where(np.array(LABELS) == 1, VALUES, np.nan)
    return told(fit(y, of.Selection(sigma=0.4), coregion=[[0.5, 0.3], [0.3, 1.0]]))


@call
def duels_with_ties():
    ties = np.column_stack([DUELS, [0, 1, 0, 0, 1, 0]])
    return told(fit(ties, of.Preference(0.7, threshold=0.4)), [[-1.0], [0.3]])


@call
def classes_with_noise_that_depends():
    noise = [[1.0, 0.4, 0.0], [0.4, 1.0, 0.0], [0.0, 0.0, 1.5]]
    return told(fit(LEVELS, of.MultinomialProbit(noise_cov=noise)))


@call
def classes_with_functions_that_depend():
    B = [[1.0, 0.5, 0.2], [0.5, 1.0, 0.0], [0.2, 0.0, 0.7]]
    return told(fit(LEVELS, of.MultinomialProbit(), coregion=B))


@call
def weighted_counts():
    weights = [0.5, 1.0, 2.0, 0.0, 1.5, 1.0, 0.3, 1.0]
    return told(fit(COUNTS, of.Weighted(of.Poisson(), weights)))


@call
def weighted_logits():
    weights = [0.5, 1.0, 2.0, 0.0, 1.5, 1.0, 0.3, 1.0]
    return told(fit(LABELS, of.Weighted(of.BernoulliLogit(), weights)))


def shape_of(constraint):
    data = {"y": (X[::2], VALUES[::2], of.Gaussian(0.4)), "shape": (X[1::2], None, constraint)}
    return told(GP.posterior(data, random_seed=SEED))


@call
def pymc_poisson_with_many_zeros():
    def zero_inflated(eta):
        return pm.ZeroInflatedPoisson.dist(psi=0.7, mu=2.0 * pm.math.exp(eta))

    return told(fit(COUNTS, zero_inflated))


@call
def pymc_beta():
    y = [0.2, 0.5, 0.1, 0.6, 0.7, 0.9, 0.4, 0.6]
    return told(fit(y, lambda eta: pm.Beta.dist(mu=pm.math.invlogit(eta), nu=8.0)))


@call
def pymc_weibull_censored():
    def survival(eta):
        return pm.Censored.dist(pm.Weibull.dist(1.5, pm.math.exp(eta)), lower=None, upper=2.0)

    return told(fit(np.clip(POSITIVE, None, 2.0), survival))


@call(slow=True)
def pymc_mixture():
    def two_normals(eta):
        return pm.Mixture.dist([0.8, 0.2], [pm.Normal.dist(eta, 0.5), pm.Normal.dist(eta, 2.0)])

    return told(fit(VALUES, two_normals))


@call
def pymc_numbers_for_each_row():
    exposure = np.linspace(0.5, 2.0, 8)
    found = fit(COUNTS, lambda eta: pm.Poisson.dist(exposure * pm.math.exp(eta)))
    return told(found)


@call
def pymc_custom():
    def likelihood(eta):
        def logp(y, eta):
            return -(pm.math.abs(y - eta) ** 1.5)

        return pm.CustomDist.dist(eta, logp=logp, random=lambda eta, rng, size: rng.normal(eta))

    return summary(fit(VALUES, likelihood).predict([[0.3]], draws=0), "f_mean", "f_sd")


@call
def several_modes():
    """Values whose level is known up to its sign."""
    found = fit(np.abs(VALUES) + 0.5, lambda eta: pm.Normal.dist(eta**2, 0.4))
    return told(found)


calls(
    labels=lambda: told(fit(LABELS)),
    labels_as_signs=lambda: told(fit([-1, 1, -1, -1, 1, 1, -1, 1])),
    labels_as_booleans=lambda: told(fit(np.array(LABELS, dtype=bool))),
    labels_all_alike=lambda: told(fit(np.ones(8, dtype=int))),
    labels_logit=lambda: told(fit(LABELS, of.BernoulliLogit())),
    successes=lambda: told(fit([1, 2, 0, 1, 3, 5, 0, 2], of.BinomialProbit(TRIALS))),
    successes_of_the_same_number=lambda: told(fit([1, 2, 0, 1, 3, 5, 0, 2], of.BinomialProbit(6))),
    successes_logit=lambda: told(fit([1, 2, 0, 1, 3, 5, 0, 2], of.BinomialLogit(TRIALS))),
    successes_of_many_trials=lambda: told(
        fit([10, 22, 8, 17, 30, 45, 12, 24], of.BinomialLogit(60))
    ),
    levels=lambda: told(fit(LEVELS, of.OrderedProbit([-0.5, 0.6]))),
    levels_logit=lambda: told(fit(LEVELS, of.OrderedLogit([-0.5, 0.6]))),
    levels_of_two=lambda: told(fit(LABELS, of.OrderedProbit([0.2]))),
    counts=lambda: told(fit(COUNTS, of.Poisson())),
    counts_with_exposures=lambda: told(
        fit(COUNTS, of.Poisson(exposure=[1.0, 0.5, 2.0, 1.0, 0.3, 1.5, 1.0, 2.0]))
    ),
    counts_that_vary_more=lambda: told(fit(COUNTS, of.NegativeBinomial(2.0))),
    counts_that_vary_more_with_exposure=lambda: told(
        fit(COUNTS, of.NegativeBinomial(alpha=3.0, exposure=2.0))
    ),
    large_counts=lambda: told(
        fit([130, 160, 90, 180, 260, 320, 140, 170], of.Poisson(exposure=100.0))
    ),
    positive_values=lambda: told(fit(POSITIVE, of.Gamma(2.0))),
    waiting_times=lambda: told(fit(POSITIVE, of.Gamma(1.0))),
    values=lambda: told(fit(VALUES, of.Gaussian(0.3))),
    values_with_noise_of_their_own=lambda: told(fit(VALUES, of.Gaussian(SD))),
    values_almost_without_noise=lambda: told(fit(VALUES, of.Gaussian(1e-3))),
    values_with_outliers=lambda: told(fit([*VALUES[:5], 9.0, *VALUES[6:]], of.StudentT(4.0, 0.3))),
    values_with_outliers_and_noise_of_their_own=lambda: told(
        fit(VALUES, of.StudentT(nu=3.0, sigma=SD))
    ),
    medians=lambda: told(fit(VALUES, of.Laplace(0.4))),
    medians_with_noise_of_their_own=lambda: told(fit(VALUES, of.Laplace(SD))),
    values_beyond_limits=lambda: told(
        fit(VALUES.clip(0.0, 1.0), of.CensoredGaussian(0.3, lower=0.0, upper=1.0))
    ),
    values_above_a_limit=lambda: told(fit(VALUES.clip(0.0), of.CensoredGaussian(0.3, lower=0.0))),
    duels=lambda: told(fit(DUELS, of.Preference()), [[-1.0], [0.3], [1.2]]),
    duels_with_little_noise=lambda: told(fit(DUELS, of.Preference(sigma=0.01)), [[-1.0], [0.3]]),
    duels_with_noise_of_items=lambda: told(
        fit(DUELS, of.Preference(0.5, noise="item")), [[-1.0], [0.3]]
    ),
    choices=lambda: told(fit(SETS, of.Choice(sigma=0.8)), [[-1.0], [0.3], [1.2]]),
    rankings=lambda: told(fit(SETS, of.Ranking(sigma=0.8)), [[-1.0], [0.3], [1.2]]),
    classes=lambda: told(fit(LEVELS, of.MultinomialProbit())),
    classes_by_name=lambda: told(fit(LEVELS, of.MultinomialProbit(categories=["a", "b", "c"]))),
    weighted_outliers=lambda: told(fit(VALUES, of.Weighted(of.StudentT(4.0, 0.3), 0.5))),
    increasing=lambda: shape_of(of.Constraint.increasing()),
    decreasing=lambda: shape_of(of.Constraint.decreasing()),
    convex=lambda: shape_of(of.Constraint.convex()),
    concave=lambda: shape_of(of.Constraint.concave(nugget=1e-4)),
    within_bounds=lambda: shape_of(of.Constraint.bounds(-0.5, 1.0)),
    slopes_within_limits=lambda: shape_of(of.Constraint(lower=-0.5, upper=2.0, derivative=(0, 1))),
    pymc_poisson=lambda: told(fit(COUNTS, lambda eta: pm.Poisson.dist(pm.math.exp(eta)))),
    pymc_truncated_normal=lambda: told(
        fit(POSITIVE, lambda eta: pm.TruncatedNormal.dist(eta, 0.5, lower=0.0))
    ),
    pymc_logistic=lambda: told(fit(VALUES, lambda eta: pm.Logistic.dist(eta, 0.3))),
    pymc_log_scale=lambda: told(fit(VALUES, lambda eta: pm.Normal.dist(0.0, pm.math.exp(eta)))),
)
