"""Observed variables of models as sites: how users write them, and what is refused."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import expit, gammaln, log_softmax
from scipy.stats import bernoulli, binom, nbinom, poisson

from pymc_skewgp import NotSitesError, SkewGP
from pymc_skewgp._model.graph.analysis import block_graph, site_block_of
from pymc_skewgp._model.graph.gaussian_terms import sites_of_data
from pymc_skewgp._model.graph.sites import sites_of
from pymc_skewgp._model.ops.plain_mode import PLAIN

pytestmark = pytest.mark.usefixtures("in_python")

N = 7
X = np.linspace(0.0, 3.0, N)[:, None]
Y = np.array([0, 2, 1, 3, 0, 5, 1])
REAL = np.array([-1.0, 0.5, 2.0, 0.1, -0.3, 1.2, 0.7])
EXPOSURE = np.array([1.0, 2.0, 0.5, 4.0, 1.5, 3.0, 1.0])
INDEX = np.array([0, 1, 1, 2, 6, 5, 5, 3])
COVARIATES = np.stack([np.ones(N), np.arange(N) - 3.0], axis=1)
VALUES = {  # of everything that a case may have, on its own scale
    "f": np.array([0.3, -0.4, 0.8, 1.1, -0.9, 0.2, 0.5]),
    "g": np.array([-0.2, 0.5, 0.1, -0.7, 0.4, 0.9, -0.3]),
    "b": np.array(0.4),
    "w": np.array([0.2, -0.3]),
    "alpha": np.array(1.7),
    "cutpoints": np.array([-1.0, 0.3, 1.4]),
}
F, G = VALUES["f"], VALUES["g"]


def _poisson(y, mu):
    return y * np.log(mu) - mu - gammaln(y + 1.0)


def prior(name="f"):
    return SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior(name, X)


def linear_terms():
    b, w = pm.Normal("b"), pm.Normal("w", shape=2)
    pm.Poisson("y", pm.math.exp(b + prior() + COVARIATES @ w), observed=Y)
    eta = 0.4 + F + COVARIATES @ VALUES["w"]
    return eta, _poisson(Y, np.exp(eta)), "b w f"


def two_functions():
    pm.Poisson("y", pm.math.exp(prior("f") + EXPOSURE * prior("g")), observed=Y)
    return F + EXPOSURE * G, _poisson(Y, np.exp(F + EXPOSURE * G)), "f g"


def picked_before():
    index = pm.Data("index", INDEX)
    pm.Poisson("y", pm.math.exp(prior()[index]), observed=Y[INDEX])
    return F[INDEX], _poisson(Y, np.exp(F))[INDEX], "f"


def picked_after_from_a_deterministic():
    rate = pm.Deterministic("rate", EXPOSURE * pm.math.exp(prior()))
    pm.Poisson("y", rate[INDEX], observed=Y[INDEX])
    return F[INDEX], _poisson(Y, EXPOSURE * np.exp(F))[INDEX], "f"


def shared_dispersion():
    alpha = pm.HalfNormal("alpha")
    pm.NegativeBinomial("y", mu=pm.math.exp(prior()), alpha=alpha, observed=Y)
    return F, stats.nbinom.logpmf(Y, 1.7, 1.7 / (1.7 + np.exp(F))), "f"


def ordered():
    cutpoints = pm.Normal(
        "cutpoints", [-1, 0, 1], shape=3, transform=pm.distributions.transforms.ordered
    )
    pm.OrderedLogistic("y", eta=prior(), cutpoints=cutpoints, observed=Y % 4)
    cumulative = expit(np.append(VALUES["cutpoints"], np.inf) - F[:, None])
    return F, np.log(np.diff(cumulative, prepend=0.0)[np.arange(N), Y % 4]), "f"


def predictor_in_the_scale():
    pm.Normal("y", 0.0, pm.math.exp(prior()), observed=REAL)
    return F, stats.norm.logpdf(REAL, 0.0, np.exp(F)), "f"


def scaled_function():
    alpha = pm.HalfNormal("alpha")
    pm.Poisson("y", pm.math.exp(alpha * prior()), observed=Y)
    return None, _poisson(Y, np.exp(1.7 * F)), "f"


def gaussian_in_the_scale():
    b = pm.Normal("b")
    pm.StudentT("y", nu=4, mu=prior(), sigma=pm.math.exp(b), observed=REAL)
    return F, stats.t.logpdf(REAL, 4, F, np.exp(0.4)), "f"


def one_parameter_of_two():
    mu = pm.math.exp(prior())
    pm.Gamma("y", mu=mu, sigma=0.5 * mu, observed=REAL**2)
    return F, stats.gamma.logpdf(REAL**2, 4.0, scale=np.exp(F) / 4), "f"


def summed_up_before():
    pm.Poisson("y", pm.math.exp(pt.cumsum(prior())), observed=Y)
    return np.cumsum(F), _poisson(Y, np.exp(np.cumsum(F))), "f"


POSITIVE = np.array([0.2, 0.5, 2.0, 1.1, 0.3, 1.2, 2.0])


def censored_lifetimes():
    alpha = pm.HalfNormal("alpha")
    lifetime = pm.Weibull.dist(alpha, pm.math.exp(prior()))
    pm.Censored("y", lifetime, lower=0.2, upper=2.0, observed=POSITIVE)
    own = stats.weibull_min(1.7, scale=np.exp(F))
    inside = np.where(POSITIVE == 0.2, own.logcdf(0.2), own.logpdf(POSITIVE))
    return F, np.where(POSITIVE == 2.0, own.logsf(2.0), inside), "f"


CASES = (
    censored_lifetimes,
    linear_terms,
    two_functions,
    picked_before,
    picked_after_from_a_deterministic,
    shared_dispersion,
    ordered,
    predictor_in_the_scale,
    scaled_function,
    gaussian_in_the_scale,
    one_parameter_of_two,
    summed_up_before,
)


def _at_values(model, sites, graphs, eta):
    """Graphs as numbers, hyperparameters at `VALUES`."""
    point = model.initial_point()
    for rv in model.free_RVs:
        if rv.name in VALUES:
            transform = model.rvs_to_transforms[rv]
            value = VALUES[rv.name]
            if transform is not None:
                value = transform.forward(value, *rv.owner.inputs).eval()
            point[model.rvs_to_values[rv].name] = value
    inputs = [sites.eta, *model.value_vars]
    function = pytensor.function(inputs, graphs, mode=PLAIN, on_unused_input="ignore")
    return function(eta, *(point[v.name] for v in model.value_vars))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_sites_of_a_model(case):
    with pm.Model() as model:
        predictor, log_prob, names = case()
    block = block_graph(model, site_block_of(model, model["f"]))
    (sites,) = block.sites
    assert block.names == [x.name for x in model.free_RVs if x.name in names.split()]
    f = np.concatenate([np.ravel(VALUES[name]) for name in block.names])
    design, a = _at_values(model, sites, [sites.A, sites.a], np.zeros(1))
    eta = design @ f + a
    if predictor is not None:
        np.testing.assert_allclose(eta, predictor, rtol=1e-12, atol=1e-12)
    (found,) = _at_values(model, sites, [sites.log_prob], eta)
    # PyTensor takes logs of constants such as 2 in single precision: 1e-7 of numbers near 1.
    np.testing.assert_allclose(found, log_prob, rtol=2e-7, atol=2e-7)
    expected = {"alpha", "cutpoints", "b"} & {x.name for x in model.free_RVs} - set(block.names)
    assert {v.name.partition("_")[0] for v in sites.hyperparameters} == expected


def test_members_may_be_chosen():
    with pm.Model() as model:
        linear_terms()
    sites = sites_of(model, model["y"], [model["f"]])
    assert {v.name for v in sites.hyperparameters} == {"b", "w"}


def several_numbers():
    p = pm.math.sigmoid(prior())
    pm.Multinomial("y", 4, p=pt.stack([p, 1.0 - p], axis=1), observed=np.tile([1, 3], (N, 1)))


def no_density():
    def random(mu, rng=None, size=None):
        return rng.normal(mu, size=size)

    pm.CustomDist("y", prior(), random=random, observed=REAL)


def counts(mu):
    pm.Poisson("y", mu, observed=Y)


REFUSED = {
    "Softmax": lambda: counts(9 * pm.math.softmax(prior())),
    "Sum": lambda: counts(pm.math.exp(f := prior()) / pm.math.exp(f).sum()),
    "Dot": lambda: counts(np.ones((N, N)) @ pm.math.exp(prior())),
    "Cumsum": lambda: counts(pt.cumsum(pm.math.exp(prior()))),
    "no one predictor .* Exp": lambda: pm.Normal(
        "y", prior("f"), pm.math.exp(prior("g")), observed=REAL
    ),
    "no one predictor .* Mul": lambda: counts(pm.math.exp(prior("f") * prior("g"))),
    "one number for all observations": lambda: pm.MvNormal(
        "y", pm.math.exp(prior()), np.eye(N), observed=REAL
    ),
    "one number for several observations": several_numbers,
    "random variable that the model does not know": lambda: counts(
        pm.math.exp(prior() + pm.Normal.dist())
    ),
    "no log probability": no_density,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refusals_name_what_is_in_the_way(reason):
    with pm.Model() as model:
        REFUSED[reason]()
    with pytest.raises(NotSitesError, match=reason):
        sites_of(model, model["y"], model.free_RVs)


# Which sites of models are known by a closed form, against SciPy's.


PAIRS_OF_COUNTS = np.array([[0, 3], [7, 1], [40, 2]])
LABELS = np.array([0, 1, 1])
TRIALS = np.array([5, 12, 1])

CANONICAL = {
    "labels": (
        lambda f: pm.Bernoulli("y", logit_p=f[:3], observed=LABELS),
        lambda x: bernoulli(expit(x)).logpmf(LABELS),
    ),
    "trials": (
        lambda f: pm.Binomial("y", TRIALS, p=pm.math.invlogit(0.3 - f[:3]), observed=LABELS),
        lambda x: binom(TRIALS, expit(x)).logpmf(LABELS),
    ),
    "counts of two dimensions": (
        lambda f: pm.Poisson("y", 2.5 * pm.math.exp(f.reshape((3, 2))), observed=PAIRS_OF_COUNTS),
        lambda x: poisson(2.5 * np.exp(x)).logpmf(PAIRS_OF_COUNTS.ravel()),
    ),
    "more variance": (
        lambda f: pm.NegativeBinomial("y", mu=3 * pm.math.exp(f), alpha=0.3, observed=np.arange(6)),
        lambda x: nbinom(0.3, 0.1 / (0.1 + np.exp(x))).logpmf(np.arange(6)),
    ),
}
OTHERS = {
    "a probit link": lambda f: pm.Bernoulli("y", p=pm.math.invprobit(f), observed=np.ones(6)),
    "a lapse": lambda f: pm.Bernoulli(
        "y", p=0.01 + 0.98 * pm.math.invlogit(f), observed=np.ones(6)
    ),
    "a clip": lambda f: pm.Bernoulli(
        "y", p=pm.math.clip(pm.math.invlogit(f), 1e-9, 1 - 1e-9), observed=np.ones(6)
    ),
    "a clip beyond all that is likely": lambda f: pm.Bernoulli(
        "y", logit_p=pm.math.clip(f, -40.0, 40.0), observed=np.ones(6)
    ),
    "no zeros": lambda f: pm.Truncated(
        "y", pm.Poisson.dist(pm.math.exp(f)), lower=1, observed=np.arange(1, 7)
    ),
}


def _sites(observed):
    with pm.Model() as model:
        observed(pm.Normal("f", shape=6))
    known = sites_of_data(sites_of(model, model["y"], [model["f"]]))
    return known.family(known.y.eval(), ())


@pytest.mark.parametrize("name", CANONICAL)
def test_canonical_sites_are_recognised(name):
    observed, log_prob = CANONICAL[name]
    sites = _sites(observed)
    assert sites.log_concave
    x = np.linspace(-20.0, 6.0, 14)[:, None] * np.ones(sites.size)
    wanted = log_prob(x)
    # Sums of terms as large as 1e4.
    np.testing.assert_allclose(sites.log_prob(x), wanted, rtol=1e-9, atol=1e-9)
    first, second = sites.slopes(x)
    h = 1e-4
    below, above = sites.log_prob(x - h), sites.log_prob(x + h)
    # Differences of two values: h^2, and round-off over h.
    np.testing.assert_allclose(first, (above - below) / (2 * h), rtol=1e-5, atol=1e-5)
    slopes = [sites.slopes(x + k * h)[0] for k in (-1, 1)]
    np.testing.assert_allclose(second, (slopes[1] - slopes[0]) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.01, 2.0, 1e4])
def test_canonical_sites_with_a_parameter_are_recognised_at_each_of_its_values(alpha):
    y = np.arange(6)
    with pm.Model() as model:
        mu = pm.math.exp(pm.Normal("f", shape=6))
        pm.NegativeBinomial("y", mu=mu, alpha=pm.Exponential("alpha", 1.0), observed=y)
    family = sites_of_data(sites_of(model, model["y"], [model["f"]])).family
    family(y, [np.array(1.0)])  # the logarithm of alpha, as PyMC has it
    sites = family(y, [np.log(alpha)])
    assert sites.log_concave
    assert sites.has_parameters
    x = np.linspace(-8.0, 6.0, 14)[:, None] * np.ones(6)  # below SciPy loses digits
    wanted = nbinom(alpha, alpha / (alpha + np.exp(x))).logpmf(y)
    # Sums of terms as large as 1e5.
    np.testing.assert_allclose(sites.log_prob(x), wanted, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not(name):
    assert not _sites(OTHERS[name]).log_concave


def _of_three(observed):
    with pm.Model() as model:
        observed(pm.Normal("f", shape=(5, 3)))
    known = sites_of_data(sites_of(model, model["y"], [model["f"]], several=True))
    return known.family(known.y.eval(), ())


CLASSES = np.array([0, 2, 1, 1, 0])


@pytest.mark.parametrize("of_logits", [True, False])
def test_classes_by_a_softmax_are_recognised(of_logits):
    """Far out as well, where PyMC takes the logarithm of 0."""

    def observed(f):
        by = {"logit_p": f} if of_logits else {"p": pm.math.softmax(f, axis=-1)}
        pm.Categorical("y", **by, observed=CLASSES)

    sites = _of_three(observed)
    assert sites.log_concave
    x = (
        np.random.default_rng(0).normal(size=(4, 5, 3))
        * np.array([1, 10, 100, 1000])[:, None, None]
    )
    wanted = log_softmax(x, axis=-1)[:, np.arange(5), CLASSES]
    # Round-off of differences of predictors.
    np.testing.assert_allclose(sites.log_prob(x.reshape(4, -1)), wanted, rtol=1e-13, atol=1e-13)
    first, second = sites.slopes(x.reshape(4, -1))
    p = np.exp(log_softmax(x, axis=-1))
    np.testing.assert_allclose(first.reshape(x.shape), np.eye(3)[CLASSES] - p, atol=1e-14)
    outer = p[..., None] * p[..., None, :] - p[..., None] * np.eye(3)
    np.testing.assert_allclose(second, outer, atol=1e-14)


def test_other_classes_are_not():
    def observed(f):
        pm.Categorical("y", p=0.9 * pm.math.softmax(f, axis=-1) + 0.1 / 3, observed=CLASSES)

    assert not _of_three(observed).log_concave


def test_slopes_of_several_predictors():
    """Of a mean and a log standard deviation, by hand."""
    y = np.array([0.3, -1.0, 2.0])
    with pm.Model() as model:
        f, g = pm.Normal("f", shape=3), pm.Normal("g", shape=3)
        pm.Normal("y", f, pm.math.exp(g), observed=y)
    known = sites_of_data(sites_of(model, model["y"], [model["f"], model["g"]], several=True))
    sites = known.family(known.y.eval(), ())
    x = np.random.default_rng(0).normal(size=(4, 3, 2))
    f, g = sites.gaussian_in, 1 - sites.gaussian_in  # their order is that in the graph
    off, precision = y - x[..., f], np.exp(-2.0 * x[..., g])
    first, second = sites.slopes(x.reshape(4, -1))
    near = {"rtol": 1e-12, "atol": 1e-12}  # round-off
    np.testing.assert_allclose(first.reshape(x.shape)[..., f], off * precision, **near)
    np.testing.assert_allclose(first.reshape(x.shape)[..., g], off**2 * precision - 1.0, **near)
    np.testing.assert_allclose(second[..., f, f], -precision, **near)
    np.testing.assert_allclose(second[..., f, g], -2.0 * off * precision, **near)
    np.testing.assert_allclose(second[..., g, g], -2.0 * off**2 * precision, **near)
    np.testing.assert_array_equal(second, second.swapaxes(-1, -2))


def test_data_that_are_exchanged_have_sites_of_their_own():
    with pm.Model() as model:
        f = pm.Normal("f", shape=3)
        pm.Poisson("y", pm.math.exp(f), observed=pm.Data("data", np.array([0, 1, 2])))
    known = sites_of_data(sites_of(model, model["y"], [model["f"]]))
    x = np.array([[0.3, -1.0, 2.0]])
    for y in (np.array([0, 1, 2]), np.array([5, 1, 0])):
        pm.set_data({"data": y}, model=model)
        np.testing.assert_allclose(
            known.family(known.y.eval(), ()).log_prob(x), poisson(np.exp(x)).logpmf(y), rtol=1e-12
        )
