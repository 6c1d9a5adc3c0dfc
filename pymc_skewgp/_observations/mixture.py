"""What a posterior says of f at each of t points, as a likelihood needs it for its forecasts."""

from typing import Protocol

from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._validation import FloatArray


class Mixture(Protocol):
    r"""f at point i is :math:`\sum_j w_j N(m_{ij}, v_i)`; see `LatentMarginals`."""

    @property
    def means(self) -> FloatArray:
        """Mean of each component at each point, shape (t, S)."""
        ...

    @property
    def variance(self) -> FloatArray:
        """Variance of the components at each point, shape (t,)."""
        ...

    @property
    def weights(self) -> FloatArray:
        """Weights of the components, shape (S,)."""
        ...

    @property
    def replicate(self) -> IntArray | None:
        """Which randomisation each component comes from; None where they are independent."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the components are all there is, rather than draws of them."""
        ...

    @property
    def covariance(self) -> FloatArray | None:
        """Of K functions at each input given the component, shape (t / K, K, K); None for one."""
        ...

    @property
    def joint(self) -> FloatArray | None:
        """Covariance of all values given the component, (t, t); None unless it was asked for."""
        ...

    @property
    def moments(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, standard deviation and skewness at each point, shape (t,) each."""
        ...
