"""Every likelihood: evidence, and forecasts at 0.3, from eight rows and a kernel with numbers.

And with a function that is known but for a thousandth: then evidence and forecasts are those of the
likelihood itself, nearly without an error.
"""

import numpy as np
import pymc as pm
from likelihood_cases import CASES

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

from .harness import SEED, call, calls, summary, told

X = np.linspace(-2.0, 2.0, 8)[:, None]
GP = sg.SkewGP(cov_func=1.5**2 * pm.gp.cov.ExpQuad(1, ls=0.8))
SMOOTH = sg.SkewGP(cov_func=1.5**2 * pm.gp.cov.ExpQuad(1, ls=8.0))
KNOWN = sg.SkewGP(
    mean_func=pm.gp.mean.Linear(coeffs=0.4, intercept=0.2),
    cov_func=1e-3**2 * pm.gp.cov.ExpQuad(1, ls=0.8),
)
LABELS = [0, 1, 0, 0, 1, 1, 0, 1]
VALUES = np.array([-0.4, 0.2, -1.1, 0.3, 0.9, 1.6, 0.1, 0.8])
COUNTS = [0, 1, 2, 0, 1, 4, 0, 3]
POSITIVE = [0.3, 1.2, 0.1, 0.8, 2.5, 4.0, 0.6, 1.1]
LEVELS = [0, 1, 0, 2, 1, 2, 2, 1]
TRIALS = [3, 2, 5, 1, 4, 6, 2, 3]
DUELS = [[0, 1], [2, 5], [5, 3], [7, 6], [4, 0], [5, 7]]
SETS = [[5, 0, 1], [4, 2, 3], [7, 6, -1], [5, 7, 4], [1, 0, -1]]
SD = np.array([0.3, 0.5, 0.2, 0.8, 1.0, 0.4, 0.3, 0.6])
SUCCESSES = [1, 2, 0, 1, 3, 5, 0, 2]
WEIGHTS = [0.5, 1.0, 2.0, 0.0, 1.5, 1.0, 0.3, 1.0]
EXPOSURES = [1.0, 0.5, 2.0, 1.0, 0.3, 1.5, 1.0, 2.0]
NAMES = ["low", "middle", "high"]
BETWEEN = np.column_stack([VALUES - SD, VALUES + 2 * SD])
BETWEEN[0, 0], BETWEEN[3, 1] = -np.inf, np.inf
SELECTED = np.where(np.array(LABELS) == 1, VALUES, np.nan)
TIES = np.column_stack([DUELS, [0, 1, 0, 0, 1, 0]])
TWO, THREE = [[-1.0], [0.3]], [[-1.0], [0.3], [1.2]]

# By name: y, the likelihood, and where else than at 0.3 forecasts are.
DATA = {
    "labels": (LABELS, None),
    "labels_as_signs": ([-1, 1, -1, -1, 1, 1, -1, 1], None),
    "labels_as_booleans": (np.array(LABELS, dtype=bool), None),
    "labels_all_alike": (np.ones(8, dtype=int), None),
    "labels_sharing_noise": (LABELS, of.BernoulliProbit(noise_cov=0.5 * np.eye(8) + 0.5)),
    "labels_logit": (LABELS, of.BernoulliLogit()),
    "successes": (SUCCESSES, of.BinomialProbit(TRIALS)),
    "successes_of_the_same_number": (SUCCESSES, of.BinomialProbit(6)),
    "successes_logit": (SUCCESSES, of.BinomialLogit(TRIALS)),
    "successes_of_many_trials": ([10, 22, 8, 17, 30, 45, 12, 24], of.BinomialLogit(60)),
    "levels": (LEVELS, of.OrderedProbit([-0.5, 0.6])),
    "levels_by_name": (
        [NAMES[k] for k in LEVELS],
        of.OrderedProbit([-0.5, 0.6], sigma=0.7, categories=NAMES),
    ),
    "levels_logit": (LEVELS, of.OrderedLogit([-0.5, 0.6])),
    "levels_of_two": (LABELS, of.OrderedProbit([0.2])),
    "counts": (COUNTS, of.Poisson()),
    "counts_with_exposures": (COUNTS, of.Poisson(exposure=EXPOSURES)),
    "counts_that_vary_more": (COUNTS, of.NegativeBinomial(2.0)),
    "counts_that_vary_more_with_exposure": (COUNTS, of.NegativeBinomial(alpha=3.0, exposure=2.0)),
    "large_counts": ([130, 160, 90, 180, 260, 320, 140, 170], of.Poisson(exposure=100.0)),
    "positive_values": (POSITIVE, of.Gamma(2.0)),
    "waiting_times": (POSITIVE, of.Gamma(1.0)),
    "values": (VALUES, of.Gaussian(0.3)),
    "values_with_noise_of_their_own": (VALUES, of.Gaussian(SD)),
    "values_with_outliers": ([*VALUES[:5], 9.0, *VALUES[6:]], of.StudentT(4.0, 0.3)),
    "values_with_outliers_and_noise_of_their_own": (VALUES, of.StudentT(nu=3.0, sigma=SD)),
    "medians": (VALUES, of.Laplace(0.4)),
    "medians_with_noise_of_their_own": (VALUES, of.Laplace(SD)),
    "values_beyond_limits": (VALUES.clip(0, 1), of.CensoredGaussian(0.3, lower=0.0, upper=1.0)),
    "values_above_a_limit": (VALUES.clip(0.0), of.CensoredGaussian(0.3, lower=0.0)),
    "intervals": (BETWEEN, of.CensoredGaussian(0.3)),
    "duels": (DUELS, of.Preference(), THREE),
    "duels_with_noise_of_items": (DUELS, of.Preference(0.5, noise="item"), TWO),
    "duels_with_ties": (TIES, of.Preference(0.7, threshold=0.4), TWO),
    "choices": (SETS, of.Choice(sigma=0.8), THREE),
    "rankings": (SETS, of.Ranking(sigma=0.8), THREE),
    "classes": (LEVELS, of.MultinomialProbit()),
    "classes_by_name": (LEVELS, of.MultinomialProbit(categories=["a", "b", "c"])),
    "classes_with_noise_that_depends": (
        LEVELS,
        of.MultinomialProbit(noise_cov=[[1.0, 0.4, 0.0], [0.4, 1.0, 0.0], [0.0, 0.0, 1.5]]),
    ),
    "weighted_counts": (COUNTS, of.Weighted(of.Poisson(), WEIGHTS)),
    "weighted_logits": (LABELS, of.Weighted(of.BernoulliLogit(), WEIGHTS)),
    "weighted_outliers": (VALUES, of.Weighted(of.StudentT(4.0, 0.3), 0.5)),
}


def fit(y, likelihood, new=((0.3,),), process=GP, **more):
    found = process.posterior(X, y, likelihood=likelihood, random_seed=SEED, **more)
    return told(found, new)


for _name, _data in DATA.items():
    call(lambda data=_data: fit(*data), _name)
    call(lambda data=_data: fit(*data, process=KNOWN), f"{_name}_where_f_is_known")

# Those of the table of tests that have no call here; what they give is known by quadrature, too.
CALLED = {type(likelihood).__name__ for _, likelihood, *_ in DATA.values()}
for _name in sorted(set(CASES) - CALLED - {"Selection", "Constraint"}):
    call(lambda case=CASES[_name]: fit(case.data(), case.likelihood), _name, has_oracle=True)


def shape_of(constraint):
    data = {"y": (X[::2], VALUES[::2], of.Gaussian(0.4)), "shape": (X[1::2], None, constraint)}
    return told(GP.posterior(data, random_seed=SEED))


@call
def selected_outcomes():
    return fit(SELECTED, of.Selection(sigma=0.4, rho=0.6), coregion=np.diag([0.5, 1.0]))


@call
def classes_with_functions_that_depend():
    B = [[1.0, 0.5, 0.2], [0.5, 1.0, 0.0], [0.2, 0.0, 0.7]]
    return fit(LEVELS, of.MultinomialProbit(), coregion=B)


@call(slow=True)
def pymc_mixture():
    def two_normals(eta):
        return pm.Mixture.dist([0.8, 0.2], [pm.Normal.dist(eta, 0.5), pm.Normal.dist(eta, 2.0)])

    return fit(VALUES, two_normals)


@call
def pymc_custom():
    def likelihood(eta):
        def logp(y, eta):
            return -(pm.math.abs(y - eta) ** 1.5)

        return pm.CustomDist.dist(eta, logp=logp, random=lambda eta, rng, size: rng.normal(eta))

    found = GP.posterior(X, VALUES, likelihood=likelihood, random_seed=SEED)
    return summary(found.predict([[0.3]], draws=0), "f_mean", "f_sd")


calls(
    values_almost_without_noise=lambda: fit(VALUES, of.Gaussian(1e-3)),
    duels_with_little_noise=lambda: fit(DUELS, of.Preference(sigma=0.01), TWO),
    selected_outcomes_of_functions_that_depend=lambda: fit(
        SELECTED, of.Selection(sigma=0.4), coregion=[[0.5, 0.3], [0.3, 1.0]]
    ),
    increasing=lambda: shape_of(of.Constraint.increasing()),
    decreasing=lambda: shape_of(of.Constraint.decreasing()),
    convex=lambda: shape_of(of.Constraint.convex()),
    concave=lambda: shape_of(of.Constraint.concave(nugget=1e-4)),
    within_bounds=lambda: shape_of(of.Constraint.bounds(-0.5, 1.0)),
    slopes_within_limits=lambda: shape_of(of.Constraint(lower=-0.5, upper=2.0, derivative=(0, 1))),
    pymc_poisson=lambda: fit(COUNTS, lambda eta: pm.Poisson.dist(pm.math.exp(eta))),
    pymc_logistic=lambda: fit(VALUES, lambda eta: pm.Logistic.dist(eta, 0.3)),
    pymc_log_scale=lambda: fit(VALUES, lambda eta: pm.Normal.dist(0.0, pm.math.exp(eta))),
    # Values whose level is known up to its sign; of a rougher function each value's would be.
    several_modes=lambda: fit(
        np.abs(VALUES) + 0.5, lambda eta: pm.Normal.dist(eta**2, 0.8), process=SMOOTH
    ),
)
