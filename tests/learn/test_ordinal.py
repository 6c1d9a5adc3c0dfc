"""SkewGPOrdinalClassifier: the posterior behind it, levels that nobody chose, orders, errors."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from pymc.distributions.transforms import ordered
from scipy.stats import expon, norm

import pymc_skewgp as sg
from pymc_skewgp import SkewGPOrdinalClassifier

RNG = np.random.default_rng(4)
X = np.sort(RNG.uniform(-3.0, 3.0, (60, 1)), axis=0)
LATENT = 2.0 * np.sin(X[:, 0])
Y = np.digitize(LATENT + RNG.normal(size=60), [-1.0, 1.5])
NAMES = np.array(["never", "sometimes", "often"])
NEW = np.linspace(-3.0, 3.0, 13)[:, None]


def fast(**options):
    return SkewGPOrdinalClassifier(**{"n_restarts": 0, "random_state": 0, **options})


def test_two_classes_are_probit():
    """With a cut-point the function has a level of its own, no more."""
    model = fast().fit(X, Y > 0)
    point = model.hyperparameters_.point
    (cut,) = point["cutpoints"]
    gp = sg.SkewGP(
        mean_func=pm.gp.mean.Constant(-cut),
        cov_func=point["eta"] ** 2 * pm.gp.cov.ExpQuad(1, ls=point["ls"]),
    )
    probit = gp.posterior(X, Y > 0, n_draws=4096)
    # Errors of two estimates of the evidence, and of 13 probabilities.
    evidence, own = probit.log_marginal_likelihood, model.log_marginal_likelihood_
    assert abs(evidence.value - own.value) < 5 * np.hypot(evidence.std_error, own.std_error)
    direct = probit.probability(NEW)
    p = model.predict_proba(NEW)[:, 1]
    assert (np.abs(p - direct.value) < 5 * 2.5 * direct.std_error + 1e-6).all()


def test_a_level_between_others_that_nobody_chose():
    """Between two levels that touch: improbable at their border, and possible."""
    x = np.linspace(-2, 2, 20)[:, None]
    y = np.array([0, 1, 3, 4])[np.digitize(x[:, 0], [-1, 0, 1])]
    model = fast(categories=range(5)).fit(x, y)
    p = model.predict_proba([[-2.0], [0.0], [2.0]])[:, 2]
    assert 0.02 < p[1] < 0.2
    assert max(p[0], p[2]) < 0.01


def unseen_last(width_prior):
    """Log evidence of five 0 and seven 1 of three levels at one place, and P(2) there.

    By quadrature over f ~ N(0, 1), the lower cut-point and the width of level 1, whose prior is
    that of `cutpoints`, in the order declared, times `width_prior`.
    """
    f, weights = np.polynomial.hermite_e.hermegauss(30)
    weights = weights[:, None, None] / weights.sum()
    low, width = np.linspace(-6, 6, 201), np.linspace(1e-3, 25, 500)
    f, b, w = np.meshgrid(f, low, width, indexing="ij")
    log_p = 5 * norm.logcdf(b - f) + 7 * np.log(norm.cdf(b + w - f) - norm.cdf(b - f) + 1e-300)
    p = weights * np.exp(log_p + width_prior(b, w))
    cell = (low[1] - low[0]) * (width[1] - width[0])
    return np.log(p.sum() * cell), (p * norm.sf(b + w - f)).sum() / p.sum()


def cuts(sd):
    """Two normal numbers in an order, one of two: the density is twice that of the numbers."""
    return lambda b, w: np.log(2.0) + norm.logpdf(b, scale=sd) + norm.logpdf(b + w, scale=sd)


ENDS = {"last": lambda y: y, "first": lambda y: 2 - y}


@pytest.mark.parametrize(("end", "hyperparameters"), [("first", "maximize"), ("last", "average")])
def test_a_level_at_an_end_that_nobody_chose(end, hyperparameters):
    x, y = np.zeros((12, 1)), np.repeat([0, 1], [5, 7])
    model = fast(
        kernel=lambda d: pm.gp.cov.ExpQuad(d, ls=1.0),
        categories=range(3),
        hyperparameters=hyperparameters,
    ).fit(x, ENDS[end](y))
    # f and the noise have a variance of 1 each.
    log_evidence, right = unseen_last(
        lambda b, w: cuts(10.0)(b, w) + expon.logpdf(w, scale=np.sqrt(2.0))
    )
    p = model.predict_proba([[0.0]])[0, ENDS[end](2)]
    if hyperparameters == "maximize":
        # Where the width is exponential its mode stands for its mean, but for the second order.
        assert p == pytest.approx(right, rel=0.2)
        return
    # 32 points, each with a P(2) whose deviation is the mean or so: three standard errors.
    assert p == pytest.approx(right, rel=3 / np.sqrt(32))
    evidence = model.log_marginal_likelihood_
    assert abs(evidence.value - log_evidence) < 4 * evidence.std_error


def test_unseen_levels_of_the_likelihood():
    """Priors are then the user's."""
    x, y = np.zeros((12, 1)), np.repeat([0, 1], [5, 7])
    with pm.Model():
        b = pm.Normal("b", 0.0, 3.0, shape=2, transform=ordered, initval=[-1.0, 1.0])
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    options = {"Xnew": [[0.0]], "draws": 250, "n_evidences": 128, "random_seed": 0}
    likelihood = sg.likelihoods.OrderedProbit(b)
    dt = sg.integrate(gp, x, y, likelihood=likelihood, progressbar=False, **options)
    log_evidence, right = unseen_last(cuts(3.0))
    attrs = dt["posterior"].attrs
    assert abs(attrs["log_evidence"] - log_evidence) < 4 * attrs["log_evidence_se"]
    p = dt["predictions"]["p"].to_numpy()[..., 0, 2].ravel()
    # 1000 draws, of 128 near-independent hyperparameters; some hundred of them effective.
    assert p.mean() == pytest.approx(right, abs=4 * p.std() / np.sqrt(100))


def test_unseen_levels_without_a_prior_are_named():
    x, y = np.zeros((12, 1)), np.repeat([0, 1], [5, 7])
    with pm.Model():
        b = pm.Flat("b", shape=2, transform=ordered, initval=[-1.0, 1.0])
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    likelihood = sg.likelihoods.OrderedProbit(b)
    with pytest.warns(sg.FlatOptimumWarning, match=r"^b\[1\] is weakly"):
        sg.find_hyperparameters(gp, x, y, likelihood=likelihood, progressbar=False, random_seed=0)


@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
@pytest.mark.usefixtures("no_search")
def test_orders_of_categories():
    """Those that are given, or of an ordered categorical, whatever holds it; others are sorted."""
    right = fast(categories=NAMES).fit(X, NAMES[Y]).predict_proba(NEW)
    ordered = pd.Categorical(NAMES[Y], categories=NAMES, ordered=True)
    longer = pd.CategoricalDtype([*NAMES, "always"], ordered=True)
    for y, given, classes in (
        *((y, None, NAMES) for y in (ordered, pd.Series(ordered), pd.Index(ordered))),
        (pd.DataFrame({"y": ordered}), None, NAMES),
        (NAMES[Y], pd.CategoricalDtype(NAMES, ordered=True), NAMES),
        (pd.Series(NAMES[Y], dtype=longer), None, longer.categories),
        (pd.Categorical(NAMES[Y], categories=NAMES), None, sorted(NAMES)),
    ):
        model = fast(categories=given).fit(X, y)
        np.testing.assert_array_equal(model.classes_, classes)
        if classes is NAMES:
            np.testing.assert_array_equal(model.predict_proba(NEW), right)


def test_orders_in_a_posterior():
    gp = sg.SkewGP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0))
    ordered = pd.Categorical(NAMES[Y], categories=NAMES, ordered=True)
    likelihood = sg.likelihoods.OrderedProbit([-1.0, 1.5])
    own, codes = (gp.posterior(X, y, likelihood=likelihood) for y in (ordered, Y))
    assert own.log_marginal_likelihood == codes.log_marginal_likelihood
