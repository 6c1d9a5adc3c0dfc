"""The latent function for each hyperparameter draw of a trace, given labels."""

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from scipy.special import ndtr
from xarray import Dataset, DataTree

from pymc_skewgp._errors import LowEffectiveSampleWarning, no_warnings, warn
from pymc_skewgp._model.gp.process import joint_covariance
from pymc_skewgp._model.gp.trace import DrawFunction, posterior_draws, refuse_name
from pymc_skewgp._model.gp.values import ValuesAt, mean_of_values
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.datatree import as_datatree
from pymc_skewgp._posterior.latent import pick_draw
from pymc_skewgp._posterior.process import process_given
from pymc_skewgp._validation import FloatArray, as_count

_LEAST_FRACTION = 0.1


class Labelled(NamedTuple):
    """Inputs with labels +-1, shape (n, d) and (n,), and new inputs, shape (t, d), or None."""

    X: FloatArray
    y: NDArray[np.int64]
    Xnew: FloatArray | None

    @property
    def blocks(self) -> list[FloatArray]:
        """Inputs at which f is wanted."""
        return [self.X] if self.Xnew is None else [self.X, self.Xnew]


def draw_latent(
    gp: Any,
    idata: DataTree,
    data: Labelled,
    *,
    name: str,
    n_candidates: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> DataTree:
    """`SkewGP.sample_latent` given labels, for checked arguments."""
    count = as_count("n_candidates", n_candidates)
    trace = posterior_draws(idata)
    _refuse_taken_names(trace, name, data.y.size)
    parts = [ValuesAt(block) for block in data.blocks]
    outputs = [
        joint_covariance(gp, parts, 0.0)[1],
        mean_of_values(gp.mean_func, parts),
        pt.as_tensor_variable(gp.phase),
        pt.as_tensor_variable(gp.truncation),
    ]
    function = DrawFunction(trace, outputs)
    likelihood = BernoulliProbit()
    rows = likelihood.observations(data.y, data.y.size)
    f = np.empty((*function.shape, sum(block.shape[0] for block in data.blocks)))
    relative_ess = np.empty(function.shape)
    for index, (cov, mean, phase, truncation) in function.each(f"Drawing {name}", progressbar):
        given = process_given(cov, mean, phase, truncation, rows)
        f[index], relative_ess[index] = _one_draw(given, count, rng, gp.n_pseudo_points)
    few = int((relative_ess < _LEAST_FRACTION).sum())
    if few:
        warn(
            f"for {few} of {relative_ess.size} hyperparameter draws the {count} candidates had an "
            f"effective sample size of less than a tenth of their number (the smallest relative "
            f"ESS is {relative_ess.min():.3f}): raise n_candidates, or look at the prior of the "
            "variance.",
            LowEffectiveSampleWarning,
            stacklevel=4,
        )
    return _pack(trace, name, f, relative_ess, data, rng)


def _refuse_taken_names(trace: Dataset, name: str, n: int) -> None:
    if name in trace.variables:
        raise ValueError(
            f"idata.posterior has draws of {name!r}, and the labels y ask for others: leave out X "
            f"and y to continue those of prior to Xnew, or name the new ones, name='{name}_new'."
        )
    refuse_name(name)
    found = trace.sizes.get("obs_id", n)
    if found != n:
        raise ValueError(
            f"idata.posterior has a dimension 'obs_id' of length {found}, but there are {n} "
            "labels: rename that dimension first."
        )


def _one_draw(
    given: Conditioning, n_candidates: int, rng: np.random.Generator, n_pseudo_points: int
) -> tuple[FloatArray, float]:
    with no_warnings():  # thousands of runs: the caller warns once, with their number
        return pick_draw(given, n_candidates, rng, n_pseudo_points=n_pseudo_points)


def _pack(
    trace: Dataset,
    name: str,
    f: FloatArray,
    relative_ess: FloatArray,
    data: Labelled,
    rng: np.random.Generator,
) -> DataTree:
    X, y, Xnew = data
    n = X.shape[0]
    groups: dict[str, dict[str, Any]] = {
        "posterior": {name: f[..., :n]},
        "sample_stats": {"relative_ess": relative_ess},
        "log_likelihood": {"y": BernoulliProbit().log_likelihood(y, f[..., :n])},
        "observed_data": {"y": y},
        "constant_data": {"X": X},
    }
    if Xnew is not None:
        p = ndtr(f[..., n:])
        y = (rng.random(p.shape) < p).astype(np.int64)
        groups["predictions"] = {name: f[..., n:], "p": p, "y": y}
        groups["predictions_constant_data"] = {"X": Xnew}
    tree = as_datatree(
        groups,
        dims={"y": ["obs_id"], "X": ["obs_id", "feature"], name: ["obs_id"]},
        pred_dims={
            **{variable: ["pred_id"] for variable in (name, "p", "y")},
            "X": ["pred_id", "feature"],
        },
        coords={
            "obs_id": trace.get("obs_id", np.arange(n)),
            "pred_id": np.arange(f.shape[-1] - n),
            "feature": np.arange(X.shape[1]),
        },
        attrs={"method": "twisted"},
    )
    for group, node in tree.children.items():
        if "draw" in node.dims:  # those of a thinned trace do not count from 0
            tree[group].dataset = node.dataset.assign_coords(chain=trace.chain, draw=trace.draw)
    tree["posterior"].dataset = trace.merge(tree["posterior"].dataset, join="exact")
    return tree
