"""`integrate` of models as PyMC users write them, without a SkewGP.

Each form is a function in an open model: it takes how to observe a predictor of twelve rows.
"""

import warnings

import numpy as np
import pymc as pm

import pymc_skewgp as sg

from .harness import SEED, averaged, call

N = 12
X = np.linspace(-1.0, 1.0, N)
VALUES = np.sin(3.0 * X) + 0.5 * np.cos(np.arange(N) ** 2.0)
LABELS = (VALUES > 0.1).astype(int)
COUNTS = np.round(np.exp(0.7 + VALUES)).astype(int)
GROUP = np.arange(N) // 3
W = (np.abs(np.subtract.outer(np.arange(N), np.arange(N))) == 1).astype(float)
QUIET = {"random_seed": SEED, "progressbar": False}

FAMILIES = {
    "normal": lambda eta: pm.Normal("y", eta, 0.5, observed=VALUES),
    "learnt_normal": lambda eta: pm.Normal("y", eta, pm.HalfNormal("sd"), observed=VALUES),
    "student": lambda eta: pm.StudentT("y", nu=4.0, mu=eta, sigma=0.4, observed=VALUES),
    "probit": lambda eta: pm.Bernoulli("y", pm.math.invprobit(eta), observed=LABELS),
    "logit": lambda eta: pm.Bernoulli("y", logit_p=eta, observed=LABELS),
    "poisson": lambda eta: pm.Poisson("y", pm.math.exp(eta), observed=COUNTS),
    "binomial": lambda eta: pm.Binomial("y", 9, logit_p=eta, observed=COUNTS),
    "negative_binomial": lambda eta: pm.NegativeBinomial(
        "y", mu=pm.math.exp(eta), alpha=pm.Gamma("alpha", 3.0, 1.0), observed=COUNTS
    ),
    "gamma": lambda eta: pm.Gamma("y", 2.0, pm.math.exp(-eta), observed=COUNTS + 0.5),
    "censored": lambda eta: pm.Censored(
        "y", pm.Poisson.dist(pm.math.exp(eta)), lower=None, upper=3, observed=COUNTS.clip(0, 3)
    ),
}


def wide_coefficients():
    return pm.Normal("a", 0.0, 100.0) + pm.Normal("b", 0.0, 10.0) * X


def flat_coefficients():
    return pm.math.dot(np.column_stack([np.ones(N), X]), pm.Flat("b", shape=2))


def effects(centred=True):
    mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
    u = pm.Normal("u", mu, tau, shape=4) if centred else mu + tau * pm.Normal("z", shape=4)
    return pm.Deterministic("level", u)[GROUP] + pm.Normal("b") * X


def crossed_effects():
    first = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=4)
    return first[GROUP] + pm.ZeroSumNormal("v", 0.7, shape=3)[np.arange(N) % 3]


def correlated_slopes():
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0, shape=2))
    u = pm.MvNormal("u", np.zeros(2), chol=chol, shape=(4, 2))
    return u[GROUP, 0] + u[GROUP, 1] * X


def walk():
    start = pm.Normal.dist(0.0, 1.0)
    return pm.GaussianRandomWalk("f", sigma=pm.HalfNormal("step"), init_dist=start, shape=N)


def autoregression():
    rho = pm.math.stack([pm.Normal("level"), pm.Uniform("rho", -1.0, 1.0)])
    start = pm.Normal.dist(shape=1)
    return pm.AR("f", rho, sigma=0.6, constant=True, init_dist=start, shape=N)


def car():
    alpha, tau = pm.Beta("alpha", 4.0, 2.0), pm.Gamma("tau", 4.0, 2.0)
    return pm.Normal("a") + pm.CAR("f", mu=np.zeros(N), W=W, alpha=alpha, tau=tau)


def icar():
    return pm.Normal("a") + pm.HalfNormal("sigma") * pm.ICAR("f", W=W)


def potential():
    """A sum of effects that is held near 0."""
    u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=4)
    pm.Potential("sum", pm.logp(pm.Normal.dist(0.0, 0.1), u.sum()))
    return pm.Normal("a", 0.0, 5.0) + u[GROUP]


def product():
    """Of two vectors, one of which is a hyperparameter then."""
    return pm.Normal("u", shape=4)[GROUP] * pm.Normal("v", shape=2)[np.arange(N) % 2]


def kernel():
    return pm.HalfNormal("eta") ** 2 * pm.gp.cov.Matern52(1, ls=pm.InverseGamma("ls", 5.0, 4.0))


def latent_function():
    return pm.gp.Latent(cov_func=kernel()).prior("f", X=X[:, None])


def basis_functions():
    return pm.gp.HSGP(m=[8], c=1.5, cov_func=kernel()).prior("f", X=X[:, None])


def own_covariance():
    ls = pm.LogNormal("ls", -1.0, 0.5)
    return pm.MvNormal("f", np.zeros(N), cov=pm.math.exp(-np.abs(X[:, None] - X) / ls))


FORMS = [
    wide_coefficients, flat_coefficients, effects, crossed_effects, correlated_slopes, walk,
    autoregression, car, icar, potential, latent_function, basis_functions, own_covariance,
]  # fmt: skip


def model_of(form, family, **options):
    with pm.Model() as model:
        eta = form(**options)
        FAMILIES[family](eta)
    return model


def integrated(model, **options):
    tree = sg.integrate(model, draws=500, chains=2, **{"n_evidences": 128} | options, **QUIET)
    # A number a variable, and of vectors the second.
    names = [v.name for v in model.free_RVs + model.deterministics]
    return averaged(tree, *(n for n in names if n in tree["posterior"]), entry=1)


def with_numbers(model, values):
    with warnings.catch_warnings():
        # PyMC's, of a `pm.gp.Latent` that would not know the copy.
        warnings.filterwarnings("ignore", "Detected variables likely created by GP", UserWarning)
        return pm.do(model, values)


PAIRS = [
    *((form, "poisson") for form in FORMS),
    (wide_coefficients, "normal"),
    (flat_coefficients, "normal"),
    (effects, "learnt_normal"),
    (walk, "normal"),
    (autoregression, "normal"),
    (product, "normal"),
    *((wide_coefficients, family) for family in ("probit", "logit", "binomial", "censored")),
    *((effects, family) for family in ("student", "negative_binomial", "gamma", "probit")),
]
# Without hyperparameters, under Gaussian data: closed forms.
EXACT = [
    (effects, {"tau": 0.8}),
    (crossed_effects, {"tau": 0.8}),
    (walk, {"step": 0.5}),
    (autoregression, {"rho": 0.4}),
    (car, {"alpha": 0.6, "tau": 2.0}),
    (icar, {"sigma": 0.7}),
    (potential, {"tau": 0.8}),
    (latent_function, {"eta": 1.2, "ls": 0.6}),
    (basis_functions, {"eta": 1.2, "ls": 0.6}),
    (own_covariance, {"ls": 0.4}),
]
for _form, _values in EXACT:
    call(
        lambda f=_form, v=_values: integrated(with_numbers(model_of(f, "normal"), v)),
        name=f"{_form.__name__}_with_numbers",
        slow=_form is autoregression,
    )
# Others compile for seconds.
QUICK = wide_coefficients, flat_coefficients, effects, own_covariance
for _form, _family in PAIRS:
    call(
        lambda f=_form, y=_family: integrated(model_of(f, y)),
        name=f"{_form.__name__}_{_family}",
        slow=_form not in QUICK or _family in ("student", "negative_binomial", "gamma"),
    )
