"""Evidences of every likelihood with what is learnt of it: quadrature, `pm.gp.Marginal`, limits."""

import numpy as np
import pymc as pm
import pytest
from observation_oracles import grid_posterior
from oracles import finite_difference
from scipy import optimize, stats

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._model.graph.collapsed import collapse_model

X = np.array([[-1.2], [0.1], [0.9]])
RNG = np.random.default_rng(5)
MANY = np.sort(RNG.uniform(-3.0, 3.0, 20))[:, None]
VALUES = np.sin(MANY[:, 0]) + 0.3 * RNG.normal(size=20)


def kernel():
    return pm.HalfNormal("eta", 2.0) ** 2 * pm.gp.cov.Matern52(1, ls=pm.Gamma("ls", 2, 1))


def of_process(make, x, y, **arguments):
    """The objective of a SkewGP under a likelihood made inside of its model."""
    with pm.Model():
        gp = sg.SkewGP(cov_func=kernel(), **arguments)
        likelihood = make()
    data = TrainingData(gp, x, y, likelihood)
    return process_objective(data, None, np.random.default_rng(0), None).objective


def matern(x, eta, ls):
    r = np.sqrt(5.0) * np.abs(x - x.T) / ls
    return eta**2 * (1.0 + r + r**2 / 3.0) * np.exp(-r)


INF = np.inf
NAN = np.nan
CUTS = np.array([-0.4, 0.7])
# Likelihood, data, what is learnt besides the kernel (eta 1.3, ls 0.8), rows A, S, limits, values.
CASES = {
    "gaussian": (
        lambda: sg.likelihoods.Gaussian(pm.HalfNormal("sigma", 1.0)),
        [0.3, -0.2, 1.1],
        np.log([0.5]),
        (np.eye(3), np.full(3, 0.25), [NAN] * 3, [NAN] * 3, [0.3, -0.2, 1.1]),
    ),
    "ordered": (
        lambda: sg.likelihoods.OrderedProbit(pm.Normal("cuts", 0.0, 3.0, shape=2)),
        [0, 2, 1],
        CUTS,
        (np.eye(3), np.ones(3), [-INF, 0.7, -0.4], [-0.4, INF, 0.7], [NAN] * 3),
    ),
    "censored": (
        lambda: sg.likelihoods.CensoredGaussian(pm.HalfNormal("sigma", 1.0), lower=0.0, upper=1.0),
        [0.0, 0.4, 1.0],
        np.log([0.5]),
        (np.eye(3), np.full(3, 0.25), [-INF, NAN, 1.0], [0.0, NAN, INF], [NAN, 0.4, NAN]),
    ),
    "bounds": (
        lambda: sg.likelihoods.CensoredGaussian(pm.HalfNormal("sigma", 1.0)),
        [[-INF, 0.1], [0.2, 0.9], [0.4, 0.4]],
        np.log([0.5]),
        (np.eye(3), np.full(3, 0.25), [-INF, 0.2, NAN], [0.1, 0.9, NAN], [NAN, NAN, 0.4]),
    ),
    "binomial": (
        lambda: sg.likelihoods.BinomialProbit([1, 2, 1]),
        [1, 1, 0],
        [],
        (np.eye(3)[[0, 1, 1, 2]], np.ones(4), [0, 0, -INF, -INF], [INF, INF, 0, 0], [NAN] * 4),
    ),
}


CASES["duels"] = (
    lambda: sg.likelihoods.Preference(0.5),
    [[0, 1], [2, 0]],
    [],
    ([[1.0, -1.0, 0.0], [-1.0, 0.0, 1.0]], np.full(2, 0.5), [0, 0], [INF, INF], [NAN] * 2),
)


@pytest.mark.parametrize("which", CASES)
def test_evidence_by_quadrature(which):
    make, y, learnt, rows = CASES[which]
    objective = of_process(make, X, y)
    point = Point(np.concatenate([np.log([1.3, 0.8]), learnt]))
    A, S, lower, upper, value = rows
    truth = grid_posterior(
        np.zeros(3), matern(X, 1.3, 0.8), A, np.zeros(len(S)), S, lower, upper, value, nodes=81
    ).log_evidence
    if which == "binomial":
        truth += np.log(2.0)  # two orders of one success and one failure
    # Quasi-random error in at most four rows.
    assert objective.by_twisting(point, 4096, 0).log_evidence == pytest.approx(truth, abs=1e-4)
    # EP's error at such variances.
    assert objective.by_ep(point).log_evidence == pytest.approx(truth, abs=0.02)
    estimate = objective.estimate(point, 1024, 1)
    assert abs(estimate.value - truth) < max(5 * estimate.std_error, 1e-8)


@pytest.mark.parametrize("which", CASES)
def test_gradient_in_everything_that_is_learnt(which):
    make, y, learnt, _ = CASES[which]
    objective = of_process(make, X, y)
    x = np.concatenate([np.log([1.3, 0.8]), learnt])
    for evaluate in (
        lambda x: objective.by_ep(Point(x)),
        lambda x: objective.by_twisting(Point(x), 64, 0),
    ):
        numeric = finite_difference(lambda x, f=evaluate: f(x).total, x, 0.01)
        # EP stops at 1e-4 of a standard deviation in each of a few rows.
        np.testing.assert_allclose(evaluate(x).gradient, numeric, atol=2e-3)


class TestPyMC:
    """Exact regression is PyMC's."""

    POINT = np.log([1.3, 0.8, 0.4])

    def marginal(self):
        with pm.Model() as model:
            gp = pm.gp.Marginal(cov_func=kernel())
            gp.marginal_likelihood("y", MANY, VALUES, sigma=pm.HalfNormal("sigma", 1.0), jitter=0.0)
        return model

    def test_value_and_gradient(self):
        model = self.marginal()
        objective = of_process(CASES["gaussian"][0], MANY, VALUES)
        likelihood = model.compile_logp(vars=model.observed_RVs, mode="FAST_COMPILE")
        slopes = model.compile_dlogp(jacobian=False, mode="FAST_COMPILE")
        named = dict(zip(["eta_log__", "ls_log__", "sigma_log__"], self.POINT, strict=True))
        found = objective.by_ep(Point(self.POINT))
        # Two Cholesky factorisations of one matrix.
        assert found.log_evidence == pytest.approx(float(likelihood(named)), abs=1e-8)
        np.testing.assert_allclose(found.gradient, slopes(named), atol=1e-7)

    def test_the_optimum(self):
        with pm.Model():
            gp = sg.SkewGP(cov_func=kernel())
            likelihood = sg.likelihoods.Gaussian(pm.HalfNormal("sigma", 1.0))
        fit = sg.find_hyperparameters(
            gp, MANY, VALUES, likelihood=likelihood, n_restarts=0, quiet=True, progressbar=False
        )

        def loss(x):
            eta, ls, sigma = np.exp(x)
            cov = matern(MANY, eta, ls) + sigma**2 * np.eye(20)
            prior = stats.halfnorm(scale=2).logpdf(eta) + stats.halfnorm.logpdf(sigma)
            prior += stats.gamma(2).logpdf(ls)
            return -prior - stats.multivariate_normal(cov=cov).logpdf(VALUES)

        best = np.exp(optimize.minimize(loss, self.POINT).x)
        # L-BFGS ends at a gain of 2e-4 nats: a hundredth of the standard errors here.
        for name, value in zip(("eta", "ls", "sigma"), best, strict=True):
            assert abs(fit.point[name] - value) < 0.05 * fit.std_error[name]
        posterior = gp.posterior(MANY, VALUES, likelihood=likelihood, point=fit.point)
        assert posterior.log_marginal_likelihood.value == pytest.approx(
            fit.log_marginal_likelihood.value, abs=1e-8
        )


def test_a_skew_prior_under_values():
    """One pseudo-point: the law of total probability over its sign."""
    parts = [
        of_process(CASES["gaussian"][0], X, [0.3, -0.2, 1.1], pseudo_points=[[0.5]], phase=[sign])
        for sign in (1.0, -1.0)
    ]
    point = Point(np.log([1.3, 0.8, 0.5]))
    cov = matern(X, 1.3, 0.8) + 0.25 * np.eye(3)
    truth = stats.multivariate_normal(cov=cov).pdf([0.3, -0.2, 1.1])
    total = np.mean([np.exp(part.by_ep(point).log_evidence) for part in parts])
    # Rectangles of one row are exact, in EP too.
    assert total == pytest.approx(truth, rel=1e-7)


def test_several_functions():
    """Two classes are probit for the difference of two functions, with noise of variance 2."""
    y = np.array([1, 0, 1])
    objective = of_process(lambda: sg.likelihoods.MultinomialProbit(), X, y)
    sign = np.where(y == 1, 1.0, -1.0)
    truth = grid_posterior(
        np.zeros(3),
        2.0 * matern(X, 1.3, 0.8),
        np.diag(sign),
        np.zeros(3),
        np.full(3, 2.0),
        np.zeros(3),
        np.full(3, INF),
        np.full(3, NAN),
        nodes=81,
    ).log_evidence
    found = objective.by_twisting(Point(np.log([1.3, 0.8])), 4096, 0)
    # Quasi-random error in three rows.
    assert found.log_evidence == pytest.approx(truth, abs=1e-4)


def test_parts_of_data_under_several_functions():
    y = np.arange(20) % 3
    with pm.Model():
        gp = sg.SkewGP(cov_func=kernel())
    data = TrainingData(gp, MANY, y, sg.likelihoods.MultinomialProbit())
    found = process_objective(data, 10, np.random.default_rng(0), None)
    assert [batch[0].shape for batch in found.objective.batches] == [(10, 1)] * 2
    assert [batch[1].shape for batch in found.objective.batches] == [(20,)] * 2
    assert np.isfinite(found.objective.by_ep(Point(np.zeros(2))).total)


def test_data_of_several_kinds():
    kinds = {
        "sign": (X[:1], [1], None),
        "value": (X[1:], [0.4, -0.3], sg.likelihoods.Gaussian(0.5)),
    }
    objective = of_process(lambda: None, kinds, None)
    truth = grid_posterior(
        np.zeros(3),
        matern(X, 1.3, 0.8),
        np.eye(3),
        np.zeros(3),
        [1.0, 0.25, 0.25],
        [0.0, NAN, NAN],
        [INF, NAN, NAN],
        [NAN, 0.4, -0.3],
        nodes=81,
    ).log_evidence
    # One interval is left: exact.
    found = objective.by_ep(Point(np.log([1.3, 0.8])))
    assert found.log_evidence == pytest.approx(truth, abs=1e-8)


def model_of(observe):
    with pm.Model() as model:
        f = sg.SkewGP(cov_func=kernel()).prior("f", X, jitter=0.0)
        observe(f)
    return compile_objective(model, collapse_model(model))[0]


MODELS = {
    "gaussian": lambda f: pm.Normal(
        "y", f, pm.HalfNormal("sigma", 1.0), observed=CASES["gaussian"][1]
    ),
    "ordered": lambda f: pm.OrderedProbit(
        "y", f, pm.Normal("cuts", 0.0, 3.0, shape=2), observed=[0, 2, 1]
    ),
    "censored": lambda f: pm.Censored(
        "y", pm.Normal.dist(f, pm.HalfNormal("sigma", 1.0)), 0.0, 1.0, observed=[0.0, 0.4, 1.0]
    ),
    "binomial": lambda f: pm.Binomial(
        "y", [1, 2, 1], p=pm.math.invprobit(f), observed=np.array([1, 1, 0])
    ),
}


@pytest.mark.parametrize("which", MODELS)
def test_the_same_in_a_model(which):
    make, y, learnt, _ = CASES[which]
    point = Point(np.concatenate([np.log([1.3, 0.8]), learnt]))
    one, other = of_process(make, X, y).by_ep(point), model_of(MODELS[which]).by_ep(point)
    # Round-off, and a jitter of 0.
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)
    np.testing.assert_allclose(one.gradient, other.gradient, atol=1e-8)


class TestBlocks:
    POINT = np.log([1.3, 0.8])

    @pytest.mark.slow(ci=True)
    def test_a_sum_of_functions_and_random_effects(self):
        """The sum is one Gaussian process, whose kernel is the sum."""
        group = np.array([0, 1, 0])
        with pm.Model() as model:
            f = sg.SkewGP(cov_func=kernel()).prior("f", X, jitter=0.0)
            g = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.3)).prior("g", X, jitter=0.0)
            b = pm.Normal("b", pm.Normal("centre", 0.5, 2.0), 0.7, shape=2)
            pm.Normal("y", f + g + b[group], 0.5, observed=[0.3, -0.2, 1.1])
        objective = compile_objective(model, collapse_model(model))[0]
        cov = matern(X, 1.3, 0.8) + np.exp(-0.5 * ((X - X.T) / 0.3) ** 2) + 0.25 * np.eye(3)
        cov += 4.0 + 0.49 * (group[:, None] == group)
        truth = stats.multivariate_normal(np.full(3, 0.5), cov).logpdf([0.3, -0.2, 1.1])
        found = objective.by_ep(Point(self.POINT))
        # The same matrix, summed in another order.
        assert found.log_evidence == pytest.approx(truth, abs=1e-9)
        assert set(objective.named(Point(self.POINT))) == {"eta", "ls"}

    @pytest.mark.parametrize(("signs", "left"), [({}, []), ({"pseudo_points": [[0.3]]}, ["level"])])
    def test_the_mean_of_a_function_is_integrated_out(self, signs, left):
        """Where `SkewGP.posterior` can: not beside signs, which are those of f less its mean."""
        with pm.Model() as model:
            level = pm.Normal("level", 0.0, 2.0)
            gp = sg.SkewGP(mean_func=pm.gp.mean.Constant(level), cov_func=kernel(), **signs)
            pm.Normal("y", gp.prior("f", X), 0.5, observed=[0.3, -0.2, 1.1])
        objective = compile_objective(model, collapse_model(model))[0]
        assert objective.coordinates.labels == [*left, "eta", "ls"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (
                lambda: sg.likelihoods.CensoredGaussian(1.0, lower=pm.Normal("limit", -5.0)),
                "lower of CensoredGaussian is a random variable, so that no y can equal it",
            ),
            (
                lambda: sg.likelihoods.BinomialProbit(pm.Poisson("n", 3.0)),
                "n of BinomialProbit is a random variable, which is not learnt",
            ),
            (
                lambda: sg.likelihoods.OrderedProbit(pm.Normal("cuts")),
                "cutpoints must be a vector whose length is known",
            ),
        ],
    )
    def test_random_parameters_that_are_not_learnt(self, make, message):
        with pytest.raises(ValueError, match=message):
            of_process(make, X, [0, 1, 0])

    def test_batches_of_several_kinds(self):
        with pm.Model():
            gp = sg.SkewGP(cov_func=kernel())
        with pytest.raises(ValueError, match="batch_size is for data of one kind"):
            sg.find_hyperparameters(gp, [(X, [0, 1, 0], None), (X, [0, 1, 1], None)], batch_size=2)

    def test_a_likelihood_for_a_model(self):
        with pm.Model() as model:
            pass
        with pytest.raises(ValueError, match="X, y, likelihood and batch_size go with a SkewGP"):
            sg.find_hyperparameters(model, likelihood=sg.likelihoods.Gaussian(1.0))


def test_composite_likelihood_of_values():
    with pm.Model():
        gp = sg.SkewGP(cov_func=kernel())
        likelihood = sg.likelihoods.Gaussian(pm.HalfNormal("sigma", 1.0))
    data = TrainingData(gp, MANY, VALUES, likelihood)
    found = process_objective(data, 10, np.random.default_rng(0), None)
    point = Point(np.log([1.3, 0.8, 0.5]))
    truth = 0.0
    for x, _, _, value, *_ in found.objective.batches:
        cov = matern(x, 1.3, 0.8) + 0.25 * np.eye(10)
        truth += stats.multivariate_normal(cov=cov).logpdf(value)
    assert found.objective.by_ep(point).log_evidence == pytest.approx(truth, abs=1e-9)


class TestSelection:
    """Its noise of the outcome is learnt, and that of the selection stays 1."""

    Y = np.array([0.4, NAN, 1.1, NAN, -0.3, 0.8])
    INPUTS = np.linspace(-2.0, 2.0, 6)[:, None]

    def test_evidence_is_that_of_the_posterior(self):
        def make():
            return sg.likelihoods.Selection(pm.HalfNormal("sigma", 1.0), 0.5)

        objective = of_process(make, self.INPUTS, self.Y)
        found = objective.by_twisting(Point(np.log([1.3, 0.8, 0.5])), 4096, 0)
        with pm.Model():
            gp = sg.SkewGP(cov_func=kernel())
        posterior = gp.posterior(
            self.INPUTS,
            self.Y,
            likelihood=sg.likelihoods.Selection(0.5, 0.5),
            point={"eta": 1.3, "ls": 0.8},
            n_draws=4096,
        )
        truth = posterior.log_marginal_likelihood
        # Monte Carlo errors of both are of 1e-4. Selection noise of .5 would give another .5 nat.
        assert found.log_evidence == pytest.approx(truth.value, abs=5e-3)

    def test_batches_are_of_rows_that_there_are(self):
        with pm.Model():
            gp = sg.SkewGP(cov_func=kernel())
        data = TrainingData(gp, self.INPUTS, self.Y, sg.likelihoods.Selection(0.5, 0.5))
        found = process_objective(data, 3, np.random.default_rng(0), None)
        assert all(x.shape == (3, 1) for x, *_ in found.objective.batches)
