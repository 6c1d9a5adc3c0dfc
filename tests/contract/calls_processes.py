"""Priors of `SkewGP.posterior`: kernels, means, pseudo-points, weights, several kinds of data."""

import numpy as np
import pymc as pm

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp.approximations import HSGP, Inducing, PivotedCholesky

from .harness import SEED, call, calls, estimate, moments, told

X = np.linspace(-2.0, 2.0, 8)[:, None]
RBF = 1.5**2 * pm.gp.cov.ExpQuad(1, ls=0.8)
LABELS = [0, 1, 0, 0, 1, 1, 0, 1]
VALUES = np.array([-0.4, 0.2, -1.1, 0.3, 0.9, 1.6, 0.1, 0.8])
COUNTS = [0, 1, 2, 0, 1, 4, 0, 3]
CLASSES = [0, 1, 0, 2, 1, 2, 2, 1]
# For approximations: fifty rows that a few features describe.
MANY = np.linspace(-2.0, 2.0, 50)[:, None]
SMOOTH = 1.5**2 * pm.gp.cov.ExpQuad(1, ls=1.0)


def process(y=LABELS, likelihood=None, cov=RBF, x=X, new=((0.3,),), **more):
    """A posterior of eight rows; what follows is said of the process, or of the data."""
    of_data = {name: more.pop(name) for name in ("weights", "point") if name in more}
    gp = sg.SkewGP(cov_func=cov, **more)
    return told(gp.posterior(x, y, likelihood=likelihood, random_seed=SEED, **of_data), new)


ROWS = [0, 0, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7]
REPEATED = np.array([0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 1])
WEIGHTS = [3, 1, 0, 2, 1, 5, 1, 1]
MANY_ROWS, FORTY = np.arange(160) % 8, np.arange(40) % 8
NOISY = RBF + pm.gp.cov.WhiteNoise(0.5)


@call
def sum_of_kernels():
    line = pm.gp.cov.Linear(1, c=0.2)
    return process(cov=line + pm.gp.cov.Constant(0.5) + 0.5 * pm.gp.cov.RatQuad(1, 2.0, 1.0))


@call
def kernel_of_two_columns():
    x = np.column_stack([X[:, 0], np.cos(3 * X[:, 0])])
    cov = 2.0 * pm.gp.cov.ExpQuad(2, ls=[0.8, 1.5])
    return process(cov=cov, x=x, new=[[0.3, 0.1]])


@call
def kernel_of_some_columns():
    x = np.column_stack([np.arange(8.0), X[:, 0]])
    cov = pm.gp.cov.ExpQuad(2, ls=0.8, active_dims=[1])
    return process(cov=cov, x=x, new=[[0.0, 0.3]])


@call
def likelihood_at_a_point():
    with pm.Model():
        cov = pm.HalfNormal("sd") ** 2 * pm.gp.cov.ExpQuad(1, ls=0.8)
        likelihood = of.Gaussian(pm.HalfNormal("sigma"))
        return process(VALUES, likelihood, cov, point={"sigma": 0.3, "sd": 1.5})


def together(*data):
    gp = sg.SkewGP(cov_func=RBF)
    return told(gp.posterior(list(data), random_seed=SEED))


@call
def labels_and_levels_of_a_distribution():
    found = together(
        (X, LABELS, of.BernoulliLogit()),
        (X + 0.1, [0, 1, 0, 2, 1, 2, 2, 1], of.OrderedProbit([-0.5, 0.6])),
        (X[:4], COUNTS[:4], lambda eta: pm.NegativeBinomial.dist(mu=pm.math.exp(eta), alpha=2.0)),
    )
    del found["y_quantile_2"]  # a count, which is between two here
    return found


@call
def values_duels_and_limits():
    data = {
        "values": (X[:3], VALUES[:3], of.Gaussian(0.3)),
        "duels": (X[3:], [[0, 1], [2, 3], [4, 0]], of.Preference(0.5)),
        "limits": (X, None, of.Constraint.bounds(-3.0, 3.0)),
    }
    return told(sg.SkewGP(cov_func=RBF).posterior(data, random_seed=SEED), [[-1.0], [0.3]])


@call
def values_of_several_outputs():
    inputs = np.column_stack([np.repeat(X[:, 0], 2), np.tile([0, 1], 8)])
    B = pm.gp.cov.Coregion(
        2, W=np.array([[0.8], [0.4]]), kappa=np.array([0.3, 0.2]), active_dims=[1]
    )
    gp = sg.SkewGP(cov_func=B * pm.gp.cov.ExpQuad(2, ls=0.8, active_dims=[0]))
    y = np.arange(16) * 5 % 7 > 3
    return told(gp.posterior(inputs, y, random_seed=SEED), [[0.3, 0.0], [0.3, 1.0]])


def approximated(approximation, y=None, likelihood=None, **more):
    gp = sg.SkewGP(cov_func=SMOOTH, approximation=approximation, **more)
    labels = (np.arange(50) * 7 % 11 > 5 - 2 * np.sin(MANY[:, 0] * 2)).astype(int)
    y = labels if y is None else y
    found = gp.posterior(MANY, y, likelihood=likelihood, random_seed=SEED)
    assert isinstance(found, sg.SkewGPPosterior)
    return told(found)


@call
def inducing_points_that_are_placed():
    """Placed by k-means: to where they are the result owes a few thousandths."""
    found = approximated(Inducing(12))
    return {name: (value, np.hypot(error, 1e-3)) for name, (value, error) in found.items()}


@call
def approximated_shape():
    values = MANY[:, 0] + 0.3 * np.cos(np.arange(50.0) ** 2)
    gp = sg.SkewGP(cov_func=SMOOTH, approximation=Inducing(np.linspace(-2.0, 2.0, 9)[:, None]))
    data = {"y": (MANY, values, of.Gaussian(0.3)), "shape": (X, None, of.Constraint.increasing())}
    return told(gp.posterior(data, random_seed=SEED))


@call
def what_an_approximation_changes():
    """Rows of the report are picked by its seed; means over them are exact."""
    points = np.linspace(-2.0, 2.0, 9)[:, None]
    gp = sg.SkewGP(cov_func=SMOOTH, approximation=Inducing(points))
    found = gp.posterior(MANY, np.arange(50) * 7 % 11 > 5, random_seed=SEED)
    report = found.prior_report(30)
    return {
        "residual": float(report["residual_variance_mean"]),
        "largest": float(report["residual_variance_max"]),
        "ep": report["ep_log_evidence"].values,
    }


@call
def approximation_by_itself():
    """Up to 5000 rows none."""
    gp = sg.SkewGP(cov_func=SMOOTH)
    found = gp.posterior(MANY, np.arange(50) * 7 % 11 > 5, random_seed=SEED)
    same = sg.SkewGP(cov_func=SMOOTH, approximation=None)
    exact = same.posterior(MANY, np.arange(50) * 7 % 11 > 5, random_seed=SEED)
    return {
        "auto": estimate(found.log_marginal_likelihood),
        "none": estimate(exact.log_marginal_likelihood),
        "loss": estimate(found.approximation_loss),
    }


@call(slow=True)
def many_rows_approximated_by_themselves():
    x = np.linspace(-3.0, 3.0, 5200)[:, None]
    gp = sg.SkewGP(cov_func=SMOOTH)
    found = gp.posterior(x, np.sin(2 * x[:, 0]) > np.cos(np.arange(5200.0) ** 2), random_seed=SEED)
    # Where the 300 points lie is of no effect on so smooth a function.
    evidence, error = estimate(found.log_marginal_likelihood)
    return moments(found.marginals([[0.3]])) | {"evidence": (evidence, max(error, 1e-3))}


@call
def rows_beyond_ten_thousand():
    x = np.linspace(-3.0, 3.0, 12_000)[:, None]
    gp = sg.SkewGP(cov_func=SMOOTH, approximation=Inducing(x[::1500]))
    found = gp.posterior(x, x[:, 0] > np.cos(np.arange(12_000.0) ** 2), random_seed=SEED)
    draws = found.sample(200, 2, random_seed=SEED)
    rows = found.at_rows(draws, [0, 5_999], random_seed=SEED)["posterior"]["f"]
    # The draws are independent but for weights, which are all but equal here.
    error = rows.values.std((0, 1)) / np.sqrt(rows.values.shape[1] * 2)
    return moments(found.marginals([[0.3]])) | {
        "evidence": estimate(found.log_marginal_likelihood),
        "coordinates": draws["posterior"]["coordinates"].sizes["coordinate"],
        "rows": (rows.values.mean((0, 1)), error),
    }


NINE = Inducing(np.linspace(-2.0, 2.0, 9)[:, None])
FIVE, DUELS = np.arange(50) * 7 % 5, np.column_stack([np.arange(40), (np.arange(40) * 7 + 3) % 50])
THIRD = np.arange(50) * 7 % 3
BOTH = [[-0.5], [2.5]]
calls(
    positive_at_a_point=lambda: process(pseudo_points=[[0.5]]),
    signs_at_three_points=lambda: process(pseudo_points=[[-1.5], [0.0], [1.5]], phase=[1, -1, 1]),
    signs_that_are_uncertain=lambda: process(pseudo_points=[[0.5], [2.5]], truncation=[0.3, 1.0]),
    signs_about_a_mean=lambda: process(
        mean_func=pm.gp.mean.Linear(coeffs=0.7, intercept=-0.2), pseudo_points=[[0.5]], phase=[-1]
    ),
    signs_and_values=lambda: process(VALUES, of.Gaussian(0.3), pseudo_points=BOTH, phase=[1, 1]),
    signs_and_counts=lambda: process(COUNTS, of.Poisson(), pseudo_points=BOTH, phase=[1, -1]),
    signs_and_classes=lambda: process(CLASSES, of.MultinomialProbit(), pseudo_points=[[0.5]]),
    constant_mean=lambda: process(mean_func=pm.gp.mean.Constant(0.8)),
    constant_mean_of_counts=lambda: process(
        COUNTS, of.Poisson(), mean_func=pm.gp.mean.Constant(1.0)
    ),
    matern_kernel=lambda: process(cov=2.0 * pm.gp.cov.Matern32(1, ls=1.2)),
    periodic_kernel=lambda: process(cov=2.0 * pm.gp.cov.Periodic(1, period=2.5, ls=0.7)),
    kernel_with_noise=lambda: process(cov=NOISY),
    kernel_with_noise_under_counts=lambda: process(COUNTS, of.Poisson(), NOISY),
    neural_network_kernel=lambda: process(cov=4.0 * sg.cov.NeuralNetwork(1, ls=0.5, bias=0.7)),
    large_variance=lambda: process(cov=30.0**2 * pm.gp.cov.ExpQuad(1, ls=0.8)),
    large_variance_of_counts=lambda: process(
        COUNTS, of.Poisson(), 5.0**2 * pm.gp.cov.ExpQuad(1, ls=0.8)
    ),
    weights_of_labels=lambda: process(weights=WEIGHTS),
    weights_of_values=lambda: process(VALUES, of.Gaussian(0.5), weights=WEIGHTS),
    weights_of_counts=lambda: process(COUNTS, of.Poisson(), weights=WEIGHTS),
    repeated_rows=lambda: process(REPEATED, x=X[ROWS]),
    many_repeats=lambda: process(
        (np.arange(160) * 7 % 11 > 3 + MANY_ROWS % 3).astype(int), x=X[MANY_ROWS]
    ),
    many_repeats_under_noise_of_the_kernel=lambda: process(
        np.arange(40) * 7 % 11 > 4, cov=NOISY, x=X[FORTY]
    ),
    values_and_labels=lambda: together(
        (X[::2], VALUES[::2], of.Gaussian(0.3)), (X, LABELS, of.BernoulliProbit())
    ),
    values_and_counts=lambda: together(
        (X[::2], VALUES[::2], of.Gaussian(0.3)), (X, COUNTS, of.Poisson())
    ),
    labels_and_counts=lambda: together(
        (X, LABELS, of.BernoulliProbit()), (X, COUNTS, of.Poisson())
    ),
    inducing_points=lambda: approximated(NINE),
    pivoted_cholesky=lambda: approximated(PivotedCholesky(9)),
    basis_functions=lambda: approximated(HSGP(12, c=1.6)),
    approximated_counts=lambda: approximated(NINE, FIVE, of.Poisson()),
    approximated_values=lambda: approximated(
        NINE, np.sin(2 * MANY[:, 0]) + 0.3 * np.cos(np.arange(50.0) ** 2), of.Gaussian(0.3)
    ),
    approximated_levels=lambda: approximated(HSGP(12, c=1.6), THIRD, of.OrderedProbit([-0.5, 0.6])),
    approximated_classes=lambda: approximated(PivotedCholesky(9), THIRD, of.MultinomialProbit()),
    approximated_duels=lambda: approximated(NINE, DUELS, of.Preference(0.7)),
    approximated_with_signs=lambda: approximated(NINE, pseudo_points=[[0.5], [2.5]]),
    approximated_distribution=lambda: approximated(
        NINE, FIVE, lambda eta: pm.Poisson.dist(pm.math.exp(eta))
    ),
)
