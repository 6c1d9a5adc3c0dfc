"""Ordered categories between cut-points: limits, names, checked data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_skewgp._observations.arguments import as_codes, as_integers
from pymc_skewgp._validation import FloatArray, as_vector


def limits_of(cutpoints: Any) -> FloatArray:
    """Cut-points between minus and plus infinity, shape (K+1,)."""
    cuts = as_vector("cutpoints", np.atleast_1d(cutpoints))
    if not cuts.size:
        raise ValueError("cutpoints is empty: two categories have one cut-point.")
    falling = np.flatnonzero(~(np.diff(cuts) > 0))
    if falling.size:
        i = int(falling[0])
        raise ValueError(
            f"cutpoints must increase: cut-point {i} is {cuts[i]:.6g} and cut-point {i + 1} is "
            f"{cuts[i + 1]:.6g}."
        )
    return np.concatenate([[-np.inf], cuts, [np.inf]])


def as_categories(
    y: ArrayLike, n: int, n_categories: int, names: Sequence[Any] | None
) -> NDArray[np.int64]:
    """Categories as numbers 0 to K-1; `names` of them, given or declared by y, may be in y."""
    names = declared_order(y) if names is None else names
    if names is not None:
        _check_names(names, n_categories)
        return as_codes(y, n, names)
    codes = as_integers(y, n, "category")
    wrong = (codes < 0) | (codes >= n_categories)
    if wrong.any():
        raise ValueError(
            f"y must hold categories 0 to {n_categories - 1}, as many as {n_categories - 1} "
            f"cut-points make; found {np.unique(codes[wrong])[:5].tolist()} in "
            f"{int(wrong.sum())} row(s)."
        )
    return codes


def declared_order(y: Any) -> Any:
    """Categories of an ordered pandas.Categorical, a Series, an Index or one column of such."""
    dtypes = list(getattr(y, "dtypes", ())) if getattr(y, "ndim", 1) == 2 else [y]
    dtype: Any = getattr(dtypes[0], "dtype", dtypes[0]) if len(dtypes) == 1 else None
    return dtype.categories if getattr(dtype, "ordered", False) else None


def category_names(names: Sequence[Any] | None, n_categories: int) -> list[Any]:
    """As given, or 0 to K-1."""
    return list(range(n_categories) if names is None else names)


def category_of(noisy: FloatArray, limits: FloatArray) -> NDArray[np.int64]:
    """Between which limits values are."""
    return np.searchsorted(limits[1:-1], noisy).astype(np.int64)


def _check_names(names: Sequence[Any], n_categories: int) -> None:
    if len(names) != n_categories:
        raise ValueError(
            f"categories must be {n_categories} names, one more than there are cut-points; got "
            f"{len(names)}."
        )
    if len(set(names)) < len(names):
        raise ValueError(f"categories must differ from each other, got {list(names)}.")
