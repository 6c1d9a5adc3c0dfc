"""Named errors and warnings: what was found, what was expected, what to do."""

import numpy as np


class NotPositiveDefiniteError(np.linalg.LinAlgError, ValueError):
    """A covariance matrix is not positive definite, beyond what the jitter policy mends."""


class SkewGPWarning(UserWarning):
    """Base of every warning this package gives, so that one filter reaches them all."""


class JitterWarning(SkewGPWarning):
    """A covariance was numerically singular; the stated multiple of the identity was added."""


class EPConvergenceWarning(SkewGPWarning):
    """Expectation propagation stopped before its sites settled."""


class LowEffectiveSampleWarning(SkewGPWarning):
    """The weighted draws behind an estimate are worth far fewer independent ones."""


class StuckChainWarning(SkewGPWarning):
    """A Markov chain found no feasible move within round-off and stayed where it was."""
