"""`SkewGP.marginal_likelihood` of every likelihood: quadrature, `pm.gp.Marginal`, frequencies."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict
from collapsed_cases import CASES, ETA, INF, LS, NAN, PSEUDO, X
from oracles import finite_difference
from scipy import stats

import pymc_skewgp as sg
from pymc_skewgp import likelihoods as of

pytestmark = pytest.mark.usefixtures("in_python")


def kernel():
    return pm.HalfNormal("eta", 2.0) ** 2 * pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1))


def model_of(case, **options):
    with pm.Model() as model:
        signs = {"pseudo_points": PSEUDO} if case.signed else {}
        gp = sg.SkewGP(cov_func=kernel(), **signs)
        x, y, likelihood, coregion = case.make()
        options = {"jitter": 0.0, "n_draws": 4096, **options}
        gp.marginal_likelihood("y", x, y, likelihood=likelihood, coregion=coregion, **options)
    return model, gp


def exact(case, point):
    theta = {name: x for name, x in point.items() if name not in ("eta_log__", "ls_log__")}
    return case.truth(np.exp(point["eta_log__"]), np.exp(point["ls_log__"]), theta).log_evidence


@pytest.mark.parametrize("name", ["tobit", "duels", "selection", "several"])
def test_value_and_gradient_by_quadrature(name):
    """Rows of the other likelihoods, which are these graphs too: tests of learning."""
    case = CASES[name]
    model, _ = model_of(case)
    point = {"eta_log__": np.log(ETA), "ls_log__": np.log(LS), **case.theta}
    point = {name: np.asarray(x, dtype=float) for name, x in point.items()}
    [y] = model.observed_RVs
    value = model.compile_logp(vars=[y], jacobian=False, mode="FAST_COMPILE")(point)
    # Quasi-random error of up to four rows, at 4096 points.
    assert value == pytest.approx(exact(case, point), abs=2e-4)
    names = [v.name for v in model.value_vars]
    gradient = model.compile_dlogp(jacobian=False, mode="FAST_COMPILE")(point)
    prior = model.compile_logp(vars=model.free_RVs, jacobian=False, mode="FAST_COMPILE")
    sizes = [np.size(point[name]) for name in names]

    def total(flat):
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        at = {n: p.reshape(np.shape(point[n])) for n, p in zip(names, parts, strict=True)}
        return exact(case, at) + float(prior(at))

    flat = np.concatenate([np.ravel(point[name]) for name in names])
    # As in the tests of the Op: ten times the value's error.
    np.testing.assert_allclose(gradient, finite_difference(total, flat, 0.01), atol=3e-3)


class TestGaussian:
    """`pm.gp.Marginal` of PyMC."""

    RNG = np.random.default_rng(5)
    INPUTS = np.sort(RNG.uniform(-3.0, 3.0, 20))[:, None]
    Y = np.sin(INPUTS[:, 0]) + 0.3 * RNG.normal(size=20)
    POINT = {  # noqa: RUF012
        "eta_log__": np.log(1.3), "ls_log__": np.log(0.8), "sigma_log__": np.log(0.4)
    }  # fmt: skip

    def models(self):
        with pm.Model() as ours:
            gp = sg.SkewGP(cov_func=kernel())
            likelihood = of.Gaussian(pm.HalfNormal("sigma", 1.0))
            gp.marginal_likelihood("y", self.INPUTS, self.Y, likelihood=likelihood, jitter=0.0)
        with pm.Model() as theirs:
            other = pm.gp.Marginal(cov_func=kernel())
            sigma = pm.HalfNormal("sigma", 1.0)
            other.marginal_likelihood("y", self.INPUTS, self.Y, sigma=sigma, jitter=0.0)
        return ours, theirs

    def test_value_and_gradient(self):
        ours, theirs = self.models()
        options = {"jacobian": False, "mode": "FAST_COMPILE"}
        value, expected = (m.compile_logp(**options)(self.POINT) for m in (ours, theirs))
        # Two Cholesky factorisations of one matrix.
        assert value == pytest.approx(float(expected), abs=1e-9)
        value, expected = (m.compile_dlogp(**options)(self.POINT) for m in (ours, theirs))
        np.testing.assert_allclose(value, expected, atol=1e-8)

    def test_noise_of_each_row(self):
        sd = np.linspace(0.3, 0.9, 20)
        with pm.Model() as model:
            gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
            scale = pm.HalfNormal("scale")
            likelihood = of.Gaussian(scale * sd)
            gp.marginal_likelihood("y", self.INPUTS, self.Y, likelihood=likelihood, jitter=0.0)
        [y] = model.observed_RVs
        value = model.compile_logp(vars=[y], mode="FAST_COMPILE")({"scale_log__": np.log(0.7)})
        fixed = gp.posterior(self.INPUTS, self.Y, likelihood=of.Gaussian(0.7 * sd))
        assert value == pytest.approx(fixed.log_marginal_likelihood.value, abs=1e-9)


def draws(variable, n, seed=1):
    return pm.draw(variable, n, random_seed=seed, mode="FAST_COMPILE")


class TestDraws:
    def test_frequencies_of_ordered_categories(self):
        """Nine outcomes, whose probabilities sum to one, and how often each is drawn."""
        with pm.Model():
            gp = sg.SkewGP(cov_func=2.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
            known = of.OrderedProbit([-0.4, 0.7])
            y = gp.marginal_likelihood("y", X[:2], [0, 2], likelihood=known, jitter=0.0)
        outcomes = list(product(range(3), repeat=2))
        p = np.exp([pm.logp(y, np.array(x)).eval(mode="FAST_COMPILE") for x in outcomes])
        # Two rows: in closed form.
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
        found = draws(y, 4000)
        assert found.dtype == np.int64
        frequency = np.bincount(found @ [3, 1], minlength=9) / 4000
        # Five standard errors, each of nine: a false alarm in 5e-6 of all seeds.
        assert (np.abs(frequency - p) < 5 * np.sqrt(p * (1 - p) / 4000)).all()

    def test_random_noise_is_that_of_the_draw(self):
        with pm.Model():
            gp = sg.SkewGP(cov_func=1e-8 * pm.gp.cov.ExpQuad(1, ls=1.0))
            sigma = pm.LogNormal("sigma", 3.0, 0.5)
            known = of.Gaussian(sigma)
            y = gp.marginal_likelihood("y", X[:2], [0.1, 0.2], likelihood=known)
        scale, values = draws([sigma, y], 1000)
        z = values / scale[:, None]
        # The variance of 2000 standard normals, five standard errors: false alarm 6e-7.
        assert np.mean(z**2) == pytest.approx(1.0, abs=5 * np.sqrt(2.0 / 2000))

    def test_of_several_kinds_each_about_its_own_values(self):
        with pm.Model():
            steep = pm.gp.mean.Linear(100.0)
            gp = sg.SkewGP(mean_func=steep, cov_func=1e-6 * pm.gp.cov.ExpQuad(1, ls=1.0))
            kinds = [(X[:1], [0.0], of.Gaussian(0.1)), (X[1:], [0.0, 0.0], of.Gaussian(0.1))]
            y = gp.marginal_likelihood("y", kinds)
        # Ten standard deviations.
        np.testing.assert_allclose(draws(y, 2), np.tile(100.0 * X[:, 0], (2, 1)), atol=1.0)

    @pytest.mark.parametrize(
        ("make", "shape"),
        [
            (lambda: (X, [[0, 1], [2, 1]], of.Preference(1.0)), (2, 2)),
            (lambda: (X, [[0.1, 0.3]] * 3, of.CensoredGaussian(0.2)), (3, 2)),
            (lambda: (X, [0.4, NAN, 1.0], of.Selection(0.5, 0.2)), (3,)),
            (lambda: ([(X, [0, 1, 1], None), (X, [0.1, 0, 0], of.Gaussian(1.0))], None, None), 6),
        ],
    )
    def test_of_the_form_of_the_data(self, make, shape):
        with pm.Model() as model:
            x, y, known = make()
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1)))
            variable = gp.marginal_likelihood("y", x, y, likelihood=known)
        assert draws(variable, 3).shape == (3, *np.atleast_1d(shape))
        assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(model.initial_point()))


class TestInModels:
    def test_other_data_of_the_same_form(self):
        model, _ = model_of(CASES["binomial"])
        y = model["y"]
        free = pm.logp(y, np.array([0, 1]))
        assert np.isfinite(
            model.replace_rvs_by_values([free])[0].eval(
                {v: np.array(0.1) for v in model.value_vars}, mode="FAST_COMPILE"
            )
        )
        with pytest.raises(ValueError, match="must not exceed the number of trials"):
            pm.logp(y, np.array([0, 2]))

    def test_trace_shows_the_data(self):
        with pm.Model():
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1)))
            gp.marginal_likelihood("y", X[:2], [0.6, NAN], likelihood=of.Selection(0.5))
            tree = pm.sample_prior_predictive(
                2, random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"}
            )
        np.testing.assert_array_equal(tree["observed_data"]["y"], [0.6, NAN])

    def test_impossible_parameters_have_no_probability(self):
        with pm.Model() as model:
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
            low, sigma = pm.Normal("low"), pm.Normal("sigma")
            known = of.CensoredGaussian(sigma, lower=low)
            gp.marginal_likelihood("y", X, [-INF, 0.4, 0.9], likelihood=known)
        log_p = model.compile_logp(vars=model.observed_RVs, mode="FAST_COMPILE")
        assert np.isfinite(log_p({"low": 0.1, "sigma": 0.5}))
        assert log_p({"low": 0.5, "sigma": 0.5}) == -INF
        assert log_p({"low": 0.1, "sigma": -0.5}) == -INF


class TestRefusals:
    def refuse(self, error, message, x, y, **arguments):
        with pm.Model():
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
            with pytest.raises(error, match=message):
                gp.marginal_likelihood("y", x, y, **arguments)

    def test_data_that_may_change(self):
        with pm.Model():
            y = pm.Data("values", np.zeros(3))
        self.refuse(TypeError, "y under Gaussian must be an array", X, y, likelihood=of.Gaussian(1))

    def test_values_that_are_variables(self):
        model, _ = model_of(CASES["ordered"])
        with pytest.raises(NotImplementedError, match="must be arrays, and not a variable"):
            pm.logp(model["y"], pm.math.stack([model["eta"] > 1, 0]))

    def test_other_lengths(self):
        self.refuse(ValueError, r"y must have shape \(3,\)", X, [0.1], likelihood=of.Gaussian(1.0))
        self.refuse(
            ValueError,
            r"in the data 'b': y must have shape \(3,\)",
            {"a": (X, [0, 1, 1], None), "b": (X, [0.1], of.Gaussian(1.0))},
            None,
        )

    def test_random_parameters_that_are_not_known(self):
        with pm.Model():
            n = pm.Poisson("n", 3.0)
        self.refuse(
            ValueError, "n of BinomialProbit is a random", X, [1, 0, 1],
            likelihood=of.BinomialProbit(n),
        )  # fmt: skip

    def test_coregion_of_another_size(self):
        self.refuse(
            ValueError, r"coregion must have shape \(2, 2\)", X, [0, 1, 1],
            likelihood=of.MultinomialProbit(), coregion=np.eye(3),
        )  # fmt: skip


# Exact functions after a model without them.


CHAINS, DRAWS = 2, 125


def trace(draws=DRAWS, **variables):
    """A made-up trace with these values in each draw."""
    shape = (CHAINS, draws)
    return from_dict(
        {"posterior": {k: np.broadcast_to(x, (*shape, *np.shape(x))) for k, x in variables.items()}}
    )


def natural(theta):
    """Values of the random variables of a case, by their names."""
    inverse = {"_log__": np.exp, "_interval__": lambda x: np.tanh(x / 2.0), "": np.asarray}
    found = {}
    for name, value in theta.items():
        suffix = next(x for x in inverse if name.endswith(x))
        found[name.removesuffix(suffix)] = inverse[suffix](value)
    return found


def process():
    return sg.SkewGP(cov_func=ETA**2 * pm.gp.cov.ExpQuad(1, ls=LS))


@pytest.mark.parametrize("name", ["selection", "several"])
def test_function_given_data_by_quadrature(name):
    """Means, squares and products of f: five standard errors, at most 14 numbers each time.

    False alarms in 1e-5 of all seeds. Of 64 weighted candidates nearly equal ones.
    """
    case = CASES[name]
    theta = dict(case.theta)
    values = trace(eta=ETA, ls=LS, **natural(theta))
    tree = model_of(case)[1].sample_latent(values, random_seed=3, progressbar=False)
    names = [n for n in tree["posterior"].data_vars if n == "f" or n.startswith("f_")]
    found = [tree["posterior"][n].to_numpy().reshape(CHAINS * DRAWS, -1) for n in names]
    f = np.concatenate(found, axis=1)
    truth = case.truth(ETA, LS, theta)
    q = f.shape[1]
    pairs = [(i, j) for i in range(q) for j in range(i, q)]
    off = f - truth.mean
    statistics = np.column_stack([f, *(off[:, i] * off[:, j] for i, j in pairs)])
    expected = np.concatenate([truth.mean, [truth.cov[i, j] for i, j in pairs]])
    error = statistics.std(axis=0) / np.sqrt(len(f))
    assert (np.abs(statistics.mean(axis=0) - expected) < 5 * error).all()
    assert tree["sample_stats"]["relative_ess"].min() > 0.8


class TestDrawByDraw:
    def test_noise_is_that_of_the_draw(self):
        """With hardly any noise f is the data, with much noise it is the prior."""
        with pm.Model():
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=0.1))
            likelihood = of.Gaussian(pm.HalfNormal("sigma"))
            gp.marginal_likelihood("y", X, [5.0, -5.0, 4.0], likelihood=likelihood)
        sigma = np.where(np.arange(DRAWS) % 2, 1e-3, 1e3) * np.ones((CHAINS, 1))
        idata = from_dict({"posterior": {"sigma": sigma}})
        tree = gp.sample_latent(idata, Xnew=[[7.0]], random_seed=1, progressbar=False)
        gap = np.abs(tree["posterior"]["f"].to_numpy() - [5.0, -5.0, 4.0]).max(axis=-1)
        assert gap[:, 1::2].max() < 6e-3
        assert gap[:, ::2].min() > 0.5
        # New values have the noise of the draw, and so has the log likelihood.
        new = np.abs(tree["predictions"]["y"].to_numpy()[..., 0])
        assert new[:, 1::2].max() < 6.0
        assert np.median(new[:, ::2]) > 100.0
        log_p = tree["log_likelihood"]["y"].to_numpy()
        expected = stats.norm(tree["posterior"]["f"].to_numpy(), sigma[..., None]).logpdf(
            [5.0, -5.0, 4.0]
        )
        np.testing.assert_allclose(log_p, expected, atol=1e-9)

    def test_names_of_several_kinds(self):
        with pm.Model(coords={"obs_id_a": list("xyz")}):
            gp = process()
            kinds = {
                "a": (X, [0, 2, 1], of.MultinomialProbit(categories=["u", "v", "w"])),
                "b": (X[:2], [0, 1], None),
            }
            gp.marginal_likelihood("y", kinds)
        idata = trace(3, eta=1.0)
        tree = gp.sample_latent(idata, Xnew=X[:2] + 9, random_seed=1, progressbar=False)
        assert tree["posterior"]["f_a"].dims == ("chain", "draw", "obs_id_a", "category")
        assert tree["posterior"]["f_b"].dims == ("chain", "draw", "obs_id_b")
        assert tree["predictions"]["f"].dims == ("chain", "draw", "pred_id", "category")
        assert tree["predictions"]["p_a"].dims == ("chain", "draw", "pred_id", "category")
        assert tree["predictions"]["p_b"].dims == ("chain", "draw", "pred_id")
        assert list(tree["predictions"]["p_a"]["category"].to_numpy()) == ["u", "v", "w"]

    def test_data_given_now(self):
        """Without `marginal_likelihood`: data, and their likelihood, as arguments."""
        gp = process()
        how = {"random_seed": 1, "progressbar": False}
        y, known = [0.1, 0, 1], of.Gaussian(0.5)
        one = gp.sample_latent(trace(3, a=1.0), X=X, y=y, likelihood=known, **how)
        kinds = [(X, y, known)]
        other = gp.sample_latent(trace(3, a=1.0), X=kinds, **how)
        # The same numbers.
        np.testing.assert_array_equal(one["posterior"]["f"], other["posterior"]["f_0"])
