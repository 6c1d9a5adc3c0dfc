"""The latent Gaussian posteriors of posteriordb, all 93 in ``NAMES``.

Here are the models that are neither in `posteriordb_regressions` nor in `posteriordb_radon`.
``NAMES[posterior]`` is the function that translates the Stan program, the name of the data and,
where the model is more than a plain Gaussian block, a note.
"""

import numpy as np
import posteriordb_radon  # noqa: F401  (registers its models)
import pymc as pm
import pytensor.tensor as pt
from posteriordb_regressions import NAMES, translates
from pymc.distributions.transforms import ordered

__all__ = ["NAMES"]


def polynomial(t, coefficients):
    return sum(b * t**k for k, b in enumerate(coefficients))


BOUNDED = "uniform priors, that is bounds, of the coefficients"


@translates("GLM_Binomial_data")
def GLM_Binomial_model(d):
    with pm.Model() as model:
        coefficients = [pm.Normal(name, 0.0, 100.0) for name in ("alpha", "beta1", "beta2")]
        eta = polynomial(d["year"], coefficients)
        pm.Binomial("C", d["N"], logit_p=eta, observed=d["C"])
    return model


def bounded_cubic(year):
    alpha = pm.Uniform("alpha", -20.0, 20.0)
    slopes = [pm.Uniform(f"beta{k}", -10.0, 10.0) for k in (1, 2, 3)]
    return polynomial(year, [alpha, *slopes])


@translates("GLM_Poisson_Data", note=BOUNDED)
def GLM_Poisson_model(d):
    with pm.Model() as model:
        pm.Poisson("C", pm.math.exp(bounded_cubic(d["year"])), observed=d["C"])
    return model


@translates("GLMM_Poisson_data", note=BOUNDED)
def GLMM_Poisson_model(d):
    with pm.Model() as model:
        sigma = pm.Uniform("sigma", 0.0, 5.0)
        eps = pm.Normal("eps", 0.0, sigma, shape=d["n"])
        pm.Poisson("C", pm.math.exp(bounded_cubic(d["year"]) + eps), observed=d["C"])
    return model


@translates("GLMM_data")
def GLMM1_model(d):
    with pm.Model() as model:
        mu = pm.Normal("mu_alpha", 0.0, 10.0)
        sd = pm.Uniform("sd_alpha", 0.0, 5.0)
        alpha = pm.Normal("alpha", mu, sd, shape=d["nsite"])
        pm.Poisson("obs", pm.math.exp(alpha[d["obssite"] - 1]), observed=d["obs"])
    return model


def dogs_before(y):
    """Shocks, and shocks avoided, before each trial."""
    return np.cumsum(y, axis=1) - y, np.cumsum(1 - y, axis=1) - (1 - y)


@translates("dogs")
def dogs(d):
    y = d["y"]
    shocks, avoided = dogs_before(y)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 100.0, shape=3)
        pm.Bernoulli("y", logit_p=beta[0] + beta[1] * avoided + beta[2] * shocks, observed=y)
    return model


# Both leave out the first trial: its probability is one whatever the parameters are.
@translates("dogs", note="no Gaussian variable: log a and log b, of uniform a and b, are linear")
def dogs_hierarchical(d):
    y = d["y"]
    shocks, avoided = (x[:, 1:] for x in dogs_before(y))
    with pm.Model() as model:
        a = pm.Uniform("a", 0.0, 1.0)
        b = pm.Uniform("b", 0.0, 1.0)
        pm.Bernoulli("y", a**shocks * b**avoided, observed=y[:, 1:])
    return model


@translates("dogs", note="two predictors a factor: inverse logits of two Gaussians, multiplied")
def dogs_nonhierarchical(d):
    y = d["y"]
    shocks, avoided = (x[:, 1:] for x in dogs_before(y))
    with pm.Model() as model:
        mu = pm.Logistic("mu_logit_ab", 0.0, 1.0, shape=2)
        sds = pm.HalfNormal.dist(1.0, shape=2)
        chol, _, sigma = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sds)
        pm.Deterministic("sigma_logit_ab", sigma)
        z = pm.Normal("z", 0.0, 1.0, shape=(len(y), 2))
        # The factor is not transposed in the Stan program either.
        logit_ab = pm.Deterministic("logit_ab", mu + pm.math.dot(z, chol))
        a, b = (pm.math.invlogit(logit_ab[:, k])[:, None] for k in (0, 1))
        pm.Bernoulli("y", a**shocks * b**avoided, observed=y[:, 1:])
    return model


@translates("eight_schools")
def eight_schools_centered(d):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfCauchy("tau", 5.0)
        theta = pm.Normal("theta", mu, tau, shape=d["J"])
        pm.Normal("y", theta, d["sigma"], observed=d["y"])
    return model


@translates("eight_schools")
def eight_schools_noncentered(d):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfCauchy("tau", 5.0)
        z = pm.Normal("theta_trans", 0.0, 1.0, shape=d["J"])
        theta = pm.Deterministic("theta", mu + tau * z)
        pm.Normal("y", theta, d["sigma"], observed=d["y"])
    return model


@translates("election88")
def election88_full(d):
    black, female = d["black"], d["female"]
    X = np.column_stack([np.ones(d["N"]), black, female, d["v_prev_full"], female * black])
    groups = {"a": "age", "b": "edu", "c": "age_edu", "d": "state", "e": "region_full"}
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 100.0, shape=5)
        eta = pm.math.dot(X, beta)
        for name, group in groups.items():
            sigma = pm.Uniform(f"sigma_{name}", 0.0, 100.0)
            eta += pm.Normal(name, 0.0, sigma, shape=d[f"n_{group}"])[d[group] - 1]
        pm.Bernoulli("y", logit_p=eta, observed=d["y"])
    return model


@translates("gp_pois_regr")
def gp_pois_regr(d):
    with pm.Model() as model:
        rho = pm.Gamma("rho", 25.0, 4.0)
        alpha = pm.HalfNormal("alpha", 2.0)
        gp = pm.gp.Latent(cov_func=alpha**2 * pm.gp.cov.ExpQuad(1, ls=rho))
        f = gp.prior("f", d["x"][:, None], jitter=1e-10)
        pm.Poisson("k", pm.math.exp(f), observed=d["k"])
    return model


@translates("gp_pois_regr", note="the model itself integrates f out: a multivariate normal factor")
def gp_regr(d):
    with pm.Model() as model:
        rho = pm.Gamma("rho", 25.0, 4.0)
        alpha = pm.HalfNormal("alpha", 2.0)
        sigma = pm.HalfNormal("sigma", 1.0)  # a variance
        gp = pm.gp.Marginal(cov_func=alpha**2 * pm.gp.cov.ExpQuad(1, ls=rho))
        noise = pm.math.sqrt(sigma)
        gp.marginal_likelihood("y", d["x"][:, None], d["y"], sigma=noise, jitter=0.0)
    return model


@translates(
    "synthetic_grid_RBF_kernels",
    note="the model itself integrates f out; 435 correlations are hyperparameters",
)
def kronecker_gp(d):
    x, n = d["x1"], d["n2"]
    with pm.Model() as model:
        var1 = pm.LogNormal("var1", 0.0, 1.0)
        bw1 = pm.HalfCauchy("bw1", 2.5)
        sigma1 = pm.Truncated("sigma1", pm.LogNormal.dist(0.0, 1.0), lower=1e-5)  # a variance
        L = pm.LKJCorr("L", n=n, eta=2.0)  # its value is the Cholesky factor, as in Stan
        correlations = pm.Deterministic("Lambda", pt.dot(L, L.T))
        smooth = var1 * pm.math.exp(-bw1 * (x[:, None] - x) ** 2) + 1e-5 * np.eye(len(x))
        covs = [correlations, smooth]
        noise = pm.math.sqrt(sigma1)
        pm.KroneckerNormal(
            "y", np.zeros(d["y"].size), covs=covs, sigma=noise, observed=d["y"].ravel()
        )
    return model


@translates("state_wide_presidential_votes", note="22 hyperparameters, 17 of them a simplex")
def hierarchical_gp(d):
    regions, states, n_years = d["N_regions"], d["N_states"], d["N_years"]
    year, state, region = (d[k] - 1 for k in ("year_ind", "state_ind", "region_ind"))
    years = np.arange(1.0, n_years + 1.0)[:, None]
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 0.5)
        total = pm.Gamma("tot_var", 3.0, 3.0)
        shares = pm.Dirichlet("prop_var", np.full(17, 2.0))
        sds = pm.math.sqrt(17.0 * total * shares)
        year_re = pm.Deterministic(
            "year_re", sds[0] * pm.Normal("year_std", shape=d["N_years_obs"])
        )
        region_re = pm.Deterministic("region_re", sds[1] * pm.Normal("region_std", shape=regions))
        state_sds = sds[2:12][d["state_region_ind"] - 1]
        state_re = pm.Deterministic("state_re", state_sds * pm.Normal("state_std", shape=states))
        eta = mu + year_re[year] + state_re[state] + region_re[region]
        # The same order as in the shares: long before short, regions before states.
        for level, index, size, at in (
            ("region", region, regions, 12),
            ("state", state, states, 13),
        ):
            cov = 1e-6 * np.eye(n_years)
            for length, sd, scale in (("long", sds[at], 8.0), ("short", sds[at + 2], 3.0)):
                ls = pm.Weibull(f"length_GP_{level}_{length}", 30.0, scale)
                cov += sd**2 * pm.gp.cov.ExpQuad(1, ls=ls)(years)
            z = pm.Normal(f"GP_{level}_std", shape=(n_years, size))
            f = pm.Deterministic(f"GP_{level}", pm.math.dot(pt.linalg.cholesky(cov), z))
            eta += f[year, index]
        pm.Normal("y", eta, sds[16], observed=d["y"])
    return model


@translates("lsat_data", note="the scale of the abilities has a half-normal prior of sd 100")
def lsat_model(d):
    counts = np.diff(d["culm"], prepend=0)
    answers = np.repeat(d["response"], counts, axis=0)
    with pm.Model() as model:
        alpha = pm.Normal("alpha", 0.0, 100.0, shape=d["T"])
        theta = pm.Normal("theta", 0.0, 1.0, shape=d["N"])
        beta = pm.HalfNormal("beta", 100.0)
        pm.Bernoulli("r", logit_p=beta * theta[:, None] - alpha, observed=answers)
    return model


@translates("pilots")
def pilots(d):
    with pm.Model() as model:
        mu_a = pm.Normal("mu_a", 0.0, 1.0)
        mu_b = pm.Normal("mu_b", 0.0, 1.0)
        sigma_a, sigma_b, sigma_y = (pm.Uniform(f"sigma_{k}", 0.0, 100.0) for k in "aby")
        a = pm.Normal("a", 10.0 * mu_a, sigma_a, shape=d["n_groups"])
        b = pm.Normal("b", 10.0 * mu_b, sigma_b, shape=d["n_scenarios"])
        eta = a[d["group_id"] - 1] + b[d["scenario_id"] - 1]
        pm.Normal("y", eta, sigma_y, observed=d["y"])
    return model


@translates("rats_data")
def rats_model(d):
    rat = d["rat"] - 1
    with pm.Model() as model:
        mu_alpha = pm.Normal("mu_alpha", 0.0, 100.0)
        mu_beta = pm.Normal("mu_beta", 0.0, 100.0)
        sigma_y, sigma_alpha, sigma_beta = (
            pm.HalfFlat(f"sigma_{k}") for k in ("y", "alpha", "beta")
        )
        alpha = pm.Normal("alpha", mu_alpha, sigma_alpha, shape=d["N"])
        beta = pm.Normal("beta", mu_beta, sigma_beta, shape=d["N"])
        eta = alpha[rat] + beta[rat] * (d["x"] - d["xbar"])
        pm.Normal("y", eta, sigma_y, observed=d["y"])
    return model


def seeds(d, sd_of_coefficients, effects):
    """Germination with effects of plates, as `effects` makes them in the open model."""
    x1, x2 = d["x1"], d["x2"]
    with pm.Model() as model:
        a0, a1, a2, a12 = (
            pm.Normal(f"alpha{k}", 0.0, sd_of_coefficients) for k in ("0", "1", "2", "12")
        )
        eta = a0 + a1 * x1 + a2 * x2 + a12 * x1 * x2 + effects(d["I"])
        pm.Binomial("n", d["N"], logit_p=eta, observed=d["n"])
    return model


@translates("seeds_data", note="gamma(.001, .001) prior of the precision")
def seeds_model(d):
    def effects(n):
        tau = pm.Gamma("tau", 1e-3, 1e-3)
        sigma = pm.Deterministic("sigma", 1.0 / pm.math.sqrt(tau))
        return pm.Normal("b", 0.0, sigma, shape=n)

    return seeds(d, 1000.0, effects)


@translates("seeds_data")
def seeds_stanified_model(d):
    return seeds(d, 1.0, lambda n: pm.Normal("b", 0.0, pm.HalfCauchy("sigma", 1.0), shape=n))


@translates("seeds_data")
def seeds_centered_model(d):
    def effects(n):
        c = pm.Normal("c", 0.0, pm.HalfCauchy("sigma", 1.0), shape=n)
        return pm.Deterministic("b", c - c.mean())

    return seeds(d, 1.0, effects)


@translates("surgical_data", note="inverse gamma(.001, .001) prior of the variance")
def surgical_model(d):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1000.0)
        sigmasq = pm.InverseGamma("sigmasq", 1e-3, 1e-3)
        sigma = pm.Deterministic("sigma", pm.math.sqrt(sigmasq))
        b = pm.Normal("b", mu, sigma, shape=d["N"])
        pm.Binomial("r", d["n"], logit_p=b, observed=d["r"])
    return model


@translates("traffic_accident_nyc")
def bym2_offset_only(d):
    n = d["N"]
    W = np.zeros((n, n))
    W[d["node1"] - 1, d["node2"] - 1] = W[d["node2"] - 1, d["node1"] - 1] = 1.0
    with pm.Model() as model:
        beta0 = pm.Normal("beta0", 0.0, 1.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        rho = pm.Beta("rho", 0.5, 0.5)
        theta = pm.Normal("theta", 0.0, 1.0, shape=n)
        phi = pm.ICAR("phi", W=W)  # its soft constraint on the sum is that of the Stan program
        mixed = pm.math.sqrt(1.0 - rho) * theta + pm.math.sqrt(rho / d["scaling_factor"]) * phi
        pm.Poisson("y", pm.math.exp(np.log(d["E"]) + beta0 + sigma * mixed), observed=d["y"])
    return model


@translates("uk_drivers", note="bounds of the level; level and season by potentials; ordered sds")
def state_space_stochastic_level_stochastic_seasonal(d):
    y, n = d["y"], d["n"]
    centre, reach = y.mean(), 3.0 * y.std(ddof=1)
    past = np.add.outer(np.arange(11, n), np.arange(-11, 0))
    with pm.Model() as model:
        start = [0.5, 1.0, 1.5]
        # The logarithms are ordered: a transform goes after the one that the variable has.
        sigma = pm.HalfStudentT("sigma", nu=4, sigma=1.0, shape=3, transform=ordered, initval=start)
        mu = pm.Uniform("mu", centre - reach, centre + reach, shape=n)
        seasonal = pm.Flat("seasonal", shape=n)
        beta = pm.Flat("beta")
        lam = pm.Flat("lambda")
        step = pm.logp(pm.Normal.dist(mu[:-1], sigma[1]), mu[1:])
        season = pm.logp(pm.Normal.dist(-seasonal[past].sum(axis=1), sigma[0]), seasonal[11:])
        pm.Potential("level", step.sum())
        pm.Potential("season", season.sum())
        eta = mu + beta * d["x"] + lam * d["w"] + seasonal
        pm.Normal("y", eta, sigma[2], observed=y)
    return model
