"""What the draws of a proposal leave out: regions that a run of this size does not meet.

Replicates that all miss a region agree with each other, and their spread says nothing of it. What
is known without draws is what each coordinate alone would add: its conditional centre is Gaussian
under the proposal, and where that Gaussian's tail of probability 1 / n_draws begins, the weight is
a known function of it.
"""

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from pymc_skewgp._gaussian.proposals.site_ratio import log_site_ratio
from pymc_skewgp._validation import FloatArray

if TYPE_CHECKING:
    from pymc_skewgp._gaussian.proposals.twisted import TwistedProposal

# Gauss-Legendre rule for a tail, over so many deviations: beyond them nothing is left of it.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_LENGTH = 5.0
HERMITE_NODES, _HERMITE_MASS = np.polynomial.hermite_e.hermegauss(64)
_HERMITE_MASS /= _HERMITE_MASS.sum()
_LARGEST = 20.0  # nats: larger log weights are clipped, and the error is large all the same
# A row whose deviation given the earlier ones is below this share of its own has a hard edge: it is
# met or not, and a corner that two such edges cut off may hold as much as a draw does.
_HARD, _CORNER = 0.02, 0.5
_IDLE = 0.05  # share of its variance that the site of a limit takes, below which it hardly matters


def unseen_share(proposal: "TwistedProposal", n_draws: int) -> float:
    r"""Relative error of the probability from tails that `n_draws` draws hardly meet.

    For each coordinate, with the weight :math:`w(c)` of its own step as a function of its centre
    :math:`c \sim N(0, V)`,

    .. math:: \int_{|c| > c_n} \left\{\frac{w(c)}{\mathrm E\, w} - 1\right\} N(c; 0, V)\, dc,
        \qquad P(c > c_n) = 1 / n,

    given a leading direction at its mean; and the same for a direction that is known but not
    drawn. Rows whose limits hardly matter all miss mass, and their shares are summed; those of the
    others have either sign, and their squares are. Rows that the earlier ones nearly determine add
    half a draw, 1 / (2 n).

    Parameters
    ----------
    proposal : TwistedProposal
    n_draws : int
        Draws of the run.

    Returns
    -------
    float
    """
    n_latent = proposal.n_dims - proposal.order.size
    chol = proposal.chol[n_latent:, n_latent:]
    var = chol.diagonal() ** 2
    earlier = np.maximum(np.einsum("ij,ij->i", chol, chol) - var, 0.0)
    start = -float(ndtri(1.0 / n_draws))
    z = start + 0.5 * _LENGTH * (1.0 + _NODES)
    mass = 0.5 * _LENGTH * _WEIGHTS * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    centre = np.sqrt(earlier)[:, None] * np.concatenate([-z, z])
    sites = proposal.tau[n_latent:, None], proposal.nu[n_latent:, None]
    limits = [(x - proposal.mean)[n_latent:, None] for x in (proposal.lower, proposal.upper)]
    total = log_site_ratio(np.zeros((var.size, 1)), (var + earlier)[:, None], *sites, *limits)
    ratio = log_site_ratio(centre, var[:, None], *sites, *limits) - total
    missing = np.expm1(np.minimum(ratio, _LARGEST)) @ np.tile(mass, 2)
    known = proposal.direction if proposal.first is None else None
    shared = 0.0 if known is None else known.unseen(n_draws)
    hard = (var < _HARD**2 * earlier).any()
    corner = _CORNER / n_draws if hard else 0.0
    idle = proposal.tau[n_latent:] * (var + earlier) < _IDLE
    together, apart = missing[idle].sum(), missing[~idle]
    return float(np.sqrt(together**2 + apart @ apart + shared**2 + corner**2))


def missing_of_functions(log_ratio: FloatArray, n_draws: int, power: int = 0) -> FloatArray:
    """What draws of one Gaussian each leave out of the means of functions of it.

    Parameters
    ----------
    log_ratio : ndarray, shape (k, `HERMITE_NODES`)
        Log of each function at the nodes, in deviations of its Gaussian.
    n_draws : int
    power : int, default 0
        Of a moment about the Gaussian's mean, in its deviations, that the function is to weigh.

    Returns
    -------
    ndarray, shape (k,)
        Relative to the mean: what the nodes that no draw of so many reaches add to it, or to the
        moment; of a moment the sum of both sides' sizes.
    """
    # Where the draws end: what is beyond is in the rule of the whole line, and lost.
    seen = np.abs(HERMITE_NODES) < -float(ndtri(1.0 / n_draws))
    ratio = np.exp(log_ratio - log_ratio.max(axis=1, keepdims=True))
    ratio /= (ratio @ _HERMITE_MASS)[:, None]
    lost = ((ratio - 1.0) * _HERMITE_MASS)[:, ~seen]
    if power:
        lost = np.abs(lost * HERMITE_NODES[~seen] ** power)
    missing: FloatArray = lost.sum(axis=1)
    return missing
