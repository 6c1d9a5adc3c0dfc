"""`integrate` against closed forms and quadrature over the hyperparameters."""

import logging
import re

import joblib
import numpy as np
import pymc as pm
import pytest
from oracles import orthant
from scipy import stats

import pymc_skewgp as sg
from pymc_skewgp import integrate
from pymc_skewgp._learn.averaging import surrogate
from pymc_skewgp._learn.averaging.importance import IntegrationSettings
from pymc_skewgp._learn.averaging.integration import CHAINS, integral_by_ep
from pymc_skewgp._learn.averaging.points import exact_points
from pymc_skewgp._learn.averaging.problem import integration_problem
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._model.graph.collapsed import parts_of_model

QUIET = {"progressbar": False}
FEW = {**QUIET, "n_evidences": 96}
# Nodes of Gauss-Legendre quadrature over a log-normal or inverse gamma lengthscale.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)


def line(low, high):
    """Nodes and weights on an interval."""
    return low + 0.5 * (high - low) * (NODES + 1.0), 0.5 * (high - low) * WEIGHTS


def rbf(a, b, ls, variance=1.0):
    return variance * np.exp(-0.5 * ((a[:, None] - b) / ls) ** 2)


def agrees(estimate, exact, sd):
    """Within four standard errors: a false alarm in some thousands."""
    return abs(estimate - exact) < 4.0 * sd


def mean_with_error(dt, name, function=lambda x: x):
    """Posterior mean, and its standard error for points as many as there are evidences."""
    values = function(dt["posterior"][name].values)
    return values.mean(), values.std() / np.sqrt(dt["posterior"].attrs["n_evidences"])


X5 = np.array([-1.0, -0.3, 0.2, 0.9, 2.0])
Y5 = np.array([-0.9, -0.5, 0.1, 0.8, 1.1])


@pytest.fixture(scope="module")
def regression():
    """`pm.gp.Marginal`'s density by quadrature over a lengthscale and the noise."""
    log_ls, w = line(-3.5, 4.5)
    log_sigma, v = line(-6.0, 2.5)
    ls, sigma = np.exp(log_ls), np.exp(log_sigma)
    prior = stats.invgamma(3, scale=2).pdf(ls) * ls * w
    prior = prior[:, None] * stats.halfnorm(scale=0.5).pdf(sigma) * sigma * v
    p, mean = np.empty(prior.shape), np.empty(prior.shape)
    for i, a in enumerate(ls):
        K, k = rbf(X5, X5, a, 1.5), rbf(np.array([0.5]), X5, a, 1.5)[0]
        values, vectors = np.linalg.eigh(K)
        for j, s in enumerate(sigma):
            white = vectors.T @ Y5 / (values + s**2)
            p[i, j] = np.exp(-0.5 * (vectors.T @ Y5) @ white) / np.sqrt(
                np.prod(2.0 * np.pi * (values + s**2))
            )
            mean[i, j] = k @ vectors @ white
    joint = prior * p
    total = joint.sum()
    return {
        "log_evidence": np.log(total),
        "ls": (joint.sum(axis=1) @ ls) / total,
        "sigma": (joint.sum(axis=0) @ sigma) / total,
        "f": (joint * mean).sum() / total,
    }


class TestGaussian:
    """Under a Gaussian likelihood EP is exact."""

    def priors(self):
        ls = pm.InverseGamma("ls", alpha=3, beta=2)
        sigma = pm.HalfNormal("sigma", sigma=0.5)
        return 1.5 * pm.gp.cov.ExpQuad(1, ls=ls), sigma

    def check(self, dt, truth):
        stats_of = dt["posterior"].attrs
        assert agrees(stats_of["log_evidence"], truth["log_evidence"], stats_of["log_evidence_se"])
        assert stats_of["log_evidence_se"] < 0.05
        assert stats_of["relative_ess"] > 0.5
        # EP's evidence is exact, but interpolated between points, to .02 nats.
        assert stats_of["relative_ess_exact"] == pytest.approx(1.0, abs=5e-4)
        for name in ("ls", "sigma"):
            mean, se = mean_with_error(dt, name)
            assert agrees(mean, truth[name], se)

    def test_of_a_process(self, regression):
        with pm.Model():
            kernel, sigma = self.priors()
            gp = sg.SkewGP(cov_func=kernel)
        dt = integrate(
            gp,
            X5[:, None],
            Y5,
            likelihood=sg.likelihoods.Gaussian(sigma),
            Xnew=[[0.5]],
            random_seed=1,
            **FEW,
        )
        self.check(dt, regression)
        f = dt["predictions"]["f"].values
        assert agrees(
            f.mean(), regression["f"], f.std() / np.sqrt(dt["posterior"].attrs["n_evidences"])
        )
        assert dict(dt["predictions"]["y"].sizes) == {"chain": 4, "draw": 1000, "pred_id": 1}
        new = dt["predictions_summary"]
        assert agrees(float(new["y_mean"][0]), regression["f"], float(new["y_mean_se"][0]))
        assert dt["log_likelihood"]["y"].shape == (4, 1000, 5)
        # Its result is continued to new inputs, with f and X from it.
        later = gp.sample_latent(dt, Xnew=[[0.5]], random_seed=2, **QUIET)["predictions"]["f"]
        # 4000 draws of f given the same f at X: five standard errors of their difference.
        assert abs(later.values.mean() - f.mean()) < 5 * f.std() * np.sqrt(2 / 4000)
        assert later.values.std() == pytest.approx(f.std(), rel=5 / np.sqrt(4000))

    # Of five rows: the precision's mean is infinite.
    @pytest.mark.filterwarnings("ignore::pymc_skewgp.HeavyTailWarning")
    def test_of_a_model(self, regression):
        with pm.Model(coords={"row": range(5)}) as model:
            kernel, sigma = self.priors()
            gp = sg.SkewGP(cov_func=kernel)
            x = pm.Data("x", X5, dims="row")
            f = gp.prior("f", x[:, None], dims="row")
            pm.Deterministic("precision", sigma**-2)
            pm.Deterministic("largest", f.max())
            pm.Normal("y", f, sigma, observed=Y5, dims="row")
        dt = integrate(model, draws=500, chains=2, random_seed=2, **FEW)
        self.check(dt, regression)
        posterior = dt["posterior"]
        assert posterior["f"].dims == ("chain", "draw", "row")
        np.testing.assert_array_equal(dt["observed_data"]["y"], Y5)
        assert dt["observed_data"]["y"].dims == ("row",)
        np.testing.assert_array_equal(dt["constant_data"]["x"], X5)
        np.testing.assert_allclose(posterior["precision"], posterior["sigma"] ** -2.0)
        np.testing.assert_allclose(posterior["largest"], posterior["f"].max("row"))
        # The log likelihood is that of the draw's own f and noise.
        expected = stats.norm(posterior["f"], posterior["sigma"].values[..., None]).logpdf(Y5)
        np.testing.assert_allclose(dt["log_likelihood"]["y"], expected, rtol=1e-6)
        new = gp.sample_latent(dt, Xnew=[[0.5]], random_seed=1, **QUIET)
        f_new = new["predictions"]["f"].values
        se = f_new.std() / np.sqrt(dt["posterior"].attrs["n_evidences"])
        assert agrees(f_new.mean(), regression["f"], se)


X3, SIGNS = np.array([-0.5, 0.1, 0.8]), np.array([1.0, -1.0, 1.0])
VARIANCE = 25.0


def signed_gram(x, signs, ls):
    G = rbf(x, x, ls, VARIANCE) + np.eye(len(x))
    return signs[:, None] * G * signs


@pytest.fixture(scope="module")
def labels():
    """Orthants in closed form, the lengthscale by quadrature."""
    log_ls, w = line(-5.0, 6.0)
    ls = np.exp(log_ls)
    prior = stats.lognorm(1.0).pdf(ls) * ls * w
    p = np.array([orthant(signed_gram(X3, SIGNS, a)) for a in ls])
    two = np.array([orthant(signed_gram(X3[:2], SIGNS[:2], a)) for a in ls])
    both = np.append(SIGNS[:2], 1.0)
    new = np.array([orthant(signed_gram(X3, both, a)) for a in ls])
    return {
        "log_evidence": np.log(prior @ p),
        "log_ls": (prior * p) @ log_ls / (prior @ p),
        "two": np.log(prior @ two),
        "p_new": (prior @ new) / (prior @ two),
    }


@pytest.fixture(scope="module")
def problem():
    return integration_problem(TrainingData(TestProbit().model(3)[0]), None, None)


class TestProbit:
    """A variance so large that EP errs."""

    def model(self, n, collapsed=False):
        with pm.Model() as model:
            ls = pm.LogNormal("ls", 0.0, 1.0)
            gp = sg.SkewGP(cov_func=VARIANCE * pm.gp.cov.ExpQuad(1, ls=ls))
            X, y = X3[:n, None], (SIGNS[:n] > 0).astype(int)
            if collapsed:
                gp.marginal_likelihood("y", X, y)
            else:
                sg.BernoulliProbit("y", gp.prior("f", X), observed=y)
        return model, gp, X, y

    # Three labels bound no lengthscale: its index is .81.
    @pytest.mark.filterwarnings("ignore::pymc_skewgp.HeavyTailWarning")
    @pytest.mark.parametrize("collapsed", [False, True])
    def test_evidence(self, labels, collapsed):
        model, *_ = self.model(3, collapsed)
        dt = integrate(model, draws=200, random_seed=3, **FEW)
        found = dt["posterior"].attrs
        assert agrees(found["log_evidence"], labels["log_evidence"], found["log_evidence_se"])
        assert found["log_evidence_se"] < 0.05
        mean, se = mean_with_error(dt, "ls", np.log)
        assert agrees(mean, labels["log_ls"], se)
        assert ("f" in dt["posterior"]) != collapsed

    # The index of the tail is .66 by quadrature, which points tell to .05: some say more than .7.
    @pytest.mark.filterwarnings("ignore::pymc_skewgp.HeavyTailWarning")
    def test_prediction(self, labels):
        _, gp, X, y = self.model(2)
        dt = integrate(gp, X, y, Xnew=X3[2:, None], random_seed=4, **QUIET)
        found = dt["posterior"].attrs
        assert agrees(found["log_evidence"], labels["two"], found["log_evidence_se"])
        p = dt["predictions"]["p"].values
        assert agrees(p.mean(), labels["p_new"], p.std() / np.sqrt(found["n_evidences"]))
        assert found["rung"] == 1

    def test_standard_errors_are_honest(self, labels, problem):
        """z scores of twelve runs of one compiled problem."""
        settings = IntegrationSettings(n_evidences=32, n_points=96, enough=64)
        z = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            by_ep = integral_by_ep(problem, settings, rng)
            exact = exact_points(problem.latent, by_ep.points, 32, 10.0, 64, rng).correction()
            error = by_ep.log_integral.value + exact.value - labels["log_evidence"]
            z.append(error / np.hypot(by_ep.log_integral.std_error, exact.std_error))
        # The sum of 12 squares exceeds 35 once in 2000 by normal z, once in 300 by t(15).
        assert np.square(z).sum() < 35

    def test_too_many_rows_for_chains(self, problem):
        """Importance sampling alone, though there are too many coordinates for it."""
        settings = IntegrationSettings(most_coordinates=0, most_rows_of_chains=1)
        by_ep = integral_by_ep(problem, settings, np.random.default_rng(0))
        assert by_ep.rung < CHAINS

    def test_each_fallback_says_why(self, problem, caplog, monkeypatch):
        """No weights are good enough here."""
        monkeypatch.setattr(surrogate, "_MOST_REPAIRS", 0)  # they would not help
        settings = IntegrationSettings(least_ess=2.0, more_rounds=5, most_rows_of_chains=1)
        with caplog.at_level(logging.INFO, "pymc.pymc_skewgp"):
            integral_by_ep(problem, settings, np.random.default_rng(0))
        first, second = caplog.messages
        assert re.search(r"importance sampling: relative ESS .*more rounds, which .*start=", first)
        assert re.search(r"more rounds: relative ESS .* Next is surrogate, .*method=", second)

    def test_same_seed_same_draws(self):
        """In other processes as well: threads here, for these start at once."""
        model, *_ = self.model(2)
        options = {"draws": 20, "n_evidences": 32, "random_seed": 9}
        one = integrate(model, **options, **QUIET)
        with joblib.parallel_config(backend="threading"):
            two = integrate(model, n_jobs=2, **options, **QUIET)
        np.testing.assert_array_equal(one["posterior"]["f"], two["posterior"]["f"])


def test_random_phase():
    """A binary variable, whose values are both tried: closed forms throughout."""
    X, r, ls = np.array([0.2, 0.7]), np.array([0.5]), 0.8
    with pm.Model() as model:
        level = pm.HalfNormal("level", 1.0)
        positive = pm.Bernoulli("positive", 0.3, shape=1)
        gp = sg.SkewGP(
            cov_func=(0.2 + level) ** 2 * pm.gp.cov.ExpQuad(1, ls=ls),
            pseudo_points=r[:, None],
            phase=2 * positive - 1,
        )
        sg.BernoulliProbit("y", gp.prior("f", X[:, None], jitter=0.0), observed=[1, 1])
    nodes, w = line(0.0, 8.0)
    prior = stats.halfnorm().pdf(nodes) * w
    x, noise = np.concatenate([r, X]), np.diag([0.0, 1.0, 1.0])
    p = []
    for phase in (-1.0, 1.0):
        signs = np.array([phase, 1.0, 1.0])
        grams = [signs[:, None] * (rbf(x, x, ls, (0.2 + a) ** 2) + noise) * signs for a in nodes]
        p.append(prior @ [orthant(G) / 0.5 for G in grams])
    joint = np.array([0.7, 0.3]) * p
    dt = integrate(model, draws=500, random_seed=5, **FEW)
    found = dt["posterior"].attrs
    assert agrees(found["log_evidence"], np.log(joint.sum()), found["log_evidence_se"])
    share = joint[1] / joint.sum()
    se = np.sqrt(share * (1 - share) / found["n_evidences"])
    assert agrees(dt["posterior"]["positive"].values.mean(), share, se)


def test_counts():
    """A likelihood that is no rows: one count, by quadrature over f and its standard deviation."""
    with pm.Model():
        level = pm.HalfNormal("level", 1.0)
        gp = sg.SkewGP(cov_func=(0.3 + level) ** 2 * pm.gp.cov.ExpQuad(1, ls=1.0))
    nodes, w = line(0.0, 8.0)
    prior = stats.halfnorm().pdf(nodes) * w
    x, v = np.polynomial.hermite_e.hermegauss(60)
    f = (0.3 + nodes[:, None]) * x
    p = stats.poisson.pmf(3, np.exp(f)) * v / v.sum()
    joint = prior @ p.sum(axis=1)
    options = {"draws": 500, "chains": 2, "n_evidences": 128, "random_seed": 1, **QUIET}
    options["likelihood"] = lambda eta: pm.Poisson.dist(pm.math.exp(eta))
    dt = integrate(gp, [[0.0]], [3], **options)
    found = dt["posterior"].attrs
    assert agrees(found["log_evidence"], np.log(joint), found["log_evidence_se"])
    mean, se = mean_with_error(dt, "f")
    assert agrees(mean, prior @ (p * f).sum(axis=1) / joint, se)
    mean, se = mean_with_error(dt, "level")
    assert agrees(mean, (prior * nodes) @ p.sum(axis=1) / joint, se)


@pytest.mark.parametrize("in_model", [False, True])
def test_without_hyperparameters(in_model):
    X, y = X3[:, None], [1, 0, 1]
    exact = np.log(orthant(signed_gram(X3, SIGNS, 1.0)))
    gp = sg.SkewGP(cov_func=VARIANCE * pm.gp.cov.ExpQuad(1, ls=1.0))
    if in_model:
        with pm.Model():
            sg.BernoulliProbit("y", gp.prior("f", X), observed=y)
            dt = integrate(draws=100, random_seed=1, **QUIET)
    else:
        dt = integrate(gp, X, y, draws=100, random_seed=1, **QUIET)
    found = dt["posterior"].attrs
    assert found["rung"] == 0
    assert agrees(found["log_evidence"], exact, max(found["log_evidence_se"], 1e-6))
    assert np.unique(dt["posterior"]["f"].values[..., 0]).size == 400


@pytest.mark.parametrize("method", ["auto", "nuts"])
def test_binary_hyperparameters_alone(method):
    """The sum over both values, in closed form."""
    X, y = X3[:, None], [1, 0, 1]
    with pm.Model():
        b = pm.Bernoulli("b", 0.3)
        gp = sg.SkewGP(cov_func=VARIANCE * pm.gp.cov.ExpQuad(1, ls=0.2 + 2.0 * b))
    joint = [0.7, 0.3] * np.array([orthant(signed_gram(X3, SIGNS, ls)) for ls in (0.2, 2.2)])
    dt = integrate(gp, X, y, draws=200, method=method, random_seed=1, **QUIET)
    found = dt["posterior"].attrs
    assert found["rung"] == 0
    assert found["n_evidences"] == 2
    assert found["log_evidence_se"] < 0.02
    assert agrees(found["log_evidence"], np.log(joint.sum()), found["log_evidence_se"])
    # Counts of 256 points, then of 200 draws in each chain: no more than a fiftieth off.
    share = joint[1] / joint.sum()
    assert dt["posterior"]["b"].values.mean() == pytest.approx(share, abs=0.02)


def test_counts_of_a_smooth_function():
    """Covariances of another rank at each lengthscale; evidences by posteriors on a grid."""
    X, y = np.linspace(0.0, 1.0, 12)[:, None], np.array([0, 1, 1, 3, 2, 5, 4, 4, 7, 5, 9, 8])
    with pm.Model():
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.InverseGamma("ls", alpha=3, beta=2)))
        pm.Poisson("y", pm.math.exp(gp.prior("f", X)), observed=y)
        found = integrate(draws=100, random_seed=1, **FEW)["posterior"].attrs
    grid = np.geomspace(0.05, 60.0, 30)
    options = {"likelihood": sg.likelihoods.Poisson(), "random_seed": 0}
    posteriors = [gp.posterior(X, y, point={"ls": x}, **options) for x in grid]
    each = [x.log_marginal_likelihood.value for x in posteriors]
    joint = np.exp(np.array(each) - max(each)) * stats.invgamma(3, scale=2.0).pdf(grid) * grid
    true = max(each) + np.log(np.trapezoid(joint, np.log(grid)))
    # Five standard errors, and the rule's: of twice as many points it differs by 1e-4.
    assert abs(found["log_evidence"] - true) < 5 * found["log_evidence_se"] + 2e-3 < 0.1


def test_chains_leave_the_users_model_as_it_is(monkeypatch):
    few = IntegrationSettings(chains=2, tune=30, draws=30, largest_r_hat=9.0, least_effective=1)
    monkeypatch.setattr("pymc_skewgp._learn.integrate._DEFAULT", few)
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1.0)
        pm.Normal("y", pm.Normal("b", 0.0, sd), 0.5, observed=[0.3, 0.8])
        found = integrate(model, method="nuts", draws=50, random_seed=1, **QUIET)
    assert found["posterior"].attrs["rung"] > 0
    assert [rv.name for rv in model.free_RVs] == ["sd", "b"]


class TestStarts:
    """Where the modes are looked for does not change what is found."""

    def ordinal(self, **options):
        x = np.linspace(-2.0, 2.0, 8)
        with pm.Model() as model:
            ls = pm.InverseGamma("ls", 3, 2, **({"initval": 0.8} if options else {}))
            ordered = pm.distributions.transforms.ordered
            cuts = pm.Normal("cuts", 0.0, 2.0, shape=2, transform=ordered, **options)
            f = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls)).prior("f", x[:, None])
            pm.OrderedProbit("y", eta=f, cutpoints=cuts, observed=[0, 0, 1, 0, 1, 2, 2, 1])
        return model

    def test_ordered_cut_points_with_and_without_initval(self):
        """All start at one place by PyMC's default, where there is no density."""
        model = self.ordinal(initval=[-1.0, 1.0])
        before = dict(model.rvs_to_initial_values)
        options = {"draws": 50, "n_evidences": 32, **QUIET}
        given = integrate(model, random_seed=1, **options)
        assert model.rvs_to_initial_values == before
        found = integrate(self.ordinal(), random_seed=2, **options)
        one, other = given["posterior"].attrs, found["posterior"].attrs
        error = np.hypot(one["log_evidence_se"], other["log_evidence_se"])
        assert agrees(one["log_evidence"], other["log_evidence"], error)
        assert "y" in given["log_likelihood"]
        cuts = found["posterior"]["cuts"].to_numpy()
        assert (cuts[..., 0] < cuts[..., 1]).all()

    def test_a_start_outside_names_the_way_out(self):
        with pytest.raises(ValueError, match=r"outside of the support of cuts.*initval"):
            integrate(self.ordinal(), start={"cuts": [1.0, -1.0]}, **QUIET)


def test_standard_errors_with_few_rows_are_honest():
    """Five values, a vanishing scale among the hyperparameters: twelve runs against quadrature.

    In thousandths of the prior's quantiles the likelihood is smooth: the midpoint rule in two
    dimensions is right to 1e-4.
    """
    q = (np.arange(200) + 0.5) / 200
    etas, sigmas = stats.halfcauchy(scale=1.0).ppf(q), stats.halfnorm(scale=1.0).ppf(q)
    values, vectors = np.linalg.eigh(rbf(X5, X5, 0.8))
    variances = etas[:, None, None] ** 2 * values + sigmas[:, None] ** 2
    white = (vectors.T @ Y5) ** 2 / variances
    likelihood = np.exp(-0.5 * (white + np.log(2.0 * np.pi * variances)).sum(axis=2))
    right = np.log(likelihood.mean())
    with pm.Model():
        kernel = pm.HalfCauchy("eta", 1.0) ** 2 * pm.gp.cov.ExpQuad(1, ls=0.8)
        sigma = pm.HalfNormal("sigma", 1.0)
        gp = sg.SkewGP(cov_func=kernel)
    data = TrainingData(gp, X5[:, None], Y5, sg.likelihoods.Gaussian(sigma))
    problem = integration_problem(data, None, None)
    settings = IntegrationSettings(n_evidences=64, n_points=96, enough=96)
    found = [integral_by_ep(problem, settings, np.random.default_rng(seed)) for seed in range(12)]
    z = np.array([(x.log_integral.value - right) / x.log_integral.std_error for x in found])
    # Of t with 15 degrees of freedom: false alarms below 1 in 1000 each.
    assert np.square(z).sum() < 40
    assert np.abs(z).max() < 4.5


def test_a_tail_that_draws_hardly_meet_is_warned_of():
    """Of a precision of effects under normal noise: its density is known up to a constant.

    Mean of the log of the distance from the median over its .9 quantile, beyond that: by a grid
    1.48; the warning, which is an error in the other tests, comes above .7.
    """
    y = np.array([-1.2, 0.4, 0.9, -0.3, 0.1, 1.4, -0.8, 0.2])
    log_tau = np.linspace(-9.0, 12.0, 40_001)
    tau = np.exp(log_tau)
    sd = np.sqrt(1.0 / tau + 0.25)
    log_p = stats.norm.logpdf(y[:, None], 0.0, sd).sum(axis=0)
    log_p += stats.gamma.logpdf(tau, 0.001, scale=1000.0) + log_tau
    weights = np.exp(log_p - log_p.max())
    weights /= weights.sum()
    distance = np.abs(tau - np.interp(0.5, np.cumsum(weights), tau))
    order = np.argsort(distance)
    least = np.interp(0.9, np.cumsum(weights[order]), distance[order])
    far = distance > least
    index = weights[far] @ np.log(distance[far] / least) / weights[far].sum()
    assert index > 0.7
    with pm.Model() as model:
        effects = pm.Normal("u", 0.0, tau=pm.Gamma("tau", 0.001, 0.001), shape=y.size)
        pm.Normal("y", effects, 0.5, observed=y)
    with pytest.warns(sg.HeavyTailWarning) as caught:
        found = sg.integrate(model, random_seed=0, progressbar=False)["posterior"]
    assert found.attrs["heavy_tails"] == "tau"
    assert len(caught) == 1


class TestAgain:
    """A model that was read is not read again, as long as it stays as it is."""

    @staticmethod
    def model(x, y):
        with pm.Model() as found:
            x, y = pm.Data("x", x), pm.Data("counts", y)
            slope, sd = pm.Normal("slope"), pm.HalfNormal("sd")
            own = pm.Normal("own", 0.0, sd, shape=x.shape)
            pm.Poisson("y", pm.math.exp(slope * x + own), observed=y)
        return found

    def test_second_call(self, monkeypatch):
        read = []

        def counting(*args, **options):
            read.append(args)
            return parts_of_model(*args, **options)

        place = "pymc_skewgp._learn.averaging.problem.parts_of_model"
        monkeypatch.setattr(place, counting)
        x, y = np.linspace(-1.0, 1.0, 8), np.array([0, 1, 0, 2, 1, 3, 2, 4])
        model = self.model(x, y)
        known = {**QUIET, "n_evidences": 16, "draws": 20, "random_seed": 1}
        first, second = (integrate(model, **known) for _ in range(2))
        assert len(read) == 1
        assert first["posterior"].equals(second["posterior"])
        assert first["log_likelihood"].equals(second["log_likelihood"])
        # Other data, and more of them: as a model that was never read with these.
        more = np.append(x, 1.5), np.append(y[::-1], 7)
        pm.set_data({"x": more[0], "counts": more[1]}, model=model)
        third, new = integrate(model, **known), integrate(self.model(*more), **known)
        assert len(read) == 3
        for group in ("posterior", "log_likelihood", "observed_data", "constant_data"):
            assert third[group].equals(new[group])

    def test_of_what_pymc_makes_of_it(self):
        """The value of `pm.do` counts, and not that which was integrated out before."""
        model = self.model(np.linspace(-1.0, 1.0, 8), np.arange(8))
        integrate(model, **QUIET, n_evidences=16, draws=20, random_seed=1)
        known = integrate(pm.do(model, {"slope": 2.0}), **FEW, random_seed=1)["posterior"]
        assert "slope" not in known
        with model:  # far from where the data are
            pm.Potential("near", -0.5 * ((model["slope"] - 5.0) / 0.01) ** 2)
        found = integrate(model, **FEW, random_seed=1)["posterior"]["slope"]
        assert abs(found - 5.0).max() < 0.1  # ten deviations


@pytest.mark.parametrize("seed", range(3))
def test_points_of_hyperparameters_tell_more_than_independent_draws(seed):
    """A deviation of effects under known noise: points in exact quadrature's place."""
    y = np.array([2.1, -0.4, 0.3, -1.7, 0.9, 1.4])
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 2.0)
        theta = pm.Normal("theta", 0.0, tau, shape=6)
        pm.Normal("y", theta, 1.0, observed=y)
    nodes, weights = line(0.0, 14.0)
    sd = np.sqrt(1.0 + nodes[:, None] ** 2)
    joint = weights * stats.halfnorm.pdf(nodes, 0.0, 2.0) * stats.norm.pdf(y, 0.0, sd).prod(axis=1)
    p = joint / joint.sum()
    mean = p @ nodes
    drawn = integrate(model, random_seed=seed, **QUIET)["posterior"]
    # A fifth of what 1,000 independent draws are off by, four of these: one in 16,000.
    error = 4.0 * np.sqrt(p @ (nodes - mean) ** 2 / 1000.0) / 5.0
    assert abs(float(drawn["tau"].mean()) - mean) < error
    attributes = drawn.attrs
    exact = np.log(joint.sum())
    assert agrees(attributes["log_evidence"], exact, attributes["log_evidence_se"])
