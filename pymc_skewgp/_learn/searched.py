"""What a search asks of an objective."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from pymc_skewgp._gaussian.weights import Estimate
from pymc_skewgp._learn.coordinates import Coordinates
from pymc_skewgp._learn.point import Pattern, Point, Value
from pymc_skewgp._posterior.evidence_terms import EvidenceTerms
from pymc_skewgp._posterior.factor_terms import FactorTerms
from pymc_skewgp._validation import FloatArray


class Searched(Protocol):
    """An objective, be it of matrices of all rows or of blocks of them; see `Objective`."""

    @property
    def coordinates(self) -> Coordinates:
        """What a point is made of."""
        ...

    @property
    def density_one(self) -> Sequence[str]:
        """Names of the variables integrated out whose prior is flat."""
        ...

    def why_no_value(self, point: Point) -> str | None:
        """What is wrong with the model where there is no value; None where nothing is found."""
        ...

    def by_ep(self, point: Point) -> Value:
        """Value and gradient with the evidence of expectation propagation."""
        ...

    def total_by_ep(self, point: Point) -> tuple[float, float]:
        """Total and log evidence as `by_ep`, no gradient."""
        ...

    def estimate(self, point: Point, n_draws: int, seed: int) -> Estimate:
        """Log evidence with its error."""
        ...

    def log_prior(self, point: Point) -> float:
        """Log density of the rest of the model."""
        ...

    def log_prior_at(self, x: FloatArray, pattern: Pattern) -> tuple[FloatArray, FloatArray]:
        """At many rows, with gradients."""
        ...

    def named(self, point: Point) -> dict[str, NDArray[Any]]:
        """Values by name on their own scale."""
        ...

    def terms_at(self, point: Point) -> Iterator[EvidenceTerms | FactorTerms]:
        """The matrices of all rows, where there are any."""
        ...
