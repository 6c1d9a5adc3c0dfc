"""What a SkewGP is: mean, kernel and pseudo-points."""

from copy import copy
from typing import Any, NoReturn, Self

import cloudpickle
import numpy as np
import pymc as pm

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._model.gp.process import refuse_other_than_gp_objects, shape_now
from pymc_skewgp._model.gp.pseudo_points import as_pseudo_points
from pymc_skewgp._posterior.approximations.automatic import as_approximation


class Definition:
    """Mean, kernel and pseudo-points, checked; see `SkewGP` for what they are."""

    def __init__(
        self,
        *,
        mean_func: Any = None,
        cov_func: Any,
        pseudo_points: Any = None,
        phase: Any = None,
        truncation: Any = 0.0,
        approximation: Any = "auto",
    ) -> None:
        mean_func = pm.gp.mean.Zero() if mean_func is None else mean_func
        refuse_other_than_gp_objects(cov_func, mean_func)
        self.mean_func = mean_func
        self.cov_func = cov_func
        pseudo = as_pseudo_points(pseudo_points, phase, truncation, self.n_columns)
        self.pseudo_points, self.phase, self.truncation = pseudo
        self.approximation = as_approximation(approximation)
        # By name: latent functions that `prior` made, and data of `marginal_likelihood`.
        self._functions: dict[str, Any] = {}
        self._data: dict[str, Any] = {}
        # Where `find_hyperparameters` looks for the priors of what the kernel depends on.
        self.model = pm.Model.get_context(error_if_none=False)

    def __getstate__(self) -> bytes:
        # PyMC's random variables, of which a kernel may be made, are not for pickle alone.
        state: bytes = cloudpickle.dumps(self.__dict__)
        return state

    def __setstate__(self, state: bytes) -> None:
        self.__dict__.update(cloudpickle.loads(state))

    def __copy__(self) -> Self:  # with the variables themselves
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        return found

    @property
    def n_columns(self) -> float:
        """Columns that inputs must have: infinity where the kernel takes any number."""
        return getattr(self.cov_func, "input_dim", np.inf)  # a constant has none

    @property
    def n_pseudo_points(self) -> int:
        """Number s of pseudo-points."""
        return 0 if self.pseudo_points is None else shape_now(self.pseudo_points)[0] or 0

    def __repr__(self) -> str:
        shown = "" if self.approximation == "auto" else f", approximation={self.approximation!r}"
        return (
            f"SkewGP(cov_func={type(self.cov_func).__name__}, "
            f"mean_func={type(self.mean_func).__name__}, n_pseudo_points={self.n_pseudo_points}"
            f"{shown})"
        )

    def approximated_by(self, approximation: Any) -> Self:
        """The same with another approximation."""
        found = copy(self)
        found.approximation = as_approximation(approximation)
        return found

    def refuse_approximation(self, method: str) -> None:
        """Raise where a method knows no approximations and one was asked for.

        Raises
        ------
        ApproximationError
        """
        if self.approximation not in (None, "auto"):
            raise ApproximationError(
                f"{method} takes the kernel as it is, and this SkewGP has "
                f"approximation={self.approximation!r}: use posterior or "
                "find_hyperparameters(gp, X, y), leave the approximation out, or take pm.gp.HSGP "
                "for a model."
            )

    def __add__(self, other: object) -> NoReturn:
        """Raise: of a sum of SkewGPs the sign is known nowhere."""
        raise TypeError(
            "SkewGPs are not additive: add the covariance functions, as in "
            "SkewGP(cov_func=cov1 + cov2, pseudo_points=...), whose pseudo-points then are about "
            "the sum."
        )
