"""Each way to the posterior by itself: what it gives back, and against quadrature.

One problem throughout: two labels under N(0, 4) with a squared exponential kernel, and two more
points. Exact marginals there come from a quadrature rule (`exact_marginals`, 1e-9).
"""

import sys
from types import SimpleNamespace

import arviz as az
import numpy as np
import pymc as pm
import pytest
from approximation_oracles import exact_marginals, rbf
from scipy.special import ndtr

from pymc_skewgp import SkewGP
from pymc_skewgp._diagnostics.approximations import METHODS, Problem, from_draws, latent_model
from pymc_skewgp._model.ops.plain_mode import PLAIN

FAST = {"compile_kwargs": {"mode": PLAIN}}  # numba takes ten seconds for each model
X, NEW = np.array([[0.0], [0.8]]), np.array([[0.4], [2.0]])
LABELS = np.array([1, 0])
K = rbf(4.0)(np.vstack([X, NEW]))
EXACT = exact_marginals(K, 2.0 * LABELS - 1.0)


def problem(new=NEW, pseudo_points=None, cov_func=None, point=None, X=X, labels=LABELS, **options):
    cov = 4.0 * pm.gp.cov.ExpQuad(1, ls=1.0) if cov_func is None else cov_func
    gp = SkewGP(cov_func=cov, pseudo_points=pseudo_points)
    prior = gp.posterior(X, labels, point=point).prior
    counts = {"draws": 250, "chains": 4, "tune": 300, "seed": 3, **options}
    return Problem(gp, dict(point or {}), prior, X, labels, np.asarray(new), **counts)


def check_form(found, n_new=2, chains=4, draws=250):
    assert found.marginals.size == 2 + n_new
    assert found.probability.value.shape == (n_new or 2,)
    assert (found.probability.std_error >= 0).all()
    posterior = found.tree["posterior"]
    assert dict(posterior["f"].sizes) == {"chain": chains, "draw": draws, "obs_id": 2}
    if n_new:
        f, p = found.tree["predictions"]["f"], found.tree["predictions"]["p"]
        assert dict(f.sizes) == {"chain": chains, "draw": draws, "pred_id": n_new}
        np.testing.assert_allclose(p, ndtr(f), rtol=1e-14)
    else:
        assert "predictions" not in found.tree


def check_exact(found, errors=5.0):
    """Mean and deviation at all points, and probabilities, within `errors` standard errors."""
    mean, sd, _ = EXACT.moments()
    at, error = found.marginals.moments, found.marginals.moment_errors
    assert (np.abs(at.mean - mean) < errors * error.mean).all()
    assert (np.abs(at.sd - sd) < errors * error.sd).all()
    p = found.probability
    assert (np.abs(p.value - EXACT.p()[2:]) < errors * p.std_error).all()
    assert (p.std_error < 0.05).all()


@pytest.mark.parametrize("name", ["ep", "laplace"])
def test_gaussians(name):
    """Draws are of the Gaussian that the marginals state: 5 standard errors of 1000, 6e-7 each."""
    found = METHODS[name](problem())
    check_form(found)
    mean, sd, skewness = found.marginals.moments
    np.testing.assert_array_equal(skewness, 0.0)
    p = ndtr(mean / np.sqrt(1.0 + sd**2))
    np.testing.assert_allclose(found.probability.value, p[2:], rtol=1e-13)
    np.testing.assert_array_equal(found.probability.std_error, 0.0)
    draws = np.concatenate(
        [found.tree[group]["f"].values for group in ("posterior", "predictions")], axis=2
    ).reshape(-1, 4)
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * sd / np.sqrt(1000)).all()
    # Jointly: at the new points GP regression on f at the data, with an error that it has not.
    gain = np.linalg.solve(K[:2, :2], K[:2, 2:])
    left = draws[:, 2:] - draws[:, :2] @ gain
    conditional = K[2:, 2:] - K[2:, :2] @ gain
    spread = np.sqrt(
        (np.outer(conditional.diagonal(), conditional.diagonal()) + conditional**2) / 1000
    )
    assert (np.abs(np.cov(left.T) - conditional) < 5 * spread).all()
    assert (np.abs(left.mean(axis=0)) < 5 * np.sqrt(conditional.diagonal() / 1000)).all()


class TestFromDraws:
    """Of draws that are given: predictions are GP regression on them."""

    def test_regression(self):
        f = np.array([1.0, -2.0]) + np.random.default_rng(0).normal(size=(2, 40, 2))
        found = from_draws(problem(chains=2, draws=40), f)
        check_form(found, chains=2, draws=40)
        gain = np.linalg.solve(K[:2, :2], K[:2, 2:])
        variance = (K[2:, 2:] - K[2:, :2] @ gain).diagonal()
        means = f.reshape(-1, 2) @ gain
        p = ndtr(means / np.sqrt(1.0 + variance)).mean(axis=0)
        # To 80 draws one is added that stands for what none has met (see LatentMarginals): it
        # moves the mean by less than 1/81 of a difference of two probabilities near each other.
        np.testing.assert_allclose(found.probability.value, p, atol=1e-3)
        new = found.tree["predictions"]["f"].values.reshape(-1, 2)
        z = (new - means) / np.sqrt(variance)
        # 80 standard normals a column: mean and variance to 4.5 standard errors, 7e-6 each.
        assert (np.abs(z.mean(axis=0)) < 4.5 / np.sqrt(80)).all()
        assert (np.abs(z.var(axis=0) - 1.0) < 4.5 * np.sqrt(2.0 / 80)).all()
        np.testing.assert_array_equal(found.tree["posterior"]["f"].values, f)

    def test_errors_of_probabilities_know_of_chains_that_stay_apart(self):
        """Four chains that sit at four values: the error is of four numbers, not of 160."""
        f = np.repeat(np.array([-2.0, -1.0, 1.0, 2.0])[:, None, None], 40, axis=1)
        f = np.repeat(f, 2, axis=2)
        found = from_draws(problem(draws=40), f)
        gain = np.linalg.solve(K[:2, :2], K[:2, 2:])
        variance = (K[2:, 2:] - K[2:, :2] @ gain).diagonal()
        p = ndtr(f[:, 0] @ gain / np.sqrt(1.0 + variance))
        # Four stretches of each chain count for themselves: half of the error of four numbers.
        assert (found.probability.std_error > 0.45 * p.std(axis=0) / 2.0).all()


class TestModels:
    """PyMC's own: few draws, long enough to be near the exact posterior."""

    @pytest.mark.slow(ci=True)
    def test_nuts(self):
        found = METHODS["latent_nuts"](problem(chains=2, draws=500, options={"cores": 1, **FAST}))
        check_form(found, chains=2, draws=500)
        check_exact(found)
        assert found.tree["posterior"].attrs["divergences"] == 0
        assert 0.0 < found.drawing < 60.0

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param("advi", marks=pytest.mark.slow(ci=True)),
            pytest.param("fullrank_advi", marks=pytest.mark.slow(ci=False)),
        ],
    )
    def test_variational(self, name):
        """A lower bound of the evidence, and means within .3 deviations, of a short run."""
        found = METHODS[name](problem(options={"n": 8000, **FAST}))
        check_form(found)
        exact = METHODS["exact"](problem()).evidence
        assert exact - 0.5 < found.evidence < exact + 5 * found.evidence_se
        mean, sd, _ = EXACT.moments()
        assert (np.abs(found.marginals.moments.mean - mean) < 0.3 * sd).all()
        assert found.drawing is None

    def test_the_model_is_the_problem(self):
        """Its joint density is that of white noise and labels, hyperparameters at their point."""
        with pm.Model():
            eta = pm.HalfNormal("eta")
            cov = eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0)
        model = latent_model(problem(cov_func=cov, point={"eta": 2.0}))
        assert [v.name for v in model.free_RVs] == ["f_rotated_"]
        e = np.array([0.3, -1.2])
        f = np.linalg.cholesky(K[:2, :2] + 1e-6 * np.eye(2)) @ e  # pm.gp's jitter
        wanted = -0.5 * e @ e - np.log(2 * np.pi) + np.log(ndtr([f[0], -f[1]])).sum()
        found = model.compile_logp(mode="FAST_COMPILE")({"f_rotated_": e})
        assert float(found) == pytest.approx(wanted, rel=1e-10)

    def test_a_basis_of_too_many_columns(self):
        five = np.random.default_rng(0).normal(size=(2, 5))
        given = problem(X=five, new=np.zeros((0, 5)), cov_func=pm.gp.cov.ExpQuad(5, ls=np.ones(5)))
        with pytest.raises(ValueError, match=r"a basis for 5 input columns.*for \[1, 2, 3\]"):
            METHODS["hsgp_nuts"](given)


class TestExtras:
    """pymc-extras is stood in for: what is asked of it, and what is made of its answer."""

    @pytest.fixture
    def asked(self, monkeypatch):
        calls = {}

        def answer(shape, **arguments):
            calls.update(arguments)
            calls["f"] = np.random.default_rng(0).normal(size=(*shape, 2))
            return az.from_dict({"posterior": {"f": calls["f"]}})

        module = SimpleNamespace(
            fit_laplace=lambda **a: answer((1, a["draws"]), **a),
            fit_pathfinder=lambda **a: answer((1, a["num_draws"]), **a),
        )
        monkeypatch.setitem(sys.modules, "pymc_extras", module)
        return calls

    @pytest.mark.parametrize("name", ["extras_laplace", "extras_pathfinder"])
    def test_draws(self, asked, name):
        found = METHODS[name](problem(options={"jitter": 1.0}))
        check_form(found)
        assert asked["jitter"] == 1.0
        assert asked["random_seed"] == 3
        assert [v.name for v in asked["model"].free_RVs] == ["f_rotated_"]
        np.testing.assert_array_equal(
            found.tree["posterior"]["f"].values.reshape(-1, 2), asked["f"].reshape(-1, 2)
        )

    @pytest.mark.parametrize("name", ["extras_laplace", "extras_pathfinder"])
    def test_missing(self, monkeypatch, name):
        monkeypatch.setitem(sys.modules, "pymc_extras", None)
        with pytest.raises(ModuleNotFoundError, match="pip install pymc-extras"):
            METHODS[name](problem())
