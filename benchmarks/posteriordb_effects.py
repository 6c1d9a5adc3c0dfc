"""References of models with one effect a group, such as of plates or persons, by NumPy alone.

    python benchmarks/posteriordb_effects.py --data DIR [--lgm DIR] --references DIR

Each effect is integrated out by quadrature given the few other parameters, and these by importance
sampling about their mode: means and variances of effects are mixtures of those given the others.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from posteriordb import data_of
from references import Array, about, about_mode, scalars, summarised, write
from scipy.special import gammaln, log_expit, xlogy

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
NEWTON_STEPS = 30
PILOT, DRAWS = 500, 10_000

# Of predictors (n, k): log p(y | eta) but for a constant.
LogLikelihood = Callable[[Array], Array]


class At(NamedTuple):
    """Parameters at a point of the unconstrained scale.

    Attributes
    ----------
    offset, scale : ndarray and float
        eta = offset + scale z, z ~ N(0, 1) of the group.
    log_prior : float
        With Jacobians.
    named : dict
        Values by name.
    """

    offset: Array
    scale: float
    log_prior: float
    named: dict[str, float]


class Model(NamedTuple):
    """Rows in groups, each group with one effect.

    Attributes
    ----------
    at : callable
    log_likelihood : callable
    slopes : callable
        Its two derivatives.
    group : ndarray of int
        Of each row.
    counts : ndarray
        How many groups are like each of them.
    effect : callable
        Name of the effect, and its value as a + b z of the point: (name, a, b), a of the groups.
    labels : list of str
        Of all effects; of those like each other in the order of `counts`.
    start : list of float
    """

    at: Callable[[Array], At]
    log_likelihood: LogLikelihood
    slopes: Callable[[Array], tuple[Array, Array]]
    group: Array
    counts: Array
    effect: Callable[[At], tuple[Array | float, float]]
    labels: list[str]
    which: Array
    start: list[float]


def given(model: Model, t: Array) -> tuple[float, Array, Array, At]:
    """Log density, mean and variance of each group's effect, and the parameters."""
    known = model.at(t)
    n = model.counts.size

    def summed(x: Array) -> Array:
        return np.bincount(model.group, x, n)

    z = np.zeros(n)
    for _ in range(NEWTON_STEPS):
        first, second = model.slopes(known.offset + known.scale * z[model.group])
        curvature = 1.0 - known.scale**2 * summed(second)
        step = np.clip((known.scale * summed(first) - z) / curvature, -3.0, 3.0)
        z = z + step
        if np.abs(step * np.sqrt(curvature)).max() < 1e-6:
            break
    sd = curvature**-0.5
    at = z[:, None] + sd[:, None] * NODES
    eta = known.offset[:, None] + known.scale * at[model.group]
    rows = model.log_likelihood(eta)
    logs = np.stack([summed(column) for column in rows.T], axis=1)
    logs += 0.5 * NODES**2 - 0.5 * at**2 + np.log(WEIGHTS) - 0.5 * np.log(2.0 * np.pi)
    largest = logs.max(axis=1, keepdims=True)
    mass = np.exp(logs - largest)
    total = mass.sum(axis=1)
    log_integral = np.log(total * sd) + largest[:, 0]
    mean = (mass * at).sum(axis=1) / total
    variance = (mass * (at - mean[:, None]) ** 2).sum(axis=1) / total
    a, b = model.effect(known)
    value = float(model.counts @ log_integral) + known.log_prior
    return value, a + b * mean, b**2 * variance, known


def reference(model: Model, count: int = DRAWS) -> tuple[Any, float]:
    """Summaries, and the relative ESS of the few parameters."""

    def log_density(t: Array) -> float:
        with np.errstate(all="ignore"):
            return given(model, t)[0] if np.isfinite(model.at(t).log_prior) else -np.inf

    draws, log_proposal = about_mode(log_density, np.array(model.start), PILOT)
    logs = np.array([log_density(t) for t in draws]) - log_proposal
    logs = np.where(np.isfinite(logs), logs, -np.inf)
    weights = np.exp(logs - logs.max())
    cov = np.atleast_2d(np.cov(draws.T, aweights=weights))
    draws, log_proposal = about(np.average(draws, axis=0, weights=weights), cov, count)
    log_target = np.full(count, -np.inf)
    means, variances = [], []
    names = [*model.at(np.array(model.start)).named, *model.labels]
    for k, t in enumerate(draws):
        with np.errstate(all="ignore"):
            log_target[k], mean, variance, known = given(model, t)
        if np.isfinite(log_target[k]):
            own = list(known.named.values())
            means.append(np.append(own, mean[model.which]))
            variances.append(np.append(np.zeros(len(own)), variance[model.which]))
        else:
            log_target[k] = -np.inf
            means.append(np.zeros(len(names)))
            variances.append(np.zeros(len(names)))
    return summarised(names, log_target - log_proposal, np.array(means), np.array(variances))


def binomial(y: Any, n: Any) -> tuple[LogLikelihood, Any]:
    y, n = np.asarray(y, float), np.asarray(n, float)

    def log_likelihood(eta: Array) -> Array:
        return y[:, None] * log_expit(eta) + (n - y)[:, None] * log_expit(-eta)

    def slopes(eta: Array) -> tuple[Array, Array]:
        p = np.exp(log_expit(eta))
        return y - n * p, -n * p * (1.0 - p)

    return log_likelihood, slopes


def poisson(y: Any) -> tuple[LogLikelihood, Any]:
    y = np.asarray(y, float)

    def log_likelihood(eta: Array) -> Array:
        return y[:, None] * eta - np.exp(eta) - gammaln(y + 1.0)[:, None]

    def slopes(eta: Array) -> tuple[Array, Array]:
        return y - np.exp(eta), -np.exp(eta)

    return log_likelihood, slopes


def log_gamma_prior(x: float, shape: float, rate: float) -> float:
    return float(xlogy(shape - 1.0, x) - rate * x)


def own_effects(
    X: Array,
    likelihood: tuple[LogLikelihood, Any],
    names: list[str],
    prior: Callable[[Array], float],
    scale: Callable[[float], tuple[float, float, dict[str, float]]],
    effect: str,
    start: list[float],
    shape: tuple[int, ...] | None = None,
    is_centred: bool = False,
) -> Model:
    """One effect a row: coefficients, then what `scale` makes of the last: sd, log prior, names.

    `is_centred`: the effect has the coefficient as its mean.
    """
    n = len(X)

    def at(t: Array) -> At:
        sd, log_prior, named = scale(t[-1])
        values = dict(zip(names, t[:-1].tolist(), strict=True)) | named
        return At(X @ t[:-1], sd, prior(t[:-1]) + log_prior, values)

    def value(known: At) -> tuple[Array | float, float]:
        return known.offset if is_centred else 0.0, known.scale

    every = np.arange(n)
    labels = scalars(effect, shape or (n,))
    return Model(at, *likelihood, every, np.ones(n), value, labels, every, start)


def normal(sd: float) -> Callable[[Array], float]:
    return lambda b: float(-0.5 * b @ b / sd**2)


def half_cauchy(t: float) -> tuple[float, float, dict[str, float]]:
    s = np.exp(t)
    return s, t - np.log1p(s**2), {"sigma": s}


def half_normal(t: float) -> tuple[float, float, dict[str, float]]:
    s = np.exp(t)
    return s, t - 0.5 * s**2, {"sigma": s}


def precision(t: float) -> tuple[float, float, dict[str, float]]:
    """Gamma(.001, .001), by its logarithm."""
    tau = np.exp(t)
    s = tau**-0.5
    return s, t + log_gamma_prior(tau, 1e-3, 1e-3), {"tau": tau, "sigma": s}


def precision_alone(t: float) -> tuple[float, float, dict[str, float]]:
    """Of models without the deviation by name."""
    s, log_prior, named = precision(t)
    return s, log_prior, {"tau": named["tau"]}


def variance(t: float) -> tuple[float, float, dict[str, float]]:
    """Inverse gamma (.001, .001), by its logarithm."""
    v = np.exp(t)
    return v**0.5, -1e-3 * t - 1e-3 / v, {"sigmasq": v, "sigma": v**0.5}


def below_5(t: float) -> tuple[float, float, dict[str, float]]:
    s = np.exp(t)
    return s, t if s < 5.0 else -np.inf, {"sigma": s}


def bounded(b: Array) -> float:
    return 0.0 if abs(b[0]) < 20.0 and (np.abs(b[1:]) < 10.0).all() else -np.inf


def seeds(d: Any) -> tuple[Array, Any]:
    x1, x2 = np.asarray(d["x1"], float), np.asarray(d["x2"], float)
    return np.c_[np.ones(len(x1)), x1, x2, x1 * x2], binomial(d["n"], d["N"])


def models_of_posteriordb(folder: Path) -> dict[str, Callable[[], Model]]:
    def data(name: str) -> Any:
        return data_of(folder / "data" / f"{name}.json.gz")

    alphas = [f"alpha{k}" for k in ("0", "1", "2", "12")]
    begin = [-0.5, 0.1, 1.3, -0.8]

    def seeds_model() -> Model:
        X, y = seeds(data("seeds_data"))
        return own_effects(X, y, alphas, normal(1000.0), precision, "b", [*begin, 2.0])

    def seeds_stanified() -> Model:
        X, y = seeds(data("seeds_data"))
        return own_effects(X, y, alphas, normal(1.0), half_cauchy, "b", [*begin, -1.2])

    def surgical() -> Model:
        d = data("surgical_data")
        y = binomial(d["r"], d["n"])
        one = np.ones((d["N"], 1))
        return own_effects(
            one, y, ["mu"], normal(1000.0), variance, "b", [-2.5, -2.0], is_centred=True
        )

    def counts() -> Model:
        d = data("GLMM_Poisson_data")
        X = np.asarray(d["year"], float)[:, None] ** np.arange(4)
        names = ["alpha", "beta1", "beta2", "beta3"]
        start = [4.2, 1.2, 0.1, -0.2, -2.0]
        return own_effects(X, poisson(d["C"]), names, bounded, below_5, "eps", start)

    def sites() -> Model:
        d = data("GLMM_data")
        group, n = np.ravel(d["obssite"]) - 1, d["nsite"]

        def at(t: Array) -> At:
            s, log_prior, _ = below_5(t[1])
            log_prior -= 0.5 * t[0] ** 2 / 100.0
            named = {"mu_alpha": t[0], "sd_alpha": s}
            return At(np.full(group.size, t[0]), s, log_prior, named)

        return Model(
            at, *poisson(np.ravel(d["obs"])), group, np.ones(n),
            lambda known: (known.named["mu_alpha"], known.scale),
            scalars("alpha", (n,)), np.arange(n), [2.0, 0.3],
        )  # fmt: skip

    def lsat() -> Model:
        d = data("lsat_data")
        counts = np.diff(d["culm"], prepend=0)
        kept = np.flatnonzero(counts)
        answers = np.asarray(d["response"])[kept]
        k, n_items = answers.shape

        def at(t: Array) -> At:
            beta = np.exp(t[-1])
            log_prior = t[-1] - 0.5 * beta**2 / 1e4 - 0.5 * t[:-1] @ t[:-1] / 1e4
            named = {f"alpha[{i + 1}]": t[i] for i in range(n_items)} | {"beta": beta}
            return At(np.tile(-t[:-1], k), beta, log_prior, named)

        which = np.repeat(np.arange(k), counts[kept])
        return Model(
            at, *binomial(answers.ravel(), np.ones(answers.size)), np.repeat(np.arange(k), n_items),
            counts[kept].astype(float), lambda _: (0.0, 1.0), scalars("theta", (which.size,)),
            which, [-2.7, -1.0, -0.2, -1.3, -2.0, -0.3],
        )  # fmt: skip

    return {
        "seeds_data-seeds_model": seeds_model,
        "seeds_data-seeds_stanified_model": seeds_stanified,
        "surgical_data-surgical_model": surgical,
        "GLMM_Poisson_data-GLMM_Poisson_model": counts,
        "GLMM_data-GLMM1_model": sites,
        "lsat_data-lsat_model": lsat,
    }


def models_of_others(folder: Path) -> dict[str, Callable[[], Model]]:
    """Of the folder of `latent_gaussian.py`."""

    def data(name: str) -> Any:
        with np.load(folder / "data" / f"{name}.npz") as file:
            return {k: file[k] for k in file.files}

    def seeds_model() -> Model:
        X, y = seeds(data("pdb_seeds_data"))
        names = [f"alpha{k}" for k in ("0", "1", "2", "12")]
        start = [-0.5, 0.1, 1.3, -0.8, 2.0]
        return own_effects(X, y, names, normal(1000.0), precision_alone, "b", start)

    def salm() -> Model:
        d = data("bugs_salm")
        x, y = d["x"].astype(float), d["y"]
        lx = np.log(x + 10.0)
        X = np.c_[np.ones(len(x)), lx - lx.mean(), x - x.mean()].repeat(y.shape[1], axis=0)
        names = ["alpha_star", "beta", "gamma"]
        start = [3.2, 0.3, -0.001, 2.7]
        return own_effects(
            X, poisson(y.ravel()), names, normal(1000.0), precision_alone, "lam", start, y.shape
        )

    def counts() -> Model:
        d = data("pdb_GLMM_Poisson_data")
        X = d["year"].astype(float)[:, None] ** np.arange(4)
        names = [f"beta[{k}]" for k in range(1, 5)]
        start = [4.2, 1.2, 0.1, -0.2, -2.0]
        return own_effects(X, poisson(d["C"]), names, normal(10.0), half_normal, "eps", start)

    def surgical() -> Model:
        d = data("pdb_surgical_data")
        one = np.ones((len(d["r"]), 1))
        y = binomial(d["r"], d["n"])
        return own_effects(
            one, y, ["mu"], normal(10.0), half_normal, "b", [-2.5, -1.0], is_centred=True
        )

    return {
        "seeds": seeds_model,
        "salm": salm,
        "glmm_poisson_normal": counts,
        "surgical_weak": surgical,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lgm", type=Path, help="folder of latent_gaussian.py")
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    models = models_of_posteriordb(args.data)
    if args.lgm is not None:
        models |= models_of_others(args.lgm)
    for name, build in models.items():
        path = args.references / f"{name}.json"
        if name in args.only if args.only else not path.exists():
            found, ess = reference(build())
            write(path, found, f"exact given the rest, relative ESS {ess:.2f}")
            print(name, f"{ess:.2f}, {min(x[2] for x in found.values()):.0f}", flush=True)


if __name__ == "__main__":
    main()
