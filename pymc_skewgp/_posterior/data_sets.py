"""Data of one kind, or of several kinds on the same latent functions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.arguments import as_derivative, as_inputs
from pymc_skewgp._observations.bernoulli_logit import BernoulliLogit
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._observations.binomial_logit import BinomialLogit
from pymc_skewgp._observations.likelihood import Data, Likelihood
from pymc_skewgp._observations.observations import Observations, stacked
from pymc_skewgp._observations.sites import SiteLikelihood, SitesOfParts
from pymc_skewgp._observations.values import Values
from pymc_skewgp._observations.weighted import Weighted
from pymc_skewgp._observations.weights import as_weights, weighted_observations
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.prior_values import variances_of
from pymc_skewgp._validation import FloatArray

BoolArray = NDArray[np.bool_]
# Noise of more than this share of the variance is noise in its own right.
_MOST_NUGGET = 1e-4
# Of limits, in standard deviations of the noise: the nugget itself.
_LEAST_WIDTH = 8.0


class DataSet(NamedTuple):
    """Data under one likelihood.

    Attributes
    ----------
    name : str
        Empty where it is the only one.
    X : ndarray, shape (n, d)
    y : ndarray
    likelihood : Likelihood
    weights : ndarray of int, or None
        How often each observation was made; None where each was made once.
    """

    name: str
    X: FloatArray
    y: Data
    likelihood: Likelihood
    weights: IntArray | None = None

    def weighted(self, weights: ArrayLike) -> "DataSet":
        """The same, each observation made so often; sites have powers, whole or not."""
        known, y, n = self.likelihood, self.y, self.X.shape[0]
        if not known.has_data:
            raise ValueError(f"weights are of data, and {known!r} has none: leave them out.")
        if isinstance(known, SiteLikelihood):
            powers = Weighted(known, weights)
            powers.sites(y, n)  # refuses impossible ones at once
            return self._replace(likelihood=powers)
        return self._replace(weights=as_weights("weights", weights, len(y)))

    def rows(self) -> Observations:
        """What is observed, in rows."""
        known, n = self.likelihood, self.X.shape[0]
        if self.weights is None:
            return known.observations(self.y, n)
        return weighted_observations(known, self.y, n, self.weights)

    @property
    def values(self) -> Values:
        """What of the functions it is about."""
        known = self.likelihood
        return Values(self.X, known.n_functions(self.y), known.derivative)

    def named(self, variable: str) -> str:
        """What a variable that belongs to it is called; standard errors end in ``_se``."""
        if not self.name:
            return variable
        stem = variable.removesuffix("_se")
        return f"{stem}_{self.name}{variable[len(stem) :]}"


def as_data_sets(
    X: Any, y: Any, likelihood: Any, weights: ArrayLike | None = None
) -> tuple[DataSet, ...]:
    """Checked data: X and y, or, without y, (X, y, likelihood) of each kind.

    `weights` are those of data of one kind.

    Raises
    ------
    ValueError, TypeError
        The message says which of them, what was found and what was expected.
    """
    sets = []
    for name, kind in kinds_of(X, y, likelihood).items():
        try:
            sets.append(_data_set(name, *kind))
        except (TypeError, ValueError) as error:
            if not name:
                raise
            raise type(error)(f"in the data {name!r}: {error}") from error
    if weights is not None:
        if len(sets) > 1 or sets[0].name:
            raise ValueError(
                "weights are for data of one kind: repeat the rows of X and y in those of several."
            )
        sets = [sets[0].weighted(weights)]
    columns = {data.X.shape[1] for data in sets}
    if len(columns) > 1:
        raise ValueError(
            f"the X of all data must have one number of columns, got {sorted(columns)}."
        )
    return tuple(sets)


def kinds_of(X: Any, y: Any, likelihood: Any) -> dict[str, tuple[Any, Any, Any]]:
    """(X, y, likelihood) by name, not checked; the name is empty where there is only one."""
    if y is not None or not getattr(likelihood, "has_data", True):
        return {"": (X, y, likelihood)}
    if isinstance(X, Mapping):
        kinds = {str(name): kind for name, kind in X.items()}
    elif isinstance(X, list | tuple) and all(isinstance(kind, tuple) for kind in X):
        kinds = {str(i): kind for i, kind in enumerate(X)}
    else:
        raise TypeError(
            "y is missing. Data of several kinds are a list of tuples (X, y, likelihood), or a "
            "dict of them by name, without y."
        )
    if likelihood is not None:
        raise TypeError("with data of several kinds each tuple (X, y, likelihood) has its own.")
    if not kinds:
        raise ValueError("there are no data: the list of (X, y, likelihood) is empty.")
    for name, kind in kinds.items():
        if not isinstance(kind, tuple) or len(kind) != 3:
            found = f"{type(kind).__name__}"
            found += f" of length {len(kind)}" if isinstance(kind, tuple) else ""
            raise TypeError(f"data {name!r} must be a tuple (X, y, likelihood), got a {found}.")
        if not name:
            raise ValueError("names of data must not be empty.")
    return kinds


def rows_of(sets: tuple[DataSet, ...], prior: Prior) -> tuple[Observations, BoolArray]:
    """Rows of all of them, one after the other, of the values that `DataSet.values` are.

    And which of these rows are constraints, whose noise is only a nugget.
    """
    parts, constrained = [], []
    for data in sets:
        rows = data.rows()
        relative = data.likelihood.relative_noise
        constrained.append(np.full(rows.n_rows, relative) & (rows.variances < _MOST_NUGGET))
        parts.append(in_prior_units(rows, prior, data) if relative else rows)
    return stacked(parts, [data.values.size for data in sets]), np.concatenate(constrained)


def sites_of(sets: tuple[DataSet, ...]) -> SitesOfParts | None:
    """Observations that are no rows, likewise; None where all are."""
    parts = [
        data.likelihood.sites(data.y, data.X.shape[0])
        if isinstance(data.likelihood, SiteLikelihood)
        else None
        for data in sets
    ]
    if all(part is None for part in parts):
        return None
    return SitesOfParts(parts, [data.values.size for data in sets])


def link_of(sets: tuple[DataSet, ...]) -> str:
    """Link of labels, "probit" or "logit"; of sites that are none the name of their likelihood."""
    known = [data.likelihood for data in sets]
    plain = [x.likelihood if isinstance(x, Weighted) else x for x in known]
    if not all(isinstance(x, SiteLikelihood) for x in plain):
        return "probit"
    if any(isinstance(x, BernoulliLogit | BinomialLogit) for x in plain):
        return "logit"
    return type(plain[0]).__name__


def updated_sets(
    sets: tuple[DataSet, ...], Xnew: ArrayLike | None, ynew: ArrayLike, name: str | None
) -> tuple[DataSet, ...]:
    """The same with new data in the one called `name`, or in the only one."""
    names = [data.name for data in sets]
    wanted = names[0] if name is None and len(names) == 1 else name
    if wanted not in names:
        raise ValueError(f"name must say which data the new ones belong to: {names}; got {name!r}.")
    at = names.index(wanted)
    old = sets[at]
    new = np.zeros((0, old.X.shape[1]))
    if Xnew is not None:
        new = as_inputs("Xnew", Xnew, old.X.shape[1])
    try:
        y = old.likelihood.joined(old.y, old.X.shape[0], ynew, new.shape[0])
    except (TypeError, ValueError) as error:
        raise type(error)(f"in the new data: {error}") from error
    weights = old.weights
    if weights is not None:  # the new ones were made once
        weights = np.append(weights, np.ones(len(y) - weights.size, dtype=np.intp))
    grown = old._replace(X=np.vstack([old.X, new]), y=y, weights=weights)
    return (*sets[:at], grown, *sets[at + 1 :])


def as_likelihood(likelihood: Any) -> Likelihood:
    """`likelihood`, by default binary probit; TypeError for what is none."""
    if likelihood is None:
        return BernoulliProbit()
    if not isinstance(likelihood, Likelihood):
        found = likelihood.__name__ if isinstance(likelihood, type) else type(likelihood).__name__
        raise TypeError(
            f"likelihood must be an object of pymc_skewgp.likelihoods, such as BernoulliProbit() "
            "or Gaussian(0.1), or for SkewGP.posterior a function such as lambda eta: "
            f"pm.Poisson.dist(pm.math.exp(eta)); got {found}."
        )
    return likelihood


def _data_set(name: str, X: ArrayLike, y: ArrayLike, likelihood: Any) -> DataSet:
    inputs, known = as_inputs("X", X), as_likelihood(likelihood)
    as_derivative(known.derivative, inputs.shape[1])
    return DataSet(name, inputs, known.as_data(y, inputs.shape[0]), known)


def in_prior_units(rows: Observations, prior: Prior, data: DataSet) -> Observations:
    """Constraints, with noise that was a share of the prior variance of what they limit."""
    variances = variances_of(prior, "X", data.values)
    named = f" in the data {data.name!r}" if data.name else ""
    if not (variances > 0).all():
        raise ValueError(
            f"what is constrained{named} has no variance at {int((variances <= 0).sum())} of "
            f"{variances.size} point(s): the kernel does not depend on that feature there, or its "
            "derivative is a constant."
        )
    noise = rows.S * variances
    width = rows.upper - rows.lower
    narrow = width < _LEAST_WIDTH * np.sqrt(noise)
    if narrow.any():
        i = int(np.argmax(narrow))
        raise ValueError(
            f"limits of the constraint{named} are closer together than its nugget in "
            f"{int(narrow.sum())} row(s): row {i} has the width {width[i]:.3g}. Lower the nugget, "
            "or give such values as data, under Gaussian."
        )
    return replace(rows, S=noise)


def n_functions(sets: tuple[DataSet, ...]) -> int:
    """Of all the data together."""
    return int(np.max([data.values.n_functions for data in sets]))
