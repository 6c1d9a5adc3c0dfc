"""The latent function for each hyperparameter draw of a trace."""

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from rich.progress import track
from scipy.special import log_ndtr, ndtr
from xarray import DataTree

from pymc_skewgp._errors import LowEffectiveSampleWarning, no_warnings, warn
from pymc_skewgp._model.gp.functions import hyperparameters
from pymc_skewgp._model.gp.process import joint_covariance, mean_at
from pymc_skewgp._observations.bernoulli_probit import BernoulliProbit
from pymc_skewgp._posterior.conditioning import Conditioning
from pymc_skewgp._posterior.datatree import as_datatree
from pymc_skewgp._posterior.latent import pick_draw
from pymc_skewgp._posterior.process import process_given
from pymc_skewgp._validation import FloatArray, as_count

_LEAST_FRACTION = 0.1
_OWN_NAMES = frozenset(("p", "y", "X", "obs_id", "pred_id", "feature", "chain", "draw"))


def draw_latent(
    gp: Any,
    idata: DataTree,
    X: FloatArray,
    sign: FloatArray,
    Xnew: FloatArray | None,
    *,
    name: str,
    n_candidates: int,
    rng: np.random.Generator,
    progressbar: bool,
) -> DataTree:
    """`SkewGP.sample_latent` for checked arguments."""
    count = as_count("n_candidates", n_candidates)
    trace = _trace(idata, name, sign.size)
    blocks = [X] if Xnew is None else [X, Xnew]
    matrices, names = _compile(gp, blocks, set(map(str, trace.data_vars)))
    values = [trace[n].transpose("chain", "draw", ...).to_numpy() for n in names]
    chains, draws = trace.sizes["chain"], trace.sizes["draw"]
    n_all = sum(block.shape[0] for block in blocks)
    f, fraction = np.empty((chains, draws, n_all)), np.empty((chains, draws))
    likelihood = BernoulliProbit()
    rows = likelihood.observations(likelihood.as_data(sign, sign.size))
    indices = list(np.ndindex(chains, draws))
    for index in track(indices, f"Drawing {name}", disable=not progressbar):
        cov, mean, phase, truncation = matrices(*(value[index] for value in values))
        given = process_given(cov, mean, phase, truncation, rows)
        f[index], fraction[index] = _one_draw(given, count, rng, gp.n_pseudo_points)
    few = int((fraction < _LEAST_FRACTION).sum())
    if few:
        warn(
            f"for {few} of {fraction.size} hyperparameter draws the {count} candidates were worth "
            f"less than a tenth of their number (the worst {fraction.min():.3f}): raise "
            "n_candidates, or look at the prior of the variance.",
            LowEffectiveSampleWarning,
            stacklevel=3,
        )
    return _pack(trace, name, f, fraction, X, sign, Xnew, rng)


def _trace(idata: DataTree, name: str, n: int) -> Any:
    """Hyperparameter draws, to which `name` can be added."""
    if not isinstance(idata, DataTree):
        raise TypeError(f"idata must be a DataTree, got {type(idata).__name__}.")
    if "posterior" not in idata.children:
        raise ValueError(f"idata has no group 'posterior'; found {sorted(idata.children)}.")
    trace = idata["posterior"].dataset
    if name in trace.variables:
        raise ValueError(f"idata.posterior has a variable {name!r} already: choose another name.")
    if name in _OWN_NAMES:
        raise ValueError(f"{name!r} is the name of another variable: choose another name.")
    found = trace.sizes.get("obs_id", n)
    if found != n:
        raise ValueError(
            f"idata.posterior has a dimension 'obs_id' of length {found}, but there are {n} "
            "labels: rename that dimension first."
        )
    if not {"chain", "draw"} <= set(trace.dims):
        raise ValueError(
            f"idata.posterior must have dimensions chain and draw, found {sorted(trace.dims)}: "
            "select single ones with lists, as in idata.isel(chain=[0])."
        )
    return trace


def _compile(gp: Any, blocks: list[FloatArray], known: set[str]) -> tuple[Any, list[str]]:
    """A function of the hyperparameters that gives covariance, mean, phase and truncation."""
    outputs = [
        joint_covariance(gp.cov_func, gp.pseudo_points, blocks, 0.0),
        mean_at(gp.mean_func, blocks),
        pt.as_tensor_variable(gp.phase),
        pt.as_tensor_variable(gp.truncation),
    ]
    needed = hyperparameters(outputs, known, [], "idata.posterior")
    inputs = [node.type() for node in needed]
    # Thousands of evaluations: PyTensor's own backend repays its compilation.
    function = pytensor.function(
        inputs,
        outputs,
        givens=list(zip(needed, inputs, strict=True)),
        on_unused_input="ignore",
    )
    return function, [node.name for node in needed]


def _one_draw(
    given: Conditioning, n_candidates: int, rng: np.random.Generator, n_pseudo_points: int
) -> tuple[FloatArray, float]:
    with no_warnings():  # thousands of runs: the caller warns once, with their number
        return pick_draw(given, n_candidates, rng, n_pseudo_points=n_pseudo_points)


def _pack(
    trace: Any,
    name: str,
    f: FloatArray,
    fraction: FloatArray,
    X: FloatArray,
    sign: FloatArray,
    Xnew: FloatArray | None,
    rng: np.random.Generator,
) -> DataTree:
    n = X.shape[0]
    groups: dict[str, dict[str, Any]] = {
        "posterior": {name: f[..., :n]},
        "sample_stats": {"relative_ess": fraction},
        "log_likelihood": {"y": log_ndtr(sign * f[..., :n])},
        "observed_data": {"y": (sign > 0).astype(np.int64)},
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
