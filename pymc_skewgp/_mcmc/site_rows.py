r"""f and the rows u beside sites, moved together at given hyperparameters.

To draw u given f and f given u in turn mixes slowly. Here both have a proposal of their own: EP's
Gaussian under all sites and rows, its rectangle u by the twisted sampler, and coordinates c of f
given u in mirrored pairs :math:`E(c \mid u) \pm x`.

With the proposal's density q(u) N(x; 0, I) and weights W(u, +-x) the argument of `site_pairs` holds
with (u_j, x_j) in place of x_j and theta fixed: N(0, I) is symmetric, so the density of u and c has
the right marginal, a state that has its mirror image at its side and the other pairs drawn anew is
one of the extended target, and a member is drawn by its weight.
"""

import numpy as np

from pymc_skewgp._errors import no_warnings
from pymc_skewgp._gaussian.proposals.pairs import Pairs
from pymc_skewgp._gaussian.proposals.policy import DEFAULT
from pymc_skewgp._gaussian.weights import log_mean_exp, normalized_weights, relative_ess
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.model import ConjugateModel
from pymc_skewgp._observations.sites import SitesOfParts
from pymc_skewgp._posterior.draws_with_evidence import sun_given
from pymc_skewgp._posterior.site_draws import SiteDraws
from pymc_skewgp._validation import FloatArray


class RowsAndSites:
    """The move at one value of the hyperparameters.

    Parameters
    ----------
    model : ConjugateModel
        With sites, and with rows or latent variables.
    """

    def __init__(self, model: ConjugateModel) -> None:
        prior, sites = model.prior, model.sites
        assert sites is not None
        self._truncation = prior.truncation
        s = prior.truncation.size
        self._given = given = sun_given(prior, model.observations)
        unconstrained = np.zeros(given.n_rows - s, dtype=bool)
        parts = SitesOfParts([sites], [prior.mu.size])
        # The weight of a state needs a proposal without a leading direction.
        with no_warnings():
            draws = SiteDraws(given, parts, s, unconstrained, DEFAULT.move_rungs[0])
            self._proposal = draws.proposal

    def step(
        self, f: FloatArray, target: Augmentation, n_pairs: int, rng: np.random.Generator
    ) -> tuple[FloatArray, dict[str, float], bool]:
        """New f; statistics, and whether the draw of u given f was exact."""
        u, exact = target.rows_given(f, rng)
        given, s = self._given, self._truncation.size
        rows = u + target.mean
        rows[:s] -= self._truncation
        coordinates = given.coordinates(np.concatenate([rows[:s], f]))
        own = self._proposal.pair_at(coordinates, rows - given.centre)
        others = self._proposal.pairs(rng.random((self._proposal.n_dims, n_pairs - 1)))
        pairs = Pairs(*(np.concatenate([x, y], axis=-1) for x, y in zip(own, others, strict=True)))
        log_weights = np.concatenate([pairs.log_plus, pairs.log_minus])
        log_weights[np.isnan(log_weights)] = -np.inf
        if not np.isfinite(log_weights[0]):
            return f, {}, exact
        i = int(rng.choice(log_weights.size, p=normalized_weights(log_weights)))
        stats = {
            "accept": float(i != 0),
            "log_weight": float(log_weights[i]) - log_mean_exp(log_weights),
            "relative_ess": relative_ess(pairs.log_weights),
        }
        if not i:
            return f, stats, exact
        c = np.concatenate([pairs.plus, pairs.minus], axis=1)[:, i]
        moved: FloatArray = given.mean[s:] + given.factor[s:] @ c
        return moved, stats, exact
