"""References of posteriordb's models with normal observations and groups, by NumPy alone.

    python benchmarks/posteriordb_exact.py --data DIR --references DIR

Coefficients are integrated out in closed form given the scales, and these by importance sampling
about their mode: means and variances are mixtures of exact conditional ones.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from posteriordb import data_of
from references import Array, Reference, about, about_mode, scalars, summarised, write
from scipy.linalg import solve_triangular

Prior = Callable[[float], float]
PILOT = 500  # draws


class Part(NamedTuple):
    """Coefficients N(m, sd^2), sd a number or the name of a scale; m = factor N(0, mean_sd^2)."""

    name: str
    X: Array
    sd: float | str
    mean: str = ""
    mean_sd: float = 0.0
    factor: float = 1.0


class Regression:
    """Normal observations; log priors of the scales, the last of which is that of the noise."""

    def __init__(self, y: Array, parts: Sequence[Part], priors: dict[str, Prior]) -> None:
        columns: list[Array] = []
        self.sds: list[float | str] = []
        self.names: list[str] = []
        above: list[tuple[int, int, float]] = []
        for part in parts:
            X = part.X if part.X.ndim > 1 else part.X[:, None]
            self.names += scalars(part.name, part.X.shape[1:])
            columns.append(X)
            self.sds += [part.sd] * X.shape[1]
            if part.mean:
                end = len(self.sds)
                above += [(row, end, part.factor) for row in range(end - X.shape[1], end)]
                self.names.append(part.mean)
                columns.append(part.factor * X.sum(axis=1, keepdims=True))
                self.sds.append(part.mean_sd)
        X = np.hstack(columns)
        self.n, self.XX, self.Xy, self.yy = len(y), X.T @ X, X.T @ y, y @ y
        self.priors = priors
        # Columns are of deviations and means; an effect is its deviation and its mean.
        self.combine = np.eye(X.shape[1])
        for row, column, factor in above:
            self.combine[row, column] = factor

    def at(self, t: Array) -> tuple[float, Array, Array, Array]:
        """Log density of the logarithms of the scales, factor and mean of the rest, the scales."""
        values = np.exp(t)
        scale = dict(zip(self.priors, values, strict=True))
        sds = np.array([scale[sd] if isinstance(sd, str) else sd for sd in self.sds])
        L = np.linalg.cholesky(self.XX / values[-1] ** 2 + np.diag(sds**-2.0))
        u = solve_triangular(L, self.Xy / values[-1] ** 2, lower=True)
        log_density = 0.5 * (u @ u - self.yy / values[-1] ** 2) - self.n * t[-1] + t.sum()
        log_density -= np.log(np.diag(L)).sum() + np.log(sds[np.isfinite(sds)]).sum()
        log_density += sum(prior(scale[name]) for name, prior in self.priors.items())
        return float(log_density), L, u, values

    def reference(self, start: Sequence[float], count: int) -> tuple[Reference, float]:
        """And the relative ESS of the scales."""
        # From about the mode, then from about the mean: a scale near 0 is no normal one.
        draws, log_proposal = about_mode(lambda t: self.at(t)[0], np.log(start), PILOT)
        logs = np.array([self.at(t)[0] for t in draws]) - log_proposal
        weights = np.exp(logs - logs.max())
        mean = np.average(draws, axis=0, weights=weights)
        cov = np.atleast_2d(np.cov(draws.T, aweights=weights))
        draws, log_proposal = about(mean, cov, count)
        log_target, means, variances = np.empty(count), [], []
        for k, t in enumerate(draws):
            log_target[k], L, u, values = self.at(t)
            mean = self.combine @ solve_triangular(L, u, lower=True, trans=1)
            root = solve_triangular(L, self.combine.T, lower=True)
            means.append(np.concatenate([mean, values]))
            variances.append(np.concatenate([(root**2).sum(axis=0), np.zeros(values.size)]))
        names = [*self.names, *self.priors]
        return summarised(names, log_target - log_proposal, np.array(means), np.array(variances))


def half_normal(x: float) -> float:
    return -0.5 * x**2


def below_100(x: float) -> float:
    return 0.0 if x < 100.0 else -np.inf


def flat(_: float) -> float:
    return 0.0


def group(index: Any, n: int) -> Array:
    return np.eye(n)[index - 1]


def radon(d: Any) -> dict[str, tuple[list[Part], dict[str, Prior]]]:
    county, floor = group(d["county_idx"], d["J"]), d["floor_measure"].astype(float)
    one = np.ones(len(floor))
    alpha = Part("alpha", county, "sigma_alpha", "mu_alpha", 10.0)
    slopes = Part("beta", county * floor[:, None], "sigma_beta", "mu_beta", 10.0)
    beta = Part("beta", floor, 10.0)
    of_alpha, of_beta = ({f"sigma_{k}": half_normal} for k in ("alpha", "beta"))
    effects: dict[str, tuple[list[Part], dict[str, Prior]]] = {
        "partially_pooled": ([alpha], of_alpha),
        "variable_intercept": ([alpha, beta], of_alpha),
        "variable_slope": ([slopes, Part("alpha", one, 10.0)], of_beta),
        "variable_intercept_slope": ([alpha, slopes], of_alpha | of_beta),
    }
    if "log_uppm" in d:
        both = Part("beta", np.column_stack([d["log_uppm"], floor]), 10.0)
        effects["hierarchical_intercept"] = ([alpha, both], of_alpha)
    found = {f"{k}_{form}": x for k, x in effects.items() for form in ("centered", "noncentered")}
    found["county_intercept"] = ([Part("alpha", county, 10.0), beta], {})
    found["pooled"] = ([Part("alpha", one, 10.0), beta], {})
    return {k: (parts, priors | {"sigma_y": half_normal}) for k, (parts, priors) in found.items()}


def regressions(folder: Path) -> dict[str, tuple[Regression, list[float], int]]:
    """With a start of the scales, and how many draws of them."""

    def data(name: str) -> Any:
        return data_of(folder / "data" / f"{name}.json.gz")

    found: dict[str, tuple[Regression, list[float], int]] = {}
    for name, count in (("radon_mn", 20_000), ("radon_all", 4_000)):
        d = data(name)
        for model, (parts, priors) in radon(d).items():
            known = Regression(d["log_radon"], parts, priors)
            start = [*[0.3] * (len(priors) - 1), 0.8]
            found[f"{name}-radon_{model}"] = (known, start, count)
    d = data("radon_mod")
    a = Part("a", group(d["county"], d["J"]), "sigma_a", "mu_a", 1.0)
    known = Regression(d["y"], [a], {"sigma_a": below_100, "sigma_y": below_100})
    found["radon_mod-radon_county"] = (known, [0.3, 0.8], 10_000)
    d = data("pilots")
    a = Part("a", group(d["group_id"], d["n_groups"]), "sigma_a", "mu_a", 1.0, 10.0)
    b = Part("b", group(d["scenario_id"], d["n_scenarios"]), "sigma_b", "mu_b", 1.0, 10.0)
    known = Regression(d["y"], [a, b], dict.fromkeys(["sigma_a", "sigma_b", "sigma_y"], below_100))
    found["pilots-pilots"] = (known, [0.2, 0.4, 0.3], 40_000)
    d = data("rats_data")
    rats, age = group(d["rat"], d["N"]), (d["x"] - d["xbar"])[:, None]
    a = Part("alpha", rats, "sigma_alpha", "mu_alpha", 100.0)
    b = Part("beta", rats * age, "sigma_beta", "mu_beta", 100.0)
    scales = dict.fromkeys(["sigma_alpha", "sigma_beta", "sigma_y"], flat)
    found["rats_data-rats_model"] = (Regression(d["y"], [a, b], scales), [14.0, 0.5, 6.0], 10_000)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    for name, (known, start, count) in regressions(args.data).items():
        path = args.references / f"{name}.json"
        centred = path.with_name(path.name.replace("_noncentered", "_centered"))
        if name in args.only if args.only else not path.exists():
            if centred != path and centred.exists():  # of the same coefficients
                path.write_text(centred.read_text())
                continue
            found, ess = known.reference(start, count)
            write(path, found, f"exact given scales, relative ESS {ess:.2f}")
            print(name, f"{ess:.2f}, {min(x[2] for x in found.values()):.0f}", flush=True)


if __name__ == "__main__":
    main()
