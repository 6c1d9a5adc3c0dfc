"""Posteriors of a process averaged over its hyperparameters, for estimators, and their reports."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset, DataTree, concat

from pymc_skewgp._errors import HeavyTailWarning, IntegrationWarning, warn
from pymc_skewgp._gaussian import weights as of_draws
from pymc_skewgp._gaussian.escalation import DEFAULT
from pymc_skewgp._learn.averaging import integration
from pymc_skewgp._learn.averaging.importance import IntegrationSettings
from pymc_skewgp._learn.averaging.model_functions import dataset_of
from pymc_skewgp._learn.averaging.points import ExactPoints, WeightedPoints
from pymc_skewgp._learn.averaging.problem import (
    ManyRowsProblem,
    improper_priors,
    integration_problem,
)
from pymc_skewgp._learn.coordinates import Searched
from pymc_skewgp._learn.problem import TrainingData
from pymc_skewgp._limits import progress_of
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray, Seed, as_count, as_generator

# `AveragedPosterior`: posteriors at several values of the hyperparameters, as one mixture.

# Variables that are no averages over f: of a mixture they are not those of its parts.
_NO_AVERAGES = ("_quantile", "_skewness")


class AveragedPosterior:
    """Latent functions and forecasts, the hyperparameters averaged over.

    Parameters
    ----------
    posteriors : list of SkewGPPosterior
        At points of the hyperparameters.
    weights : ndarray
        Of these, normalised.
    log_marginal_likelihood : Estimate
        Of the model: of all hyperparameters together.

    Attributes
    ----------
    posteriors, weights, log_marginal_likelihood
        As given.
    """

    def __init__(
        self,
        posteriors: list[SkewGPPosterior],
        weights: FloatArray,
        log_marginal_likelihood: of_draws.Estimate,
    ) -> None:
        self.posteriors, self.weights = posteriors, weights
        self.log_marginal_likelihood = log_marginal_likelihood

    def __repr__(self) -> str:
        return f"AveragedPosterior({len(self.posteriors)} points, {self.posteriors[0]!r})"

    @property
    def likelihood(self) -> Any:
        """That of the first posterior: their parameters differ."""
        return self.posteriors[0].likelihood

    def probability(self, Xnew: ArrayLike) -> Probability:
        """Probability of a label 1 at new points; see `SkewGPPosterior.probability`.

        Its standard error is of both: the draws of u at each point of the hyperparameters, and how
        the probabilities differ between the points.
        """
        return self._mean([posterior.probability(Xnew) for posterior in self.posteriors])

    def preference_probability(self, Xa: ArrayLike, Xb: ArrayLike) -> Probability:
        """See `SkewGPPosterior.preference_probability`; the error as of `probability`."""
        return self._mean([x.preference_probability(Xa, Xb) for x in self.posteriors])

    def predict(
        self,
        Xnew: ArrayLike,
        *,
        draws: int = 1000,
        chains: int = 4,
        random_seed: Seed = None,
        **options: Any,
    ) -> DataTree:
        """Forecasts at new points, as `SkewGPPosterior.predict`; quantiles are of the draws.

        Means are averaged, and variances are those of the mixture. Skewness is left out.
        """
        rng, counts = as_generator(random_seed), self._counts(as_count("draws", draws, 0))
        trees = [
            posterior.predict(
                Xnew, draws=count, chains=chains, quantiles=[], random_seed=rng, **options
            )
            for posterior, count in zip(self.posteriors, counts, strict=True)
        ]
        return _joined(trees, self.weights)

    def sample(self, draws: int = 1000, chains: int = 4, random_seed: Seed = None) -> DataTree:
        """Draws of f at the data, as `SkewGPPosterior.sample`.

        Of more than 10,000 rows under an approximated prior the group ``posterior`` has
        ``coordinates`` in place of f, and as the coordinate ``point`` which of the posteriors each
        draw is of: see `at_rows`.
        """
        rng, counts = as_generator(random_seed), self._counts(as_count("draws", draws))
        trees = [
            posterior.sample(draws=count, chains=chains, random_seed=rng)
            for posterior, count in zip(self.posteriors, counts, strict=True)
            if count
        ]
        found = _joined(trees, self.weights)
        if "coordinates" in found["posterior"]:
            point = np.repeat(np.arange(len(counts)), counts)
            drawn = found["posterior"].to_dataset().assign_coords(point=("draw", point))
            found["posterior"] = DataTree(drawn)
        return found

    def at_rows(self, draws: DataTree, rows: ArrayLike, *, random_seed: Seed = None) -> DataTree:
        """F, new data and log likelihoods at some rows, as `SkewGPPosterior.at_rows`.

        Raises
        ------
        ValueError
            For draws that have no coordinates, or are not of a mixture.
        """
        if "point" not in draws["posterior"].coords:
            raise ValueError(
                "these draws do not say of which posterior each is: pass what sample() of this "
                "mixture gave for more than 10,000 rows."
            )
        rng, point = as_generator(random_seed), draws["posterior"]["point"].to_numpy()
        groups = {name: draws[name].to_dataset() for name in ("posterior", "sample_stats")}
        trees = []
        with progress_of(np.size(rows), "Draws at", self.posteriors[0]._progressbar):
            for i in np.unique(point):
                own = {name: x.isel(draw=np.flatnonzero(point == i)) for name, x in groups.items()}
                part = DataTree.from_dict(own)
                trees.append(self.posteriors[i].at_rows(part, rows, random_seed=rng))
            return _joined(trees, self.weights)

    def _mean(self, parts: list[Probability]) -> Probability:
        value = np.array([part.value for part in parts])
        errors = np.array([part.std_error for part in parts])
        mean = of_draws.mean_probability(value.T, self.weights).T
        spread = self.weights**2 @ ((value - mean) ** 2 + errors**2)
        return Probability(mean, np.sqrt(spread))

    def _counts(self, draws: int) -> list[int]:
        """Draws of each posterior, in proportion to the weights."""
        ends = np.round(np.cumsum(self.weights) * draws).astype(int)
        ends[-1] = draws
        return np.diff(ends, prepend=0).tolist()


def _joined(trees: list[DataTree], weights: FloatArray) -> DataTree:
    names = dict.fromkeys(name for tree in trees for name in tree.children)
    groups = {}
    for name in names:
        parts = [tree[name].to_dataset() for tree in trees if name in tree.children]
        if name.endswith("_summary"):
            groups[name] = _averaged_group(parts, weights)
        elif "draw" in parts[0].dims:
            whole = concat(parts, dim="draw", data_vars="all", combine_attrs="drop_conflicts")
            groups[name] = whole.assign_coords(draw=np.arange(whole.sizes["draw"]))
        else:
            groups[name] = parts[0]
    return DataTree.from_dict(groups)


def _averaged_group(parts: list[Dataset], weights: FloatArray) -> Dataset:
    """Summaries of a mixture from those of its parts, with the errors of both."""
    found: dict[str, DataArray] = {}
    w = DataArray(weights, dims="point")

    def each(name: str) -> DataArray:
        return concat([part[name] for part in parts], dim="point", coords="minimal")

    for name in map(str, parts[0].data_vars):
        if any(word in name for word in _NO_AVERAGES) or name.endswith("_se"):
            continue
        values, stem = each(name), name.removesuffix("_sd")
        if name.endswith("_sd") and f"{stem}_mean" in parts[0]:
            means = each(f"{stem}_mean")
            off = means - (w * means).sum("point")
            found[name] = (w * (values**2 + off**2)).sum("point") ** 0.5
            continue
        found[name] = (w * values).sum("point")
        spread = (values - found[name]) ** 2
        if f"{name}_se" in parts[0]:
            spread = spread + each(f"{name}_se") ** 2
        found[f"{name}_se"] = (w**2 * spread).sum("point") ** 0.5
    return Dataset(found, attrs=parts[0].attrs)


# What an integral over hyperparameters says of itself: attributes of the result, and warnings.

# Relative ESS of the exact evidences over EP's below which a warning says so: the rungs are climbed
# by EP's alone, and nothing else would.
_LEAST_EXACT_ESS = 0.3
# Relative variance of the weights of a point's draws over their number, the squared error of its
# log evidence, which is a share that the law of a draw from among them is off by.
_MOST_BIAS = 0.1
# Index of a tail above which draws do not give a mean (Vehtari et al., 2024, arXiv:1507.02646), the
# part of the posterior that is its tail, entries of a variable that are too many to look at, and
# points that are enough.
_HEAVY, _TENTH, _MOST_ENTRIES, _MOST_POINTS = 0.7, 0.1, 50, 2000


def attributes_of(
    integral: integration.Integral, exact: ExactPoints, objective: Searched
) -> dict[str, Any]:
    """By name; see `integrate`."""
    by_ep, correction = integral.log_integral, exact.correction()
    return {
        "log_evidence": by_ep.value + correction.value,
        "log_evidence_se": float(np.hypot(by_ep.std_error, correction.std_error)),
        "relative_ess": by_ep.relative_ess,
        "pareto_k": by_ep.pareto_k,
        "relative_ess_exact": correction.relative_ess,
        "pareto_k_exact": correction.pareto_k,
        "method": integration.RUNGS[integral.rung],
        "rung": integral.rung,
        "n_evaluations": integral.n_evaluations,
        "n_evidences": len(exact.points),
        "heavy_tails": ", ".join(_heavy_tails(objective, integral.points)),
        "improper_priors": ", ".join(improper_priors(objective)),
    }


def warn_of(integral: integration.Integral, exact: ExactPoints, stacklevel: int) -> None:
    """Warn of weights, or chains, that are not good enough."""
    texts, correction = [], exact.correction()
    if not integral.accepted:
        what = (
            "the chains of the hyperparameters have not converged"
            if integral.rung == integration.CHAINS
            else "the importance weights of the hyperparameters are very unequal"
        )
        texts.append(
            f"{what} ({of_draws.describe_weights(integral.log_integral)}): the draws may not be "
            "those of the posterior. Give narrower priors, or use pm.sample."
        )
    if len(exact.points) == 1:  # one evidence, of draws that nobody has judged
        if not correction.std_error <= DEFAULT.largest_se:
            texts.append(
                "the importance weights of the draws are very unequal "
                f"({of_draws.describe_weights(correction)}; standard error of the log evidence "
                f"{correction.std_error:.2g} nats): use pm.sample."
            )
    elif correction.heavy_tailed or correction.relative_ess < _LEAST_EXACT_ESS:
        texts.append(
            "expectation propagation's evidence is far from the exact one "
            f"({of_draws.describe_weights(correction)} of the weights between them): raise "
            "n_evidences, or use pm.sample."
        )
    if len(exact.points) > 1:
        error, share = np.median([(x.std_error, x.relative_ess) for x in exact.found], axis=0)
        if not error**2 <= _MOST_BIAS:
            texts.append(
                "at most hyperparameters the importance weights of the draws are very unequal "
                f"(relative ESS {share:.2g}; standard error of a log evidence {error:.2g} nats): "
                "use pm.sample."
            )
    for text in texts:
        warn(text, IntegrationWarning, stacklevel=stacklevel)


def warn_of_tails(names: str, stacklevel: int) -> None:
    """Warn of means that draws do not give."""
    if names:
        warn(
            f"the tail of {names} is so heavy (its index, as a Pareto k, is above {_HEAVY}) that "
            "draws which are too rare to be met decide the mean: that of the draws may be far off, "
            "and mcse_mean does not see it. Quantiles are right: "
            'az.summary(..., kind="all_median"). Or give a prior with a lighter tail.',
            HeavyTailWarning,
            stacklevel=stacklevel,
        )


def _heavy_tails(objective: Searched, points: WeightedPoints) -> list[str]:
    """Hyperparameters whose means no usual number of draws gives."""
    step = 1 + len(points.x) // _MOST_POINTS
    each = [objective.named(points.point(i)) for i in range(0, len(points.x), step)]
    weights, heavy = of_draws.normalized_weights(points.log_weights[::step]), []
    for name, first in each[0].items():
        if first.dtype.kind == "f" and first.size <= _MOST_ENTRIES:
            values = np.stack([named[name].ravel() for named in each]).T
            if any(_tail_index(x, weights) > _HEAVY for x in values):
                heavy.append(name)
    return heavy


def _tail_index(x: FloatArray, weights: FloatArray) -> float:
    """Hill's estimate from the tenth farthest from the median (1975, doi:10.1214/aos/1176343247).

    Of an exponential density that is .43, of a log-normal one of sd 1 .59, of an inverse gamma of
    shape 2, which has no variance, .71.
    """
    order = np.argsort(x)
    median = x[order[np.searchsorted(np.cumsum(weights[order]), 0.5)]]
    distance = np.abs(x - median)
    order = np.argsort(distance)
    first = int(np.searchsorted(np.cumsum(weights[order]), 1.0 - _TENTH))
    least, far = distance[order[first]], order[first + 1 :]
    total = weights[far].sum()
    if not (least > 0.0 and total > 0.0):
        return 0.0
    return float(weights[far] @ np.log(distance[far] / least) / total)


# Forecasts are means: few points give them to a hundredth, and each has a posterior of its own. So
# some tens of effective points do, whatever share they are of all.
SETTINGS = IntegrationSettings(
    n_evidences=32,
    many_rows_evidences=16,
    most_rows_of_chains=300,
    n_points=64,
    points_per_coordinate=24,
    enough=64,
    enough_interpolated=512,
    more_rounds=8,
    least_ess=0.03,
    chains=2,
    tune=150,
    draws=150,
    least_effective=50,
)
_DRAWN = 1000  # of the hyperparameters


def averaged_process(
    data: TrainingData,
    start: Mapping[str, Any],
    seed: int,
    settings: IntegrationSettings = SETTINGS,
) -> tuple[AveragedPosterior, DataTree]:
    """A SkewGP averaged over its hyperparameters, and the posterior of these.

    Parameters
    ----------
    data : TrainingData
        A SkewGP with X, y and likelihood.
    start : mapping
        Where its hyperparameters start.
    seed : int
    settings : IntegrationSettings
    """
    rng = np.random.default_rng(seed)
    problem = integration_problem(data, None, start, drawn=False)
    given = problem, settings, None, rng
    objective, latent, integral, exact = integration.average(*given)
    if isinstance(problem, ManyRowsProblem):
        # Few posteriors, so that hyperparameters are drawn under EP's evidence, from all points:
        # the ratio of the two evidences is the more nearly the same at all of them the more rows
        # there are.
        chosen = np.sort(integral.points.resampled(_DRAWN, rng))
        different, index = np.unique(chosen, return_inverse=True)
        points = [integral.points.point(i) for i in different]
    else:
        # Equal ones side by side, where an effective sample size sees them, in no order otherwise.
        points, order = exact.points, rng.permutation(len(exact.points))
        index = order[np.sort(of_draws.systematic_resample(exact.log_weights[order], _DRAWN, rng))]
    drawn = dataset_of(objective, points, index[None])
    warn_of(integral, exact, stacklevel=5)
    attributes = attributes_of(integral, exact, objective)
    names = "log_evidence", "log_evidence_se", "relative_ess", "pareto_k"
    evidence = of_draws.Estimate(*(attributes[name] for name in names))
    weights = of_draws.normalized_weights(exact.log_weights)
    mixture = AveragedPosterior(latent.posteriors(exact), weights, evidence)
    drawn.attrs.update(attributes)
    return mixture, DataTree.from_dict({"posterior": drawn})
