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
# For approximations: fifty rows that a few features describe.
MANY = np.linspace(-2.0, 2.0, 50)[:, None]
SMOOTH = 1.5**2 * pm.gp.cov.ExpQuad(1, ls=1.0)


def labelled(gp, **more):
    return told(gp.posterior(X, LABELS, random_seed=SEED, **more))


@call
def signs_at_three_points():
    points = [[-1.5], [0.0], [1.5]]
    return labelled(sg.SkewGP(cov_func=RBF, pseudo_points=points, phase=[1, -1, 1]))


@call
def signs_that_are_uncertain():
    gp = sg.SkewGP(cov_func=RBF, pseudo_points=[[0.5], [2.5]], truncation=[0.3, 1.0])
    return labelled(gp)


@call
def signs_about_a_mean():
    mean = pm.gp.mean.Linear(coeffs=0.7, intercept=-0.2)
    return labelled(sg.SkewGP(mean_func=mean, cov_func=RBF, pseudo_points=[[0.5]], phase=[-1]))


@call
def signs_and_values():
    gp = sg.SkewGP(cov_func=RBF, pseudo_points=[[-0.5], [2.5]], phase=[1, 1])
    return told(gp.posterior(X, VALUES, likelihood=of.Gaussian(0.3), random_seed=SEED))


@call
def signs_and_counts():
    gp = sg.SkewGP(cov_func=RBF, pseudo_points=[[-0.5], [2.5]], phase=[1, -1])
    return told(gp.posterior(X, COUNTS, likelihood=of.Poisson(), random_seed=SEED))


@call
def signs_and_classes():
    gp = sg.SkewGP(cov_func=RBF, pseudo_points=[[0.5]])
    classes = of.MultinomialProbit()
    return told(gp.posterior(X, [0, 1, 0, 2, 1, 2, 2, 1], likelihood=classes, random_seed=SEED))


@call
def constant_mean_of_counts():
    gp = sg.SkewGP(mean_func=pm.gp.mean.Constant(1.0), cov_func=RBF)
    return told(gp.posterior(X, COUNTS, likelihood=of.Poisson(), random_seed=SEED))


@call
def sum_of_kernels():
    cov = (
        pm.gp.cov.Linear(1, c=0.2) + pm.gp.cov.Constant(0.5) + 0.5 * pm.gp.cov.RatQuad(1, 2.0, 1.0)
    )
    return labelled(sg.SkewGP(cov_func=cov))


@call
def kernel_with_noise_under_counts():
    gp = sg.SkewGP(cov_func=RBF + pm.gp.cov.WhiteNoise(0.5))
    return told(gp.posterior(X, COUNTS, likelihood=of.Poisson(), random_seed=SEED))


@call
def kernel_of_two_columns():
    inputs = np.column_stack([X[:, 0], np.cos(3 * X[:, 0])])
    gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(2, ls=[0.8, 1.5]))
    return told(gp.posterior(inputs, LABELS, random_seed=SEED), [[0.3, 0.1]])


@call
def kernel_of_some_columns():
    inputs = np.column_stack([np.arange(8.0), X[:, 0]])
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(2, ls=0.8, active_dims=[1]))
    return told(gp.posterior(inputs, LABELS, random_seed=SEED), [[0.0, 0.3]])


@call
def kernel_at_a_point():
    with pm.Model():
        ls, sd = pm.HalfNormal("ls"), pm.HalfNormal("sd")
        gp = sg.SkewGP(cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    return labelled(gp, point={"ls": 0.8, "sd": 1.5})


@call
def likelihood_at_a_point():
    with pm.Model():
        sigma, sd = pm.HalfNormal("sigma"), pm.HalfNormal("sd")
        gp = sg.SkewGP(cov_func=sd**2 * pm.gp.cov.ExpQuad(1, ls=0.8))
    point = {"sigma": 0.3, "sd": 1.5}
    return told(gp.posterior(X, VALUES, likelihood=of.Gaussian(sigma), point=point))


@call
def large_variance_of_counts():
    gp = sg.SkewGP(cov_func=5.0**2 * pm.gp.cov.ExpQuad(1, ls=0.8))
    return told(gp.posterior(X, COUNTS, likelihood=of.Poisson(), random_seed=SEED))


@call
def weights_of_values():
    gp, weights = sg.SkewGP(cov_func=RBF), [3, 1, 0, 2, 1, 5, 1, 1]
    return told(gp.posterior(X, VALUES, likelihood=of.Gaussian(0.5), weights=weights))


@call
def weights_of_counts():
    gp, weights = sg.SkewGP(cov_func=RBF), [3, 1, 0, 2, 1, 5, 1, 1]
    found = gp.posterior(X, COUNTS, likelihood=of.Poisson(), weights=weights, random_seed=SEED)
    return told(found)


@call
def repeated_rows():
    rows = [0, 0, 0, 1, 2, 2, 3, 4, 5, 5, 6, 7]
    y = np.array(LABELS)[rows]
    y[2] = 1
    return told(sg.SkewGP(cov_func=RBF).posterior(X[rows], y, random_seed=SEED))


@call
def many_repeats():
    rows = np.arange(160) % 8
    y = (np.arange(160) * 7 % 11 > 3 + rows % 3).astype(int)
    return told(sg.SkewGP(cov_func=RBF).posterior(X[rows], y, random_seed=SEED))


@call
def many_repeats_under_noise_of_the_kernel():
    rows = np.arange(40) % 8
    gp = sg.SkewGP(cov_func=RBF + pm.gp.cov.WhiteNoise(0.5))
    return told(gp.posterior(X[rows], np.arange(40) * 7 % 11 > 4, random_seed=SEED))


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


@call
def functions_of_arrays():
    def kernel(X, Xs=None, diag=False):
        if diag:
            return np.full(len(X), 2.0)
        return 2.0 * np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)

    found = sg.SkewGPPosterior(
        X, LABELS, cov_func=kernel, mean_func=lambda X: 0.3 * X[:, 0], pseudo_points=[[0.5]],
        random_seed=SEED,
    )  # fmt: skip
    return told(found)


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
def approximated_counts():
    counts = np.arange(50) * 7 % 5
    return approximated(Inducing(np.linspace(-2.0, 2.0, 9)[:, None]), counts, of.Poisson())


@call
def approximated_values():
    values = np.sin(2 * MANY[:, 0]) + 0.3 * np.cos(np.arange(50.0) ** 2)
    return approximated(Inducing(np.linspace(-2.0, 2.0, 9)[:, None]), values, of.Gaussian(0.3))


@call
def approximated_levels():
    levels, likelihood = np.arange(50) * 7 % 3, of.OrderedProbit([-0.5, 0.6])
    return approximated(HSGP(12, c=1.6), levels, likelihood)


@call
def approximated_classes():
    classes = np.arange(50) * 7 % 3
    return approximated(PivotedCholesky(9), classes, of.MultinomialProbit())


@call
def approximated_duels():
    duels = np.column_stack([np.arange(40), (np.arange(40) * 7 + 3) % 50])
    return approximated(Inducing(np.linspace(-2.0, 2.0, 9)[:, None]), duels, of.Preference(0.7))


@call
def approximated_with_signs():
    points = np.linspace(-2.0, 2.0, 9)[:, None]
    return approximated(Inducing(points), pseudo_points=[[0.5], [2.5]])


@call
def approximated_distribution():
    counts, points = np.arange(50) * 7 % 5, np.linspace(-2.0, 2.0, 9)[:, None]
    return approximated(Inducing(points), counts, lambda eta: pm.Poisson.dist(pm.math.exp(eta)))


@call
def approximated_shape():
    values = MANY[:, 0] + 0.3 * np.cos(np.arange(50.0) ** 2)
    gp = sg.SkewGP(cov_func=SMOOTH, approximation=Inducing(np.linspace(-2.0, 2.0, 9)[:, None]))
    data = {
        "y": (MANY, values, of.Gaussian(0.3)),
        "shape": (X, None, of.Constraint.increasing()),
    }
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


calls(
    positive_at_a_point=lambda: labelled(sg.SkewGP(cov_func=RBF, pseudo_points=[[0.5]])),
    constant_mean=lambda: labelled(sg.SkewGP(mean_func=pm.gp.mean.Constant(0.8), cov_func=RBF)),
    matern_kernel=lambda: labelled(sg.SkewGP(cov_func=2.0 * pm.gp.cov.Matern32(1, ls=1.2))),
    periodic_kernel=lambda: labelled(
        sg.SkewGP(cov_func=2.0 * pm.gp.cov.Periodic(1, period=2.5, ls=0.7))
    ),
    kernel_with_noise=lambda: labelled(sg.SkewGP(cov_func=RBF + pm.gp.cov.WhiteNoise(0.5))),
    neural_network_kernel=lambda: labelled(
        sg.SkewGP(cov_func=4.0 * sg.cov.NeuralNetwork(1, ls=0.5, bias=0.7))
    ),
    large_variance=lambda: labelled(sg.SkewGP(cov_func=30.0**2 * pm.gp.cov.ExpQuad(1, ls=0.8))),
    weights_of_labels=lambda: labelled(sg.SkewGP(cov_func=RBF), weights=[3, 1, 0, 2, 1, 5, 1, 1]),
    values_and_labels=lambda: together(
        (X[::2], VALUES[::2], of.Gaussian(0.3)), (X, LABELS, of.BernoulliProbit())
    ),
    values_and_counts=lambda: together(
        (X[::2], VALUES[::2], of.Gaussian(0.3)), (X, COUNTS, of.Poisson())
    ),
    labels_and_counts=lambda: together(
        (X, LABELS, of.BernoulliProbit()), (X, COUNTS, of.Poisson())
    ),
    inducing_points=lambda: approximated(Inducing(np.linspace(-2.0, 2.0, 9)[:, None])),
    pivoted_cholesky=lambda: approximated(PivotedCholesky(9)),
    basis_functions=lambda: approximated(HSGP(12, c=1.6)),
)
