"""Named errors and warnings: what was found, what was expected, what to do."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np


class NotPositiveDefiniteError(np.linalg.LinAlgError, ValueError):
    """A covariance matrix is not positive definite, beyond what the jitter policy mends."""


class TooManyDrawsError(MemoryError, ValueError):
    """The draws asked for would not fit into memory."""


class TooManyRowsError(MemoryError, ValueError):
    """Exact algebra of so many rows would not fit into memory."""


class DoublePrecisionError(FloatingPointError, ValueError):
    """A probability, or draws under a condition, are beyond what double precision can hold."""


class ContradictoryPseudoPointsError(DoublePrecisionError):
    """Signs at pseudo-points so improbable that round-off in the covariance decides the answer."""


class ContradictoryConstraintsError(DoublePrecisionError):
    """Constraints that hold only by their nugget, or beyond double precision, given the data."""


class NotDifferentiableError(ValueError):
    """A derivative was asked of a process whose kernel does not have it, or not for certain."""


class _UnfitError(ValueError):
    """A model is not of the form that is asked for.

    Parameters
    ----------
    reason : str
        What was found.
    remedy : str
        What to do.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason} {remedy}".rstrip())
        self.reason, self.remedy = reason, remedy

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.reason, self.remedy)


class NotConjugateError(_UnfitError):
    """A variable is not a SkewGP whose only children are observations with a known likelihood."""


class NotSitesError(_UnfitError):
    """A likelihood is no product of functions of one predictor each, or not known to be one."""


class ApproximationError(ValueError):
    """A prior cannot be approximated in the way asked for, or not used so once it is."""


class CollapsedWeightsError(ValueError):
    """Draws about a posterior's modes weigh so unequally that they say nothing of it."""


class ClusterLostError(ConnectionError):
    """Workers of a dask cluster are lost, and no others come."""


class DiscreteHyperparameterError(ValueError):
    """A hyperparameter is discrete and not binary: its values cannot all be tried."""


class ImproperPriorError(ValueError):
    """Under the flat priors of a model its posterior is no distribution: data do not bound it."""


class SkewGPWarning(UserWarning):
    """Base of every warning this package gives, so that one filter reaches them all."""


class JitterWarning(SkewGPWarning):
    """A covariance was numerically singular; each variance was raised by the stated share."""


class EPConvergenceWarning(SkewGPWarning):
    """Expectation propagation stopped before it converged."""


class LowEffectiveSampleWarning(SkewGPWarning):
    """The effective sample size of weighted draws is far below their number."""


class SeveralModesWarning(SkewGPWarning):
    """A posterior may have several modes, and draws are about one of them alone."""


class InexactStepWarning(SkewGPWarning):
    """A step of a Markov chain drew a part of its state by weights, not exactly."""


class NotConjugateWarning(SkewGPWarning):
    """NUTS samples a latent function that no exact step can draw, on its own correlated scale."""


class StuckChainWarning(SkewGPWarning):
    """A Markov chain found no feasible move within round-off and stayed where it was."""


class FlatOptimumWarning(SkewGPWarning):
    """The marginal likelihood hardly depends on a hyperparameter at its optimum."""


class BoundaryOptimumWarning(SkewGPWarning):
    """A hyperparameter went to the edge of the box in which the optimum is looked for."""


class OptimumConvergenceWarning(SkewGPWarning):
    """A search for hyperparameters ended before it was at an optimum."""


class InterruptedSearchWarning(SkewGPWarning):
    """A search was ended by hand, and an estimator is fitted with the best point so far."""


class PriorApproximationWarning(SkewGPWarning):
    """An approximated prior gives other forecasts, or another evidence, than its kernel."""


class DrawOverflowWarning(SkewGPWarning):
    """Some draws of new observations are beyond what NumPy can draw: limits stand for them."""


class IntegrationWarning(SkewGPWarning):
    """An integral over hyperparameters is less exact than its standard error says."""


class HeavyTailWarning(SkewGPWarning):
    """Draws that are too rare to be met decide the mean of a hyperparameter."""


class UnnormalizedPriorWarning(SkewGPWarning):
    """A prior lacks, in PyMC, a factor that depends on hyperparameters."""


class ComparisonWarning(SkewGPWarning):
    """Evidences do not compare: of different data, or of what is no normalised density."""


_quiet: ContextVar[bool] = ContextVar("_quiet", default=False)


@contextmanager
def no_warnings() -> Iterator[None]:
    """Keep this package's warnings back, in this thread only (filters of `warnings` are shared)."""
    token = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(token)


def warnings_are_wanted() -> bool:
    """Whether no `no_warnings` is in force."""
    return not _quiet.get()


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names for a message: the first of them, and how many more there are."""
    rest = len(names) - most
    return " and ".join([*names[:most], *([f"{rest} more"] if rest > 0 else [])])


def warn(message: str, category: type[SkewGPWarning], stacklevel: int) -> None:
    """`warnings.warn`, but for `no_warnings`; `stacklevel` counts from the caller."""
    if not _quiet.get():
        warnings.warn(message, category, stacklevel=stacklevel + 1)
