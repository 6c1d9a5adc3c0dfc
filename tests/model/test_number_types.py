"""A number is the same number as an integer, in single precision or as an array of either.

PyTensor holds Python's integers as int8: squares, doubles and negatives of these overflow.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from likelihood_cases import CASES, Case
from pymc.logprob.utils import ParameterValueError
from scipy.stats import multivariate_normal

import pymc_skewgp as sg
from pymc_skewgp import likelihoods
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._model.graph.collapsed import collapse_model
from pymc_skewgp._model.ops.plain_mode import PLAIN, as_real, in_double

N = 8
X = np.linspace(0, 1, N)[:, None]
WIDE = np.round(100 * X).astype(int)
Y = np.array([3.0, 2.0, 5.0, 3.0, 1.0, 4.0, 7.0, 6.0])
LABELS = np.array([0, 1, 1, 0, 1, 1, 1, 0])


def _real(value):
    return np.asarray(value, dtype=float)[()]


def _plain(value):
    """Python's integers, and arrays of NumPy's default type."""
    return np.asarray(value) if isinstance(value, np.ndarray) else value


def _small(value):
    """The narrowest types of NumPy that hold these integers."""
    return np.asarray(value).astype(np.int8 if np.min(value) < 0 else np.uint8)[()]


def _single(value):
    return np.asarray(value, dtype=np.float32)[()]


def _mixed(value):
    """Python's numbers, and arrays as narrow as they can be."""
    return _small(value) if np.ndim(value) else value


SPELLINGS = {"mixed": _mixed, "narrow": _small, "single": _single}
FEWER = {"mixed": _mixed, "single": _single}


def _kernel(ls=0.5):
    return pm.gp.cov.ExpQuad(1, ls=ls)


def _f(X=X, name="f", **given):
    return sg.SkewGP(**{"cov_func": _kernel(), **given}).prior(name, X)


def _log_evidence(build, spelling):
    """By EP, which has no draws; `integrate` begins with the same functions of the model."""
    with pm.Model() as model:
        build(spelling)
    objective, origin = compile_objective(model, collapse_model(model), averaged=True)
    return objective.by_ep(Point(origin)).log_evidence


def _normal(eta, sigma=1.0):
    return pm.Normal("y", eta, sigma, observed=Y)


def _effects(c):
    """Means and deviations of everything that is Gaussian, added up."""
    which = np.arange(N) % 2
    eta = pm.Normal("mean", c(100), 100.0) + pm.Normal("sd", 0, c(100))
    eta += pm.Normal("sd of some", 0.0, c([100, 50]), shape=2)[which]
    eta += pm.MvNormal("cov", c([12, 9]), c([[100, 50], [50, 100]]))[which]
    eta += pm.ZeroSumNormal("zero sum", c(100), shape=4)[np.arange(N) % 4]
    _normal(eta + _f())


def _rows(c):
    f = _f()
    pm.Normal("scaled", c(100) + c(12) * f, c(100), observed=Y)
    pm.Censored("limits", pm.Normal.dist(f, c(100)), c(2), c(5), observed=np.clip(Y, 2, 5))
    pm.Binomial("trials", c(120), pm.math.invprobit(f), observed=100 * LABELS)
    sg.IntervalNormal("intervals", f, c(100), c([-100] * N), c([4] * N), observed=Y)
    pairs = [[0, 1], [1, 2], [5, 3]]
    sg.PreferenceProbit("duels", f, pairs, c(100), c(100), observed=[1, -1, 0])
    pm.OrderedProbit(
        "cut-points", eta=f, cutpoints=c([-100, 0, 100]), sigma=c(100), observed=LABELS + 1
    )


def _sites(c):
    f = _f()
    pm.StudentT("Student-t", nu=c(100), mu=f, sigma=c(100), observed=Y)
    pm.Laplace("Laplace", f, c(100), observed=Y)
    pm.ExGaussian("ExGaussian", f, c(100), nu=c(100), observed=Y)


def _kernels(c):
    both, place = np.c_[X, np.arange(N) % 2], pm.gp.cov.ExpQuad(2, ls=0.5, active_dims=[0])
    which = pm.gp.cov.Coregion(2, W=c([[12], [11]]), kappa=c([100, 100]), active_dims=[1])
    noise = _f(cov_func=_kernel() + pm.gp.cov.WhiteNoise(c(100)), name="noise")
    amplitude = _f(cov_func=c(100) * (c(100) * _kernel()), name="amplitude")
    length = _f(WIDE, cov_func=pm.gp.cov.Matern32(1, ls=c(100)), name="length")
    _normal(noise + amplitude + length + _f(both, cov_func=place * which, name="coregion"))


def _inputs(c):
    mean = pm.gp.mean.Linear(c([100]), c(100))
    cov = _kernel(50.0) + pm.gp.cov.Polynomial(1, c=0.0, d=2.0, offset=1.0)
    f = _f(c(WIDE), mean_func=mean, cov_func=_kernel(50.0), name="mean")
    _normal(f + _f(pm.Data("X", c(WIDE)), cov_func=cov, name="X as data"))


def _signs(c):
    shared = pytensor.shared(np.asarray(c([100])), shape=(1,))
    f = _f(pseudo_points=c([[0], [1]]), phase=c([1, -1]), truncation=c([2, 1]), name="signs")
    _normal(f + _f(pseudo_points=[[0.0]], truncation=shared, name="shared truncation"))


@pytest.mark.filterwarnings("ignore::pymc_skewgp.JitterWarning")
@pytest.mark.parametrize("build", [_effects, _rows, _sites, _kernels, _inputs, _signs])
def test_parameters_in_models(build):
    found = _log_evidence(build, _mixed)
    assert found == pytest.approx(_log_evidence(build, _real), rel=1e-6, abs=1e-6)


def test_integer_standard_deviation_against_the_closed_form():
    x = np.linspace(0, 1, 12)[:, None]
    y = 50 + np.random.default_rng(0).normal(size=12)
    K = np.exp(-0.5 * (x - x.T) ** 2 / 0.3**2)
    cov = 100.0**2 + K + (1 + 1e-6) * np.eye(12)

    def build(spelling):
        b = pm.Normal("b", 0, spelling(100))
        pm.Normal("y", b + _f(x, cov_func=_kernel(0.3)), 1, observed=y)

    expected = multivariate_normal(np.zeros(12), cov).logpdf(y)
    # No draws are in the evidence of values with normal noise: round-off of a matrix with a
    # condition number of 1e5.
    assert _log_evidence(build, _plain) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", [*CASES, "a distribution"])
def test_parameters_data_and_inputs_of_posteriors(name):
    laplace = Case(lambda b: lambda eta: pm.Laplace.dist(eta, b), {}, Y, whole={"b": 100})
    case = CASES.get(name, laplace)
    y = case.data() if case.whole_y is None else case.whole_y
    # Data that no whole numbers are stay as they are.
    is_kept = y is None or y.ndim == 2 or (case.whole_y is not None and y.dtype == float)
    gp = sg.SkewGP(cov_func=4.0 * _kernel(50.0))

    def log_evidence(spelling):
        whole = {key: spelling(x) for key, x in case.whole.items()}
        data = y if is_kept else spelling(np.ceil(y).astype(int))
        known = case.kind(**case.arguments | whole)
        p = gp.posterior(spelling(WIDE), data, likelihood=known, n_draws=256, **case.options)
        return p.log_marginal_likelihood.value

    expected = log_evidence(_real)
    for how, spelling in FEWER.items():
        assert log_evidence(spelling) == pytest.approx(expected, rel=1e-6, abs=1e-6), how


def test_weights_and_coregion():
    def log_evidence(spelling):
        gp = sg.SkewGP(cov_func=_kernel(), mean_func=pm.gp.mean.Constant(spelling(3)))
        both = {"coregion": spelling([[100, 50], [50, 100]]), "n_draws": 256}
        known = likelihoods.MultinomialProbit(2)
        classes = gp.posterior(X, spelling(LABELS), likelihood=known, **both)
        weighted = gp.posterior(X, LABELS, weights=spelling([100, 1, 2, 3, 4, 120, 1, 1]))
        return [p.log_marginal_likelihood.value for p in (classes, weighted)]

    expected = log_evidence(_real)
    for spelling in SPELLINGS.values():
        np.testing.assert_allclose(log_evidence(spelling), expected, rtol=1e-6)


COV, PAIRS = [[100, 10], [10, 100]], [[0, 2], [1, 0]]
DISTRIBUTIONS = [
    lambda c: pm.logp(sg.BernoulliProbit.dist(c([3, 2, 100])), [0, 1, 0]),
    lambda c: pm.logp(sg.ChoiceProbit.dist(c([3, 2, 100]), c(100)), 0),
    lambda c: pm.logp(sg.MultinomialProbit.dist(c([3, 2, 4])), 0),
    lambda c: pm.logp(
        sg.PreferenceProbit.dist(c([3, 2, 100]), PAIRS, c(100), c(100)), np.array([1, 0])
    ),
    lambda c: pm.logp(sg.IntervalNormal.dist(c(10), c(100), c([0, 5]), c([100, 5])), [50.0, 5.0]),
    lambda c: pm.logp(
        sg.UnifiedSkewNormal.dist(
            c([10, 20]), c(COV), truncation=c([1]), latent_cov=c([[100]]), cross_cov=c([[1], [2]])
        ),
        [50.0, 5.0],
    ),
    lambda c: pm.logp(
        sg.TruncatedMvNormal.dist(c([10, 20]), c(COV), c([0, 0]), c([100, 100])), [50.0, 5.0]
    ),
    lambda c: pm.logcdf(pm.MvNormal.dist(c([10, 20]), c(COV)), c([5, 5])),
]


def test_parameters_of_distributions():
    def values(spelling):
        graphs = [pt.atleast_1d(of(spelling)) for of in DISTRIBUTIONS]
        return np.concatenate(pytensor.function([], graphs, mode=PLAIN)())

    expected = values(_real)
    for spelling in SPELLINGS.values():
        np.testing.assert_allclose(values(spelling), expected, rtol=1e-6)


ESTIMATORS = {
    "classifier": (sg.SkewGPClassifier, LABELS),
    "ordinal classifier": (sg.SkewGPOrdinalClassifier, np.array([2, 1, 2, 3, 1, 3, 3, 2])),
    "regressor": (sg.SkewGPRegressor, Y),
    "preference": (sg.SkewGPPreference, np.array([[0, 1], [1, 2], [5, 3], [6, 0]])),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_data_of_estimators(name):
    estimator, y = ESTIMATORS[name]

    def predictions(spelling):
        model = estimator(n_restarts=0, random_state=0)
        found = model.fit(spelling(WIDE), y if y.ndim == 2 else spelling(y))
        ask = getattr(found, "predict_proba", found.predict)
        return ask(spelling(WIDE))

    expected = predictions(_real)
    for spelling in FEWER.values():
        # A search for hyperparameters ends where its path does: round-off is all that differs.
        np.testing.assert_allclose(predictions(spelling), expected, rtol=1e-5)


def test_labels_as_booleans():
    gp = sg.SkewGP(cov_func=_kernel())
    evidences = [gp.posterior(X, y).log_marginal_likelihood.value for y in (LABELS, LABELS > 0)]
    assert evidences[1] == evidences[0]
    model = {"n_restarts": 0, "random_state": 0}
    fits = [sg.SkewGPClassifier(**model).fit(X, y) for y in (LABELS, LABELS > 0)]
    np.testing.assert_array_equal(*(fit.predict_proba(X) for fit in fits))
    assert fits[1].predict(X).dtype == bool

    def of_model(y):
        return _log_evidence(lambda c: pm.Bernoulli("y", logit_p=_f(), observed=y), _real)

    assert of_model(LABELS > 0) == of_model(LABELS)


def test_large_integers():
    gp = sg.SkewGP(cov_func=4.0 * _kernel())
    trials, successes = np.full(N, 10**6), 10**5 * np.arange(1, N + 1)
    evidences = [
        gp.posterior(
            X, successes.astype(kind), likelihood=likelihoods.BinomialLogit(trials.astype(kind))
        ).log_marginal_likelihood.value
        for kind in (float, np.int32, np.int64)
    ]
    assert evidences[1:] == pytest.approx([evidences[0]] * 2, rel=1e-9)

    def build(spelling):
        _normal(pm.Normal("b", 0, spelling(10**6)) + _f())

    found = _log_evidence(build, lambda x: np.int32(x))
    assert found == pytest.approx(_log_evidence(build, float), rel=1e-9)


def test_only_what_is_narrow_is_made_anew():
    ls = pm.Gamma.dist(2, 1)
    x = pt.vector("x")
    wide, narrow = x / (2 * ls), pt.sqr(pt.as_tensor_variable(100)) + x
    same, other = in_double([wide, narrow])
    assert same is wide
    assert other.eval({x: np.zeros(1)}, mode=PLAIN) == 10_000
    assert as_real(x) is x
    assert as_real(3).data.dtype == np.float64
    diagonal = in_double([pt.diag(pt.alloc(pt.sqr(pt.as_tensor_variable(100)), 2))])[0]
    np.testing.assert_array_equal(diagonal.eval(mode=PLAIN), 10_000 * np.eye(2))


def test_impossible_numbers_are_refused_all_the_same():
    with pytest.raises(ParameterValueError, match="sigma > 0"):
        pm.logp(sg.ChoiceProbit.dist([1, 2], -1), 0).eval(mode="FAST_COMPILE")
