r"""Hyperparameters moved with the function integrated out, given the rows u behind the labels.

Given f a smooth kernel's hyperparameters are all but determined, and a chain that alternates
between theta given f and f given theta creeps. Given u they are not: u carries the labels' noise,
and with f integrated out

.. math:: p(\theta \mid u) \propto p(\theta)\, N(u(\theta); 0, G_\theta) / \Phi_s(\gamma_\theta;
    \Gamma_\theta), \qquad u(\theta) = e - \tilde\gamma_\theta,

where the excess e of u over its limits is what is held fixed: it is positive under every theta.
Sampled one coordinate after another by slices (Neal 2003). The rows are to f what Murray & Adams
(2010, arXiv:1006.0868) call surrogate data.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_skewgp._errors import NotPositiveDefiniteError
from pymc_skewgp._mcmc.augmentation import Augmentation, ProbitSUN
from pymc_skewgp._validation import FloatArray

_STEPS_OUT = 8
_SHRINKAGES = 100
_MOST_COORDINATES = 8  # a sweep; of more a random choice


Evaluate = Callable[[FloatArray], tuple[ProbitSUN, float]]


class Located(NamedTuple):
    """A value of the hyperparameters with its log density, up to a constant, and its target."""

    values: FloatArray
    log_density: float
    target: Augmentation | None


class CollapsedSlices:
    """Slice sampling of p(theta | u), f integrated out.

    Parameters
    ----------
    size : int
        Number d of hyperparameters.

    Attributes
    ----------
    widths : ndarray, shape (d,)
        Of the brackets that a slice is looked for with; learnt while tuning.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.widths = np.ones(size)
        self._counts = np.zeros(size)

    def move(
        self,
        evaluate: Evaluate,
        values: FloatArray,
        u: FloatArray,
        target: Augmentation,
        rng: np.random.Generator,
        *,
        tune: bool,
    ) -> tuple[FloatArray, FloatArray, Augmentation]:
        """One sweep.

        Parameters
        ----------
        evaluate : callable
            From values, shape (d,), to the parameters there and the log of all that depends on
            theta but for N(u; 0, G): the prior, other variables' densities, 1 / Phi_s.
        values : ndarray, shape (d,)
            Hyperparameters.
        u : ndarray, shape (s + m,)
            A state of `target`.
        target : Augmentation
            At `values`.
        rng : numpy.random.Generator
        tune : bool
            Whether to learn the widths.

        Returns
        -------
        values, u, target
            The new ones.
        """
        excess = u - target.lower
        state = _locate(evaluate, values, excess, target)
        if not np.isfinite(state.log_density):  # nothing to compare with: stay
            return values, u, target
        chosen = np.arange(self._size)
        if self._size > _MOST_COORDINATES:
            chosen = rng.choice(self._size, _MOST_COORDINATES, replace=False)
        for i in chosen:
            new = self._slice(evaluate, state, int(i), excess, rng)
            if tune:  # a third of the width of a slice lies between two points of it, on average
                step = 3.0 * abs(new.values[i] - state.values[i])
                self._counts[i] += 1.0
                self.widths[i] += (step - self.widths[i]) / (self._counts[i] + 1.0)
                self.widths[i] = max(self.widths[i], 1e-3)
            state = new
        assert state.target is not None
        return state.values, state.target.lower + excess, state.target

    def _slice(
        self,
        evaluate: Evaluate,
        state: Located,
        i: int,
        excess: FloatArray,
        rng: np.random.Generator,
    ) -> Located:
        """Step out from a random bracket, then shrink it until a point of the slice is met."""

        def at(value: float) -> Located:
            values = state.values.copy()
            values[i] = value
            return _locate(evaluate, values, excess)

        level = state.log_density - rng.exponential()
        here, width = state.values[i], self.widths[i]
        left = here - width * rng.random()
        right = left + width
        n_left = int(rng.integers(_STEPS_OUT))
        for _ in range(n_left):
            if at(left).log_density <= level:
                break
            left -= width
        for _ in range(_STEPS_OUT - 1 - n_left):
            if at(right).log_density <= level:
                break
            right += width
        for _ in range(_SHRINKAGES):
            trial = at(rng.uniform(left, right))
            # Where f's own density would fail to factorise, the model does not live.
            if trial.log_density > level and trial.target is not None and trial.target.is_regular():
                return trial
            if trial.values[i] < here:
                left = trial.values[i]
            else:
                right = trial.values[i]
        return state


def _locate(
    evaluate: Evaluate, values: FloatArray, excess: FloatArray, target: Augmentation | None = None
) -> Located:
    parameters, log_rest = evaluate(values)
    if not np.isfinite(log_rest):
        return Located(values, -np.inf, None)
    try:
        if target is None:
            target = Augmentation(parameters)
        log_density = log_rest + target.log_density(target.lower + excess)
    except (NotPositiveDefiniteError, FloatingPointError):
        return Located(values, -np.inf, None)
    return Located(values, log_density, target)
