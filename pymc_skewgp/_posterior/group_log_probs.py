"""Which log probability groups of rows have, by the form of the noise that they share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.blocks.group_sites import GroupLogProbs, OneFactor, one_factor
from pymc_skewgp._observations.observations import Observations
from pymc_skewgp._observations.order_probability import log_order_probability
from pymc_skewgp._posterior.approximations.several_functions import FunctionRest
from pymc_skewgp._posterior.row_groups import RowGroups, groups_are_apart, row_groups
from pymc_skewgp._validation import FloatArray

SHARED_NOISE = "has noise that its rows share in more than one way"
_FEW = 64  # groups, of which all are alike
_ROUND_OFF = 1e-9


@dataclass(frozen=True, eq=False)
class InOrder:
    """That noisy values are in falling order, whose successive differences are the rows.

    Attributes
    ----------
    lower : ndarray, shape (n, m)
        Limits of the differences.
    sigma : ndarray, shape (n,)
        Standard deviation of the noise of each value.
    """

    lower: FloatArray
    sigma: FloatArray

    def __call__(self, groups: slice, eta: FloatArray) -> FloatArray:
        """See `GroupLogProbs`."""
        steps = (eta - self.lower[groups][:, :, None]) / self.sigma[groups][:, None, None]
        values = np.zeros((eta.shape[0], eta.shape[2], eta.shape[1] + 1))
        np.cumsum(-steps.swapaxes(1, 2), axis=2, out=values[:, :, 1:])
        return log_order_probability(values)


def log_probs_of(lower: FloatArray, upper: FloatArray, noise: FloatArray) -> GroupLogProbs | None:
    """Of groups of intervals with this noise, shape (n, m, m); None where none is known."""
    if (np.isfinite(lower) == np.isfinite(upper)).any():
        return None
    factor = one_factor(noise)
    if factor is not None:
        return OneFactor(lower, upper, *factor)
    m = noise.shape[1]
    steps = 2.0 * np.eye(m) - np.eye(m, k=1) - np.eye(m, k=-1)
    variance = 0.5 * noise[:, 0, 0]
    off = noise - variance[:, None, None] * steps
    if (np.abs(off) > _ROUND_OFF * variance[:, None, None]).any() or not np.isfinite(lower).all():
        return None
    return InOrder(lower, np.sqrt(variance))


def rest_is_noise(groups: Sequence[RowGroups], features: FunctionRest, n_functions: int) -> bool:
    """Whether what features leave of f may be noise of the rows: of all of them, or of none.

    No two groups must be about one input, and the noise must have a known form then as well.
    """
    if not groups_are_apart(groups, n_functions):
        return False
    for some in groups:
        few = some.part(slice(0, _FEW))
        n_inputs = int(few.values.max()) // n_functions + 1
        any_rest = np.linspace(0.5, 1.5, n_inputs)[few.values // n_functions]
        if not _is_known(few.with_rest(features.of_rest(few.values, any_rest, n_functions))):
            return False
    return True


def refuse_shared_noise(rows: Observations) -> None:
    """Raise for rows that share noise in a way for which no log probability is known.

    Raises
    ------
    ApproximationError
        The message goes on from what the likelihood is called.
    """
    for groups in row_groups(rows):
        if not _is_known(groups.part(slice(0, _FEW))):
            raise ApproximationError(SHARED_NOISE)


def _is_known(groups: RowGroups) -> bool:
    given = groups.points_first()
    return given.is_apart or log_probs_of(given.lower, given.upper, given.noise) is not None
