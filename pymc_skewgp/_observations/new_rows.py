"""New rows that forecasts are about: inputs, offsets, and what the likelihood says of each row."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._observations.likelihood import Data, Likelihood, Mixture, some_values
from pymc_skewgp._observations.observations import places_of
from pymc_skewgp._observations.weighted import Weighted
from pymc_skewgp._validation import FloatArray, as_real_array

_EVERY = slice(None)
_OFFSET = "offset"
# Of new rows by name: a number for all, or one each.
RowNumbers = Mapping[str, ArrayLike | None]


@dataclass(frozen=True, eq=False)
class NewRows:
    """New rows, and what likelihoods predict there.

    Attributes
    ----------
    X : ndarray, shape (t, d)
    offset : ndarray, shape (t,), or None
        Added to f in the likelihood.
    parameters : dict of ndarray, shape (t,)
        Of likelihoods, such as exposures, by name; what is not in it is as for the data.
    """

    X: FloatArray
    offset: FloatArray | None = None
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number t of rows."""
        return self.X.shape[0]

    @property
    def first(self) -> "NewRows":
        """One of them; its inputs are not known to be."""
        return NewRows(np.empty((1, 0)), None, {name: x[:1] for name, x in self.parameters.items()})

    def repeated(self, count: int) -> "NewRows":
        """All of them so many times; their inputs are not known to be."""
        parameters = {name: np.tile(x, count) for name, x in self.parameters.items()}
        offset = None if self.offset is None else np.tile(self.offset, count)
        return NewRows(np.empty((self.size * count, 0)), offset, parameters)

    def draws(
        self, likelihood: Likelihood, f: FloatArray, rng: np.random.Generator
    ) -> dict[str, Data]:
        """What is predicted given draws of f, (..., t) or of several functions (..., t, K)."""
        f = f if self.offset is None else f + self.offset
        if not self._own(likelihood):
            return likelihood.predictive_draws(f, rng)
        axis = f.ndim - 1 - (_width(likelihood) > 1)
        parts = self._parts(likelihood)
        each = [(i, own.predictive_draws(f.take(i, axis), rng)) for i, own in parts]
        return self._joined(each, axis)

    def summary(self, likelihood: Likelihood, mixture: Mixture) -> dict[str, FloatArray]:
        """The same averaged over f, with standard errors."""
        return self._of_mixture(likelihood, mixture, lambda own, at: own.predictive_summary(at), 0)

    def quantiles(
        self, likelihood: Likelihood, mixture: Mixture, probs: FloatArray
    ) -> dict[str, FloatArray]:
        """Quantiles of it, shape (n_probs, t)."""
        return self._of_mixture(
            likelihood, mixture, lambda own, at: own.predictive_quantiles(at, probs), 1
        )

    def joint(
        self, likelihood: Likelihood, f: FloatArray, mixture: Mixture
    ) -> dict[str, FloatArray]:
        """What the rows tell only together, by joint draws of f."""
        f = f if self.offset is None else f + self.offset
        return dict(likelihood.joint_summary(f, self._shifted(mixture)))

    def _shifted(self, mixture: Mixture) -> Mixture:
        if self.offset is None:
            return mixture
        return replace(mixture, means=mixture.means + self.offset[:, None])

    def _of_mixture(
        self,
        likelihood: Likelihood,
        mixture: Mixture,
        predict: Callable[[Likelihood, Mixture], Mapping[str, FloatArray]],
        axis: int,
    ) -> dict[str, FloatArray]:
        mixture = self._shifted(mixture)
        if not self._own(likelihood):
            return dict(predict(likelihood, mixture))
        each = []
        k, cov = _width(likelihood), mixture.covariance
        for rows, own in self._parts(likelihood):
            at = (k * rows[:, None] + np.arange(k)).ravel()
            part = some_values(mixture, at, None if cov is None else cov[rows])
            each.append((rows, predict(own, part)))
        return self._joined(each, axis)

    def _own(self, likelihood: Likelihood) -> dict[str, FloatArray]:
        """Those parameters that it has one of for each observation."""
        names = own_parameters(likelihood)
        return {name: x for name, x in self.parameters.items() if name in names}

    def _parts(self, likelihood: Likelihood) -> Iterator[tuple[NDArray[Any], Likelihood]]:
        """Rows with equal parameters, and the likelihood with these as numbers."""
        own = self._own(likelihood)
        table = np.column_stack(list(own.values()))
        each, which = np.unique(table, axis=0, return_inverse=True)
        for values, rows in zip(each.tolist(), places_of(which.ravel()), strict=True):
            yield rows, of_new(likelihood).with_parameters(dict(zip(own, values, strict=True)))

    def _joined(
        self, each: Sequence[tuple[NDArray[Any], Mapping[str, NDArray[Any]]]], axis: int
    ) -> dict[str, NDArray[Any]]:
        found = {}
        for name, first in each[0][1].items():
            shape = (*first.shape[:axis], self.size, *first.shape[axis + 1 :])
            found[name] = np.empty(shape, dtype=first.dtype)
            for rows, values in each:
                found[name][(_EVERY,) * axis + (rows,)] = values[name]
        return found


def of_new(likelihood: Likelihood) -> Likelihood:
    """The likelihood of a new observation, whose weight is 1."""
    return likelihood.likelihood if isinstance(likelihood, Weighted) else likelihood


def _width(likelihood: Likelihood) -> int:
    """Number of functions, where rows have parameters of their own: the same for any data."""
    return likelihood.n_functions(np.zeros(1))


def own_parameters(likelihood: Likelihood) -> tuple[str, ...]:
    """Names of parameters of which each new row may have one of its own."""
    return of_new(likelihood).row_parameters


def as_new_rows(
    X: FloatArray,
    likelihoods: Sequence[Likelihood],
    n_functions: int,
    own: RowNumbers,
) -> NewRows:
    """New rows, checked.

    Parameters
    ----------
    X : ndarray, shape (t, d)
        See `as_inputs`.
    likelihoods : sequence of Likelihood
    n_functions : int
        Of all of them together.
    own : mapping of array_like, shape (t,), or float
        Parameters by name, each of one likelihood at least, and "offset".

    Raises
    ------
    TypeError
        For a parameter that no likelihood has one of for each row.
    ValueError
        For numbers of another shape, or that a likelihood does not take.
    """
    known = [_OFFSET, *(name for each in likelihoods for name in own_parameters(each))]
    given = {name: x for name, x in own.items() if x is not None}
    unknown = [name for name in given if name not in known]
    if unknown:
        under = ", ".join(map(repr, likelihoods))
        raise TypeError(
            f"unexpected argument(s) {', '.join(unknown)}: "
            + (
                f"what new rows may have of their own under {under} is "
                f"{', '.join(dict.fromkeys(known))}."
                if under
                else "the likelihood is not known, f alone is predicted. Give X=X, y=y and "
                "likelihood=..., or make new rows of a model by its pm.Data, as "
                "{'x': Xnew, 'exposure': new}."
            )
        )
    if _OFFSET in given and n_functions > 1:
        raise ValueError(
            f"offset is for one function, and these data have {n_functions}: leave it out."
        )
    rows = {name: _one_each(name, x, X.shape[0]) for name, x in given.items()}
    found = NewRows(X, rows.pop(_OFFSET, None), rows)
    for each in likelihoods:
        numbers = {name: rows[name] for name in own_parameters(each) if name in rows}
        if numbers:  # which checks them
            checked = of_new(each).with_parameters(numbers)
            shape = X.shape[:1] if _width(checked) == 1 else (X.shape[0], _width(checked))
            y = checked.draw(np.zeros(shape), np.random.default_rng(0))
            if y is not None:
                checked.as_data(y, X.shape[0])
    return found


def _one_each(name: str, value: ArrayLike, t: int) -> FloatArray:
    array = np.asarray(as_real_array(name, value), dtype=np.float64)
    if array.shape not in ((), (t,)):
        raise ValueError(
            f"{name} must be a number or have shape ({t},), one for each row of Xnew; got "
            f"{array.shape}."
        )
    if np.isnan(array).any():
        raise ValueError(f"{name} has NaN: each row of Xnew needs a number.")
    return np.broadcast_to(array, (t,)).astype(np.float64)
