"""`predict` of models: new rows of ``pm.Data``, against closed forms and PyMC's own conditionals.

Draws are made up, or of conjugate models; a stochastic comparison is within 4.5 standard errors,
which by each of some hundred numbers fails by chance with probability 7e-6.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from arviz_base import from_dict
from likelihood_oracles import near
from scipy.stats import norm

import pymc_skewgp as sg
from pymc_skewgp._learn.averaging.model_functions import at_draws

QUIET = {"progressbar": False}
MOST = 4.5
X = np.array([[-1.0], [0.2], [1.1], [2.0]])
XNEW = np.array([[-0.4], [0.6], [3.0]])


def rbf(a, b):
    return np.exp(-0.5 * (a - b.T) ** 2)


def made_up(shape=(2, 1000), seed=0, **values):
    """Draws that are the same in all, but for those that are given whole."""
    whole = {
        name: x if np.shape(x)[:2] == shape else np.broadcast_to(x, (*shape, *np.shape(x)))
        for name, x in values.items()
    }
    return from_dict({"posterior": whole})


def predicted(model, idata, new, **options):
    own = {"model": model, "random_seed": 1, **QUIET, **options}
    return sg.predict(idata, new, **own)


def test_hyperparameters_of_several_draws():
    """Draws beside each other share them, and what follows from them alone; others come between."""
    rng = np.random.default_rng(3)
    ls, z = np.array([0.5, 0.5, 0.5, 2.0, 0.5, 2.0, 2.0]), rng.normal(size=(7, 4))
    scale, white = pt.scalar("ls"), pt.vector("z")
    K = pt.exp(-0.5 * pt.sqr((X - X.T) / scale)) + 1e-6 * np.eye(4)
    f = pt.linalg.cholesky(K) @ white
    generator = pytensor.shared(np.random.default_rng(0))
    _, noise = pt.random.normal(size=4, rng=generator, return_next_rng=True)
    values, near_them = at_draws([f, f + 1e-9 * noise], {scale: ls, white: z}, rng)
    for own, found, there, given in zip(ls, values, z, near_them, strict=True):
        exact = np.linalg.cholesky(rbf(X / own, X / own) + 1e-6 * np.eye(4)) @ there
        np.testing.assert_allclose(found, exact, rtol=1e-11)
        np.testing.assert_allclose(given, exact, atol=1e-8)
    assert len(np.unique(near_them - values)) == 28


class TestProcesses:
    """F at new inputs given what it is at the old ones."""

    f = np.array([0.3, 1.0, -0.5, 0.2])

    def exact(self, jitter=1e-6):
        K = rbf(X, X) + jitter * np.eye(4)
        half = np.linalg.solve(K, rbf(X, XNEW))
        return half.T @ self.f, rbf(XNEW, XNEW) - rbf(XNEW, X) @ half

    @pytest.mark.parametrize("kind", ["SkewGP", "SkewGP white", "Latent", "Latent centred"])
    def test_mean_and_covariance(self, kind):
        white = kind in ("SkewGP white", "Latent")
        make = pm.gp.Latent if "Latent" in kind else sg.SkewGP
        with pm.Model() as model:
            inputs = pm.Data("x", X)
            gp = make(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
            f = gp.prior("f", inputs, reparameterize=white)
            pm.Poisson("y", pm.math.exp(f), observed=[1, 0, 2, 1])
        draws = {"f": self.f}
        if white:
            chol = np.linalg.cholesky(rbf(X, X) + 1e-6 * np.eye(4))
            draws["f_rotated_"] = np.linalg.solve(chol, self.f)
        tree = predicted(model, made_up(**draws), {"x": XNEW})
        mean, cov = self.exact()
        near(tree["predictions_summary"], "f_mean", mean)
        found = np.cov(tree["predictions"]["f"].to_numpy().reshape(-1, 3).T)
        # Entries have standard deviations of (2 / 2000)^(1/2) = .03 variances at most.
        np.testing.assert_allclose(found, cov, atol=0.14 * cov.max())
        near(tree["predictions_summary"], "y_mean", np.exp(mean + 0.5 * np.diag(cov)))
        assert set(tree["predictions"].data_vars) == {"f", "y"}
        assert model["x"].get_value().shape == X.shape

    def test_a_finite_basis(self):
        """Coefficients stay, and the function follows from them."""
        with pm.Model() as model:
            inputs = pm.Data("x", X)
            gp = pm.gp.HSGP(m=[6], L=[5.0], cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
            f = gp.prior("f", inputs)
            pm.Normal("y", f, 0.1, observed=self.f)
            _, sd = gp.prior_linearized(X)
        rng = np.random.default_rng(5)
        z = rng.standard_normal((2, 1000, 6))
        idata = made_up(f_hsgp_coeffs=z)
        found = predicted(model, idata, {"x": XNEW})["predictions"]["f"]
        # The basis of new inputs is centred as that of the old ones.
        centre = 0.5 * (X.max() + X.min())
        shifted = np.sqrt(1 / 5.0) * np.sin(np.arange(1, 7) * np.pi / 10.0 * (XNEW - centre + 5.0))
        np.testing.assert_allclose(found, z @ (shifted * sd.eval(mode="FAST_COMPILE")).T, atol=1e-6)

    def test_signs_at_pseudo_points_are_those_of_the_process_itself(self):
        with pm.Model() as model:
            inputs = pm.Data("x", X)
            gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0), pseudo_points=[[3.0]])
            gp.prior("f", inputs)
        idata = made_up(f=self.f)
        a = predicted(model, idata, {"x": XNEW})["predictions_summary"]
        b = sg.predict(idata, XNEW, gp=gp, random_seed=2, **QUIET)["predictions_summary"]
        for name in ("f_mean", "f_sd"):
            error = np.hypot(a[f"{name}_se"], b[f"{name}_se"])
            assert (np.abs(a[name] - b[name]) < MOST * error).all()
        assert float(a["f_quantile"][0, 2]) > 0.0  # the sign

    def test_values_with_the_function_integrated_out(self):
        """``pm.gp.Marginal`` is an observed vector: what is new depends on what was seen."""
        y = np.array([0.3, 1.2, 0.4, -0.5])
        with pm.Model() as model:
            inputs, sigma = pm.Data("x", X), pm.HalfNormal("sigma")
            gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
            gp.marginal_likelihood("y", inputs, y, sigma=sigma, jitter=0.0)
        tree = predicted(model, made_up(sigma=0.3), {"x": XNEW})
        G = rbf(X, X) + 0.09 * np.eye(4)
        half = np.linalg.solve(G, rbf(X, XNEW))
        near(tree["predictions_summary"], "y_mean", half.T @ y)
        variance = np.diag(rbf(XNEW, XNEW) + 0.09 * np.eye(3) - rbf(XNEW, X) @ half)
        near(tree["predictions_summary"], "y_sd", np.sqrt(variance))


NEW = {"group_of": [1, 2, 3, 2], "x": [1.0, 0.0, 0.0, 5.0], "group": ["z", "c"]}


class TestEffects:
    def model(self):
        with pm.Model(coords={"group": ["b", "a"]}) as model:
            group, x = pm.Data("group_of", [0, 0, 1, 1]), pm.Data("x", [0.0, 1.0, 0.0, 2.0])
            sd = pm.HalfNormal("sd")
            u = pm.Normal("u", 0.0, sd, dims="group")
            slope = pm.Normal("slope")
            mu = pm.Deterministic("mu", u[group] + slope * x)
            pm.Normal("y", mu, 0.2, observed=[0.1, 0.9, 1.0, 3.1])
        return model

    def test_new_groups(self):
        rng = np.random.default_rng(2)
        sd = np.exp(rng.normal(0.0, 0.3, (2, 1000)))
        idata = made_up(sd=sd, u=[0.5, 1.5], slope=2.0)
        tree = predicted(self.model(), idata, NEW)
        draws, found = tree["predictions"], tree["predictions_summary"]
        assert draws["u"]["group"].to_numpy().tolist() == ["z", "c"]
        near(found, "u_mean", 0.0)
        near(found, "u_sd", np.sqrt(np.mean(sd**2)))
        # In each draw by that draw's standard deviation.
        z = draws["u"].to_numpy() / sd[..., None]
        assert abs(np.square(z).mean() - 1.0) < MOST * np.sqrt(2.0 / z.size)
        u = draws["u"].to_numpy()
        np.testing.assert_allclose(draws["mu"][..., 0], 3.5)
        np.testing.assert_allclose(draws["mu"][..., 1], u[..., 0])
        np.testing.assert_allclose(draws["mu"][..., 3], u[..., 0] + 10.0)
        off = draws["y"].to_numpy() - draws["mu"].to_numpy()
        np.testing.assert_allclose(off.std(axis=(0, 1)), 0.2, rtol=MOST / np.sqrt(4000))
        near(found, "y_sd", np.sqrt(np.array([0.0, 1.0, 1.0, 1.0]) * np.mean(sd**2) + 0.04))
        assert tree["predictions_constant_data"]["x"].to_numpy().tolist() == NEW["x"]

    def test_one_number_of_all_new_rows(self):
        idata = made_up(sd=1.0, u=[0.5, 1.5], slope=2.0)
        found = predicted(self.model(), idata, {"x": 3.0, "group_of": [1, 0]})
        np.testing.assert_allclose(found["predictions"]["mu"][0, 0], [7.5, 6.5])

    def test_integrate_knows_its_model(self):
        """Conjugate but for sd: groups that were seen against quadrature over sd."""
        dt = sg.integrate(self.model(), random_seed=3, **QUIET)
        found = sg.predict(dt, NEW, random_seed=4, **QUIET)["predictions_summary"]
        Z = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [0, 1, 2.0]])
        y = np.array([0.1, 0.9, 1.0, 3.1])
        new = np.array([[0, 1, 1.0]])
        weights, means, squares = [], [], []
        for sd in np.linspace(0.005, 6.0, 1200):
            prior = np.diag([sd**2, sd**2, 1.0])
            G = Z @ prior @ Z.T + 0.04 * np.eye(4)
            half = np.linalg.solve(G, Z @ prior @ new.T)
            logdet = np.linalg.slogdet(G)[1]
            weights.append(norm.pdf(sd) * np.exp(-0.5 * (logdet + y @ np.linalg.solve(G, y))))
            means.append(half.T @ y)
            squares.append(new @ prior @ new.T - new @ prior @ Z.T @ half + means[-1] ** 2)
        w = np.array(weights) / np.sum(weights)
        mean = float(w @ np.ravel(means))
        sd = np.sqrt(float(w @ np.ravel(squares)) - mean**2)
        for name, exact in (("mu_mean", mean), ("mu_sd", sd), ("y_mean", mean)):
            assert abs(float(found[name][0]) - exact) < MOST * float(found[f"{name}_se"][0])

    def test_a_fit_of_a_model(self):
        model = self.model()
        fit = sg.find_hyperparameters(model, random_seed=1, quiet=True, **QUIET)
        tree = sg.predict(fit, NEW, draws=500, chains=2, random_seed=2)
        u = tree["predictions"]["u"].to_numpy()
        sd = float(fit.point["sd"])
        assert abs(u.std() / sd - 1.0) < MOST / np.sqrt(2 * u.size)

    def test_a_random_walk_goes_on(self):
        with pm.Model(coords={"time": range(4)}) as model:
            at = pm.Data("at", [0, 1, 2, 3])
            level = pm.GaussianRandomWalk(
                "level", sigma=0.5, init_dist=pm.Normal.dist(0, 1), dims="time"
            )
            pm.Normal("y", level[at], 0.1, observed=[0.0, 0.2, 0.4, 0.6])
        idata = made_up(level=[0.0, 0.2, 0.4, 0.7])
        tree = predicted(model, idata, {"at": [4, 6], "time": [4, 5, 6]})
        found = tree["predictions_summary"]
        near(found, "level_mean", 0.7)
        near(found, "level_sd", 0.5 * np.sqrt([1.0, 2.0, 3.0]))
        near(found, "y_sd", np.sqrt([0.25 + 0.01, 0.75 + 0.01]))

    def test_observed_shapes(self):
        """Whether its shape is that of the data, or follows from rows; censored, and categories."""
        with pm.Model(coords={"level": ["low", "high", "mid"]}) as model:
            x = pm.Data("x", [0.0, 1.0, 2.0])
            b = pm.Normal("b", 0, 1)
            pm.Censored("c", pm.Normal.dist(b * x, 0.1), lower=0.0, upper=None, observed=[0, 1, 2])
            pm.Normal("s", b * x, 0.1, observed=[0.0, 1.0, 2.0], shape=x.shape)
            seen = pm.Data("seen", [0.0, 1.0, 2.0])
            pm.Normal("d", b * x, 0.1, observed=seen)
            eta = pm.Deterministic(
                "p", pm.math.stack([b * x, 0 * x, x], axis=1), dims=(None, "level")
            )
            pm.Categorical("k", logit_p=eta, observed=[0, 1, 2])
        tree = predicted(model, made_up(b=1.0), {"x": [3.0, -1.0]})["predictions"]
        # Standard deviations of these means are .002.
        np.testing.assert_allclose(tree["c"].mean(("chain", "draw")), [3.0, 0.0], atol=0.02)
        for name in ("s", "d"):
            np.testing.assert_allclose(tree[name].mean(("chain", "draw")), [3.0, -1.0], atol=0.02)
        assert tree["p"].dims == ("chain", "draw", "pred_id", "level")
        assert tree["p"]["level"].to_numpy().tolist() == ["low", "high", "mid"]
        share = (tree["k"] == 2).mean(("chain", "draw")).to_numpy()
        e = np.exp([[3.0, 0.0, 3.0], [-1.0, 0.0, -1.0]])
        exact = e[:, 2] / e.sum(axis=1)
        np.testing.assert_array_less(np.abs(share - exact), MOST * np.sqrt(0.25 / 2000))


def refused(model, new, message, **draws):
    with pytest.raises(ValueError, match=message):
        predicted(model, made_up(shape=(1, 2), **draws), new)


# What an error says, and new rows of the effects above.
MISNAMED = {
    r"Xnew names z; the pm\.Data .* group_of, x": {"z": [1]},
    "Xnew names nothing": {},
    "must be numbers as its old ones, got 'a'": {"x": ["a"]},
    r"'x' must be an array of shape \(t\)": {"x": [[1.0]]},
    r"got \(\)": {"x": 1.0},
    "had group_of: name them too": {"x": [1.0]},
    r'need their labels, .*, as "group": \[\.\.\.\], which': {"x": [1.0], "group_of": [2]},
    "New rows are 2 of x, 1 of group_of: give as many": {"x": [1.0, 2.0], "group_of": [0]},
    "new rows have -1, which would count from the end": {"x": [1.0], "group_of": [-1]},
}


def test_names_that_are_refused():
    model, draws = TestEffects().model(), {"sd": 1.0, "u": [0.0, 1.0]}
    for message, new in MISNAMED.items():
        refused(model, new, message, **draws, slope=1.0)
    refused(model, {"x": [1.0]}, "no draws of slope", **draws)
    # The model is as it was after each of them.
    assert model["x"].get_value().tolist() == [0.0, 1.0, 0.0, 2.0]


def line(x):
    pm.Normal("y", pm.Normal("b") * pm.Data("x", x), 1.0, observed=[0.0, 1.0, 2.0])


def about_their_mean():
    x = pm.Data("x", [0.0, 1.0, 2.0])
    pm.Normal("y", pm.Normal("b") * (x - x.mean()), 1.0, observed=[0.0, 1.0, 2.0])


def with_a_total():
    pm.Normal("y", pm.Normal("b"), 1.0, observed=[0.0, 1.0, 2.0])
    pm.Deterministic("total", pm.Data("x", [0.0, 1.0]).sum())


def zero_sum():
    u = pm.ZeroSumNormal("u", dims="g")
    pm.Normal("y", u[pm.Data("at", [0, 1])], 1.0, observed=[0.0, 1.0])


def integrated_out():
    gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.Gamma("ls", 2, 1)))
    gp.marginal_likelihood("y", pm.Data("x", X), pm.Data("labels", [0, 1, 1, 0]))


BYTES = np.array([0, 1, 2], dtype=np.uint8)
REFUSED = {
    r"has int\d+ numbers, and the new rows have others": (lambda: line([0, 1, 2]), {"x": [1.5]}),
    "uint8 numbers, and the new rows have others": (lambda: line(BYTES), {"x": [300]}),  # else 44
    r"x has masked values \(1 of 2\)": (
        lambda: line(BYTES), {"x": np.ma.masked_array([1, 2], [0, 1])}
    ),
    "new rows change a parameter of y": (about_their_mean, {"x": [7.0]}),
    "new rows change total": (with_a_total, {"x": [7.0]}),
    "how a ZeroSumNormal goes on is not known": (zero_sum, {"at": [2], "g": ["c"]}),
    r"sg\.predict\(result, Xnew, gp=gp\)": (integrated_out, {"x": XNEW}),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_rows_that_are_refused(message):
    make, new = REFUSED[message]
    with pm.Model(coords={"g": ["a", "b"]}) as model:
        make()
    refused(model, new, message, b=1.0, u=[0.1, -0.1], ls=1.0)


def test_labels_of_new_groups_that_are_not_new():
    """Taken as a new group, its rows would be predicted from the prior of groups."""
    with pm.Model(coords={"group": ["a", "b"]}) as model:
        index = pm.Data("index", [0, 0, 1])
        effect = pm.Normal("effect", 0, 1, dims="group")
        pm.Normal("y", effect[index], 0.5, observed=[0.1, 0.3, 1.0])
    idata = made_up(effect=[0.2, 0.9])
    for labels in (["a"], ["c", "c"]):
        with pytest.raises(ValueError, match="'group' must be new, and each stand once"):
            predicted(model, idata, {"index": [2], "group": labels})
    assert predicted(model, idata, {"index": [2], "group": ["c"]})["predictions"]["y"].size == 2000
