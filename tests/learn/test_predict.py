"""`predict` of processes: closed forms, quadrature, and the same numbers by every way to them.

A stochastic comparison is within 4.5 standard errors, 7e-6 two-sided for each number: of the some
400 numbers compared here one fails by chance with probability .003.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from likelihood_cases import ROWS
from likelihood_oracles import near
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import norm, poisson
from xarray import open_datatree

import pymc_skewgp as sg

X = np.array([[-1.0], [0.2], [1.1], [2.0]])
Y = np.array([0.3, 1.2, 0.4, -0.5])
XNEW = np.array([[-0.4], [0.6], [3.0]])
QUIET = {"progressbar": False}
PLAINLY = {"compile_kwargs": {"mode": "FAST_COMPILE"}}  # numba takes seconds for each function
MOST = 4.5


def rbf(a, b, ls=1.0):
    return np.exp(-0.5 * (a - b.T) ** 2 / ls**2)


def regression(ls=1.0, sigma=0.3):
    """Mean and covariance of f at the new inputs, and the log evidence."""
    G = rbf(X, X, ls) + sigma**2 * np.eye(len(X))
    half = np.linalg.solve(G, rbf(X, XNEW, ls))
    cov = rbf(XNEW, XNEW, ls) - rbf(XNEW, X, ls) @ half
    logdet = np.linalg.slogdet(2.0 * np.pi * G)[1]
    return half.T @ Y, cov, -0.5 * (logdet + Y @ np.linalg.solve(G, Y))


def plain_gp():
    return sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))


def summary(tree):
    return tree["predictions_summary"]


@pytest.fixture(scope="module")
def integrated():
    gp = plain_gp()
    own = {"likelihood": sg.likelihoods.Gaussian(0.3), "random_seed": 1}
    return gp, sg.integrate(gp, X, Y, **own, **QUIET)


class TestGaussian:
    mean, cov, _ = regression()

    def test_of_integrate(self, integrated):
        found = summary(sg.predict(integrated[1], XNEW, random_seed=2, **QUIET))
        near(found, "f_mean", self.mean)
        near(found, "f_sd", np.sqrt(np.diag(self.cov)))
        near(found, "f_skewness", 0.0)
        near(found, "y_mean", self.mean)
        near(found, "y_sd", np.sqrt(np.diag(self.cov) + 0.3**2))
        probs = found["quantile"].to_numpy()
        exact = norm.ppf(probs[:, None], self.mean, np.sqrt(np.diag(self.cov)))
        near(found, "f_quantile", exact)
        near(found, "y_quantile", norm.ppf(probs[:, None], self.mean, found["y_sd"]), most=5.0)

    def test_new_rows_are_drawn_jointly(self, integrated):
        draws = sg.predict(integrated[1], XNEW, random_seed=3, **QUIET)["predictions"]["f"]
        found = np.cov(draws.to_numpy().reshape(-1, 3).T)
        # The standard deviation of an entry of it is at most (2 / 4000)^(1/2) = .022 variances.
        np.testing.assert_allclose(found, self.cov, atol=0.1)

    @pytest.mark.parametrize("given", ["posterior", "draws"])
    def test_noise_and_offset_of_new_rows(self, integrated, given):
        gp, result = integrated
        if given == "posterior":
            result = gp.posterior(X, Y, likelihood=sg.likelihoods.Gaussian(0.3))
        own = {"sigma": [0.1, 0.5, 0.1], "offset": [0.0, 10.0, -1.0], "random_seed": 4}
        tree = sg.predict(result, XNEW, **own, **QUIET)
        found, shifted = summary(tree), self.mean + own["offset"]
        sd = np.sqrt(np.diag(self.cov) + np.square(own["sigma"]))
        if given == "posterior":  # Gaussian: nothing is drawn
            np.testing.assert_allclose(found["f_mean"], self.mean, rtol=1e-10)
            np.testing.assert_allclose(found["y_mean"], shifted, rtol=1e-10)
            np.testing.assert_allclose(found["y_sd"], sd, rtol=1e-10)
            exact = norm.ppf(found["quantile"].to_numpy()[:, None], shifted, sd)
            np.testing.assert_allclose(found["y_quantile"], exact, rtol=1e-6)
        else:
            near(found, "f_mean", self.mean)
            near(found, "y_mean", shifted)
            near(found, "y_sd", sd)
        y = tree["predictions"]["y"].to_numpy().reshape(-1, 3)
        np.testing.assert_allclose(y.mean(axis=0), shifted, atol=0.08)  # 4.5 sd / 4000^(1/2)
        np.testing.assert_allclose(y.std(axis=0), sd, rtol=0.06)  # 4.5 / 8000^(1/2)

    def test_hyperparameters_by_quadrature(self):
        with pm.Model():
            ls = pm.LogNormal("ls", 0.0, 0.7)
            sigma = pm.HalfNormal("sigma", 0.5)
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=ls))
        noise = sg.likelihoods.Gaussian(sigma)
        dt = sg.integrate(gp, X, Y, likelihood=noise, random_seed=5, **QUIET)
        found = summary(sg.predict(dt, XNEW, random_seed=6, **QUIET))
        # A trapezoid rule in log ls and log sigma.
        weights, means, squares, noises = [], [], [], []
        for u in np.linspace(-4.0, 4.0, 81):
            for v in np.linspace(-6.0, 1.5, 76):
                mean, cov, evidence = regression(np.exp(u), np.exp(v))
                prior = norm.logpdf(u, 0.0, 0.7) - 0.5 * np.exp(2.0 * v) / 0.25 + v
                weights.append(np.exp(evidence + prior))
                means.append(mean)
                squares.append(np.diag(cov) + mean**2)
                noises.append(np.exp(2.0 * v))
        w = np.array(weights) / np.sum(weights)
        mean = w @ means
        near(found, "f_mean", mean)
        near(found, "f_sd", np.sqrt(w @ squares - mean**2))
        near(found, "y_mean", mean)
        near(found, "y_sd", np.sqrt(w @ squares - mean**2 + w @ noises))


class TestEveryLikelihood:
    """Averages over draws of f, and over the mixture of a posterior, are those of one posterior."""

    @pytest.mark.parametrize("case", ROWS, ids=lambda case: case.kind.__name__)
    def test_of_draws_and_of_the_mixture(self, case):
        likelihood, options = case.likelihood, case.options
        x, y = np.linspace(-2.0, 2.0, 8)[:, None], case.data(8)
        gp = plain_gp()
        new = np.array([[0.3], [1.7], [-1.2]])
        dt = sg.integrate(gp, x, y, likelihood=likelihood, random_seed=7, **options, **QUIET)
        by_draws = summary(sg.predict(dt, new, random_seed=8, **QUIET))
        posterior = gp.posterior(x, y, likelihood=likelihood, **options)
        by_mixture = summary(sg.predict(posterior, new, random_seed=9, **QUIET))
        assert set(by_draws.data_vars) == set(by_mixture.data_vars)
        for name in by_draws.data_vars:
            if name.endswith("_se"):
                continue
            a, b = by_draws[name], by_mixture[name]
            assert a.dims == b.dims, name
            if f"{name}_se" not in by_mixture or "y_quantile" in name:
                continue  # quantiles of counts are whole numbers
            error = np.hypot(by_draws[f"{name}_se"], by_mixture[f"{name}_se"]).to_numpy()
            off = np.abs(a - b).to_numpy()
            known = np.isfinite(off) & np.isfinite(error)
            # 1e-9: items with equal inputs, which tie by symmetry.
            assert (off <= MOST * error + 1e-9)[known].all(), (name, off / error)


class TestCounts:
    def test_exposures_by_quadrature(self):
        gp = plain_gp()
        dt = sg.integrate(
            gp, [[0.0]], [3], likelihood=sg.likelihoods.Poisson(2.0), random_seed=1, **QUIET
        )
        exposure = np.array([1.0, 5.0])
        found = summary(sg.predict(dt, [[0.0], [0.0]], exposure=exposure, random_seed=2, **QUIET))

        def average(g):
            def density(f):
                return norm.pdf(f) * poisson.pmf(3, 2.0 * np.exp(f))

            return quad(lambda f: g(f) * density(f), -8, 8)[0] / quad(density, -8, 8)[0]

        first, second = average(np.exp), average(lambda f: np.exp(2.0 * f))
        near(found, "y_mean", exposure * first)
        near(found, "y_sd", np.sqrt(exposure * first + exposure**2 * (second - first**2)))

    def test_trials(self):
        gp = plain_gp()
        likelihood = sg.likelihoods.BinomialProbit([4, 9, 2, 5])
        posterior = gp.posterior(X, [1, 8, 2, 0], likelihood=likelihood)
        tree = sg.predict(posterior, XNEW, n=[1, 50, 0], random_seed=1)
        y, p = (tree["predictions"][x].to_numpy().reshape(-1, 3) for x in ("y", "p"))
        assert (y.max(axis=0) <= [1, 50, 0]).all()
        assert y[:, 1].max() > 9
        # Trials are independent of f but for p: 4.5 (50 / 4 / 4000)^(1/2) = .25.
        np.testing.assert_allclose(y.mean(axis=0), p.mean(axis=0) * [1, 50, 0], atol=0.25)
        # Without them there is p, and no number of successes.
        assert "y" not in sg.predict(posterior, XNEW)["predictions"]

    def test_weights_are_not_of_new_rows(self):
        likelihood = sg.likelihoods.Weighted(sg.likelihoods.Poisson(), [1.0, 2.5, 1.0, 1.0])
        posterior = plain_gp().posterior(X, [1, 0, 2, 1], likelihood=likelihood)
        one, ten = (
            summary(sg.predict(posterior, XNEW, draws=0, exposure=e))["y_mean"] for e in (1.0, 10.0)
        )
        np.testing.assert_allclose(ten, 10.0 * one, rtol=1e-10)


class TestComparisons:
    duels = sg.likelihoods.Preference(0.5, threshold=0.4)
    items = np.array([[0.0], [1.5]])

    def exact(self):
        """P(second beats first), P(tie) by quadrature over the difference of utilities."""
        spread = 2.0 * (1.0 - rbf(self.items, self.items)[0, 1])
        noise = np.sqrt(0.5)

        def average(g):
            def density(d):
                return norm.pdf(d, 0, np.sqrt(spread)) * ndtr((d - 0.4) / noise)

            return quad(lambda d: g(d) * density(d), -9, 9)[0] / quad(density, -9, 9)[0]

        wins = average(lambda d: ndtr((d - 0.4) / noise))
        ties = average(lambda d: ndtr((0.4 - d) / noise) - ndtr((-0.4 - d) / noise))
        return wins, ties, average(lambda d: d > 0)

    @pytest.mark.parametrize("given", ["posterior", "draws"])
    def test_best_wins_and_ties(self, given):
        gp, duel = plain_gp(), [[1, 0, 0]]
        if given == "posterior":
            result = gp.posterior(self.items, duel, likelihood=self.duels)
        else:
            result = sg.integrate(
                gp, self.items, duel, likelihood=self.duels, random_seed=1, **QUIET
            )
        found = summary(sg.predict(result, self.items, random_seed=2, **QUIET))
        wins, ties, best = self.exact()
        for name, value in (("p_beats", wins), ("p_tie", ties)):
            error = float(found[f"{name}_se"][1, 0])
            assert 0 < error < 0.02
            assert abs(float(found[name][1, 0]) - value) < MOST * error
        near(found, "p_best", np.array([1.0 - best, best]))
        total = found["p_beats"] + found["p_beats"].to_numpy().T + found["p_tie"]
        np.testing.assert_allclose(total, 1.0, rtol=1e-9)

    def test_a_share_of_no_draw_has_an_error(self):
        """Differences of some 20 after 30 duels: that the loser is better is no event of 4000."""
        gp = sg.SkewGP(cov_func=20.0**2 * pm.gp.cov.ExpQuad(1, ls=0.3))
        duels = np.tile([1, 0, 0], (30, 1))
        dt = sg.integrate(gp, self.items, duels, likelihood=self.duels, random_seed=1, **QUIET)
        found = summary(sg.predict(dt, self.items, random_seed=2, **QUIET))
        np.testing.assert_array_equal(found["p_best"], [0.0, 1.0])
        np.testing.assert_allclose(found["p_best_se"], 1 / 4000, rtol=0.01)


class TestManyKinds:
    """Several kinds of data, several functions, signs: as the posterior has them."""

    def same(self, gp, data, y=None, **options):
        dt = sg.integrate(gp, data, y, random_seed=1, **options, **QUIET)
        a = summary(sg.predict(dt, XNEW, random_seed=2, **QUIET))
        b = summary(sg.predict(gp.posterior(data, y, **options), XNEW, random_seed=3, **QUIET))
        assert set(a.data_vars) == set(b.data_vars)
        for name in a.data_vars:
            if name.endswith("_mean") or name.endswith("_sd"):
                error = np.hypot(a[f"{name}_se"], b[f"{name}_se"])
                assert (np.abs(a[name] - b[name]) < MOST * error + 1e-9).all(), name
        return a

    def test_values_and_a_shape(self):
        data = {
            "dose": (X, Y, sg.likelihoods.Gaussian(0.3)),
            "shape": (np.array([[-0.5], [0.5]]), None, sg.likelihoods.Constraint.increasing()),
        }
        assert "y_mean_dose" in self.same(plain_gp(), data)

    def test_several_functions_keep_the_order_of_their_names(self):
        classes = sg.likelihoods.MultinomialProbit(categories=["low", "high", "mid"])
        found = self.same(plain_gp(), X, [2, 0, 0, 1], likelihood=classes)
        assert found["category"].to_numpy().tolist() == ["low", "high", "mid"]

    def test_signs_at_pseudo_points(self):
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[[2.9]])
        self.same(gp, X, [0, 1, 1, 0])


class TestOtherResults:
    def test_a_fit(self):
        with pm.Model():
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls")))
        own = {"likelihood": sg.likelihoods.Gaussian(0.3), "random_seed": 1}
        fit = sg.find_hyperparameters(gp, X, Y, quiet=True, **own, **QUIET)
        with pytest.raises(ValueError, match="of a SkewGP: give an array"):
            sg.predict(fit, {"x": XNEW})
        found = summary(sg.predict(fit, XNEW, draws=0))
        mean, cov, _ = regression(float(fit.point["ls"]))
        np.testing.assert_allclose(found["f_mean"], mean, rtol=1e-8)
        np.testing.assert_allclose(found["f_sd"] ** 2, np.diag(cov), rtol=1e-7)

    @pytest.mark.parametrize("kind", ["SkewGP", "Latent"])
    def test_draws_of_prior(self, kind):
        """F given draws of it: those of pm.sample_posterior_predictive on the same draws."""
        with pm.Model():
            cov_func = pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls"))
            gp = (sg.SkewGP if kind == "SkewGP" else pm.gp.Latent)(cov_func=cov_func)
            gp.prior("f", X)
            idata = pm.sample_prior_predictive(draws=400, random_seed=1, **PLAINLY)
            idata["posterior"] = idata["prior"]
            gp.conditional("new", XNEW)
            theirs = pm.sample_posterior_predictive(
                idata, var_names=["new"], predictions=True, random_seed=2, **QUIET, **PLAINLY
            )["predictions"]["new"].to_numpy()[0]
        ours = sg.predict(idata, XNEW, gp=gp, random_seed=3, **QUIET)["predictions"]["f"][0]
        with pytest.raises(TypeError, match="exposure: the likelihood is not known, f alone"):
            sg.predict(idata, XNEW, gp=gp, exposure=2.0)
        # Given the same draws of f: differences have mean 0, and the same spread.
        off = ours.to_numpy() - theirs
        np.testing.assert_array_less(np.abs(off.mean(0)), MOST * off.std(0) / np.sqrt(400))
        f, fit = idata["posterior"]["f"].to_numpy()[0], []
        for own in (ours.to_numpy(), theirs):
            A = np.column_stack([np.ones(400), f])
            fit.append(np.square(own - A @ np.linalg.lstsq(A, own, rcond=None)[0]).mean(axis=0))
        # A ratio of variances of 400 numbers with some tails: standard deviation .1 or so.
        np.testing.assert_allclose(fit[0], fit[1], rtol=0.5)

    def test_draws_after_marginal_likelihood(self):
        with pm.Model():
            gp = plain_gp()
            sigma = pm.HalfNormal("sigma")
            gp.marginal_likelihood("y", X, Y, likelihood=sg.likelihoods.Gaussian(sigma))
            idata = pm.sample_prior_predictive(draws=500, random_seed=1, **PLAINLY)
        idata["posterior"] = idata["prior"]
        idata["posterior"]["sigma"] = idata["posterior"]["sigma"] * 0.0 + 0.3
        found = summary(sg.predict(idata, XNEW, gp=gp, random_seed=2, **QUIET))
        mean, cov, _ = regression()
        near(found, "f_mean", mean)
        near(found, "y_sd", np.sqrt(np.diag(cov) + 0.09))

    def test_the_interval_is_that_of_arviz(self, integrated):
        with az.rc_context({"stats.ci_prob": 0.5}):
            for result in (integrated[1], integrated[0].posterior(X, [0, 1, 1, 0])):
                found = summary(sg.predict(result, XNEW, random_seed=1, **QUIET))
                np.testing.assert_allclose(found["quantile"], [0.25, 0.5, 0.75])
        mean, cov, _ = regression()
        posterior = integrated[0].posterior(X, Y, likelihood=sg.likelihoods.Gaussian(0.3))
        with az.rc_context({"stats.ci_prob": 0.8, "stats.ci_kind": "hdi"}):
            for result in (integrated[1], posterior):
                found = summary(sg.predict(result, XNEW, random_seed=1, **QUIET))
                sd = np.sqrt(np.diag(cov))
                near(found, "f_hdi", mean + norm.ppf([[0.1], [0.9]]) * sd)
                # Roughly as far off as said: not ten times as near.
                off = np.abs(found["f_hdi"] - mean - norm.ppf([[0.1], [0.9]]) * sd)
                assert float((off / found["f_hdi_se"]).max()) > 0.1
        assert "f_quantile" not in summary(sg.predict(integrated[1], XNEW, quantiles=[], **QUIET))

    def test_some_of_the_draws(self, integrated):
        tree = sg.predict(integrated[1], XNEW, draws=10, **QUIET)
        assert dict(tree["predictions"]["f"].sizes) == {"chain": 4, "draw": 10, "pred_id": 3}
        assert tree["predictions"]["draw"].to_numpy()[-1] == 999


class TestFiles:
    """In a new process: `test_save_load_predict` in the jobs."""

    def test_a_file_says_what_it_lacks(self, integrated, tmp_path):
        gp, dt = integrated
        dt.to_netcdf(tmp_path / "result.nc")
        with open_datatree(tmp_path / "result.nc") as read:
            assert read["posterior"].attrs["n_observed"] == 4
            with pytest.raises(ValueError, match=r"sg\.predict\(result, Xnew, gp=gp\)"):
                sg.predict(read, XNEW)
            with pytest.raises(ValueError, match=r"under Gaussian: give them.*likelihood="):
                sg.predict(read, XNEW, gp=gp)
            with pytest.raises(ValueError, match="got Poisson"):
                sg.predict(read, XNEW, gp=gp, likelihood=sg.likelihoods.Poisson())
            again = sg.predict(
                read, XNEW, gp=gp, X=X, y=Y, likelihood=sg.likelihoods.Gaussian(0.3), **QUIET
            )
            assert "y" in again["predictions"]

    def test_draws_of_a_posterior(self, integrated):
        gp, noise = integrated[0], sg.likelihoods.Gaussian(0.3)
        draws = gp.posterior(X, Y, likelihood=noise).sample(500, 2, random_seed=1)
        mean = TestGaussian.mean
        near(summary(sg.predict(draws, XNEW, gp=gp, **QUIET, random_seed=1)), "f_mean", mean)
        found = summary(sg.predict(draws, XNEW, gp=gp, likelihood=noise, random_seed=1, **QUIET))
        near(found, "y_mean", mean)

    def test_parts_and_copies_know_what_they_are_of(self, integrated):
        for part in (integrated[1].isel(draw=[0, 5]), integrated[1].copy(deep=True)):
            assert "y" in sg.predict(part, XNEW, **QUIET)["predictions"]


REFUSED = [
    ({"result": sg.SkewGPClassifier()}, TypeError, "estimators have a predict of their own"),
    ({"Xnew": {"x": XNEW}}, ValueError, "of a SkewGP: give an array"),
    ({"chains": 2}, ValueError, "chains is for a posterior"),
    ({"draws": 2000}, ValueError, "1000 draws in each chain, and 2000"),
    ({"exposure": 2.0}, TypeError, r"unexpected argument\(s\) exposure.*offset, sigma"),
    ({"sigma": [1.0, 2.0]}, ValueError, r"sigma must be a number or have shape \(3,\)"),
    ({"sigma": -1.0}, ValueError, "sigma must be positive"),
]


class TestRefusals:
    @pytest.mark.parametrize(("given", "error", "match"), REFUSED)
    def test_what_goes_together(self, integrated, given, error, match):
        given = {"result": integrated[1], "Xnew": XNEW, **given}
        with pytest.raises(error, match=match):
            sg.predict(given.pop("result"), given.pop("Xnew"), **given)

    def test_other_processes(self, integrated):
        gp, dt = integrated
        with pytest.raises(TypeError, match=r"sg\.predict\(posterior, Xnew\)"):
            sg.predict(gp.posterior(X, [0, 1, 1, 0]), XNEW, gp=gp)
        with pytest.raises(TypeError, match=r"a SkewGP or a pm\.gp\.Latent, got HSGP"):
            sg.predict(dt, XNEW, gp=pm.gp.HSGP(m=[5], c=2.0, cov_func=gp.cov_func))

    def test_many_rows(self):
        gp = plain_gp().approximated_by(sg.approximations.Inducing(X[:2]))
        own = {"likelihood": sg.likelihoods.Gaussian(0.3), "random_seed": 1, **QUIET}
        dt = sg.integrate(gp, X, Y, Xnew=XNEW, **own)
        assert {"f_mean", "f_quantile_se", "y_mean"} <= set(summary(dt).data_vars)
        with pytest.raises(ValueError, match=r"sg\.integrate\(gp, X, y, Xnew=Xnew\)"):
            sg.predict(dt, XNEW)

    def test_an_offset_of_several_functions(self):
        posterior = plain_gp().posterior(
            X, [0, 1, 2, 0], likelihood=sg.likelihoods.MultinomialProbit()
        )
        with pytest.raises(ValueError, match="offset is for one function, and these data have 3"):
            sg.predict(posterior, XNEW, offset=1.0)
