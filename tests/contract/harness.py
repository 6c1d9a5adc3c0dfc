"""Calls, what is recorded of them, and when two results are the same.

A call is a function in a file ``calls_*.py``. It uses public names only, on small data made in
place, and returns numbers by name: a number or an array where nothing was drawn, a pair (value,
standard error) where something was; strings, booleans and integers have to be equal.
``cd tests; python -m contract.record`` writes down what is not yet in ``recorded.json``.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
# All draws follow from it. The record has 0; any other value asks whether the errors are honest.
SEED = int(os.environ.get("CONTRACT_SEED", "0"))

# Some 1700 drawn numbers: were their errors normal and known, one of them would be off by five in
# one of 1000 rebuilds. They are estimates from few replicates: the largest of other seeds was 4.2.
JOINT_ERRORS = 5.0
# A rebuild may draw less or more, but not so little that nothing is said any more, and errors that
# shrink so much are to be looked at. The same code under other seeds came to 4.1.
CHANGE_OF_ERRORS = 6.0
# Where nothing is drawn: EP and optimisers stop at changes whose effect on what they maximise is of
# second order, 1e-6 relatively, and a jitter of 1e-6 may stand elsewhere.
RELATIVE, ABSOLUTE = 1e-5, 1e-7


@dataclass(frozen=True)
class Call:
    """A function without arguments.

    What another test compares with an oracle is compared with the record once it is there.
    """

    make: Callable[[], Any]
    has_oracle: bool = False
    slow: bool = False


CALLS: dict[str, Call] = {}


def call(make: Any = None, name: str | None = None, **how: Any) -> Any:
    """Add a function to the contract; a decorator, with or without the fields of `Call`."""
    if make is None:
        return lambda function: call(function, name, **how)
    name = f"{make.__module__.rsplit('calls_')[-1]}.{name or make.__name__}"
    assert name not in CALLS, f"two calls are named {name}"
    CALLS[name] = Call(make, **how)
    return make


def calls(slow: bool = False, **table: Callable[[], Any]) -> None:
    """Calls of one expression, by name."""
    for name, make in table.items():
        call(make, name, slow=slow)


def load() -> dict[str, Call]:
    """All calls of all files."""
    for path in sorted(HERE.glob("calls_*.py")):
        import_module(f"{__package__}.{path.stem}")
    return CALLS


def estimate(found: Any) -> tuple[Any, Any]:
    """Value and standard error of an `Estimate` or a `Probability`."""
    return found.value, found.std_error


def summary(tree: Any, *names: str) -> dict[str, Any]:
    """Averages of a forecast with their errors: those named, or all but the third moment."""
    found = tree["predictions_summary"]
    every = (n for n in found.data_vars if not n.endswith("_se") and "skewness" not in n)
    return {n: (found[n].values, found[f"{n}_se"].values) for n in names or every}


def told(posterior: Any, new: Any = ((0.3,),)) -> dict[str, Any]:
    """Evidence, and forecasts at new points."""
    forecast = posterior.predict(new, draws=0, quantiles=[0.9])
    return {"evidence": estimate(posterior.log_marginal_likelihood)} | summary(forecast)


def averaged(tree: Any, *names: str, entry: int = 10) -> dict[str, Any]:
    """Evidence of `integrate` with its own error, means by weights of so many points.

    Of a vector the entry with this number, or the last.
    """
    stats = tree["posterior"].attrs
    ess = stats["relative_ess_exact"] * stats["relative_ess"] * stats["n_evidences"]
    found = {
        "evidence": (stats["log_evidence"], stats["log_evidence_se"]),
        "method": stats["method"],
    }
    for name in names:
        draws = tree["posterior"][name].values
        draws = draws.reshape(draws.shape[0] * draws.shape[1], -1)[:, : entry + 1][:, -1]
        found[name] = (draws.mean(), draws.std() / np.sqrt(ess))
    return found


def recorded(result: dict[str, Any]) -> dict[str, Any]:
    """A result as it is written down."""
    out: dict[str, Any] = {}
    for name, found in result.items():
        value, error = found if isinstance(found, tuple) else (found, 0.0)
        array = np.asarray(value)
        if array.dtype.kind != "f":
            out[name] = array.tolist()
            continue
        error = np.broadcast_to(error, array.shape)
        assert np.isfinite([array, error]).all(), f"{name} is {value} +- {error}"
        out[name] = {"value": _short(array, 10), "error": _short(error, 3)}
    return out


def _short(array: Any, digits: int) -> Any:
    return np.vectorize(lambda x: float(f"{x:.{digits}g}"), otypes=[float])(array).tolist()


def differences(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    """What is not the same, in words; both as they are written down."""
    found = [f"{name} is missing or new" for name in sorted(set(now) ^ set(then))]
    for name in sorted(set(now) & set(then)):
        if not (isinstance(now[name], dict) and isinstance(then[name], dict)):
            same = now[name] == then[name]
        elif np.shape(now[name]["value"]) != np.shape(then[name]["value"]):
            same = False
        else:
            a, b = np.array(now[name]["value"]), np.array(then[name]["value"])
            se_a, se_b = np.array(now[name]["error"]), np.array(then[name]["error"])
            floor = RELATIVE * np.abs(b) + ABSOLUTE
            near = np.abs(a - b) <= JOINT_ERRORS * np.hypot(se_a, se_b) + floor
            alike = (se_a <= CHANGE_OF_ERRORS * se_b + floor) & (
                se_b <= CHANGE_OF_ERRORS * se_a + floor
            )
            same = bool(np.all(near & alike))
        found += [] if same else [f"{name}: {now[name]}, was {then[name]}"]
    return found
