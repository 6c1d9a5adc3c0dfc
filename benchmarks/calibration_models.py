"""The models of `calibration.py`, and what quadrature says of some: nothing of the package's."""

import numpy as np
import pymc as pm
from latent_gaussian_forms import lattice
from references import scalars
from scipy import stats
from scipy.special import gammaln, logsumexp

GROUP, TIMES = np.repeat(np.arange(6), 4), 16
SLOPE_GROUP, SLOPE_X = np.repeat(np.arange(6), 5), np.tile(np.linspace(-1.0, 1.0, 5), 6)
PLACES = np.linspace(-2.0, 2.0, 30)[:, None]
TRIALS = np.array([4, 8, 12, 20, 10, 6, 15, 9, 5])


def poisson_effects(y):
    """Six groups of four counts."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 1.0, 0.7)
        tau = pm.HalfNormal("tau", 0.7)
        u = pm.Normal("u", mu, tau, shape=6)
        pm.Poisson("y", pm.math.exp(u[GROUP]), observed=pm.Data("data", y))
    return model


def counts_in_time(y):
    """An autoregression under overdispersed counts."""
    with pm.Model() as model:
        level = pm.Normal("level", 1.0, 0.7)
        rho = pm.Uniform("rho", -0.9, 0.9)
        sigma = pm.HalfNormal("sigma", 0.5)
        alpha = pm.Gamma("alpha", 4.0, 1.0)
        start = pm.Normal.dist(0.0, 1.0)
        f = pm.AR("f", rho[None], sigma=sigma, init_dist=start, shape=TIMES)
        pm.NegativeBinomial(
            "y", mu=pm.math.exp(level + f), alpha=alpha, observed=pm.Data("data", y)
        )
    return model


def areas(y, is_drawn=False):
    """BYM2 on a lattice; PyMC cannot draw from ICAR: where that is wanted, its precision matrix."""
    W = lattice(3, 3)[0]
    n = len(W)
    laplacian = np.diag(W.sum(axis=1)) - W
    scale = np.exp(np.log(np.linalg.pinv(laplacian).diagonal()).mean())
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 1.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        rho = pm.Beta("rho", 0.5, 0.5)
        theta = pm.Normal("theta", 0.0, 1.0, shape=n)
        if is_drawn:
            tau = laplacian + 1.0 / (0.001 * n) ** 2
            phi = pm.MvNormal("phi", np.zeros(n), cov=np.linalg.inv(tau))
        else:
            phi = pm.ICAR("phi", W=W)
        mixed = pm.math.sqrt(1.0 - rho) * theta + pm.math.sqrt(rho / scale) * phi
        pm.Binomial("y", n=TRIALS, logit_p=level + sigma * mixed, observed=pm.Data("data", y))
    return model


def slopes(y):
    """Levels and slopes of six groups, correlated."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0, shape=2)
        sd = pm.HalfNormal.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sd)
        z = pm.Normal("z", 0.0, 1.0, shape=(6, 2))
        b = mu + pm.math.dot(z, chol.T)
        s = pm.HalfNormal("s", 0.7)
        eta = b[SLOPE_GROUP, 0] + b[SLOPE_GROUP, 1] * SLOPE_X
        pm.Normal("y", eta, s, observed=pm.Data("data", y))
    return model


def smooth(name, variance):
    """A function at thirty places."""
    return pm.gp.Latent(cov_func=variance * pm.gp.cov.Matern52(1, 1.0)).prior(name, PLACES)


def species(y):
    """Softmax of three functions."""
    with pm.Model() as model:
        logits = pm.math.stack([smooth(f"f{k}", 2.0) for k in range(3)], axis=1)
        pm.Categorical("y", logit_p=logits, observed=pm.Data("data", y))
    return model


def mean_and_spread(y):
    """A mean and a log standard deviation."""
    with pm.Model() as model:
        spread = pm.math.exp(smooth("g", 1.0) - 1.0)
        pm.Normal("y", smooth("f", 2.0), spread, observed=pm.Data("data", y))
    return model


def scaled(name, lengthscale, scale):
    """A function at thirty places, whose lengthscale and scale are random."""
    kernel = scale**2 * pm.gp.cov.Matern52(1, lengthscale)
    return pm.gp.Latent(cov_func=kernel).prior(name, PLACES)


def scales(name):
    """Priors of a lengthscale and a scale."""
    return pm.InverseGamma(f"{name}ls", 5.0, 5.0), pm.HalfNormal(f"{name}eta", 1.5)


def species_scaled(y):
    """Softmax of three functions that have one lengthscale and one scale."""
    with pm.Model() as model:
        own = scales("")
        logits = pm.math.stack([scaled(f"f{k}", *own) for k in range(3)], axis=1)
        pm.Categorical("y", logit_p=logits, observed=pm.Data("data", y))
    return model


def mean_and_spread_scaled(y):
    """A mean and a log standard deviation, each with a lengthscale and a scale."""
    with pm.Model() as model:
        f, g = (scaled(name, *scales(f"{name}_")) for name in "fg")
        pm.Normal("y", f, pm.math.exp(g - 1.0), observed=pm.Data("data", y))
    return model


MODELS = {
    "random effects, Poisson": (poisson_effects, np.zeros(GROUP.size, int)),
    "AR, negative binomial": (counts_in_time, np.zeros(TIMES, int)),
    "BYM2, binomial": (areas, np.zeros(TRIALS.size, int)),
    "LKJ slopes, normal": (slopes, np.zeros(SLOPE_X.size)),
    "softmax": (species, np.zeros(len(PLACES), int)),
    "mean and log sd": (mean_and_spread, np.zeros(len(PLACES))),
    "softmax, scales random": (species_scaled, np.zeros(len(PLACES), int)),
    "mean and log sd, scales random": (mean_and_spread_scaled, np.zeros(len(PLACES))),
}

# Without hyperparameters draws are apart, and fewer do: of `integrate`.
OPTIONS = {key: {"draws": 400, "chains": 1} for key in ("softmax", "mean and log sd")}

SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOLS_SD = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def nodes(low, high, count=200):
    """Of Gauss and Legendre, and the log weights."""
    x, w = np.polynomial.legendre.leggauss(count)
    return low + (high - low) * 0.5 * (x + 1.0), np.log(0.5 * (high - low) * w)


def means(log_p, values):
    """Log evidence, and means of values at the same points, by name of the scalar."""
    log_evidence = float(logsumexp(log_p))
    p = np.exp(log_p - log_evidence)
    found = {"log_evidence": log_evidence}
    for name, value in values.items():
        mean = np.tensordot(p, value, axes=p.ndim)
        found |= dict(zip(scalars(name, mean.shape), np.ravel(mean), strict=True))
    return found


def schools_by_quadrature(model):
    """mu ~ N(0, 5), tau half Cauchy, both forms: over log tau, all else in closed form."""
    log_tau, w = nodes(-16.0, 12.0, 400)
    tau = np.exp(log_tau)
    cov = 25.0 + (SCHOOLS_SD**2 + tau[:, None] ** 2)[:, :, None] * np.eye(8)
    white = np.linalg.solve(cov, np.broadcast_to(SCHOOLS[:, None], (tau.size, 8, 1)))[..., 0]
    log_p = stats.halfcauchy(scale=5.0).logpdf(tau) + log_tau + w
    log_p += -0.5 * (white @ SCHOOLS + np.linalg.slogdet(2.0 * np.pi * cov)[1])
    mu = 25.0 * white.sum(axis=1)
    effects = {
        "theta": mu[:, None] + tau[:, None] ** 2 * white,
        "z": tau[:, None] * white,
    }
    own = {rv.name for rv in model.free_RVs}
    values = {"mu": mu, "tau": tau, **effects}
    return means(log_p, {name: x for name, x in values.items() if name in own})


def effects_by_quadrature(model):
    """`poisson_effects`: given mu and tau the groups are apart, each of one coordinate."""
    y = observed(model)
    totals = np.bincount(GROUP, y)
    size = np.bincount(GROUP)[0]
    tau, w = nodes(0.0, 5.0, 160)
    mu = np.arange(-3.5, 5.5, 0.05)
    e = np.arange(-9.0, 9.0, 0.04)
    log_p = np.empty((tau.size, mu.size))
    effects = np.empty((tau.size, mu.size, totals.size))
    for i in range(tau.size):
        u = mu[:, None] + tau[i] * e
        rate = size * np.exp(u)
        prior = stats.norm.logpdf(e) + np.log(0.04)
        log_own = totals[:, None, None] * u - rate + prior
        log_each = logsumexp(log_own, axis=2)
        effects[i] = (np.exp(log_own - log_each[:, :, None]) * u).sum(axis=2).T
        log_p[i] = log_each.sum(axis=0) + w[i]
    log_p += stats.halfnorm(scale=0.7).logpdf(tau)[:, None]
    log_p += stats.norm(1.0, 0.7).logpdf(mu) + np.log(0.05) - gammaln(y + 1.0).sum()
    shape = log_p.shape
    values = {"mu": np.broadcast_to(mu, shape), "u": effects}
    return means(log_p, {"tau": np.broadcast_to(tau[:, None], shape), **values})


def slopes_by_quadrature(model):
    """`slopes`: over the two deviations, their correlation and the noise.

    Of a balanced design: lines of groups by least squares are enough beside the residuals, and
    their mean is independent of what they are about it.
    """
    y = observed(model).reshape(6, 5)
    X = np.stack([np.ones(5), SLOPE_X[:5]], axis=1)
    line = y @ X / (X**2).sum(axis=0)  # the columns are orthogonal
    rest = float(((y - line @ X.T) ** 2).sum())
    a, wa = nodes(0.0, 6.0, 48)
    r, wr = nodes(-1.0, 1.0, 40)
    s, ws = nodes(0.05, 3.0, 64)
    a, b, r, s = np.meshgrid(a, a, r, s, indexing="ij")
    log_p = sum(np.meshgrid(wa, wa, wr, ws, indexing="ij"))
    log_p = log_p + stats.halfnorm.logpdf(a) + stats.halfnorm.logpdf(b)
    log_p += np.log(0.75 * (1.0 - r**2)) + stats.halfnorm(scale=0.7).logpdf(s)
    log_p += -0.5 * rest / s**2 - 18.0 * np.log(s) - 15.0 * np.log(2.0 * np.pi)
    noise = s**2 / (X**2).sum(axis=0)[:, None, None, None, None]
    log_p += 6.0 * 0.5 * np.log(noise / s**2).sum(axis=0)
    cov = [[a**2, r * a * b], [r * a * b, b**2]]
    chol = [a, r * b, b * np.sqrt(1.0 - r**2)]
    middle = line.mean(axis=0)
    about, white = [], []
    for wider, values, count in ((0.0, line - middle, 5.0), (6.0, middle[None], 1.0)):
        c = [cov[0][0] + wider + noise[0], cov[0][1], cov[1][1] + wider + noise[1]]
        det = c[0] * c[2] - c[1] ** 2
        solved = [
            np.stack([c[2] * v[0] - c[1] * v[1], c[0] * v[1] - c[1] * v[0]]) / det for v in values
        ]
        times = 6.0 if wider else 1.0
        square = sum(v[0] * x[0] + v[1] * x[1] for v, x in zip(values, solved, strict=True))
        log_p += -0.5 * (times * square + count * np.log(det))
        about.append(solved)
    common = about[1][0]
    for own in about[0]:
        x = own + common
        white.append(np.stack([chol[0] * x[0] + chol[1] * x[1], chol[2] * x[1]], axis=-1))
    values = {
        "mu": np.stack([6.0 * common[0], 6.0 * common[1]], axis=-1),
        "chol": np.stack(chol, axis=-1),
        "z": np.stack(white, axis=-2),
        "s": s,
    }
    return means(log_p, values)


def observed(model):
    """Data of the one observed variable."""
    (y,) = model.observed_RVs
    return np.asarray(model.rvs_to_values[y].eval())


ORACLES = {
    "eight_schools_c": schools_by_quadrature,
    "eight_schools_nc": schools_by_quadrature,
    "random effects, Poisson": effects_by_quadrature,
    "LKJ slopes, normal": slopes_by_quadrature,
}
