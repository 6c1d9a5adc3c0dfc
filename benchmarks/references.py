"""Posterior means and deviations by other means than this package's, with their effective draws.

Models of few coordinates are sampled from a Student t about the mode, with importance weights;
others by nutpie's NUTS.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.blocking import DictToArrayBijection
from scipy import optimize, stats

Array = NDArray[np.float64]
# Names of scalars, `beta[2]` counted from one, to mean, standard deviation and effective draws.
Reference = Mapping[str, tuple[float, float, float]]
SEED = 35
MOST_COORDINATES = 12  # for importance sampling
DRAWS = 10_000
ENOUGH = 0.3  # relative ESS
ENOUGH_DRAWS, MOST_DRAWS = 1000, 40_000  # of chains: effective ones, and in each chain


def scalars(name: str, shape: tuple[int, ...]) -> list[str]:
    """Names of a variable's scalars as Stan writes them, in the order of its memory."""
    return [
        f"{name}[{','.join(str(i + 1) for i in index)}]" if shape else name
        for index in np.ndindex(*shape)
    ]


def make_reference(build: Callable[[], pm.Model], path: Path) -> str:
    """Write that of a model, and say how good it is."""
    model = build()
    size = sum(np.size(x) for x in model.initial_point().values())
    found, how, good = by_importance(model) if size <= MOST_COORDINATES else ({}, "", False)
    if not good:
        found, how = by_nuts(model)
    write(path, found, how)
    return how


def write(path: Path, found: Reference, how: str) -> None:
    """As the runner of the tables reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"how": how, "summaries": found}))


def about_mode(
    log_density: Callable[[Array], float], start: Array, count: int
) -> tuple[Array, Array]:
    """Draws of a mixture of two Student t about the mode, the second wider, and its log density."""

    def negative(x: Array) -> float:
        value = -log_density(x)
        return value if np.isfinite(value) else 1e300

    options = {"maxfev": 4000 * start.size, "xatol": 1e-5, "fatol": 1e-5, "adaptive": True}
    mode = optimize.minimize(negative, start, method="Nelder-Mead", options=options).x
    return about(mode, np.linalg.inv(hessian(negative, mode)), count)


def about(centre: Array, cov: Array, count: int) -> tuple[Array, Array]:
    """Draws of a mixture of two Student t, the second wider, and its log density."""
    rng = np.random.default_rng(SEED)
    parts = [
        (share, stats.multivariate_t(centre, wider * (cov + cov.T) / 2.0, df=df, seed=rng))
        for share, wider, df in ((0.8, 1.1, 10), (0.2, 4.0, 4))
    ]
    sizes = [round(share * count) for share, _ in parts]
    draws = [part.rvs(n).reshape(n, -1) for (_, part), n in zip(parts, sizes, strict=True)]
    x = np.concatenate(draws)
    logs = [np.log(share) + part.logpdf(x) for share, part in parts]
    return x, np.logaddexp(*logs)


def hessian(function: Callable[[Array], float], x: Array) -> Array:
    """By differences, on steps in which the function rises by about one half."""
    middle = function(x)
    steps = np.eye(x.size)
    for k in range(x.size):
        size = 1.0
        while function(x + size * steps[k]) - middle > 0.5 and size > 1e-12:
            size *= 0.5
        steps[k] *= size
    found = np.empty((x.size, x.size))
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            corners = function(x + a + b) + function(x - a - b)
            corners -= function(x + a - b) + function(x - a + b)
            found[i, j] = corners / (4.0 * a[i] * b[j])
    return found


def summarised(
    names: Iterable[str], log_weights: Array, means: Array, variances: Array | float = 0.0
) -> tuple[Reference, float]:
    """Of a mixture of distributions with these means and variances; and the relative ESS."""
    w = np.exp(log_weights - log_weights.max())
    w /= w.sum()
    mean = w @ means
    squares = variances + (means - mean) ** 2
    variance = w @ squares
    # Errors of the mean and of the variance, as numbers of independent draws.
    of_mean = variance / (w**2 @ (means - mean) ** 2)
    of_variance = 2.0 * variance**2 / (w**2 @ (squares - variance) ** 2)
    ess = np.minimum(np.minimum(of_mean, of_variance), 1e6)
    each = zip(mean.tolist(), np.sqrt(variance).tolist(), ess.tolist(), strict=True)
    return dict(zip(names, each, strict=True)), float(1.0 / (w**2).sum() / w.size)


def by_importance(model: pm.Model) -> tuple[Reference, str, bool]:
    """On the unconstrained scale; and whether the weights are good."""
    logp = model.compile_logp()
    point = DictToArrayBijection.map(model.initial_point())

    def back(x: Array) -> dict[str, Any]:
        return DictToArrayBijection.rmap(point._replace(data=x))

    x, log_proposal = about_mode(lambda x: float(logp(back(x))), point.data, DRAWS)
    log_target = np.array([float(logp(back(row))) for row in x])
    values = model.compile_fn(
        model.unobserved_value_vars, inputs=model.value_vars, on_unused_input="ignore"
    )
    drawn = [values(back(row)) for row in x]
    names = [
        name
        for variable, value in zip(model.unobserved_value_vars, drawn[0], strict=True)
        for name in scalars(str(variable.name), np.shape(value))
    ]
    rows = np.array([np.concatenate([np.ravel(v) for v in row]) for row in drawn])
    found, ess = summarised(names, log_target - log_proposal, rows)
    return found, f"importance, relative ESS {ess:.2f}", ess > ENOUGH


def by_nuts(model: pm.Model) -> tuple[Reference, str]:
    """Four chains, longer ones where effective draws are few; with what is wrong with them."""
    import nutpie

    compiled = nutpie.compile_pymc_model(model)
    draws, target_accept = 2000, 0.9
    while True:
        trace = nutpie.sample(
            compiled, draws=draws, tune=max(1000, draws // 4), chains=4, cores=1, seed=SEED,
            target_accept=target_accept, progress_bar=False,
        )  # fmt: skip
        found, r_hat = of_chains(trace["posterior"])
        divergent = int(trace["sample_stats"]["diverging"].sum())
        least = min(ess for _, _, ess in found.values())
        if (least >= ENOUGH_DRAWS and r_hat <= 1.01 and not divergent) or draws > 2000:
            break
        longer = 1.5 * ENOUGH_DRAWS / min(least, ENOUGH_DRAWS)
        draws, target_accept = min(int(longer * draws), MOST_DRAWS), 0.95
    poor = [f"r_hat {r_hat:.3f}"] * (r_hat > 1.01)
    poor += [f"ESS {least:.0f}"] * (least < ENOUGH_DRAWS) + [f"{divergent} divergent"] * (
        divergent > 0
    )
    return found, ", ".join(["NUTS", *poor])


def of_chains(posterior: Any) -> tuple[Reference, float]:
    """Of all scalars but constants, and the largest r_hat."""
    found: dict[str, tuple[float, float, float]] = {}
    r_hat = 0.0
    for variable, values in posterior.data_vars.items():
        draws = values.to_numpy()
        flat = draws.reshape(*draws.shape[:2], -1)
        for i, scalar in enumerate(scalars(str(variable), draws.shape[2:])):
            x = flat[..., i]
            if x.std() > 0.0:
                ess = min(float(az.ess(x, method=method)) for method in ("bulk", "mean", "sd"))
                found[scalar] = (float(x.mean()), float(x.std()), ess)
                r_hat = max(r_hat, float(az.rhat(x)))
    return found, r_hat
