r"""What a prior of finite rank is: :math:`f(x) = m(x) + \phi(x)^\top c + e(x)`.

With c ~ N(0, I_r), and e(x) ~ N(0, d(x)) independent from row to row.
"""

from typing import TYPE_CHECKING, Protocol

from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pymc_skewgp._posterior.prior import Prior


class Features(Protocol):
    """The functions phi of one process; immutable, and can be pickled."""

    @property
    def rank(self) -> int:
        """Number r of functions."""
        ...

    def at(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Phi, shape (n, r), and d, shape (n,), at a block of rows."""
        ...


class Approximation(Protocol):
    """How a prior is approximated, before there are inputs."""

    def doubled(self) -> "Approximation":
        """Of twice the rank, to compare with."""
        ...

    def features(self, prior: "Prior", X: FloatArray) -> Features:
        """Of the process at inputs like X; the same for the same arguments."""
        ...
