"""Independence Metropolis on u: proposals of the sequential sampler twisted by EP."""

import warnings
from typing import Protocol

import numpy as np

from pymc_skewgp._errors import EPConvergenceWarning
from pymc_skewgp._gaussian.proposals.ep import EPResult, fit_ep
from pymc_skewgp._gaussian.proposals.policy import (
    DEFAULT,
    Rung,
    SamplerSettings,
    first_accepted,
    pilot_log_weights,
)
from pymc_skewgp._gaussian.proposals.tempering import Proposal
from pymc_skewgp._gaussian.weights import log_mean_exp, relative_ess
from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.moves import Walk
from pymc_skewgp._validation import FloatArray

# Of a standard deviation; a proposal for one step need not be the fixed point, only near it.
_EP_TOLERANCE, _EP_ADAPTED = 1e-2, 1e-3
_EP_SWEEPS = 60
_MISSED = 0.1  # probability that all proposals between two draws of f are refused, at most
_REFUSED = -1e300


class WeighedProposal(Proposal, Protocol):
    """A proposal that knows the weight of any state."""

    def log_weights_of(self, u: FloatArray) -> FloatArray:
        """Log of target over proposal density, of columns."""
        ...


class IndependenceMove:
    """Independence Metropolis whose proposal is the sequential sampler twisted by EP.

    A proposal is accepted with probability min(1, w_new / w_old), the w being target over proposal
    density. Proposals do not depend on the state, so they are made together.

    Parameters
    ----------
    target : Augmentation
    n_proposals : int
        Proposals between two draws of f, at most.
    settings : SamplerSettings
        Thresholds of the escalation policy: `move_rungs` and `move_pilot_draws`.
    """

    def __init__(
        self, target: Augmentation, n_proposals: int, settings: SamplerSettings = DEFAULT
    ) -> None:
        self._target, self._n_proposals, self._settings = target, n_proposals, settings
        self._proposal: WeighedProposal | None = None

    def _fit(self, tol: float) -> EPResult:
        target = self._target
        with warnings.catch_warnings():
            # A rough fit makes a worse proposal, which the acceptance rate shows.
            warnings.simplefilter("ignore", EPConvergenceWarning)
            return fit_ep(target.cov, target.lower, target.upper, tol=tol, max_sweeps=_EP_SWEEPS)

    def _twisted(self, ep: EPResult, rung: Rung) -> WeighedProposal:
        return rung.twist(self._target.cov, ep, self._target.lower, self._target.upper)

    def adapt(self) -> int:
        """Refine the proposal; steps that leave the chance of no move at all below a tenth.

        Both by pilot runs, with random numbers of their own.
        """
        ep, rng = self._fit(_EP_ADAPTED), np.random.default_rng(0)

        def pilot(rung: Rung) -> tuple[WeighedProposal, float]:
            proposal = self._twisted(ep, rung)
            log_weights = pilot_log_weights(proposal, self._settings.move_pilot_draws, rng)
            return proposal, relative_ess(_finite(log_weights))

        self._proposal, fraction, _ = first_accepted(self._settings.move_rungs, pilot)
        refused = min(1.0 - fraction, 1.0 - 1e-9)
        if refused <= _MISSED:
            return 1
        return min(self._n_proposals, int(np.ceil(np.log(_MISSED) / np.log(refused))))

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """See `Move`."""
        if self._proposal is None:
            self._proposal = self._twisted(self._fit(_EP_TOLERANCE), self._settings.move_rungs[0])
        proposed, log_weights = _propose(self._proposal, n * thin, rng)
        log_uniforms = np.log(rng.random(n * thin)).tolist()
        current = float(_finite(self._proposal.log_weights_of(u[:, None]))[0])
        chosen, taken, path = -1, [], []
        for i, log_weight in enumerate(log_weights.tolist()):
            accepted = log_uniforms[i] < log_weight - current
            if accepted:
                chosen, current = i, log_weight
            taken.append(accepted)
            path.append((chosen, current))
        index, weight = (np.array(x) for x in zip(*path[thin - 1 :: thin], strict=True))
        states = np.where(index >= 0, proposed[:, index], u[:, None])
        return Walk(
            np.ascontiguousarray(states.T),
            {
                "accept": np.reshape(taken, (n, thin)).mean(axis=1),
                "log_weight": weight - log_mean_exp(log_weights),
                "relative_ess": np.full(n, relative_ess(log_weights)),
            },
        )


def _propose(
    proposal: WeighedProposal, n: int, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    u, log_weights = proposal.draw(rng.random((proposal.n_dims, n)), overwrite_points=True)
    return u, _finite(log_weights)


def _finite(log_weights: FloatArray) -> FloatArray:
    """A weight that overflowed is that of a proposal refused, or of a state left at once."""
    return np.where(np.isfinite(log_weights), log_weights, _REFUSED)
