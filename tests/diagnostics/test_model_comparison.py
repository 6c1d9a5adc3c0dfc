"""`compare`: evidences against closed forms, weights against arithmetic, and every refusal."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from likelihood_oracles import function_grid
from scipy.stats import multivariate_normal, norm
from xarray import open_datatree

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of
from pymc_skewgp._diagnostics.approximations import ep_posterior, laplace_posterior

X = np.linspace(0.0, 3.0, 8)[:, None]
Y = np.sin(2.0 * X[:, 0])
LABELS = (Y > 0.2).astype(int)
QUIET = {"progressbar": False}
NOISE = sg.likelihoods.Gaussian(0.3)


def gp(ls):
    return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls))


def exact(ls, sigma=0.3):
    K = np.exp(-0.5 * (X - X.T) ** 2 / ls**2) + sigma**2 * np.eye(8)
    return multivariate_normal(np.zeros(8), K).logpdf(Y)


def model(ls, y=Y):
    """A Gaussian model with much noise, as leave-one-out asks for, whose evidence is known."""
    with pm.Model() as found:
        f = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ls=ls)).prior("f", X, jitter=0.0)
        pm.Normal("y", f, 1.0, observed=y)
    return found


def test_evidences_differences_and_weights():
    every = {ls: gp(ls).posterior(X, Y, likelihood=NOISE) for ls in (3.0, 0.8, 1.2)}
    table = sg.compare({f"ls {ls}": posterior for ls, posterior in every.items()})
    evidence = {f"ls {ls}": exact(ls) for ls in every}
    order = sorted(evidence, key=evidence.get, reverse=True)
    assert list(table.index) == order
    assert list(table["rank"]) == [0, 1, 2]
    value = np.array([evidence[name] for name in order])
    # Covariances of that size are factored to ten digits.
    np.testing.assert_allclose(table["log_evidence"], value, rtol=1e-8)
    np.testing.assert_allclose(table["log_evidence_diff"], value - value[0], atol=1e-7)
    weight = np.exp(value - value[0])
    np.testing.assert_allclose(table["weight"], weight / weight.sum(), rtol=1e-6)
    np.testing.assert_allclose(table[["log_evidence_se", "log_evidence_dse", "weight_se"]], 0.0)
    assert not table["warning"].any()
    assert "elpd" not in table


def test_errors_of_differences_and_weights():
    """As large as evidences of other seeds spread."""
    kinds = {"a": gp(0.5), "b": gp(2.0)}
    tables = [
        sg.compare(
            {
                name: own.posterior(X, LABELS, n_draws=32, random_seed=100 * seed + i)
                for i, (name, own) in enumerate(kinds.items())
            }
        ).loc["a"]
        for seed in range(40)
    ]
    for name, se in (("weight", "weight_se"), ("log_evidence", "log_evidence_se")):
        spread = np.std([x[name] for x in tables], ddof=1)
        claimed = np.sqrt(np.mean([x[se] ** 2 for x in tables]))
        # A standard deviation of forty numbers is known to 11 %, and each error to a fifth.
        assert 0.6 < spread / claimed < 1.6


def test_beside_leave_one_out(tmp_path):
    trees = {
        name: sg.integrate(model(ls), random_seed=1, **QUIET)
        for name, ls in (("long", 1.5), ("short", 0.8))
    }
    table = sg.compare(trees)
    for name, ls in (("long", 1.5), ("short", 0.8)):
        own = table.loc[name]
        assert abs(own["log_evidence"] - exact(ls, 1.0)) < 1e-6 + 4.5 * own["log_evidence_se"]
    theirs = az.compare(trees, round_to="none").loc[table.index]
    np.testing.assert_allclose(table["elpd"], theirs["elpd"])
    np.testing.assert_allclose(table["elpd_se"], theirs["se"])
    np.testing.assert_allclose(table["elpd_dse"], theirs["dse"])
    np.testing.assert_allclose(table["elpd_weight"], theirs["weight"])
    assert (table["elpd_warning"] == "").all()
    assert "elpd" not in sg.compare(trees, loo=False)
    trees["long"].to_netcdf(tmp_path / "long.nc")
    with open_datatree(tmp_path / "long.nc") as read:
        again = sg.compare({"long": read, "short": trees["short"]}, loo=False)
    np.testing.assert_allclose(again["weight"], table["weight"])


def test_leave_one_out_that_fails_is_in_the_table():
    """A value that f follows by itself: nothing else says where it would be without it."""
    y = np.where(np.arange(8) == 3, 30.0, Y)
    trees = {
        x: sg.integrate(model(ls, y), random_seed=1, **QUIET) for x, ls in (("a", 0.2), ("b", 0.3))
    }
    assert sg.compare(trees)["elpd_warning"].str.contains("> 0.70").all()


def test_a_posterior_its_draws_and_integrate_are_of_one_kind():
    posterior = gp(0.8).posterior(X, Y, likelihood=NOISE)
    table = sg.compare(
        {
            "posterior": posterior,
            "draws": posterior.sample(10, 2, random_seed=1),
            "integrate": sg.integrate(gp(0.8), X, Y, likelihood=NOISE, random_seed=1, **QUIET),
        }
    )
    np.testing.assert_allclose(table["log_evidence"], exact(0.8), rtol=1e-6)


def fit(**options):
    with pm.Model():
        own = gp(pm.LogNormal("ls"))
    given = {"random_seed": 1, "quiet": True, **QUIET, **options}
    return sg.find_hyperparameters(own, X, LABELS, **given)


class TestRefusalsAndWarnings:
    posterior = gp(0.8).posterior(X, Y, likelihood=NOISE)

    def test_what_has_no_evidence(self):
        with pm.Model():
            pm.Normal("y", pm.Normal("m"), observed=Y)
            chain = pm.sample_prior_predictive(
                draws=5, random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"}
            )
        chain["posterior"] = chain["prior"]
        with pytest.raises(ValueError, match=r"chain has no evidence: draws of pm\.sample"):
            sg.compare({"exact": self.posterior, "chain": chain})
        with pytest.raises(TypeError, match="other must be a result of integrate"):
            sg.compare({"exact": self.posterior, "other": 3.0})
        with pytest.raises(TypeError, match="results must be a mapping"):
            sg.compare([self.posterior])
        with pytest.raises(ValueError, match="two results at least"):
            sg.compare({"exact": self.posterior})

    def test_optima(self):
        one = fit()
        with pytest.raises(ValueError, match="fit has the evidence at an optimum"):
            sg.compare({"fit": one, "given": gp(1.0).posterior(X, LABELS)})
        with pytest.raises(ValueError, match="batches maximised a composite likelihood"):
            sg.compare({"fit": one, "batches": fit(batch_size=4)})
        table = sg.compare({"fit": one, "again": one})
        np.testing.assert_allclose(table["weight"], 0.5)

    def test_other_data(self):
        other = gp(0.8).posterior(X, Y + 1.0, likelihood=NOISE)
        fewer = gp(0.8).posterior(X[:5], Y[:5], likelihood=NOISE)
        with pytest.warns(sg.ComparisonWarning, match="other and one are of different data"):
            sg.compare({"one": self.posterior, "other": other})
        with pytest.warns(sg.ComparisonWarning, match=r"one: 8, fewer: 5"):
            sg.compare({"one": self.posterior, "fewer": fewer})

    @pytest.mark.parametrize("kind", ["posterior", "integrate"])
    def test_fractional_powers(self, kind):
        counts = np.arange(8) % 3

        def result(weights):
            likelihood = sg.likelihoods.Weighted(sg.likelihoods.Poisson(), weights)
            if kind == "posterior":
                return gp(0.8).posterior(X, counts, likelihood=likelihood)
            return sg.integrate(gp(0.8), X, counts, likelihood=likelihood, random_seed=1, **QUIET)

        whole = result(np.ones(8))
        sg.compare({"a": whole, "b": whole}, loo=False)
        with pytest.warns(sg.ComparisonWarning, match="the likelihood of b has powers"):
            sg.compare({"a": whole, "b": result(np.full(8, 0.5))}, loo=False)

    def test_flat_priors(self):
        def result(prior):
            with pm.Model() as flat:
                pm.Normal("y", prior("m"), 1.0, observed=Y)
            return sg.integrate(flat, random_seed=1, **QUIET)

        with pytest.warns(sg.ComparisonWarning, match="proper: none; flat: m"):
            sg.compare({"proper": result(pm.Normal), "flat": result(pm.Flat)}, loo=False)

    def test_areas(self):
        W = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
        cov = np.linalg.inv(2.0 * (np.diag(W.sum(axis=0)) - 0.5 * W))

        def result(make):
            with pm.Model() as model:
                pm.Normal("y", make(), 0.4, observed=[0.3, 1.0, 0.7])
            return sg.integrate(model, random_seed=1, **QUIET)

        car = result(lambda: pm.CAR("phi", np.zeros(3), W=W, alpha=0.5, tau=2.0))
        normal = result(lambda: pm.MvNormal("phi", np.zeros(3), cov))
        # One model: round-off.
        weights = sg.compare({"car": car, "normal": normal}, loo=False)["weight"]
        np.testing.assert_allclose(weights, 0.5, atol=1e-9)
        icar = result(lambda: pm.ICAR("phi", W=W))
        with pytest.warns(sg.ComparisonWarning, match="car: none; icar: phi"):
            sg.compare({"car": car, "icar": icar}, loo=False)


# `compare_approximations` under likelihoods of rows: against quadrature, and what it refuses.


X3 = np.array([[0.0], [0.7], [1.6]])
NEW = np.array([[0.4], [3.0]])
CUTS, SIGMA = np.array([-0.5, 0.9]), 0.7
ENDS = np.array([-np.inf, -0.5, 0.9, np.inf])
Y3 = np.array([1, 2, 0])
QUICK = {"draws": 200, "chains": 2, "random_seed": 1, "progressbar": False}


def prior(**kwargs):
    return sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0), **kwargs)


def kernel(X, Xs):
    return 4.0 * np.exp(-0.5 * (X - Xs.T) ** 2)


def log_p(f):
    p = norm.cdf((ENDS[Y3 + 1] - f) / SIGMA) - norm.cdf((ENDS[Y3] - f) / SIGMA)
    return np.log(np.maximum(p, 1e-300))


def test_rows_by_quadrature():
    found = sg.compare_approximations(
        prior(), X3, Y3, likelihood=of.OrderedProbit(CUTS, SIGMA), Xnew=NEW, **QUICK
    )
    table = found.table
    assert table.index.tolist() == ["exact", "lin_ess", "ep", "laplace"]
    assert (table["failure"] == "").all()
    grid = function_grid(np.zeros(3), kernel(X3, X3), lambda f: log_p(f).sum(axis=1))
    exact = table.loc["exact"]
    assert abs(exact["evidence"] - grid.log_evidence) < 4 * exact["evidence_se"] + 1e-5
    # What the two Gaussians say of the categories, and quadrature, at the new points.
    gain = np.linalg.solve(kernel(X3, X3), kernel(X3, NEW))
    left = 4.0 - np.einsum("ij,ij->j", kernel(X3, NEW), gain)
    s = np.sqrt(left + SIGMA**2)
    mean = gain.T @ grid.f
    edges = [norm.cdf((b - mean) / s[:, None]) @ grid.mass for b in ENDS]
    truth = np.diff(np.stack(edges, axis=1), axis=1)
    assert "p" not in found.trees["ep"]["predictions"]
    posterior = prior().posterior(X3, Y3, likelihood=of.OrderedProbit(CUTS, SIGMA))
    for name, method in (("ep", ep_posterior), ("laplace", laplace_posterior)):
        gaussian = method(posterior.prior, X3, Y3, NEW, of.OrderedProbit(CUTS, SIGMA))
        m, v = gaussian.mean[3:], gaussian.cov.diagonal()[3:]
        edges = [norm.cdf((b - m) / np.sqrt(v + SIGMA**2)) for b in ENDS]
        p = np.diff(np.stack(edges, axis=1), axis=1)
        row = table.loc[name]
        assert row["evidence"] == gaussian.log_evidence
        # The reference has 2048 draws: its own errors, and five of them.
        assert abs(row["p_error"] - np.abs(p - truth).mean()) < 5 * row["p_error_se"]
    # 400 draws: three times the noise that they should have is no accident.
    assert table.loc["exact", "p_error"] < 3 * table.loc["exact", "p_error_noise"]


@pytest.mark.parametrize(
    ("y", "likelihood", "forecasts"),
    [
        (np.array([0.4, 1.2, 0.0]), of.CensoredGaussian(SIGMA, lower=0.0), True),
        (np.array([0.4, 1.2, 0.0]), of.Gaussian(SIGMA), False),
    ],
)
def test_other_likelihoods(y, likelihood, forecasts):
    table = sg.compare_approximations(
        prior(), X3, y, likelihood=likelihood, methods=["exact", "ep", "laplace"], **QUICK
    ).table
    assert (table["failure"] == "").all()
    assert np.isfinite(table["wasserstein"]).all()
    assert np.isfinite(table["p_error"]).all() == forecasts
    assert abs(table.loc["ep", "evidence"] - table.loc["exact", "evidence"]) < 0.1
    if not forecasts:  # regression: both are exact
        assert table.loc["laplace", "evidence"] == pytest.approx(table.loc["exact", "evidence"])
        assert table.loc["ep", "wasserstein"] < 1e-3


def test_several_functions():
    """Three classes at three points: EP's class probabilities by quadrature over its Gaussian."""
    likelihood = of.MultinomialProbit()
    found = sg.compare_approximations(
        prior(), X3, Y3, likelihood=likelihood, methods=["exact", "lin_ess", "ep", "laplace"],
        Xnew=NEW, **QUICK
    )  # fmt: skip
    table, t = found.table, 2
    assert (table["failure"] == "").all()
    assert found.trees["exact"]["posterior"]["f"].dims == ("chain", "draw", "obs_id", "category")
    assert "predictions" in found.trees["ep"]
    assert table[["information", "brier"]].isna().all(axis=None)
    posterior = prior().posterior(X3, Y3, likelihood=likelihood, n_draws=4096)
    evidence = posterior.log_marginal_likelihood
    assert abs(table.loc["ep", "evidence"] - evidence.value) < 0.05
    gaussian = ep_posterior(posterior.prior, X3, Y3, NEW, likelihood)
    cov = gaussian.cov[-3 * t :, -3 * t :].reshape(t, 3, t, 3)
    mean = gaussian.mean[-3 * t :].reshape(t, 3)
    # Where noise makes c the winner: two differences below 0, by Genz's closed form.
    p = np.empty((t, 3))
    for i, c in np.ndindex(t, 3):
        W = np.delete(np.eye(3), c, axis=0) - np.eye(3)[c]
        spread = W @ (cov[i, :, i] + np.eye(3)) @ W.T
        p[i, c] = multivariate_normal(W @ mean[i], spread).cdf([0.0, 0.0])
    exact = posterior.predict(NEW, draws=0)["predictions_summary"]
    wanted = np.abs(p - exact["p_mean"].values).mean()
    # Two independent references, of 2048 and 4096 draws: 6 standard errors of the rougher one.
    assert abs(table.loc["ep", "p_error"] - wanted) < 6 * table.loc["ep", "p_error_se"]
    # 400 draws: three times the noise that they should have is no accident.
    for name in ("exact", "lin_ess"):
        assert table.loc[name, "p_error"] < 3 * table.loc[name, "p_error_noise"]


def test_what_only_labels_have():
    likelihood = of.OrderedProbit(CUTS, SIGMA)
    table = sg.compare_approximations(
        prior(), X3, Y3, likelihood=likelihood, methods=["advi", "hsgp_nuts"], **QUICK
    ).table
    assert table["failure"].str.contains("PyMC's methods are compared on labels").all()
    with pytest.raises(ValueError, match="scores are of labels"):
        sg.compare_approximations(
            prior(), X3, Y3, likelihood=likelihood, Xnew=NEW, ynew=[0, 1], **QUICK
        )
    with pytest.raises(TypeError, match=r"object of pymc_skewgp\.likelihoods"):
        sg.compare_approximations(prior(), X3, Y3, likelihood="ordered", **QUICK)


def test_sites_by_default():
    """Counts have no rows for lin-ess, and PyMC's methods only where they are asked for."""
    table = sg.compare_approximations(
        prior(), X3, [0, 2, 1], likelihood=sg.likelihoods.Poisson(), **QUICK
    ).table
    assert table.index.tolist() == ["exact", "ep", "laplace"]
    assert (table["failure"] == "").all()
