"""Anderson's acceleration of a fixed-point iteration."""

import numpy as np

from pymc_skewgp._validation import FloatArray

# A difference that is so small a part of the others is their round-off.
_ROUND_OFF = 1e-8


class AndersonMixing:
    r"""Where the last steps of an iteration :math:`x \leftarrow g(x)` point to.

    With the differences :math:`\Delta G, \Delta F` of the last values and of :math:`f = g - x`,

    .. math:: g - \Delta G \, \gamma, \qquad
        \gamma = \arg\min \lVert D (f - \Delta F \, \gamma) \rVert,

    which is the secant method for one variable, and for a linear iteration does what GMRES does.

    Parameters
    ----------
    depth : int, default 5
        Differences that are kept.

    References
    ----------
    .. [1] D. G. Anderson (1965), Iterative procedures for nonlinear integral equations, Journal of
       the ACM 12, doi:10.1145/321296.321305.
    .. [2] H. F. Walker & P. Ni (2011), Anderson acceleration for fixed-point iterations, SIAM
       Journal on Numerical Analysis 49, doi:10.1137/10078356X.

    Examples
    --------
    The cosine's fixed point, to which its plain iteration takes some fifty steps:

    >>> import numpy as np
    >>> from pymc_skewgp._gaussian.anderson import AndersonMixing
    >>> mixing, x = AndersonMixing(), np.array([1.0])
    >>> for _ in range(6):
    ...     x = mixing(x, np.cos(x), np.ones(1))
    >>> print(f"{x[0]:.8f}")
    0.73908513
    """

    def __init__(self, depth: int = 5) -> None:
        self._depth = depth
        self.forget()

    def forget(self) -> None:
        """Begin anew: the last points say nothing of where it is now."""
        self._values: list[FloatArray] = []
        self._steps: list[FloatArray] = []

    def __call__(self, point: FloatArray, value: FloatArray, scale: FloatArray) -> FloatArray:
        """The next point, `value` itself at first; `scale` is the diagonal of D."""
        step = value - point
        self._values = [*self._values[-self._depth :], value]
        self._steps = [*self._steps[-self._depth :], step]
        if len(self._values) == 1:
            return value
        changes = np.diff(self._steps, axis=0) * scale
        share = np.linalg.lstsq(changes.T, step * scale, rcond=_ROUND_OFF)[0]
        mixed: FloatArray = value - share @ np.diff(self._values, axis=0)
        return mixed
