"""Linear elliptical slice sampling of u."""

import numpy as np

from pymc_skewgp._mcmc.augmentation import Augmentation
from pymc_skewgp._mcmc.moves import Walk
from pymc_skewgp._validation import FloatArray


class LinESSMove:
    """Steps of linear elliptical slice sampling.

    Parameters
    ----------
    target : Augmentation
    n_steps : int
        Steps between two draws of f.
    """

    def __init__(self, target: Augmentation, n_steps: int) -> None:
        self._target, self._n_steps = target, n_steps

    def adapt(self) -> int:
        """Nothing to prepare, and always `n_steps`."""
        return self._n_steps

    def walk(self, u: FloatArray, n: int, rng: np.random.Generator, *, thin: int) -> Walk:
        """See `Move`."""
        from pymc_skewgp._gaussian.samplers.lin_ess import lin_ess  # numba: half a second of import

        target = self._target
        result = lin_ess(
            target.cov.chol,
            u[None],
            target.lower,
            target.upper,
            n_draws=n,
            thin=thin,
            random_seed=rng,
        )
        return Walk(
            result.draws[0],
            {
                "arc_length": result.arc_length[0],
                "n_active": result.n_active[0].astype(np.float64),
            },
        )
