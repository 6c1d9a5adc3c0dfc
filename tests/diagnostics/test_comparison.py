"""The table of `compare_approximations`, column by column, against computations of its own.

Two labels under N(0, 4) with a squared exponential kernel, and two more points with labels: there
exact marginals come from a quadrature rule, EP and Laplace from dense implementations.
"""

import logging
import re

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from approximation_oracles import continued, exact_marginals, numerical_laplace, rbf, sequential_ep
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

import pymc_skewgp as sg
from pymc_skewgp import Comparison, compare_approximations
from pymc_skewgp._diagnostics import comparison
from pymc_skewgp._diagnostics.approximations import METHODS, Approximation, from_draws
from pymc_skewgp._diagnostics.marginals import DrawnMarginals
from pymc_skewgp._diagnostics.measures import Standard, as_summary, as_table, measured
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior.output import LatentMarginals

X, NEW = np.array([[0.0], [0.8]]), np.array([[0.4], [2.0]])
Y, YNEW = np.array([1, 0]), np.array([1, 1])
K = rbf(4.0)(np.vstack([X, NEW]))
SIGN = 2.0 * Y - 1.0
EXACT = exact_marginals(K, SIGN)
PROBS = (0.5, 0.8, 0.89, 0.95)
MEASURES = ("evidence", *(f"coverage_{100 * p:.0f}" for p in PROBS))
DISTANCES = ("wasserstein", "skewness_error", "p_error")
COLUMNS = [name for m in MEASURES for name in (m, f"{m}_se")]
COLUMNS += [name for m in DISTANCES for name in (m, f"{m}_se", f"{m}_noise")]
COLUMNS += ["information", "brier", "ess_per_second", "seconds", "failure"]


def kernel(variance=4.0):
    return variance * pm.gp.cov.ExpQuad(1, ls=1.0)


def compare(X=X, Y=Y, cov=None, mean_func=None, **options):
    gp = sg.SkewGP(cov_func=kernel() if cov is None else cov, mean_func=mean_func)
    quick = {"progressbar": False, "draws": 500, "random_seed": 0}
    return compare_approximations(gp, X, Y, **(quick | options))


@pytest.fixture(scope="module")
def result():
    return compare(Xnew=NEW, ynew=YNEW, methods=["exact", "lin_ess", "ep", "laplace"])


class TestTable:
    def test_rows_and_columns(self, result):
        table, trees = result
        assert table.columns.tolist() == COLUMNS
        assert table.index.tolist() == ["exact", "lin_ess", "ep", "laplace"]
        assert table.index.name == "method"
        assert table["failure"].tolist() == [""] * 4
        assert (table["seconds"] > 0).all()
        assert list(trees) == table.index.tolist()
        for tree in trees.values():
            assert tree["posterior"]["f"].shape == (4, 500, 2)
            assert tree["predictions"]["p"].shape == (4, 500, 2)

    def test_what_there_is_not(self, result):
        missing = result.table.isna()
        assert missing.loc["lin_ess", ["evidence", "evidence_se"]].all()
        assert missing.loc[["ep", "laplace"], ["evidence_se", "ess_per_second"]].all(axis=None)
        assert not missing.loc["exact"].any()
        noise = [f"{name}_noise" for name in DISTANCES]
        assert (result.table.loc[["ep", "laplace"], noise] == 0.0).all(axis=None)

    @pytest.mark.parametrize("name", ["ep", "laplace"])
    def test_gaussians(self, result, name):
        """All that the table says of them, computed apart.

        The reference has Monte Carlo errors, which are stated: 5 of them, and 2e-3 for the
        trapezoidal rule of distances and EP's 1e-6.
        """
        zero = np.zeros(4)
        if name == "ep":
            there = sequential_ep(zero[:2], K[:2, :2], SIGN, zero[:2], np.ones(2))
        else:
            there = numerical_laplace(zero[:2], K[:2, :2], lambda f: log_ndtr(SIGN * f).sum())
        mean, cov, evidence = continued(there, zero, K, 2)
        sd = np.sqrt(cov.diagonal())
        row = result.table.loc[name]
        assert row["evidence"] == pytest.approx(evidence, abs=1e-6)
        exact_mean, exact_sd, skewness = EXACT.moments()
        wanted = {}
        for prob in PROBS:
            reach = norm.ppf(0.5 + 0.5 * prob) * sd
            inside = EXACT.cdf(mean + reach) - EXACT.cdf(mean - reach)
            wanted[f"coverage_{100 * prob:.0f}"] = inside.mean()
        x = np.linspace(-12.0, 12.0, 601)[:, None] + np.zeros(4)
        exact = np.array([EXACT.cdf(row) for row in x])
        gap = np.abs(norm.cdf(x, mean, sd) - exact)
        wanted["wasserstein"] = (np.trapezoid(gap, x, axis=0) / exact_sd).mean()
        wanted["skewness_error"] = np.abs(skewness).mean()
        p = ndtr(mean / np.sqrt(1.0 + sd**2))[2:]
        wanted["p_error"] = np.abs(p - EXACT.p()[2:]).mean()
        for column, value in wanted.items():
            error = row[f"{column}_se"]
            assert 0.0 < error < 0.05
            assert row[column] == pytest.approx(value, abs=5 * error + 2e-3), column
        # Of Gaussians there is no noise in these: two labels of 1, learnt from one of each class.
        assert row["information"] == pytest.approx(1.0 + np.log2(p).mean(), abs=1e-5)
        assert row["brier"] == pytest.approx(((1.0 - p) ** 2).mean(), abs=1e-5)
        assert np.abs(exact_mean).max() > 0.1  # there is something to compare

    @pytest.mark.parametrize("name", ["exact", "lin_ess"])
    def test_samplers(self, result, name):
        """Coverage within 4 upper bounds of its error, p within 4; distances of mere noise.

        2000 draws of the exact distribution are at a distance near .5 / ESS^.5, .011 or, of
        lin-ess and its 500 effective draws or so, .03; five times that is allowed.
        """
        row = result.table.loc[name]
        for prob in PROBS:
            column = f"coverage_{100 * prob:.0f}"
            assert abs(row[column] - prob) < 4 * row[f"{column}_se"] < 0.3
        assert row["p_error"] < 4 * row["p_error_se"] < 0.2
        assert 0.0 < row["wasserstein"] < (0.055 if name == "exact" else 0.15)
        assert row["wasserstein_se"] < 0.05
        assert row["ess_per_second"] > 0.0
        p = result.trees[name]["predictions"]["p"].values.mean(axis=(0, 1))
        # The table averages out the noise of f at the new points: by .3 / 2000^.5 = .007 apart.
        assert row["brier"] == pytest.approx(((1.0 - p) ** 2).mean(), abs=0.05)

    def test_effective_draws_a_second(self, monkeypatch):
        """The smallest of the two labels' points over the seconds that drawing took."""
        f = np.random.default_rng(0).normal(size=(4, 250, 2))
        f[..., 1] = np.repeat(f[:, ::10, 1], 10, axis=1)  # each number ten times
        monkeypatch.setitem(METHODS, "exact", lambda p: from_draws(p, f, drawing=2.0))
        row = compare(methods=["exact"], draws=250).table.loc["exact"]
        # 100 different numbers over 2 seconds; the estimate of ESS is good to a third.
        assert row["ess_per_second"] == pytest.approx(50.0, rel=0.35)


class TestNoise:
    """What Monte Carlo error alone comes to, for 500 sets of as many draws of the exact marginals.

    A hundred points with one distribution, independent draws: the mean of the table's distances is
    within 5 % of what it calls noise, which itself takes ESS from the draws.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def table(cls):
        f = np.random.default_rng(0).normal(size=(2, 250, 100))
        marginals = LatentMarginals(np.zeros((100, 1)), np.ones(100), np.ones(1))
        drawn = DrawnMarginals(f)
        found = Approximation(drawn, drawn.probability(), None)
        return pd.Series(measured(found, Standard(marginals, np.zeros(100), None)))

    @pytest.mark.parametrize("name", DISTANCES)
    def test_of_draws(self, table, name):
        assert table[f"{name}_noise"] == pytest.approx(table[name], rel=0.1)


class TestSummary:
    def row(self, **values):
        """A row of the table with nothing in it but `values`."""
        return as_table({"one": {"seconds": 1.234, "failure": "", **values}})

    @pytest.mark.parametrize(
        ("value", "error", "text"),
        [
            (-23.52831, 0.0014, "-23.5283 ± 0.0014"),
            (-23.52831, 0.04, "-23.53 ± 0.04"),
            (-23.52831, 0.0, "-23.528"),
            (-23.52831, np.nan, "-23.528"),
            (np.nan, np.nan, "-"),
        ],
    )
    def test_a_value_and_its_error(self, value, error, text):
        summary = as_summary(self.row(evidence=value, evidence_se=error))
        assert summary.loc["one", "log marginal likelihood"] == text

    @pytest.mark.parametrize(
        ("value", "error", "noise", "text"),
        [
            (0.020, 0.002, 0.021, "< 0.025"),  # draws of the exact posterior
            (0.024, 0.002, 0.021, "< 0.025"),
            (0.044, 0.002, 0.0, "0.044 ± 0.002"),
            (0.044, 0.002, 0.021, "0.044 ± 0.002"),
            (0.003, 0.002, 0.0, "< 0.0040"),  # a Gaussian, nearer than the reference's error
        ],
    )
    def test_monte_carlo_error_is_named_as_such(self, value, error, noise, text):
        row = {"wasserstein": value, "wasserstein_se": error, "wasserstein_noise": noise}
        assert as_summary(self.row(**row)).loc["one", "Wasserstein / sd"] == text

    def test_printed(self, result):
        lines = repr(result).splitlines()
        for word in (
            "log marginal likelihood",
            "coverage 50 %",
            "coverage 95 %",
            "Wasserstein / sd",
            "|error of p|",
        ):
            assert word in lines[0]
        assert [line.split()[0] for line in lines[2:6]] == result.table.index.tolist()
        assert max(map(len, lines)) < 120
        assert str(result) == repr(result)
        # Draws of the exact posterior differ from it by Monte Carlo error, and Laplace by more.
        assert result.summary.loc["exact", "Wasserstein / sd"].startswith("<")
        assert result.summary.loc["exact", "|error of p|"].startswith("<")
        assert "±" in result.summary.loc["laplace", "Wasserstein / sd"]
        assert "<table" in result._repr_html_()

    def test_failures_are_named(self):
        rows = {"one": {"seconds": 0.1, "failure": "ValueError: no <such> thing\nmore"}}
        found = Comparison(as_table(rows), {})
        assert repr(found).endswith("one failed: ValueError: no <such> thing")
        assert "no &lt;such&gt; thing" in found._repr_html_()


class TestPseudoPoints:
    """The sign of f is known at two points: everything is compared under that prior."""

    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        gp = sg.SkewGP(cov_func=kernel(), pseudo_points=[[1.5], [-0.5]], phase=[1, -1])
        return compare_approximations(
            gp, X, Y, Xnew=NEW, ynew=YNEW, draws=500, random_seed=0, progressbar=False
        )

    def test_methods_that_take_them(self, found):
        assert found.table.index.tolist() == ["exact", "lin_ess", "ep"]
        assert found.table["failure"].tolist() == [""] * 3

    def test_draws_at_new_points_know_of_the_signs(self, found):
        """They are continued from f at the data, and the reference is a mixture over u."""
        row = found.table.loc["exact"]
        assert row["wasserstein"] < row["wasserstein_noise"] + 5 * row["wasserstein_se"] < 0.06
        assert abs(row["coverage_95"] - 0.95) < 4 * row["coverage_95_se"] < 0.04

    def test_other_methods_say_why_not(self):
        gp = sg.SkewGP(cov_func=kernel(), pseudo_points=[[1.5]])
        methods = ["laplace", "advi", "hsgp_nuts"]
        table, _ = compare_approximations(gp, X, Y, methods=methods, progressbar=False)
        assert table["failure"].str.contains("pseudo_points").all()


class TestReference:
    def test_it_is_not_made_of_the_draws_that_it_judges(self, monkeypatch):
        """With as many draws as the reference, in one chain, "exact" still has other ones."""
        reference, measured = [], comparison.measured
        monkeypatch.setattr(
            comparison, "measured", lambda *a: reference.append(a[1].marginals) or measured(*a)
        )
        compare(methods=["exact"], draws=2048, chains=1, random_seed=0)
        drawn = sg.SkewGP(cov_func=kernel()).posterior(X, Y, n_draws=2048, random_seed=0)
        assert not np.isin(drawn.marginals().means, reference[0].means).any()

    def test_seeds(self):
        one, again, other = (
            compare(methods=["exact"], random_seed=i).table["wasserstein"].item() for i in (1, 1, 2)
        )
        assert one == again != other


class TestFailures:
    def test_a_row_with_the_reason_and_the_rest_stands(self, monkeypatch):
        def broken(problem):
            raise RuntimeError("no such luck")

        monkeypatch.setitem(METHODS, "lin_ess", broken)
        table, trees = compare(methods=["lin_ess", "ep"])
        assert table["failure"].tolist() == ["RuntimeError: no such luck", ""]
        assert table.loc["lin_ess"].drop(["seconds", "failure"]).isna().all()
        assert table.loc["lin_ess", "seconds"] >= 0.0
        assert table.loc["ep", "coverage_50"] > 0.0
        assert list(trees) == ["ep"]

    def test_failing_while_measured(self, monkeypatch):
        def odd(problem):
            at = METHODS["ep"](problem)
            return at._replace(probability=Probability(np.zeros(7), np.zeros(7)))

        monkeypatch.setitem(METHODS, "laplace", odd)
        table, trees = compare(methods=["laplace", "ep"])
        assert "ValueError" in table.loc["laplace", "failure"]
        assert list(trees) == ["ep"]

    def test_options_that_there_are_not(self):
        methods = ["exact", "ep", "laplace"]
        table, _ = compare(methods=methods, options={name: {"thinning": 2} for name in methods})
        assert table["failure"].str.contains("unexpected keyword argument 'thinning'").all()

    def test_a_function_that_is_known_somewhere(self):
        """A linear kernel has no variance at 0: nothing to measure there, and nothing fails."""
        table, _ = compare(
            np.array([[-1.0], [0.5], [2.0]]), [0, 1, 1], pm.gp.cov.Linear(1, c=0.0),
            Xnew=[[0.0], [1.0]], methods=["exact", "ep", "laplace"],
        )  # fmt: skip
        assert table["failure"].tolist() == [""] * 3
        assert np.isfinite(table["wasserstein"].to_numpy(float)).all()


with pm.Model():
    OPEN = pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls"))
UNKNOWN = f"unknown names ['nuts']; there are {list(METHODS)}"


class TestArguments:
    def test_what_is_no_prior(self):
        with pytest.raises(TypeError, match="gp must be a SkewGP, got Latent"):
            compare_approximations(pm.gp.Latent(cov_func=kernel()), X, Y)

    def test_order_and_repetition(self):
        table, _ = compare(methods=["laplace", "ep", "laplace"])
        assert table.index.tolist() == ["laplace", "ep"]
        assert compare(methods="ep").table.index.tolist() == ["ep"]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"methods": ["ep", "nuts"]}, re.escape(f"methods has {UNKNOWN}")),
            ({"options": {"nuts": {}}}, re.escape(f"options has {UNKNOWN}")),
            ({"methods": []}, "methods is empty; there are"),
            ({"ynew": [1]}, "ynew are the labels of Xnew"),
            (
                {"Xnew": NEW, "ynew": [1, 0, 1]},
                r"ynew must have shape \(2,\), one label for each row of Xnew; got \(3,\)",
            ),
            ({"Xnew": NEW, "ynew": [1, 2]}, "ynew must hold two classes coded 0 and 1"),
            ({"Xnew": np.zeros((2, 3))}, "Xnew must have shape"),
            ({"draws": 3}, "draws must be at least 4, got 3"),
            ({"cov": OPEN}, "depends on ls: give their values in point"),
        ],
    )
    def test_what_does_not_fit(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            compare(**arguments)


@pytest.mark.slow(ci=True)
def test_basis_functions_keep_quiet_and_the_level_is_restored(caplog):
    """One method of PyMC through the whole of it; the others are judged by themselves."""
    logger = logging.getLogger("pymc")
    level = logger.level
    with caplog.at_level(logging.INFO, logger="pymc"):
        found = compare(
            methods=["hsgp_nuts"], chains=2, draws=500, tune=300, Xnew=NEW, ynew=YNEW,
            options={"hsgp_nuts": {"cores": 1, "c": 4.0}},
        )  # fmt: skip
        assert not caplog.records
        assert logger.level == logging.INFO
    assert logger.level == level
    row = found.table.loc["hsgp_nuts"]
    assert row["failure"] == ""
    assert row.drop(["evidence", "evidence_se"]).notna().all()
    assert found.trees["hsgp_nuts"]["posterior"]["f"].shape == (2, 500, 2)
    assert found.trees["hsgp_nuts"]["predictions"]["p"].shape == (2, 500, 2)
    # 60 functions on 1.5 ranges are off by less than .05 deviations; beside it Monte Carlo error.
    for name in ("wasserstein", "p_error"):
        assert row[name] < row[f"{name}_noise"] + 5 * row[f"{name}_se"] + 0.05
