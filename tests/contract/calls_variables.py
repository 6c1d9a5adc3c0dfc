"""Variables of PyMC models: log densities, and means of draws.

Gradients, distribution functions and other moments are compared with oracles elsewhere.
"""

import numpy as np
import pymc as pm

import pymc_skewgp as sg

from .harness import SEED, call

COV = np.array([[1.0, 0.5], [0.5, 2.0]])
FIVE = 0.7 ** np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
CROSS = 0.3 * np.cos(np.arange(10.0)).reshape(2, 5)
NONE = np.zeros((2, 0)), np.zeros(0), np.zeros((0, 0))
SKEWED = 0.3 * np.ones((5, 1)), [0.1], [[1.0]]
LIMITS = [0.0, 2.0, 0.4, -np.inf], [1.0, np.inf, 0.4, -1.0]
PAIRS = [[0, 1], [2, 1], [2, 0]]
UTILITIES = [[0.3, -0.2, 1.0], [2.0, 0.0, 0.0]]
LABELS = [0, 1, 0, 1, 1]


def marginal_probit_of_five(method):
    return sg.MarginalProbit.dist(np.linspace(-1, 1, 5), 4 * FIVE, *SKEWED, method=method)


# By name: the variable, a value, and the error of its log density by so many points.
VARIABLES = {
    "bernoulli_probit": (sg.BernoulliProbit.dist([-1.3, 0.0, 0.4, 8.0]), [0, 1, 1, 1], 0),
    "unified_skew_normal": (
        sg.UnifiedSkewNormal.dist(0.2, COV, [[0.7], [0.3]], 0.1, [[1.0]]),
        [1.0, 1.0],
        0,
    ),
    "unified_skew_normal_of_five": (
        sg.UnifiedSkewNormal.dist(0.2, COV, truncation=0.1, latent_cov=FIVE, cross_cov=CROSS),
        [1.0, 1.0],
        1e-4,
    ),
    "truncated_mvnormal": (
        sg.TruncatedMvNormal.dist(mu=0.3, cov=COV, lower=0.0, upper=[1.0, np.inf]),
        [0.5, 1.0],
        0,
    ),
    "marginal_probit": (sg.MarginalProbit.dist([0.3, -0.2], COV, *NONE), [0, 1], 0),
    "marginal_probit_of_five": (marginal_probit_of_five("twisted"), LABELS, 1e-3),
    "marginal_probit_of_five_by_ep": (marginal_probit_of_five("ep"), LABELS, 0),
    "interval_normal": (sg.IntervalNormal.dist(0.2, 0.7, *LIMITS), [0.5, 3.0, 0.4, -2.0], 0),
    "preference_probit": (
        sg.PreferenceProbit.dist([0.3, -0.2, 1.0], PAIRS, sigma=0.6, threshold=0.3),
        [1, 0, -1],
        0,
    ),
    "choice_probit": (sg.ChoiceProbit.dist(UTILITIES, sigma=0.6), [2, 1], 0),
    "multinomial_probit": (sg.MultinomialProbit.dist(UTILITIES), [2, 1], 0),
}


def told(variable, value, error):
    draws = pm.draw(variable, 4000, random_seed=SEED)
    return {
        "logp": (pm.logp(variable, np.asarray(value)).eval(), error),
        "mean": (draws.mean(0), draws.std(0) / np.sqrt(4000)),
    }


# Others compile for seconds.
SLOW = "unified_skew_normal_of_five", "truncated_mvnormal", "choice_probit"
for _name, _variable in VARIABLES.items():
    call(lambda variable=_variable: told(*variable), _name, slow=_name in SLOW)
