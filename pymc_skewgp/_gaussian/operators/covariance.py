"""What a covariance G can do, whatever its structure, and N(0, G) times Gaussian sites.

A site is exp(-tau u^2 / 2 + nu u). The product with N(0, G) has covariance
S = (G^-1 + T)^-1 and mean m = S nu, with T = diag(tau). Expectation propagation asks for the
diagonal of S, m and the normalising constant at every sweep, the twisted sampler for all of S once.
"""

from typing import NamedTuple, Protocol

from pymc_skewgp._validation import FloatArray


class SiteProduct(NamedTuple):
    """Marginals of N(0, G) times Gaussian sites."""

    mean: FloatArray
    variance: FloatArray
    log_constant: float  # log of the integral of N(u; 0, G) prod exp(-tau u^2/2 + nu u)
    weights: FloatArray  # G^-1 mean
    log_det: float  # of I + G T


class WithSites(Protocol):
    """What expectation propagation needs to know of a covariance matrix."""

    @property
    def size(self) -> int:
        """Number of rows."""
        ...

    def diagonal(self) -> FloatArray:
        """Marginal variances."""
        ...

    def workspace(self) -> FloatArray | None:
        """Memory that `site_product` may use again and again; None where it needs none."""
        ...

    def site_product(
        self, tau: FloatArray, nu: FloatArray, work: FloatArray | None = None
    ) -> SiteProduct:
        """Marginals and normalising constant under Gaussian sites; `work` is overwritten."""
        ...

    def site_precision(self, tau: FloatArray) -> FloatArray:
        """(G + diag(tau)^-1)^-1, rows of sites that are zero being zero."""
        ...


class Covariance(WithSites, Protocol):
    """What the samplers need to know of a covariance matrix."""

    jitter: float  # share by which each variance was raised to make it definite

    def conditional_variances(self) -> FloatArray:
        """Variance of each coordinate given all others, 1 / (G^-1)_ii (or a lower bound of it)."""
        ...

    def dense(self) -> FloatArray:
        """G as an array."""
        ...

    def multiply(self, x: FloatArray) -> FloatArray:
        """G x."""
        ...

    def site_covariance(self, tau: FloatArray) -> FloatArray:
        """S = (G^-1 + diag(tau))^-1."""
        ...
