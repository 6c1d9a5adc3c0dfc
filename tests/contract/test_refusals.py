"""What is refused, or warned of, and in no other test: what is wrong, and the way out."""

import numpy as np
import pymc as pm
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

import pymc_skewgp as sg
from pymc_skewgp.approximations import Inducing

X = np.linspace(-2.0, 2.0, 8)[:, None]
LABELS = [0, 1, 0, 0, 1, 1, 0, 1]
RBF = pm.gp.cov.ExpQuad(1, ls=0.8)
GP = sg.SkewGP(cov_func=RBF)
QUIET = {"random_seed": 0, "progressbar": False}


def of_a_model(use, *, signs=False):
    """A process whose lengthscale is a variable, and the sign at a point if asked for."""
    with pm.Model():
        more = {}
        if signs:
            phase = 2 * pm.Bernoulli("positive", 0.5, shape=1) - 1
            more = {"pseudo_points": [[0.5]], "phase": phase}
        use(sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.HalfNormal("ls")), **more))


def approximated(use):
    with pm.Model():
        use(sg.SkewGP(cov_func=RBF, approximation=Inducing(3)))


def average_over_a_count():
    with pm.Model():
        gp = sg.SkewGP(cov_func=(1.0 + pm.Poisson("k", 2.0)) * RBF)
        sg.integrate(gp, X, LABELS, **QUIET)


REFUSED = {
    "X.*sparse": (TypeError, lambda: GP.posterior(sparse.csr_matrix(X), LABELS)),
    "prior takes the kernel as it is": (
        sg.ApproximationError, lambda: approximated(lambda gp: gp.prior("f", X))
    ),
    "marginal_likelihood takes the kernel": (
        sg.ApproximationError,
        lambda: approximated(lambda gp: gp.marginal_likelihood("y", X, LABELS)),
    ),
    "there is nothing to learn": (
        ValueError, lambda: sg.find_hyperparameters(GP, X, LABELS, **QUIET)
    ),
    "k is discrete": (sg.DiscreteHyperparameterError, average_over_a_count),
    "positive cannot be perturbed": (
        ValueError,
        lambda: of_a_model(
            lambda gp: sg.maximize_frechet_bound(gp, X, LABELS, progressbar=False), signs=True
        ),
    ),
    "cov_func.*pm.gp.cov": (TypeError, lambda: sg.SkewGP(cov_func=lambda X: X @ X.T)),
    "mean_func.*pm.gp.mean": (TypeError, lambda: sg.SkewGP(mean_func=0.3, cov_func=RBF)),
    "approximation must be": (
        sg.ApproximationError, lambda: sg.SkewGP(cov_func=RBF, approximation="sparse")
    ),
    "distribution": (TypeError, lambda: GP.posterior(X, LABELS, likelihood=lambda eta: 3.0)),
    "quantiles must lie": (
        ValueError, lambda: GP.posterior(X, LABELS).predict([[0.3]], quantiles=[1.5])
    ),
    "method must be.*twisted.*lin_ess": (
        ValueError, lambda: GP.posterior(X, LABELS).sample(10, method="nuts")
    ),
    "No model on context stack": (TypeError, lambda: GP.prior("f", X)),
    "model must be a pm.Model or a SkewGP": (
        TypeError, lambda: sg.find_hyperparameters(X, X, LABELS, **QUIET)
    ),
    r"must be a pm\.Model or a SkewGP, got str": (TypeError, lambda: sg.integrate("model")),
    "a model has its data in it": (ValueError, lambda: sg.integrate(pm.Model(), X, LABELS)),
    "a SkewGP needs its data": (
        ValueError, lambda: of_a_model(lambda gp: sg.find_hyperparameters(gp, **QUIET))
    ),
    "SkewGPClassifier.*fit": (NotFittedError, lambda: sg.SkewGPClassifier().predict(X)),
    "class": (ValueError, lambda: sg.SkewGPClassifier().fit(X, np.zeros(8))),
    "item 8 in row 0.*0 to 7": (ValueError, lambda: sg.SkewGPPreference().fit(X, [[0, 8]])),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    error, call = REFUSED[message]
    with pytest.raises(error, match=f"(?s){message}"):
        call()


def test_a_search_that_ends_at_its_bounds():
    """A prior that asks for ever more, where the labels do not object."""
    with pm.Model():
        ls = pm.HalfFlat("ls")
        pm.Potential("more", 3.0 * pm.math.log(ls))
        gp = sg.SkewGP(cov_func=0.01 * pm.gp.cov.ExpQuad(1, ls=ls))
        with pytest.warns(sg.BoundaryOptimumWarning, match="ls went a thousandfold away"):
            sg.find_hyperparameters(gp, X, LABELS, method="ep", n_restarts=0, **QUIET)


def test_an_icar_whose_scale_is_inside():
    W = (np.abs(np.subtract.outer(np.arange(8), np.arange(8))) == 1).astype(float)
    with pm.Model() as model:
        f = pm.ICAR("f", W=W, sigma=pm.HalfNormal("sigma"))
        pm.Normal("y", f, 0.5, observed=X[:, 0])
    with pytest.warns(sg.UnnormalizedPriorWarning, match=r"sigma \* pm.ICAR\('f'"):
        sg.find_hyperparameters(model, quiet=True, n_restarts=0, **QUIET)
