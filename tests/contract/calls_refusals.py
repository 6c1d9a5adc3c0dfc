"""What is refused, or warned of: the class, the name of what is wrong, and the way out."""

import numpy as np
import pymc as pm
from sklearn.exceptions import NotFittedError

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp.approximations import HSGP, Inducing, PivotedCholesky

from .harness import refused, refuses, warned, warns

X = np.linspace(-2.0, 2.0, 8)[:, None]
LABELS = [0, 1, 0, 0, 1, 1, 0, 1]
VALUES = np.array([-0.4, 0.2, -1.1, 0.3, 0.9, 1.6, 0.1, 0.8])
RBF = pm.gp.cov.ExpQuad(1, ls=0.8)
GP = sg.SkewGP(cov_func=RBF)
COV = 0.5 * np.eye(3) + 0.5
QUIET = {"random_seed": 0, "progressbar": False}


def kernel(X, Xs=None, diag=False):
    return np.ones(len(X)) if diag else np.exp(-0.5 * (X - (X if Xs is None else Xs).T) ** 2)


def learnable(**more):
    """A process with a lengthscale, in a model of its own."""
    with pm.Model():
        return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")), **more)


@refused(TypeError, "X", "sparse")
def sparse_inputs():
    from scipy import sparse

    GP.posterior(sparse.csr_matrix(X), LABELS)


@refused(ValueError, "coregion", "(3, 3)")
def coregion_of_another_size():
    classes = np.arange(8) % 3
    GP.posterior(X, classes, likelihood=of.MultinomialProbit(), coregion=np.eye(2))


@refused(sg.NotPositiveDefiniteError, "coregion")
def coregion_that_is_no_covariance():
    B = [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    classes = np.arange(8) % 3
    _ = GP.posterior(X, classes, likelihood=of.MultinomialProbit(), coregion=B).latent


@refused(sg.ContradictoryPseudoPointsError, "pseudo")
def signs_that_contradict():
    gp = sg.SkewGP(
        cov_func=RBF, pseudo_points=np.linspace(0.0, 0.01, 6)[:, None], phase=[1, -1] * 3
    )
    _ = gp.posterior(X, LABELS).log_marginal_likelihood


@refused(sg.ContradictoryConstraintsError)
def constraints_that_contradict():
    data = [(X, None, of.Constraint.bounds(0.0, 1.0)), (X, None, of.Constraint.bounds(2.0, 3.0))]
    _ = GP.posterior([*data, (X, LABELS, of.BernoulliProbit())]).log_marginal_likelihood


@refused(sg.NotPositiveDefiniteError, "cov_func")
def kernel_that_is_no_covariance():
    matrix = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    found = sg.SkewGPPosterior(X[:3], [0, 1, 0], cov_func=lambda X, Xs=None, diag=False: matrix)
    _ = found.log_marginal_likelihood


@refused(sg.NotDifferentiableError, "Matern12")
def slope_of_a_rough_function():
    gp = sg.SkewGP(cov_func=pm.gp.cov.Matern12(1, ls=1.0))
    gp.posterior(X, LABELS).marginals(X, derivative=(0, 1))


@refused(ValueError, "name must say which")
def update_of_which_data():
    data = {"a": (X, LABELS, of.BernoulliProbit()), "b": (X, VALUES, of.Gaussian(0.3))}
    GP.posterior(data).update([[0.3]], [1])


@refused(sg.ApproximationError, "prior takes the kernel as it is")
def approximation_in_a_model():
    with pm.Model():
        sg.SkewGP(cov_func=RBF, approximation=Inducing(3)).prior("f", X)


@refused(sg.ApproximationError, "at most 3 columns")
def basis_functions_of_four_columns():
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(4, ls=1.0), approximation=HSGP(3))
    _ = gp.posterior(np.random.default_rng(0).normal(size=(8, 4)), LABELS).log_marginal_likelihood


@refused(sg.ApproximationError, "beyond the box")
def basis_functions_far_away():
    gp = sg.SkewGP(cov_func=RBF, approximation=HSGP(6))
    gp.posterior(X, LABELS).predict([[30.0]])


@refused(sg.TooManyRowsError, "300000 rows", "approximation=", "batch_size")
def more_rows_than_memory():
    gp = sg.SkewGP(cov_func=RBF, approximation=None)
    x = np.linspace(0.0, 1.0, 300_000)[:, None]
    _ = gp.posterior(x, np.arange(300_000) % 2, n_draws=64).log_marginal_likelihood


@refused(ValueError, "dask", "client")
def workers_without_a_client():
    import dask.array as da

    GP.posterior(da.from_array(X), da.from_array(np.array(LABELS)))


@refused(sg.DoublePrecisionError, "latent_cov", "Drop latent dimensions")
def sun_whose_orthant_is_impossible():
    """Signs of a smooth function that alternate within a hundredth of its lengthscale."""
    sign = np.array([1, -1, 1])
    latent_cov = kernel(1e-3 * np.arange(3.0)[:, None]) * np.outer(sign, sign)
    sg.SUN([0.0], [[1.0]], np.zeros((1, 3)), np.zeros(3), latent_cov).mean()


@refused(sg.NotConjugateError, "the potential bound depends on f")
def step_beside_a_potential():
    with pm.Model():
        f = GP.prior("f", X)
        sg.BernoulliProbit("y", f, observed=LABELS)
        pm.Potential("bound", -(f[0] ** 2))
        sg.ConjugateStep([f])


@refused(ValueError, "there is nothing to learn")
def nothing_to_learn():
    with pm.Model():
        gp = sg.SkewGP(cov_func=RBF)
        sg.find_hyperparameters(gp, X, LABELS, **QUIET)


@refused(sg.ImproperPriorError, "flat prior")
def average_over_a_flat_prior():
    with pm.Model():
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfFlat("ls")))
        sg.integrate(gp, X, LABELS, **QUIET)


@refused(sg.DiscreteHyperparameterError, "k is discrete")
def average_over_a_count():
    with pm.Model():
        gp = sg.SkewGP(cov_func=(1.0 + pm.Poisson("k", 2.0)) * RBF)
        sg.integrate(gp, X, LABELS, **QUIET)


@refused(ValueError, "no marginal_likelihood", slow=True)
def correction_of_another_model():
    with pm.Model() as model:
        pm.Normal("x")
        trace = pm.sample(2, tune=0, chains=1, compute_convergence_checks=False, **QUIET)
    sg.correct(trace, model=model, progressbar=False)


@refused(ValueError, "positive cannot be perturbed")
def bound_over_signs():
    with pm.Model():
        phase = 2 * pm.Bernoulli("positive", 0.5, shape=1) - 1
        kernel = pm.HalfNormal("sd") ** 2 * RBF
        gp = sg.SkewGP(cov_func=kernel, pseudo_points=[[0.5]], phase=phase)
        sg.maximize_frechet_bound(gp, X, LABELS, progressbar=False)


@refused(KeyError, "posterior")
def skewness_of_what_is_not_there():
    tree = GP.posterior(X, LABELS).predict([[0.3]], draws=10, chains=1)
    sg.posterior_skewness(tree)


@warned(sg.DrawOverflowWarning, "y")
def counts_beyond_the_range():
    gp = sg.SkewGP(cov_func=RBF, mean_func=pm.gp.mean.Linear(coeffs=1.0))
    counts = [0, 1, 2, 0, 1, 4, 0, 3]
    found = gp.posterior(X, counts, likelihood=lambda eta: pm.Poisson.dist(pm.math.exp(eta)))
    found.predict([[50.0]])


@warned(sg.FlatOptimumWarning, "ls", "weakly identified")
def optimum_that_is_flat():
    with pm.Model():
        ls = pm.HalfNormal("ls", 1.0, shape=2)
        gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(2, ls=ls))
        inputs = np.column_stack([np.linspace(-2, 2, 20), np.zeros(20)])
        y = np.arange(20) % 5 > 2
        sg.find_hyperparameters(gp, inputs, y, start={"ls": [0.5, 1.0]}, **QUIET)


@warned(sg.BoundaryOptimumWarning, "ls went a thousandfold away")
def optimum_at_the_bounds():
    """A prior that asks for ever more, where the labels do not object."""
    with pm.Model():
        ls = pm.HalfFlat("ls")
        pm.Potential("more", 3.0 * pm.math.log(ls))
        gp = sg.SkewGP(cov_func=0.01 * pm.gp.cov.ExpQuad(1, ls=ls))
        sg.find_hyperparameters(gp, X, LABELS, method="ep", n_restarts=0, **QUIET)


@warned(sg.NotConjugateWarning, "y", "as it stands")
def step_that_does_not_fit():
    with pm.Model():
        f, g = GP.prior("f", X), GP.prior("g", X)
        pm.Poisson("y", pm.math.exp(f * g), observed=[1] * 8)
        settings = {"tune": 1, "chains": 1, "compute_convergence_checks": False}
        pm.sample(1, **settings, **QUIET)


@warned(sg.PriorApproximationWarning, "Inducing(3)", "kernel")
def approximation_that_is_rough():
    x = np.linspace(-2.0, 2.0, 200)[:, None]
    gp = sg.SkewGP(cov_func=9.0 * pm.gp.cov.Matern12(1, ls=0.2), approximation=Inducing(3))
    gp.posterior(x, (np.sin(20 * x[:, 0]) > 0).astype(int)).prior_report(60)


refuses(
    nan_in_values=(ValueError, "y must be finite", "1 NaN", lambda:
        GP.posterior(X, [np.nan, *VALUES[1:]], likelihood=of.Gaussian(0.3))),
    more_successes_than_trials=(ValueError, "y must not exceed the number of trials n", lambda:
        GP.posterior(X, np.full(8, 4), likelihood=of.BinomialProbit(3))),
    unknown_level=(ValueError, "y", "0 to 2", lambda:
        GP.posterior(X, np.arange(8), likelihood=of.OrderedProbit([-0.5, 0.5]))),
    item_against_itself=(ValueError, "repeats one", lambda:
        GP.posterior(X, [[0, 1], [2, 2]], likelihood=of.Preference())),
    item_that_is_not_there=(ValueError, "y names item 8 in row 1", "0 to 7", lambda:
        GP.posterior(X, [[0, 1], [2, 8]], likelihood=of.Preference())),
    tie_without_threshold=(ValueError, "threshold", lambda:
        GP.posterior(X, [[0, 1, 1]], likelihood=of.Preference())),
    noise_that_is_negative=(ValueError, "sigma", "positive", lambda:
        GP.posterior(X, VALUES, likelihood=of.Gaussian(-0.3))),
    correlation_beyond_one=(ValueError, "rho", lambda:
        GP.posterior(X, VALUES, likelihood=of.Selection(0.3, 1.5))),
    value_beyond_its_limit=(ValueError, "y must be within the limits", "(n, 2)", lambda:
        GP.posterior(X, VALUES, likelihood=of.CensoredGaussian(0.3, lower=0.0))),
    weights_that_are_not_whole=(ValueError, "weights", "whole numbers", lambda:
        GP.posterior(X, LABELS, weights=np.full(8, 0.5))),
    weights_within_rows=(TypeError, "Weighted", "BernoulliLogit", lambda:
        GP.posterior(X, LABELS, likelihood=of.Weighted(of.BernoulliProbit(), 0.5))),
    data_of_several_kinds_and_a_likelihood=(TypeError, "likelihood", "has its own", lambda:
        GP.posterior([(X, LABELS, of.BernoulliProbit())], likelihood=of.Gaussian(0.3))),
    kernel_that_is_none=(TypeError, "cov_func", "pm.gp.cov", lambda:
        sg.SkewGP(cov_func=kernel)),
    mean_that_is_none=(TypeError, "mean_func", "pm.gp.mean", lambda:
        sg.SkewGP(mean_func=0.3, cov_func=RBF)),
    approximation_that_is_none=(sg.ApproximationError, "approximation must be", lambda:
        sg.SkewGP(cov_func=RBF, approximation="sparse")),
    phase_without_points=(ValueError, "phase and truncation belong to pseudo_points", lambda:
        sg.SkewGPPosterior(X, LABELS, cov_func=kernel, phase=[1])),
    distribution_that_mixes_rows=(sg.NotSitesError, "Sum", lambda:
        GP.posterior(X, VALUES, likelihood=lambda eta: pm.Normal.dist(eta - eta.sum(), 1.0))),
    likelihood_that_returns_a_number=(TypeError, "distribution", lambda:
        GP.posterior(X, VALUES, likelihood=lambda eta: 3.0)),
    point_that_is_a_list=(TypeError, "point must map names to values", lambda:
        learnable().posterior(X, LABELS, point=[0.5])),
    new_points_with_nan=(ValueError, "Xnew holds 1 NaN", lambda:
        GP.posterior(X, LABELS).predict([[np.nan]])),
    quantiles_beyond_one=(ValueError, "quantiles must lie", lambda:
        GP.posterior(X, LABELS).predict([[0.3]], quantiles=[1.5])),
    no_draws=(ValueError, "draws must be at least 1", lambda:
        GP.posterior(X, LABELS).sample(0)),
    unknown_sampler=(ValueError, "method must be", "twisted", "lin_ess", lambda:
        GP.posterior(X, LABELS).sample(10, method="nuts")),
    more_draws_than_memory=(sg.TooManyDrawsError, "draws=", "ask for fewer", lambda:
        GP.posterior(X, LABELS).sample(10**11)),
    probability_of_values=(TypeError, "probability is of a label", "predict", lambda:
        GP.posterior(X, VALUES, likelihood=of.Gaussian(0.3)).probability(X)),
    winner_among_labels=(TypeError, "comparisons", lambda:
        GP.posterior(X, LABELS).preference_probability([[0.3]], [[1.0]])),
    report_without_an_approximation=(sg.ApproximationError, "nothing to report", lambda:
        GP.posterior(X, LABELS).prior_report()),
    no_features=(ValueError, "at least 1", lambda:
        PivotedCholesky(0)),
    covariance_that_is_not_symmetric=(ValueError, "cov", "symmetric", lambda:
        sg.mvn_logcdf(np.zeros(2), [[1.0, 0.5], [0.2, 1.0]])),
    covariance_that_is_none=(sg.NotPositiveDefiniteError, "cov is not", "eigenvalue", lambda:
        sg.mvn_logcdf(np.zeros(2), [[1.0, 2.0], [2.0, 1.0]])),
    limits_in_the_wrong_order=(ValueError, "lower", "below", lambda:
        sg.truncated_mvn(COV, 1.0, 0.0)),
    limits_of_another_length=(ValueError, "x must have length 3, got 2", lambda:
        sg.mvn_logcdf(np.zeros(2), COV)),
    prior_without_a_model=(TypeError, "No model on context stack", lambda:
        GP.prior("f", X)),
    model_that_is_none=(TypeError, "model must be a pm.Model or a SkewGP", lambda:
        sg.find_hyperparameters(X, X, LABELS, **QUIET)),
    search_without_data=(ValueError, "a SkewGP needs its data", lambda:
        sg.find_hyperparameters(learnable(), **QUIET)),
    start_of_an_unknown_name=(ValueError, "start has lengthscale", "ls", lambda:
        sg.find_hyperparameters(learnable(), X, LABELS, start={"lengthscale": 1.0}, **QUIET)),
    estimator_that_is_not_fitted=(NotFittedError, "SkewGPClassifier", "fit", lambda:
        sg.SkewGPClassifier().predict(X)),
    estimator_of_one_class=(ValueError, "class", lambda:
        sg.SkewGPClassifier().fit(X, np.zeros(8))),
    estimator_of_an_unknown_kernel=(ValueError, "kernel", lambda:
        sg.SkewGPClassifier("cubic").fit(X, LABELS)),
    estimator_of_other_features=(ValueError, "X has 2 features", "1 features", lambda:
        sg.SkewGPRegressor(n_restarts=0, random_state=0).fit(X, VALUES).predict(np.ones((2, 2)))),
    estimator_of_unknown_hyperparameters=(ValueError, "hyperparameters must be", lambda:
        sg.SkewGPOrdinalClassifier(hyperparameters="mean").fit(X, LABELS)),
    estimator_of_values_beyond_the_limit=(ValueError, "y must be within the limits", lambda:
        sg.SkewGPRegressor(censoring=(0.0, None)).fit(X, VALUES)),
    estimator_of_unknown_items=(ValueError, "item 8 in row 0", "0 to 7", lambda:
        sg.SkewGPPreference().fit(X, [[0, 8]])),
    comparison_of_an_unknown_method=(ValueError, "methods", "exact", lambda:
        sg.compare_approximations(GP, X, LABELS, methods=["mcmc"], **QUIET)),
    coverage_beyond_one=(ValueError, "probs", lambda:
        sg.coverage(GP.posterior(X, LABELS), GP.posterior(X, LABELS), probs=[1.5])),
    calibration_of_no_process=(TypeError, "SkewGP", lambda:
        sg.sbc(RBF, X, **QUIET)),
)  # fmt: skip


warns(
    few_effective_draws=(sg.LowEffectiveSampleWarning, "n_draws", lambda:
        sg.mvn_logcdf(np.zeros(30), 0.5 * np.eye(30) + 0.5, n_draws=16, rtol=1e-6)),
    covariance_that_is_singular=(sg.JitterWarning, "jitter", lambda:
        sg.mvn_logcdf(np.zeros(4), np.ones((4, 4)) + 1e-16 * np.eye(4))),
)  # fmt: skip
