"""`integrate` of models as PyMC users write them, against the model's own log density.

Each form is a function in an open model that makes a predictor of twelve rows. With numbers for
hyperparameters, under values with noise, the density is that of a Gaussian: its integral follows
from slopes at d + 1 points; a rule over hyperparameters does the rest. Of two coefficients it is a
rule over both, under any distribution.
"""

import warnings

import numpy as np
import pymc as pm
import pytest
from model_density import density_of
from scipy.special import logsumexp

import pymc_skewgp as sg

N = 12
X = np.linspace(-1.0, 1.0, N)
VALUES = np.sin(3.0 * X) + 0.5 * np.cos(np.arange(N) ** 2.0)
LABELS = (VALUES > 0.1).astype(int)
COUNTS = np.round(np.exp(0.7 + VALUES)).astype(int)
GROUP = np.arange(N) // 3


def wide_coefficients():
    return pm.Normal("a", 0.0, 100.0) + pm.Normal("b", 0.0, 10.0) * X


def effects(centred=True):
    mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
    u = pm.Normal("u", mu, tau, shape=4) if centred else mu + tau * pm.Normal("z", shape=4)
    return u[GROUP] + pm.Normal("b") * X


def crossed_effects():
    first = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=4)
    return first[GROUP] + pm.ZeroSumNormal("v", 0.7, shape=3)[np.arange(N) % 3]


def correlated_slopes():
    u = pm.MvNormal("u", np.zeros(2), chol=np.array([[0.8, 0.0], [-0.4, 0.5]]), shape=(4, 2))
    return u[GROUP, 0] + u[GROUP, 1] * X


def kernel():
    return pm.HalfNormal("eta") ** 2 * pm.gp.cov.Matern52(1, ls=pm.InverseGamma("ls", 5.0, 4.0))


def latent_function():
    return pm.gp.Latent(cov_func=kernel()).prior("f", X=X[:, None])


def basis_functions():
    return pm.gp.HSGP(m=[8], c=1.5, cov_func=kernel()).prior("f", X=X[:, None])


def own_covariance():
    ls = pm.LogNormal("ls", -1.0, 0.5)
    return pm.MvNormal("f", np.zeros(N), cov=pm.math.exp(-np.abs(X[:, None] - X) / ls))


def model_of(form, observe, numbers=None):
    with pm.Model() as model:
        observe(form())
    with warnings.catch_warnings():
        # PyMC's, of a `pm.gp.Latent` that would not know the copy.
        warnings.filterwarnings("ignore", "Detected variables likely created by GP", UserWarning)
        return pm.do(model, numbers) if numbers else model


def gaussian_at(density, x):
    """Where the density is largest by Newton's step from x, and the covariance of a Gaussian."""
    steps = 1e-2 * np.eye(x.shape[-1])
    ahead, behind = (density(x[..., None, :] + step)[1] for step in (steps, -steps))
    cov = np.linalg.inv((behind - ahead) / 2e-2)
    return x + (cov @ density(x)[1][..., None])[..., 0], cov


def averaged(model):
    tree = sg.integrate(model, draws=200, chains=2, random_seed=0, progressbar=False)
    return tree["posterior"], tree["posterior"].attrs


NUMBERS = {
    wide_coefficients: None,
    effects: {"tau": 0.8},
    crossed_effects: {"tau": 0.8},
    correlated_slopes: None,
    latent_function: {"eta": 1.2, "ls": 0.6},
    basis_functions: {"eta": 1.2, "ls": 0.6},
    own_covariance: {"ls": 0.4},
}


@pytest.mark.parametrize("form", NUMBERS)
def test_under_values_with_noise(form):
    model = model_of(form, lambda f: pm.Normal("y", f, 0.5, observed=VALUES), NUMBERS[form])
    density, names = density_of(model)
    centre, cov = gaussian_at(density, np.zeros(names.size))
    log_det = np.linalg.slogdet(2 * np.pi * cov)[1]
    drawn, about = averaged(model)
    # Differences of a quadratic function: round-off, which the smooth kernel's jitter raises.
    assert about["log_evidence"] == pytest.approx(density(centre)[0] + 0.5 * log_det, abs=1e-5)
    for v in model.free_RVs:
        part = names == model.rvs_to_values[v].name
        if model.rvs_to_transforms[v] is None:
            found = drawn[v.name].values.reshape(400, -1).mean(axis=0)
            # 400 independent draws: five standard errors.
            assert (np.abs(found - centre[part]) < 5 * np.sqrt(cov.diagonal()[part] / 400)).all()


FAMILIES = {
    "probit": lambda eta: pm.Bernoulli("y", pm.math.invprobit(eta), observed=LABELS),
    "poisson": lambda eta: pm.Poisson("y", pm.math.exp(eta), observed=COUNTS),
    "binomial": lambda eta: pm.Binomial("y", 9, logit_p=eta, observed=COUNTS),
    "censored": lambda eta: pm.Censored(
        "y", pm.Poisson.dist(pm.math.exp(eta)), lower=None, upper=3, observed=COUNTS.clip(0, 3)
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_two_coefficients(family):
    """Steps of .7 deviations about the mode: so smooth an integrand leaves no error."""
    model = model_of(wide_coefficients, FAMILIES[family])
    density, _ = density_of(model)
    centre = np.zeros(2)
    for _ in range(8):
        centre, cov = gaussian_at(density, centre)
    step = np.linspace(-7.0, 7.0, 21)
    z = np.stack(np.meshgrid(step, step, indexing="ij"), axis=-1).reshape(-1, 2)
    root = np.linalg.cholesky(cov)
    x = centre + z @ root.T
    logs = density(x)[0]
    total = logsumexp(logs)
    cell = (step[1] - step[0]) ** 2 * root.diagonal().prod()
    drawn, about = averaged(model)
    # Five standard errors: a false alarm in 2e6 seeds.
    assert abs(about["log_evidence"] - total - np.log(cell)) < 5 * about["log_evidence_se"] + 1e-4
    assert about["log_evidence_se"] < 0.05
    share = np.exp(logs - total)
    mean = share @ x
    sd = np.sqrt(share @ (x - mean) ** 2)
    for name, value, spread in zip("ab", mean, sd, strict=True):
        assert abs(drawn[name].values.mean() - value) < 5 * spread / np.sqrt(400 * 0.8)


def product():
    """Of two vectors, one of which is a hyperparameter then."""
    return pm.Normal("u", shape=4)[GROUP] * pm.Normal("v", shape=2)[np.arange(N) % 2]


def over(model, name, axis):
    """Log evidence, mean and deviation of |v| for the variable v of this name, by a rule over it.

    What is left is Gaussian given v.
    """
    density, names = density_of(model)
    inner = names != name
    outer = np.stack(np.meshgrid(*[axis] * (~inner).sum()), axis=-1).reshape(-1, (~inner).sum())

    def given_outer(part):
        x = np.empty((*part.shape[:-1], names.size))
        x[..., inner], x[..., ~inner] = part, outer if part.ndim == 2 else outer[:, None]
        log_density, slopes = density(x)
        return log_density, slopes[..., inner]

    centre, cov = gaussian_at(given_outer, np.zeros((len(outer), inner.sum())))
    logs = given_outer(centre)[0] + 0.5 * np.linalg.slogdet(2 * np.pi * cov)[1]
    total = logsumexp(logs)
    share, size = np.exp(logs - total), np.abs(outer)
    mean = share @ size
    log_cell = outer.shape[1] * np.log(axis[1] - axis[0])
    return total + log_cell, mean, np.sqrt(share @ (size - mean) ** 2)


@pytest.mark.parametrize(
    ("form", "method", "name", "axis"),
    [
        (effects, "surrogate", "tau_log__", np.linspace(-7.0, 3.0, 31)),
        (product, "auto", "v", np.linspace(-4.5, 4.5, 31)),
    ],
)
def test_over_hyperparameters(form, method, name, axis):
    model = model_of(form, lambda f: pm.Normal("y", f, 0.5, observed=VALUES))
    total, mean, sd = over(model, name, axis)
    options = {"method": method, "draws": 500, "chains": 2, "random_seed": 0}
    tree = sg.integrate(model, progressbar=False, **options)["posterior"]
    # Five standard errors: a false alarm in 2e6 seeds.
    assert abs(tree.attrs["log_evidence"] - total) < 5 * tree.attrs["log_evidence_se"]
    assert tree.attrs["log_evidence_se"] < 0.1
    drawn = np.log(tree["tau"]) if form is effects else tree["v"]
    found = np.abs(drawn.values).reshape(1000, -1).mean(axis=0)
    # Draws are of some hundreds of points: as 100 independent ones, at the least.
    assert (np.abs(found - mean) < 5 * sd / np.sqrt(100)).all()
