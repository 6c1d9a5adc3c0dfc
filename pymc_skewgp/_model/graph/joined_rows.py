"""Rows of several sets of data on the same functions, joined into one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt

from pymc_skewgp._model.graph.data_rows import RowsOfData
from pymc_skewgp._sun.parameters import SunParameters


class NoisyRows(NamedTuple):
    """Rows eta + e, eta being a unified skew-normal vector and e ~ N(0, S).

    Attributes
    ----------
    S : (m,) or (m, m)
    lower, upper, value : (m,)
        As in `Observations`.
    log_constant : ()
    constrained : bool
        Whether some have noise that is only a nugget.
    counts : (m,), or None
        How many rows each interval stands for; None for one each.
    """

    S: Any
    lower: Any
    upper: Any
    value: Any
    log_constant: Any
    constrained: bool = False
    counts: Any = None


def rows_of_parts(
    sun: SunParameters, parts: Sequence[RowsOfData]
) -> tuple[SunParameters, NoisyRows]:
    """The predictors eta of the rows of all parts, and these rows.

    Parameters
    ----------
    sun : SunParameters
        Of the values of all parts, one after the other.
    parts : sequence of RowsOfData
    """
    noise, start = [], 0
    for part in parts:
        end = start + part.values.n_functions * part.values.n_rows
        noise.append(part.S * pt.diagonal(sun.scale)[start:end] if part.relative else part.S)
        start = end
    if any(part.A is not None for part in parts):
        designs = [pt.eye(x.value.shape[0]) if x.A is None else x.A for x in parts]
        sun = predictor(sun, block_diagonal(designs))
    columns = zip(*((x.lower, x.upper, x.value) for x in parts), strict=True)
    lower, upper, value = (joined(list(column)) for column in columns)
    log_constant = sum(part.log_constant for part in parts)
    constrained = any(part.relative for part in parts)
    counts = joint_counts([(part.counts, part.value) for part in parts])
    rows = NoisyRows(joint_noise(noise), lower, upper, value, log_constant, constrained, counts)
    return sun, rows


def sites_last(parts: Sequence[RowsOfData]) -> list[RowsOfData]:
    """Parts in the order in which evidences have them: predictors of sites after all rows."""
    return sorted(parts, key=lambda part: part.sites is not None)


def predictor(sun: SunParameters, A: Any, a: Any = 0.0) -> SunParameters:
    """A f + a."""
    return sun._replace(mu=a + A @ sun.mu, scale=A @ sun.scale @ A.T, cross_cov=A @ sun.cross_cov)


def joint_noise(parts: list[Any]) -> Any:
    """Variances where all rows have noise of their own, else the covariance of all."""
    if all(S.type.ndim == 1 for S in parts):
        return joined(parts)
    return block_diagonal([S if S.type.ndim == 2 else pt.diag(S) for S in parts])


def joint_counts(parts: list[tuple[Any, Any]]) -> Any | None:
    """How many rows each stands for, of parts with that number or None; and a vector of rows."""
    if all(counts is None for counts, _ in parts):
        return None
    one = [pt.ones_like(like, dtype="float64") if x is None else x for x, like in parts]
    return joined([pt.cast(x, "float64") for x in one])


def block_diagonal(parts: list[Any]) -> Any:
    """One matrix."""
    return parts[0] if len(parts) == 1 else pt.linalg.block_diag(*parts)


def joined(parts: list[Any]) -> Any:
    """One after the other."""
    return parts[0] if len(parts) == 1 else pt.concatenate(parts)
