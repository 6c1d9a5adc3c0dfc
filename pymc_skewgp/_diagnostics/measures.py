"""What `compare_approximations` measures of each method, and how it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pymc_skewgp._diagnostics.approximations import Approximation
from pymc_skewgp._diagnostics.approximations.problem import predicted_probability
from pymc_skewgp._diagnostics.coverage import PROBS, mean_coverage
from pymc_skewgp._diagnostics.distances import (
    Distance,
    probability_error,
    skewness_error,
    wasserstein,
)
from pymc_skewgp._diagnostics.marginals import DrawnMarginals
from pymc_skewgp._diagnostics.scores import brier_score, information_score
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._observations.probability import Probability
from pymc_skewgp._posterior.latent_marginals import LatentMarginals
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pandas import DataFrame, Series

DISTANCES = ("wasserstein", "skewness_error", "p_error")
_LEVELS = tuple(f"coverage_{prob * 100:.0f}" for prob in PROBS)
_NOTHING = "-"


class Standard(NamedTuple):
    """What methods are measured by.

    Attributes
    ----------
    marginals : LatentMarginals
        Exact ones, at the data and then at the new points.
    labels : ndarray
        y of the data.
    test : ndarray, shape (t,), or None
        Labels at the new points.
    likelihood : Likelihood
    """

    marginals: LatentMarginals
    labels: Any
    test: FloatArray | None
    likelihood: Likelihood = BernoulliProbit()


def measured(found: Approximation, exact: Standard) -> dict[str, float]:
    """A row of the table."""
    row: dict[str, float] = {"evidence": found.evidence, "evidence_se": found.evidence_se}
    covered, error = mean_coverage(found.marginals, exact.marginals, np.array(PROBS))
    for name, value, se in zip(_LEVELS, covered, error, strict=True):
        row |= {name: value, f"{name}_se": se}
    p = found.probability
    whole = predicted_probability(exact.likelihood, exact.marginals)
    p_exact = Probability(*(part[-p.value.shape[0] :] for part in whole))
    distances = (
        wasserstein(found.marginals, exact.marginals),
        skewness_error(found.marginals, exact.marginals),
        probability_error(p, p_exact),
    )
    for name, distance in zip(DISTANCES, distances, strict=True):
        for suffix, value in zip(("", "_se", "_noise"), distance, strict=True):
            row[f"{name}{suffix}"] = value
    if exact.test is not None:
        row["information"] = information_score(exact.test, p.value, float(exact.labels.mean()))
        row["brier"] = brier_score(exact.test, p.value)
    if found.drawing and isinstance(found.marginals, DrawnMarginals):
        n = found.tree["posterior"].dataset["f"][0, 0].size
        row["ess_per_second"] = float(found.marginals.ess[:n].min()) / found.drawing
    return row


def as_table(rows: dict[str, dict[str, Any]]) -> DataFrame:
    """Rows by method as a data frame with all columns, whether anything is in them or not."""
    import pandas as pd

    columns = [c for name in ("evidence", *_LEVELS) for c in (name, f"{name}_se")]
    columns += [f"{name}{suffix}" for name in DISTANCES for suffix in ("", "_se", "_noise")]
    columns += ["information", "brier", "ess_per_second", "seconds", "failure"]
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(columns=columns)
    table.index.name = "method"
    return table


def as_summary(table: DataFrame) -> DataFrame:
    """The columns that matter most, each with its Monte Carlo error, as text."""
    shown = {
        "log marginal likelihood": lambda row: with_error(row, "evidence"),
        "coverage 50 %": lambda row: with_error(row, "coverage_50"),
        "coverage 95 %": lambda row: with_error(row, "coverage_95"),
        "Wasserstein / sd": lambda row: _or_noise(row, "wasserstein"),
        "|error of p|": lambda row: _or_noise(row, "p_error"),
        "seconds": lambda row: f"{row['seconds']:.2f}",
    }
    summary = table[[]].copy()
    for name, text in shown.items():
        summary[name] = [text(row) for _, row in table.iterrows()]
    return summary


def with_error(row: Series, name: str) -> str:
    """A value, and its Monte Carlo standard error where it has one."""
    value, se = row[name], row[f"{name}_se"]
    if np.isnan(value):
        return _NOTHING
    if np.isnan(se) or se == 0.0:
        return f"{value:.3f}"
    digits = _digits(se)
    return f"{value:.{digits}f} ± {se:.{digits}f}"


def _or_noise(row: Series, name: str) -> str:
    """The same, or what a value that is mere Monte Carlo error is below."""
    if np.isnan(row[name]):
        return _NOTHING
    distance = Distance(*(row[f"{name}{suffix}"] for suffix in ("", "_se", "_noise")))
    if not distance.is_noise:
        return with_error(row, name)
    digits = int(np.clip(1 - np.floor(np.log10(distance.bound)), 0, 5)) if distance.bound else 0
    upwards = np.ceil(distance.bound * 10**digits) / 10**digits
    return f"< {upwards:.{digits}f}"


def _digits(error: float) -> int:
    """Decimal places that show one digit of an error, two where the first is 1."""
    if not 0.0 < error < np.inf:
        return 3
    return int(np.clip(-np.floor(np.log10(error / 2.0)), 0, 5))
