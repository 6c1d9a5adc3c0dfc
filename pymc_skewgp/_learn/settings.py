"""Every choice and threshold of a search for hyperparameters."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Method = Literal["twisted", "ep"]
METHODS: tuple[Method, ...] = ("twisted", "ep")


@dataclass(frozen=True)
class OptimizerSettings:
    """When an ascent ends, and how far one step may go.

    Attributes
    ----------
    max_iterations : int
        Of L-BFGS.
    tolerance : float
        Gain, in nats, below which L-BFGS ends: what an evidence is compared to is never finer.
    gradient_tolerance : float
    first_step : float
        Longest first step of L-BFGS. In a box SciPy takes the whole gradient, which of many rows
        leads to a corner of it.
    newton_gain : float
        Gain by the quadratic model that another Newton step needs, in nats ...
    noise_share : float
        ... or as a share of the noise of the values, where that is more.
    newton_loss : float
        What a Newton step may lose. A twisted evidence of some hundred draws jumps by so much
        between two points; its gradient, and with it the gain by the model, is a tenth as noisy.
    least_hessian : float
        Least eigenvalue of the negative Hessian, nats a squared unit, in a Newton step.
    longest_step : float
        Newton step, in units of the vector.
    max_steps, max_halvings : int
        Newton steps, and halvings of each.
    difference : float
        Half the distance of the gradients behind a numerical Hessian.
    """

    max_iterations: int = 200
    tolerance: float = 2e-4
    gradient_tolerance: float = 1e-3
    first_step: float = np.inf
    newton_gain: float = 5e-3
    noise_share: float = 0.2
    newton_loss: float = 0.02
    least_hessian: float = 0.05
    longest_step: float = 1.0
    max_steps: int = 8
    max_halvings: int = 3
    difference: float = 0.03


@dataclass(frozen=True)
class StartSettings:
    """Where a search looks, and where it starts. Distances are on the unconstrained scale.

    Attributes
    ----------
    half_width : float
        Of the box: a factor of a thousand for what is positive; for what lies between two bounds
        all but a thousandth of their distance.
    candidates : int
        Points that are tried for each restart.
    min_distance : float
        Least distance of two starts, in the coordinate in which they differ most.
    spread, scatter : float
        What candidates move a variable with a flat prior by: its entries together, at most, and
        each by itself, as a standard deviation.
    max_binary : int
        Binary entries that are learnt, by trying all their values.
    equal : float
        Relative difference of two evaluations of one number: EP stops at its tolerance in each.
    """

    half_width: float = float(np.log(1e3))
    candidates: int = 16
    min_distance: float = 1.0
    spread: float = 3.0
    scatter: float = 0.3
    max_binary: int = 3
    equal: float = 1e-5


@dataclass(frozen=True)
class SearchSettings:
    """What is searched for, how thoroughly, and by which rules.

    Attributes
    ----------
    method : {"twisted", "ep"}
    batch_size : int or None
        Labels in each batch of a composite likelihood; None for the evidence of all.
    n_restarts : int
    n_draws : int
        Behind a twisted evidence.
    seed : int
        Of these draws.
    hessian : bool
        Whether the Hessian with all data is wanted.
    coarse_size : int
        Labels on which every start is tried before the best go on with all: a step costs as their
        cube.
    coarse_above : int
        Labels above which that is done.
    coarse_prior_sd : float
        A normal prior about the start, on the unconstrained scale, while it is: some hundred labels
        may be separable and send the search to the edge of the box. All the data do not feel it.
    ep_margin : float
        Nats below the best optimum by EP within which another may be the best by the twisted
        sampler: EP is off by less, as a rule.
    same_value, same_place : float
        Within which two optima are one.
    finer : int
        Times as many draws where `n_draws` did not converge, or gave values with more noise than
    max_noise : float
        this.
    max_hessian : int
        Coordinates up to which second derivatives are computed, from 2 k gradients.
    evidence_draws : int
        Behind the reported evidence.
    flat_hessian : float
        Eigenvalue of the negative Hessian below which a direction is flat: a factor of e in a
        parameter costs less than a hundredth of a nat.
    at_bound : float
        Distance to the edge of the box.
    rows_coarse_size : int
        Of many rows, those on which every start is tried where the data are of several kinds, or
        comparisons: these have no `coarse_size`.
    rows_size : int
        Of many rows, those with which a search goes on after the start, before it takes all.
    rows_tolerance : float
        As `OptimizerSettings.tolerance`, with all of many rows.
    rows_first_step : float
        As `OptimizerSettings.first_step`, with some and all of many rows.
    rows_max_hessian : int
        As `max_hessian`, with many rows: more than so many would take longer than the search.
    batch_above, auto_batch_size : int
        Rows above which `SkewGPClassifier` learns from batches by itself, and their size: one
        factorisation for each step is too slow then.
    start : StartSettings
    optimizer : OptimizerSettings
    """

    method: Method = "twisted"
    batch_size: int | None = None
    n_restarts: int = 2
    n_draws: int = 256
    seed: int = 0
    hessian: bool = True
    coarse_size: int = 300
    coarse_above: int = 450
    coarse_prior_sd: float = 3.0
    ep_margin: float = 2.0
    same_value: float = 0.02
    same_place: float = 0.1
    finer: int = 8
    max_noise: float = 0.05
    max_hessian: int = 40
    evidence_draws: int = 1024
    flat_hessian: float = 0.02
    at_bound: float = 1e-3
    rows_coarse_size: int = 1000
    rows_size: int = 5000
    rows_tolerance: float = 0.05
    rows_first_step: float = 0.5
    rows_max_hessian: int = 12
    batch_above: int = 1500
    auto_batch_size: int = 500
    start: StartSettings = field(default_factory=StartSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)

    def batch_size_for(self, n: int) -> int | None:
        """What ``batch_size="auto"`` is for `n` rows."""
        return self.auto_batch_size if n > self.batch_above else None
