r"""Derivatives carried back through what is done to groups of rows before EP meets them."""

from typing import NamedTuple

import numpy as np

from pymc_skewgp._posterior.row_groups import RowGroups
from pymc_skewgp._validation import FloatArray


class GroupChange(NamedTuple):
    """Derivatives in numbers of groups.

    Attributes
    ----------
    design : ndarray, shape (n, m, p)
    offset : ndarray, shape (n, m)
    noise : ndarray, shape (n, m, m)
    """

    design: FloatArray
    offset: FloatArray
    noise: FloatArray


def before_points(groups: RowGroups, wrt: GroupChange) -> GroupChange:
    """From derivatives in `groups.points_first()` those in `groups`.

    With the gain g of intervals on points it has the rows I - g of design and offset, the offset
    g y besides, and (I - g) S (I - g)' as noise, but for what is left of it between the two.
    """
    point = ~np.isnan(groups.value)
    if not point.any():
        return wrt
    variance = np.einsum("ijj->ij", groups.noise)
    on_points = point[:, None, :] & ~point[:, :, None]
    gain = np.where(on_points, groups.noise / variance[:, None, :], 0.0)
    left = np.eye(groups.shape[1]) - gain
    in_noise = np.where(point[:, :, None] != point[:, None, :], 0.0, wrt.noise)
    known = np.where(point, groups.value, 0.0) - groups.offset
    in_left = wrt.design @ groups.design.swapaxes(1, 2) - wrt.offset[:, :, None] * known[:, None]
    in_left += 2.0 * in_noise @ left @ groups.noise
    in_gain = np.where(on_points, -in_left, 0.0)
    back = left.swapaxes(1, 2)
    through = in_gain / variance[:, None, :]
    noise = back @ in_noise @ left + 0.5 * (through + through.swapaxes(1, 2))
    np.einsum("ijj->ij", noise)[:] -= (through * gain).sum(axis=1)
    return GroupChange(back @ wrt.design, (back @ wrt.offset[:, :, None])[:, :, 0], noise)
