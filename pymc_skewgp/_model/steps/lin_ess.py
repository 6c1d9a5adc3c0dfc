"""`LinESS`: linear elliptical slice sampling of a SkewGP under probit observations."""

from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods.compound import Competence, StepMethodState
from pymc.step_methods.state import dataclass_state

from pymc_skewgp._gaussian.weights import chain_relative_ess
from pymc_skewgp._mcmc.conjugate import ConjugateInfo
from pymc_skewgp._mcmc.linear_slices import LinESSMove
from pymc_skewgp._model.steps.block_move import Kernel, Point
from pymc_skewgp._model.steps.sun_step import SUNStep
from pymc_skewgp._validation import as_count

_LEAST_ESS = 100  # effective draws a chain, as PyMC and ArviZ ask for


@dataclass_state
class LinESSState(StepMethodState):
    """What identifies a `LinESS` step; its chains begin anew."""

    n_steps: int = field(metadata={"frozen": True})
    thin: int = field(metadata={"frozen": True})


class LinESS(SUNStep):
    r"""Linear elliptical slice sampling of f under probit observations, given all else.

    The sampler of the paper that introduced Skew Gaussian processes: the truncated Gaussian u
    behind f is moved along ellipses, without rejections, then f is drawn given u. Its draws are
    not independent: with n observations the feasible part of an ellipse shrinks like 6/n radians,
    and thousands of steps may be needed for one effective draw. It is here for comparison, and is
    never picked by ``pm.sample``: ask for it with ``pm.sample(step=LinESS([f]))``. `ConjugateStep`
    draws from the same distribution.

    Parameters
    ----------
    vars : variable or list of one variable
        f, made by `SkewGP.prior` or `UnifiedSkewNormal`.
    n_steps : int, default 1
        Steps of u between two draws of f.
    thin : int, default 1
        Draws of f for each one that is kept. With fixed hyperparameters u goes on from where it
        was, and ``n_steps * thin`` is all that counts; otherwise each sweep draws u from f.
    model : pymc.Model, optional
        Default the model in context.
    rng, initial_point, compile_kwargs, blocked
        As PyMC passes them.

    Raises
    ------
    NotConjugateError
        When f has other children than probit observations; the message names what was found.

    Warns
    -----
    SamplerWarning
        Logged at the end of a chain whose draws of f have an effective sample size below 100, the
        smallest bulk one over the entries of f.

    Notes
    -----
    Sample statistics: ``arc_length``, the feasible angle in radians (at most 2 pi), and
    ``n_active``, the number of constraints that cut the ellipse, both at the last step of u;
    ``refreshed``, whether u was drawn from f because hyperparameters had changed.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       arXiv:2005.12987.
    .. [2] A. Gessner, O. Kanjilal & P. Hennig (2020), Integrals over Gaussians under linear domain
       constraints, arXiv:1910.09328.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp import BernoulliProbit, SkewGP
    >>> from pymc_skewgp._model.steps.lin_ess import LinESS
    >>> X = np.linspace(-2, 2, 5)[:, None]
    >>> with pm.Model():
    ...     f = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X)
    ...     y = BernoulliProbit("y", f, observed=[0, 0, 1, 1, 1])
    ...     step = LinESS([f], n_steps=5)
    """

    name = "lin_ess"
    default_blocked = False
    stats_dtypes_shapes: ClassVar[dict[str, tuple[Any, Any]]] = {
        "arc_length": (np.float64, []),
        "n_active": (np.float64, []),
        "refreshed": (bool, []),
        "warning": (SamplerWarning, None),
    }
    _state_class = LinESSState
    _progress = ("arc_length", "Arc", "0.3f")

    def __init__(
        self,
        vars: Any,
        *,
        n_steps: int = 1,
        thin: int = 1,
        model: pm.Model | None = None,
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: dict[str, Any] | None = None,
        blocked: bool = False,
    ) -> None:
        self.n_steps, self.thin = as_count("n_steps", n_steps), as_count("thin", thin)
        make_move = partial(LinESSMove, n_steps=self.n_steps)
        super().__init__(
            vars,
            Kernel(make_move, self.n_steps, self.thin),
            model=model,
            rng=rng,
            initial_point=initial_point,
            compile_kwargs=compile_kwargs,
        )
        self._kept: list[NDArray[Any]] = []
        self._n_kept = 0

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """See `SUNStep.setup_chain`."""
        super().setup_chain(rng, tune, draws)
        self._kept, self._n_kept = [], draws

    def _stats(self, point: Point, infos: list[ConjugateInfo]) -> dict[str, Any]:
        stats = {**super()._stats(point, infos), "warning": None}
        if self._left is not None and self._left < self._n_kept:  # after tuning
            values = [np.ravel(point[value.name]) for value in self.vars]
            self._kept.append(np.concatenate(values))
            if self._left == 0:
                stats["warning"] = self._judge()
        return stats

    def _judge(self) -> SamplerWarning | None:
        """A warning of a small effective sample size; PyMC itself warns of too few draws."""
        draws = np.stack(self._kept)
        self._kept = []
        if len(draws) < _LEAST_ESS or draws.size == 0:
            return None
        ess = chain_relative_ess(draws[None]) * len(draws)
        if ess >= _LEAST_ESS:
            return None
        return SamplerWarning(
            WarningType.CONVERGENCE,
            f"The {len(draws)} draws of {self._name} by lin-ess have an effective sample size of "
            f"about {ess:.0f}: raise n_steps (now {self.n_steps}), or let pm.sample pick "
            "ConjugateStep.",
            "warn",
            extra=ess,
        )

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Never picked: `ConjugateStep` does the same, faster."""
        return Competence.INCOMPATIBLE
