r"""A function of finite rank given values with Gaussian noise, in closed form.

The coordinates are N(mean, (L L')^-1) given the data, and nothing is drawn for moments: u has no
dimensions. With a value v = f + noise of variance s, and e of variance d, f given c there is
Gaussian, :math:`f \mid c, v \sim N\{\eta + \frac{d}{d + s} (v - \eta), \frac{d s}{d + s}\}`.
"""

import numpy as np

from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate, IntArray
from pymc_skewgp._observations.observations import as_matrix
from pymc_skewgp._observations.sites import SiteLikelihood
from pymc_skewgp._posterior.conditioning import Regression
from pymc_skewgp._posterior.data_sets import DataSet, n_functions
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.latent import NOTHING_DRAWN
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._validation import FloatArray, Seed


def are_values(sets: tuple[DataSet, ...], prior: Prior) -> bool:
    """Whether all data are values of one function, each with noise of its own, and nothing else."""
    if prior.n_pseudo_points or n_functions(sets) > 1:
        return False
    kinds = [data.likelihood for data in sets]
    if not all(x.has_data and x.y_dim == "obs_id" for x in kinds):
        return False
    if any(isinstance(x, SiteLikelihood) for x in kinds):
        return False
    rows = [data.rows() for data in sets]
    return all(bool(x.is_point.all()) and x.S.ndim == 1 for x in rows)


class FiniteRankValues(FiniteRankFit):
    """As `FiniteRankFit`, of data for which `are_values` holds."""

    @property
    def fitted(self) -> bool:
        """See `FunctionFit`."""
        return "ep" in vars(self)

    def latent(self, n_draws: int, random_seed: Seed) -> TruncatedDraws:
        """Nothing: f itself is Gaussian."""
        return TruncatedDraws(np.zeros((1, 0)), np.zeros(1), NOTHING_DRAWN, "exact")

    def equal_draws(
        self, shape: tuple[int, int], method: str, rng: np.random.Generator, thin: int = 1
    ) -> tuple[TruncatedDraws, IntArray]:
        """Independent draws of c."""
        self._refuse_method(method)
        count = shape[0] * shape[1]
        white = rng.standard_normal((self.n_coordinates, count))
        draws = self.ep.gaussian.of_white(white).T
        found = TruncatedDraws(draws, np.zeros(count), NOTHING_DRAWN, "exact")
        return found, np.arange(count).reshape(shape)

    def evidence(self, joint: Estimate, signs: Estimate) -> Estimate:
        """See `FunctionFit`: of Gaussian sites expectation propagation's is exact."""
        return joint._replace(value=self.ep_log_evidence)

    def averaged(self, regression: Regression) -> Regression:
        """See `FunctionFit`: over c, in closed form."""
        gaussian = self.ep.gaussian
        spread = gaussian.spread.T @ regression.solved
        return regression._replace(
            centre=regression.centre + gaussian.mean @ regression.solved,
            variance=regression.variance + np.einsum("ij,ij->j", spread, spread),
            solved=np.zeros((0, regression.centre.size)),
        )

    def averaged_joint(self, regression: Regression, joint: FloatArray) -> FloatArray:
        """See `FunctionFit`."""
        spread = self.ep.gaussian.spread.T @ regression.solved
        return np.asarray(joint + spread.T @ spread)

    def _here(self, joint: bool, group: int) -> Regression:
        found = [self._at_values(data) for data in self._sets]
        centre, variance = (np.concatenate([x[i] for x in found]) for i in (0, 1))
        return Regression(centre, variance, np.concatenate([x[2] for x in found], axis=1))

    def _at_values(self, data: DataSet) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of f at the inputs of the data: given c, and what rows say of e there."""
        centre, rest, solved = self._features_at("X", data.X, 1, data.values.derivative)
        rest = rest * self.features.between[0, 0]
        rows = data.rows()
        design = as_matrix(rows.A, rows.n_rows)  # with one number a row
        precision = (design * design).T @ (1.0 / rows.S)
        pull = design.T @ ((rows.value - rows.a) / rows.S)
        share = rest * precision / (1.0 + rest * precision)
        known = np.divide(pull, precision, out=np.zeros(centre.size), where=precision > 0.0)
        return centre + share * (known - centre), rest * (1.0 - share), solved * (1.0 - share)
