"""Learning from many trials at a place, and from weights: against quadrature, and against rows.

The places have two values of f, so that the evidence is an integral over a plane.
"""

import numpy as np
import pymc as pm
import pytest
from oracles import finite_difference
from scipy import stats
from scipy.special import logsumexp

import pymc_skewgp as sg
from pymc_skewgp._learn.coordinates import Point
from pymc_skewgp._learn.objective import compile_objective
from pymc_skewgp._learn.problem import TrainingData, process_objective
from pymc_skewgp._model.graph.collapsed import collapse_model
from pymc_skewgp._model.graph.data import known_of
from pymc_skewgp._model.graph.members import in_covariance_coordinates

lk = sg.likelihoods
PLACES = np.array([[0.0], [1.0]])
N, Y, COUNTS = np.array([400, 250]), np.array([310, 60]), np.array([3, 1])
ON_LOG_SCALE = stats.norm(0.0, 0.5).logpdf


def exact(x, counts=None, mean=0.0):
    """Log p(y | ls, eta) by a grid about the mode of the likelihood, which these trials decide.

    Of their logarithms; with a Poisson count at each place beside the trials.
    """
    ls, eta = np.exp(x)
    k = eta**2 * np.exp(-0.5 * ((PLACES - PLACES.T) / ls) ** 2)
    step = np.linspace(-0.6, 0.6, 201)
    f = [stats.norm.ppf(y / n) + step for n, y in zip(N, Y, strict=True)]
    log_p = stats.multivariate_normal(np.full(2, mean), k).logpdf(
        np.stack(np.meshgrid(*f, indexing="ij"), -1)
    )
    for i, along in enumerate(((slice(None), None), (None, slice(None)))):
        one = stats.binom(N[i], stats.norm.cdf(f[i])).logpmf(Y[i])
        if counts is not None:
            one = one + stats.poisson(np.exp(f[i])).logpmf(counts[i])
        log_p = log_p + one[along]
    return float(logsumexp(log_p) + 2 * np.log(step[1] - step[0]))


def process():
    with pm.Model() as model:
        ls, eta = (pm.LogNormal(name, 0.0, 0.5) for name in ("ls", "eta"))
        gp = sg.SkewGP(cov_func=eta**2 * pm.gp.cov.ExpQuad(1, ls=ls))
    return model, gp


def in_model():
    model, gp = process()
    with model:
        pm.Binomial("y", n=N, p=pm.math.invprobit(gp.prior("f", PLACES)), observed=Y)
    return model


@pytest.mark.parametrize(("method", "data"), [("ep", False), ("twisted", True)])
def test_the_best_hyperparameters(method, data):
    given = (process()[1], PLACES, Y) if data else (in_model(),)
    options = {"likelihood": lk.BinomialProbit(N)} if data else {}
    options |= {"method": method, "random_seed": 1, "quiet": True, "progressbar": False}
    fit = sg.find_hyperparameters(*given, **options)
    at = np.log([fit.point["ls"], fit.point["eta"]])
    # 256 draws of two coordinates whose weights are all but equal.
    assert fit.log_marginal_likelihood.value == pytest.approx(exact(at), abs=1e-3)
    slopes = finite_difference(lambda x: exact(x) + ON_LOG_SCALE(x).sum() - x.sum(), at, 0.02)
    # The search ends where a step would gain less than 5e-3 nats; the curvature is of order 4.
    assert np.abs(slopes).max() < 0.2


X = np.array([[-1.0], [-0.3], [0.4], [1.2]])
WEIGHTS = np.array([3, 1, 0, 120])
# Of classes none may be without data; each observation is two rows.
KINDS = {
    "labels": ([1, 0, 1, 0], lambda s: lk.BernoulliProbit(), WEIGHTS),
    "levels": ([0, 2, 1, 1], lambda s: lk.OrderedProbit(s, 1.3), WEIGHTS),
    "values": ([0.3, -0.2, 1.0, 2.0], lambda s: lk.Gaussian(s), WEIGHTS),
    "limits": ([0.0, 0.7, 0.0, 1.0], lambda s: lk.CensoredGaussian(s, 0, 1), WEIGHTS),
    "classes": ([0, 1, 2, 1], lambda s: lk.MultinomialProbit(), np.array([2, 1, 1, 3])),
    "counts": ([2, 0, 1, 4], lambda s: lk.NegativeBinomial(s), np.array([3, 1, 0, 2])),
}


def objective_of(kind, X, y, weights=None):
    with pm.Model():
        gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=pm.LogNormal("ls", 0.0, 0.5)))
        s = pm.LogNormal("s", 1.0 if kind == "counts" else 0.0, 0.5)
        if kind == "levels":
            s = pm.Normal("cut", 0.0, 1.0, shape=2, initval=np.array([-0.4, 0.6]))
        data = TrainingData(gp, X, y, KINDS[kind][1](s), weights=weights)
    found = process_objective(data, None, np.random.default_rng(0), None)
    return found.objective, Point(found.origin)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repeated_rows(kind):
    """Value and gradient of one objective and of the other; of sites their powers."""
    y, likelihood, weights = KINDS[kind]
    y, index = np.array(y), np.repeat(np.arange(4), weights)
    (weighted, point), (repeated, _) = (
        objective_of(kind, X, y, weights),
        objective_of(kind, X[index], y[index]),
    )
    assert weighted.coordinates.names == repeated.coordinates.names
    a, b = weighted.by_ep(point), repeated.by_ep(point)
    if kind == "counts":
        # One site to a power against several equal ones: near the same Gaussian, not quite.
        assert a.total == pytest.approx(b.total, abs=0.01)
        one, other = (x.estimate(point, 2048, 1) for x in (weighted, repeated))
        error = np.hypot(one.std_error, other.std_error)
        assert abs(one.value - other.value) < 4 * error + 1e-6
        return
    # EP stops at 1e-4 of a standard deviation.
    assert a.total == pytest.approx(b.total, abs=1e-3)
    np.testing.assert_allclose(a.gradient, b.gradient, atol=2e-2)
    if kind != "classes":
        found = known_of(
            X, y, likelihood(1.0 if kind != "levels" else [-0.4, 0.6]), weights=weights
        )
        # One row for each interval that was seen, however often.
        assert len(found.arrays[1]) == (124 if kind == "values" else 3)


LABELS, PROBIT = KINDS["labels"][0], lk.BernoulliProbit()
POISSON = {"likelihood": lambda eta: pm.Poisson.dist(mu=pm.math.exp(eta))}
REFUSED = {
    "weights must be whole numbers.*row 0 has 0.5": ((X, LABELS), {"weights": np.full(4, 0.5)}),
    r"shape \(4,\)": ((X, LABELS), {"weights": np.ones(3)}),
    "weights do: a model has its data in it": ((), {}),
    "data of one kind": (([(X, LABELS, PROBIT)] * 2,), {}),
    "has none": ((X,), {"likelihood": lk.Constraint.bounds(0.0, 1.0)}),
    "weights go with the likelihoods": ((X, LABELS), POISSON),
}


@pytest.mark.parametrize("message", REFUSED)
def test_weights_that_mean_nothing(message):
    data, options = REFUSED[message]
    of = process()[1] if data else in_model()
    with pytest.raises(ValueError, match=message):
        sg.find_hyperparameters(of, *data, **{"weights": WEIGHTS} | options)


def test_trials_beside_sites():
    """Rows that repeat are rows one by one where likelihoods of other kinds stand beside them."""
    with pm.Model() as model:
        eta, centre = pm.LogNormal("eta", 0.0, 0.5), pm.Logistic("centre", 0.0, 0.6)
        kernel, mean = eta**2 * pm.gp.cov.ExpQuad(1, ls=1.0), pm.gp.mean.Constant(centre)
        f = sg.SkewGP(mean_func=mean, cov_func=kernel).prior("f", PLACES)
        pm.Binomial("y", n=N, p=pm.math.invprobit(f), observed=Y)
        pm.Poisson("counts", mu=pm.math.exp(f), observed=COUNTS)
    objective = compile_objective(model, collapse_model(model))[0]
    assert objective.coordinates.labels == ["eta", "centre"]
    x = np.array([0.2, 0.3])
    found = objective.estimate(Point(x), 1024, 1)

    def truth(x):
        return exact(np.array([0.0, x[0]]), COUNTS, x[1])

    def total(x):
        # On the log scale, less the Jacobian.
        return truth(x) + ON_LOG_SCALE(x[0]) - x[0] + stats.logistic(0.0, 0.6).logpdf(x[1])

    # Four standard errors, and the grid's own error.
    assert abs(found.value - truth(x)) < 4 * found.std_error + 1e-4
    # EP's error under so many trials, found to be below a thousandth.
    by_ep = objective.by_ep(Point(x))
    assert by_ep.log_evidence == pytest.approx(found.value, abs=0.01)
    np.testing.assert_allclose(by_ep.gradient, finite_difference(total, x, 0.02), atol=0.01)


# Factors of covariance matrices among hyperparameters: coordinates, and averages over them.


GROUP, XF = np.repeat(np.arange(6), 5), np.tile(np.linspace(-1.0, 1.0, 5), 6)
NOISE = 0.7


def line_model():
    """Levels and slopes of six groups, of which the slopes hardly differ."""
    rng = np.random.default_rng(1)
    b = rng.normal(size=(6, 2)) * [1.0, 0.1]
    y = b[GROUP, 0] + b[GROUP, 1] * XF + NOISE * rng.normal(size=XF.size)
    with pm.Model() as model:
        sd = pm.HalfNormal.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)
        z = pm.Normal("z", 0.0, 1.0, shape=(6, 2))
        u = pm.Deterministic("u", pm.math.dot(z, chol.T))
        pm.Normal("y", u[GROUP, 0] + u[GROUP, 1] * XF, NOISE, observed=y)
    return model, y


def by_quadrature(y):
    """Log evidence, means of the packed factor and of u: over deviations and correlation."""
    design = np.stack([np.ones(5), XF[:5]], axis=1)
    x, w = np.polynomial.legendre.leggauss(40)
    sd, log_sd = 3.0 * (x + 1.0), np.log(3.0 * w)
    a, b, r = np.meshgrid(sd, sd, x, indexing="ij")
    log_p = sum(np.meshgrid(log_sd, log_sd, np.log(w), indexing="ij"))
    log_p = log_p + stats.halfnorm.logpdf(a) + stats.halfnorm.logpdf(b)
    log_p += np.log(0.75 * (1.0 - r**2))  # LKJ's for two rows and eta = 2
    cov = np.stack([a**2, r * a * b, r * a * b, b**2], axis=-1).reshape(*a.shape, 2, 2)
    total = design @ cov @ design.T + NOISE**2 * np.eye(5)
    inverse, (_, log_det) = np.linalg.inv(total), np.linalg.slogdet(2.0 * np.pi * total)
    gain = cov @ design.T @ inverse
    rows = y.reshape(6, 5)
    log_p += -0.5 * (6.0 * log_det + np.einsum("gi,...ij,gj->...", rows, inverse, rows))
    log_evidence = logsumexp(log_p)
    p = np.exp(log_p - log_evidence)
    chol = np.stack([a, r * b, b * np.sqrt(1.0 - r**2)], axis=-1)
    mean = np.einsum("abr,abrki->ki", p, gain) @ rows.T
    return log_evidence, np.tensordot(p, chol, axes=3), mean.T


def test_an_average_over_a_factor():
    """A deviation that may be zero is a funnel in PyMC's coordinates: relative ESS .55 to .6."""
    import arviz as az

    model, y = line_model()
    found = sg.integrate(model, random_seed=0, progressbar=False)["posterior"]
    log_evidence, chol, u = by_quadrature(y)
    attrs = found.attrs
    assert attrs["relative_ess"] > 0.68  # .75 to .78 by seed
    # Sixteen correlated errors within four standard ones: false once in a thousand.
    assert abs(attrs["log_evidence"] - log_evidence) < 4 * attrs["log_evidence_se"]
    for name, right in (("chol", chol), ("u", u)):
        error = az.mcse(found.dataset[[name]], method="mean")[name].to_numpy()
        gap = found[name].mean(("chain", "draw")).to_numpy() - right
        assert (np.abs(gap) < 4 * error).all()


def test_other_models_stay_as_they_are():
    """And the user's own has PyMC's transforms still."""
    model = line_model()[0]
    before = dict(model.rvs_to_transforms)
    assert in_covariance_coordinates(model) is not model
    assert model.rvs_to_transforms == before
    with pm.Model() as plain:
        pm.HalfNormal("s")
    assert in_covariance_coordinates(plain) is plain
