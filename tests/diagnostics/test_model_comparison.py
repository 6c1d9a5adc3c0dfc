"""`compare`: evidences against closed forms, weights against arithmetic, and every refusal."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.stats import multivariate_normal
from xarray import open_datatree

import pymc_skewgp as sg

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
