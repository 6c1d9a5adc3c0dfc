"""`integrate` and `find_hyperparameters` of models as PyMC users write them, without a SkewGP.

Each form is a function in an open model: it takes how to observe a predictor of twelve rows.
"""

import warnings

import numpy as np
import pymc as pm

import pymc_skewgp as sg

from .harness import SEED, averaged, call, calls, optimum, refuses, warned

N = 12
X = np.linspace(-1.0, 1.0, N)
VALUES = np.sin(3.0 * X) + 0.5 * np.cos(np.arange(N) ** 2.0)
LABELS = (VALUES > 0.1).astype(int)
COUNTS = np.round(np.exp(0.7 + VALUES)).astype(int)
GROUP = np.arange(N) // 3
W = (np.abs(np.subtract.outer(np.arange(N), np.arange(N))) == 1).astype(float)
SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
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


@call
def what_an_average_holds():
    """Free variables, Deterministics and what ArviZ asks for, with the names of the model."""
    with pm.Model(coords={"group": list("abcd")}) as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), dims="group")
        pm.Deterministic("rate", pm.math.exp(u), dims="group")
        pm.Poisson("y", pm.math.exp(u)[GROUP], observed=COUNTS)
    tree = sg.integrate(model, draws=2, chains=1, n_evidences=16, **QUIET)
    names = [f"{g}/{v}{list(tree[g][v].dims)}" for g in tree for v in tree[g].data_vars]
    return {"names": sorted(names)}


@call
def what_a_model_is_made_into():
    """Roles as `explain` has them, of a model that is taken and of one that is not."""
    taken, refused = sg.explain(model_of(crossed_effects, "poisson")), sg.explain(pm.Model())
    assert isinstance(taken, sg.Explanation)
    roles = taken.to_dataframe()["role"]
    return {
        "roles": [f"{name}: {role}" for name, role in roles.items()],
        "hyperparameters": taken.with_role("hyperparameter"),
        "taken": [taken.is_taken, refused.is_taken],
    }


@warned(sg.UnnormalizedPriorWarning, "sigma * pm.ICAR('f'")
def icar_without_its_constant():
    with pm.Model() as model:
        f = pm.ICAR("f", W=W, sigma=pm.HalfNormal("sigma"))
        pm.Normal("y", f, 0.5, observed=VALUES)
    sg.find_hyperparameters(model, quiet=True, n_restarts=0, **QUIET)


def schools(centred):
    effect, error = SCHOOLS
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0.0, 5.0), pm.HalfCauchy("tau", 5.0)
        u = pm.Normal("theta", mu, tau, shape=8) if centred else None
        if not centred:
            u = pm.Deterministic("theta", mu + tau * pm.Normal("z", shape=8))
        pm.Normal("y", u, error, observed=effect)
    return model


@call
def eight_schools_centred_or_not():
    """One model: evidences are equal, whatever they are; means of mu, tau and the first school."""
    both = [
        averaged(sg.integrate(schools(c), **QUIET), "mu", "tau", "theta", entry=0)
        for c in (True, False)
    ]
    (a, error_a), (b, error_b) = (found["evidence"] for found in both)
    same = bool(abs(a - b) < 5 * np.hypot(error_a, error_b))
    return both[0] | {f"not_{k}": v for k, v in both[1].items()} | {"same": same}


def found(form, family):
    """Hyperparameters where the evidence is largest."""
    fit = sg.find_hyperparameters(model_of(form, family), quiet=True, n_restarts=1, **QUIET)
    return optimum(fit)


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
calls(
    optimum_effects=lambda: found(effects, "poisson"),
    optimum_effects_values=lambda: found(effects, "learnt_normal"),
    optimum_flat=lambda: found(flat_coefficients, "learnt_normal"),
)
calls(
    slow=True, optimum_walk=lambda: found(walk, "poisson"), optimum_car=lambda: found(car, "probit")
)


def refused_model(form):
    with pm.Model() as model:
        form()
    sg.integrate(model, **QUIET)


def separated():
    pm.Bernoulli("y", logit_p=pm.Flat("b") * X, observed=(X > 0).astype(int))


def separated_probit():
    pm.Bernoulli("y", pm.math.invprobit(pm.Flat("b") * X), observed=(X > 0).astype(int))


def collinear():
    pm.Poisson("y", pm.math.exp(pm.Flat("a") + pm.Flat("b") * np.ones(N)), observed=COUNTS)


def heavy_effects():
    pm.Poisson("y", pm.math.exp(pm.StudentT("u", 3.0, shape=4)[GROUP]), observed=COUNTS)


def bounded_by_a_potential():
    u = pm.Normal("u", shape=4)
    pm.Potential("bound", -(u**4).sum())
    pm.Normal("y", u[GROUP], 0.5, observed=VALUES)


def no_gaussian():
    pm.Poisson("y", pm.Gamma("rate", 2.0, 1.0), observed=COUNTS)


def a_count_among_them():
    k = pm.Poisson("k", 2.0)
    pm.Normal("y", pm.Normal("u", 0.0, 1.0 + k, shape=4)[GROUP], 0.5, observed=VALUES)


refuses(
    separated_labels=(sg.ImproperPriorError, "bound b,", "flat priors", lambda:
        refused_model(separated)),
    separated_labels_of_a_probit=(sg.ImproperPriorError, "bound b,", "flat priors", lambda:
        refused_model(separated_probit)),
    columns_that_are_collinear=(sg.ImproperPriorError, "collinear", lambda:
        refused_model(collinear)),
    effects_that_are_not_gaussian=(ValueError, "u", lambda: refused_model(heavy_effects)),
    potential_that_is_not_quadratic=(ValueError, lambda: refused_model(bounded_by_a_potential)),
    model_without_gaussian_parts=(ValueError, lambda: refused_model(no_gaussian)),
    count_among_the_hyperparameters=(sg.DiscreteHyperparameterError, "k is discrete", lambda:
        refused_model(a_count_among_them)),
)  # fmt: skip
