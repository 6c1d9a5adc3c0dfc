"""Classes of which each has a latent function: the greatest, seen with noise, is the class."""

from typing import Any

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_skewgp._model.distributions.choice_probit import ChoiceProbitRV, check_alternatives


class MultinomialProbitRV(ChoiceProbitRV):
    """Choice with noise of variance 1, under a name of its own.

    Draws, log density and support point are dispatched on the class: they are those of a choice.
    """

    name = "multinomial_probit"
    _print_name = ("MultinomialProbit", "\\operatorname{MultinomialProbit}")


multinomial_probit = MultinomialProbitRV()


class MultinomialProbit(pm.Discrete):
    r"""Classes 0 to K - 1, each with a latent function of its own.

    The class is that of the greatest of :math:`\eta_k + e_k` with independent standard normal
    :math:`e_k`:

    .. math:: P(y = c) = \int \phi(z) \prod_{k \ne c} \Phi(\eta_c - \eta_k + z)\, dz

    With two classes :math:`P(y = 1) = \Phi\{(\eta_1 - \eta_0) / \sqrt 2\}`. What is common to all
    functions is not seen: take K exchangeable ones.

    Parameters
    ----------
    eta : tensor_like of float, shape (..., K)
        Values of the K functions, for each observation; ``pm.math.stack([f0, f1, f2], axis=1)``,
        say.

    Raises
    ------
    ValueError
        `eta` without a dimension of classes, or with fewer than two of them.

    See Also
    --------
    ChoiceProbit : The log density's accuracy; noise of another variance.

    References
    ----------
    .. [1] M. Girolami & S. Rogers (2006), Variational Bayesian multinomial probit regression with
       Gaussian process priors, doi:10.1162/neco.2006.18.8.1790.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> y = sg.MultinomialProbit.dist(eta=[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> print(*(f"{p:.4f}" for p in pm.logp(y, [0, 2]).exp().eval()))
    0.6337 0.3333
    """

    rv_op = multinomial_probit

    @classmethod
    def dist(cls, eta: Any, **kwargs: Any) -> TensorVariable:
        """Unnamed variable; see the class."""
        return super().dist([check_alternatives(eta), 1.0], **kwargs)
