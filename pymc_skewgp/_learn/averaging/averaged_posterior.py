"""`AveragedPosterior`: posteriors at several values of the hyperparameters, as one mixture."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from xarray import DataArray, Dataset, DataTree, concat

from pymc_skewgp._gaussian.weights import Estimate, mean_probability
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._validation import FloatArray, Seed, as_count, as_generator

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
        log_marginal_likelihood: Estimate,
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
        for i in np.unique(point):
            own = {name: x.isel(draw=np.flatnonzero(point == i)) for name, x in groups.items()}
            part = DataTree.from_dict(own)
            trees.append(self.posteriors[i].at_rows(part, rows, random_seed=rng))
        return _joined(trees, self.weights)

    def _mean(self, parts: list[Probability]) -> Probability:
        value = np.array([part.value for part in parts])
        errors = np.array([part.std_error for part in parts])
        mean = mean_probability(value.T, self.weights).T
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
            groups[name] = _averaged(parts, weights)
        elif "draw" in parts[0].dims:
            whole = concat(parts, dim="draw", data_vars="all", combine_attrs="drop_conflicts")
            groups[name] = whole.assign_coords(draw=np.arange(whole.sizes["draw"]))
        else:
            groups[name] = parts[0]
    return DataTree.from_dict(groups)


def _averaged(parts: list[Dataset], weights: FloatArray) -> Dataset:
    """Summaries of a mixture from those of its parts, with the errors of both."""
    found: dict[str, DataArray] = {}
    w = DataArray(weights, dims="point")
    for name in map(str, parts[0].data_vars):
        if any(word in name for word in _NO_AVERAGES) or name.endswith("_se"):
            continue
        values = concat([part[name] for part in parts], dim="point", coords="minimal")
        stem = name.removesuffix("_sd")
        if name.endswith("_sd") and f"{stem}_mean" in parts[0]:
            means = concat([part[f"{stem}_mean"] for part in parts], dim="point", coords="minimal")
            mean = (w * means).sum("point")
            found[name] = (w * (values**2 + (means - mean) ** 2)).sum("point") ** 0.5
            continue
        mean = (w * values).sum("point")
        found[name] = mean
        spread = (values - mean) ** 2
        if f"{name}_se" in parts[0]:
            errors = concat([part[f"{name}_se"] for part in parts], dim="point", coords="minimal")
            spread = spread + errors**2
        found[f"{name}_se"] = (w**2 * spread).sum("point") ** 0.5
    return Dataset(found, attrs=parts[0].attrs)
