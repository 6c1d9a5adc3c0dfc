"""Predictors of groups of rows, linear in coordinates: as they are, or of several functions."""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg.blas import dsyrk

from pymc_skewgp._validation import FloatArray

_AT_ONCE = 4096  # rows at a time of products with features


class MixingGradient(NamedTuple):
    """Derivatives in the features of groups, shape (n, r), and in their mixing, (n, m, L)."""

    phi: FloatArray
    mixing: FloatArray


class GroupPredictors(Protocol):
    """F of n groups of m rows each."""

    @property
    def rank(self) -> int:
        """Number R of coordinates."""
        ...

    def rows(self) -> FloatArray:
        """F, shape (n m, R)."""
        ...

    def at(self, groups: slice, coordinates: FloatArray) -> FloatArray:
        """Of some groups, shape (groups, m, N), for columns of coordinates."""
        ...

    def covariances(self, spread: FloatArray) -> FloatArray:
        """Of each group, shape (n, m, m), for coordinates of covariance spread spread'."""
        ...

    def gram(self, weight: FloatArray) -> FloatArray:
        """Sum over the groups of F_i' W_i F_i, for precisions W of shape (n, m, m)."""
        ...

    def pull(self, weight: FloatArray) -> FloatArray:
        """Sum over the groups of F_i' w_i, for w of shape (n, m)."""
        ...


class DenseRows:
    """Rows as they are.

    Parameters
    ----------
    factor : ndarray, shape (n m, R)
        The rows of the first group, of the second, and so on.
    size : int
        Number m of rows of a group.
    """

    def __init__(self, factor: FloatArray, size: int) -> None:
        self._factor = np.ascontiguousarray(factor)
        self._groups = self._factor.reshape(-1, size, factor.shape[1])

    @property
    def rank(self) -> int:
        """See `GroupPredictors`."""
        return self._factor.shape[1]

    def rows(self) -> FloatArray:
        """See `GroupPredictors`."""
        return self._factor

    def at(self, groups: slice, coordinates: FloatArray) -> FloatArray:
        """See `GroupPredictors`."""
        rows = self._groups[groups]
        found = rows.reshape(-1, self.rank) @ coordinates
        return np.asarray(found.reshape(*rows.shape[:2], -1))

    def covariances(self, spread: FloatArray) -> FloatArray:
        """See `GroupPredictors`."""
        n, m, r = self._groups.shape
        found = np.empty((n, m, m))
        for some in _slices(n, _AT_ONCE // m):
            white = (self._groups[some].reshape(-1, r) @ spread).reshape(-1, m, r)
            found[some] = white @ white.swapaxes(1, 2)
        return found

    def gram(self, weight: FloatArray) -> FloatArray:
        """See `GroupPredictors`."""
        n, m, r = self._groups.shape
        found = np.zeros((r, r))
        for some in _slices(n, _AT_ONCE // m):
            rows = self._groups[some]
            found += rows.reshape(-1, r).T @ (weight[some] @ rows).reshape(-1, r)
        return 0.5 * (found + found.T)

    def pull(self, weight: FloatArray) -> FloatArray:
        """See `GroupPredictors`."""
        return np.asarray(self._factor.T @ weight.ravel())

    def gradient(
        self, weight: FloatArray, precision: FloatArray, mean: FloatArray, spread: FloatArray
    ) -> FloatArray:
        """Of EP's log evidence in the rows, (n, m, R), from that in the offsets; see `RowBlock`.

        `precision`, of shape (n, m, m), is that of the sites of the predictors.
        """
        n, m, r = self._groups.shape
        found = np.empty((n, m, r))
        for some in _slices(n, _AT_ONCE // m):
            moved = (precision[some] @ self._groups[some]).reshape(-1, r) @ spread
            found[some] = weight[some][:, :, None] * mean - (moved @ spread.T).reshape(-1, m, r)
        return found


class FunctionRows:
    """Each group's rows are combinations of L functions of one input, with r features each.

    The coordinates are those of the first function, of the second, and so on.

    Parameters
    ----------
    phi : ndarray, shape (n, r)
        Features at the input of each group.
    mixing : ndarray, shape (n, m, L)
    """

    def __init__(self, phi: FloatArray, mixing: FloatArray) -> None:
        self._phi, self._mixing = np.ascontiguousarray(phi), np.ascontiguousarray(mixing)

    @property
    def rank(self) -> int:
        """See `GroupPredictors`."""
        return self._phi.shape[1] * self._mixing.shape[2]

    def rows(self) -> FloatArray:
        """See `GroupPredictors`."""
        wide = self._mixing[:, :, :, None] * self._phi[:, None, None, :]
        return np.asarray(wide.reshape(-1, self.rank))

    def at(self, groups: slice, coordinates: FloatArray) -> FloatArray:
        """See `GroupPredictors`."""
        values = self._phi[groups] @ self._by_function(coordinates)  # (L, groups, N)
        found: FloatArray = self._mixing[groups] @ values.swapaxes(0, 1)
        return found

    def covariances(self, spread: FloatArray) -> FloatArray:
        """See `GroupPredictors`."""
        found = self._of_functions(spread)
        return np.asarray(self._mixing @ found @ self._mixing.swapaxes(1, 2))

    def _of_functions(self, spread: FloatArray) -> FloatArray:
        """Covariances of the functions at each input, shape (n, L, L).

        By the rows of `spread`, which is upper triangular: so no block makes the covariance of all
        coordinates.
        """
        r, n_functions = self._phi.shape[1], self._mixing.shape[2]
        found = np.empty((self._phi.shape[0], n_functions, n_functions))
        rows = [spread[a * r : (a + 1) * r, a * r :] for a in range(n_functions)]
        for some in _slices(found.shape[0], _AT_ONCE // n_functions):
            white = [self._phi[some] @ own for own in rows]
            for a in range(n_functions):
                for b in range(a + 1):
                    both = white[a], white[b][:, (a - b) * r :]
                    found[some, a, b] = found[some, b, a] = np.einsum("ij,ij->i", *both)
        return found

    def gram(self, weight: FloatArray) -> FloatArray:
        """See `GroupPredictors`."""
        r, n_functions = self._phi.shape[1], self._mixing.shape[2]
        between = self._mixing.swapaxes(1, 2) @ weight @ self._mixing
        found = np.zeros((n_functions, r, n_functions, r))
        for some in _slices(between.shape[0], _AT_ONCE):
            phi = self._phi[some]
            for a in range(n_functions):
                half = phi * np.sqrt(np.maximum(between[some, a, a], 0.0))[:, None]
                found[a, :, a] += dsyrk(1.0, half.T, lower=1)
                for b in range(a):
                    found[a, :, b] += phi.T @ (between[some, a, b][:, None] * phi)
        for a in range(n_functions):
            found[a, :, a] += np.tril(found[a, :, a], -1).T
            for b in range(a):
                found[b, :, a] = found[a, :, b].T
        return found.reshape(self.rank, self.rank)

    def pull(self, weight: FloatArray) -> FloatArray:
        """See `GroupPredictors`."""
        of_functions = np.einsum("ij,ijk->ik", weight, self._mixing)
        return np.asarray((of_functions.T @ self._phi).ravel())

    def gradient(
        self, weight: FloatArray, precision: FloatArray, mean: FloatArray, spread: FloatArray
    ) -> MixingGradient:
        """See `DenseRows`, in what the rows are made of: as many operations as `covariances`."""
        mixing, (r, n_functions) = self._mixing, (self._phi.shape[1], self._mixing.shape[2])
        covariance = (spread @ spread.T).reshape(n_functions, r, n_functions, r)
        centre = mean.reshape(n_functions, -1)
        sites = precision @ mixing
        between = mixing.swapaxes(1, 2) @ sites
        in_phi = np.einsum("ij,ijk->ik", weight, mixing) @ centre
        for some in _slices(in_phi.shape[0], _AT_ONCE):
            phi = self._phi[some]
            for a in range(n_functions):
                for b in range(a + 1):
                    both = covariance[a, :, b]
                    both = both if a == b else both + both.T
                    in_phi[some] -= between[some, a, b][:, None] * (phi @ both)
        in_mixing = weight[:, :, None] * (self._phi @ centre.T)[:, None]
        return MixingGradient(in_phi, in_mixing - sites @ self._of_functions(spread))

    def _by_function(self, coordinates: FloatArray) -> FloatArray:
        return coordinates.reshape(self._mixing.shape[2], self._phi.shape[1], -1)


def _slices(n: int, size: int) -> list[slice]:
    size = max(size, 1)
    return [slice(i, i + size) for i in range(0, n, size)]
