"""When a prior is approximated by itself, and with how many inducing points."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from pymc_skewgp._cost import announce_kernel, cost_of_kernel, is_easily_kept
from pymc_skewgp._errors import ApproximationError, PriorApproximationWarning, warn
from pymc_skewgp._observations.distinct_rows import one_of_each
from pymc_skewgp._posterior.approximations.check import FEW_ROWS, LIMIT, MOST_ROWS, loss_of_fit
from pymc_skewgp._posterior.approximations.every_input import EveryInput
from pymc_skewgp._posterior.approximations.features import Approximation, Features
from pymc_skewgp._posterior.approximations.inducing import Inducing
from pymc_skewgp._posterior.approximations.loss import ApproximationLoss
from pymc_skewgp._posterior.data_sets import DataSet, n_functions
from pymc_skewgp._posterior.finite_rank import finite_rank_prior
from pymc_skewgp._posterior.finite_rank_fit import FiniteRankFit
from pymc_skewgp._posterior.finite_rank_values import FiniteRankValues, are_values
from pymc_skewgp._posterior.prior import Prior
from pymc_skewgp._posterior.row_predictors import distinct_data, refuse_other_data

_log = logging.getLogger("pymc.pymc_skewgp")

# What `approximation` may be; "auto" is the kernel as it is up to `MANY_ROWS`.
Asked = Approximation | Literal["auto"] | None
# Above it exact algebra takes minutes for smooth kernels, and hours for rough ones.
MANY_ROWS = 5000
_MOST_POINTS, _LEAST_POINTS = 300, 100
_MOST_COORDINATES = 1200  # of all functions together
_ROUGH = 0.5  # share of the loss that twice the points leave, from which on more are not tried
_BYTES = 2**30  # of the features, up to which there are as many points


@dataclass(frozen=True)
class Switch:
    """When "auto" leaves the kernel.

    Attributes
    ----------
    times : tuple of int
        How many times the 300 points that are tried first are tried next.
    most_loss : float
        Nats of the log evidence that an approximation may change, two standard errors included.
    rows_of_values : int
        Values with Gaussian noise up to which the kernel itself is taken where no approximation is
        near enough: up to a minute, and 2.4 GiB.
    rows_checked : int
        See `loss_of_fit`.
    operations : float
        Of a sweep of EP, up to which all different inputs are inducing points.
    """

    times: tuple[int, ...] = (1, 2, 4)
    most_loss: float = LIMIT
    rows_of_values: int = 8000
    rows_checked: int = MOST_ROWS
    operations: float = 5e11


SWITCH = Switch()
# What is done where a prior is not near enough to the kernel. After a search for hyperparameters
# the posterior has the points that it was made with: its work would be lost.
_at_a_loss: ContextVar[Literal["stop", "warn", "go on"]] = ContextVar("_at_a_loss", default="stop")


class Choice(NamedTuple):
    """What a posterior is made with.

    Attributes
    ----------
    approximation : Approximation or None
    computed : dict
        Attributes of the posterior that are known already: its fit, and what it loses.
    """

    approximation: Approximation | None
    computed: dict[str, Any] = {}  # noqa: RUF012


class _Tried(NamedTuple):
    approximation: Approximation
    fit: FiniteRankFit
    loss: ApproximationLoss | None

    def __str__(self) -> str:
        if self.loss is None:
            return repr(self.approximation)
        return f"{self.approximation!r}, which changes the log evidence by {self.loss}"

    @property
    def choice(self) -> Choice:
        return Choice(self.approximation, {"_fit": self.fit, "approximation_loss": self.loss})


@contextmanager
def never_stopping(*, quiet: bool) -> Iterator[None]:
    """Take as many points as hyperparameters are learnt with; unless quiet say what is lost."""
    token = _at_a_loss.set("go on" if quiet else "warn")
    try:
        yield
    finally:
        _at_a_loss.reset(token)


def as_approximation(value: Any) -> Asked:
    """`value` as what `SkewGP` and its posterior take.

    Raises
    ------
    ApproximationError
    """
    if value is None or (isinstance(value, str) and value == "auto") or hasattr(value, "features"):
        found: Asked = value
        return found
    raise ApproximationError(
        'approximation must be "auto", None or one of pymc_skewgp.approximations, such as '
        f"Inducing(300); got {value!r}."
    )


def chosen(asked: Asked, sets: tuple[DataSet, ...], prior: Prior) -> Choice:
    """What was asked for, or what "auto" is for these data, which is logged.

    Raises
    ------
    ApproximationError
        Where "auto" finds nothing that is near enough to the kernel: with the figures, and what
        there is to choose from.
    """
    n = sum(data.X.shape[0] for data in sets)
    if asked != "auto":
        return Choice(asked)
    if n <= MANY_ROWS:
        return Choice(None)
    try:
        refuse_other_data(sets, prior)
    except ApproximationError:
        return Choice(None)
    few = _every_input(sets, prior)
    if few is not None:
        return few.choice
    if _at_a_loss.get() != "stop":
        return _without_stopping(sets, prior, n)
    tried = _tried(sets, prior, n)
    best, values = min(tried, key=_worst), are_values(sets, prior)
    if _worst(best) <= SWITCH.most_loss:
        _log.info(
            f"{n} rows: the prior is approximated by {best}. prior_report() says what that "
            "changes; SkewGP(approximation=None) takes the kernel as it is."
        )
        return best.choice
    figures = ", ".join(f"{one.approximation!r} is off by {one.loss}" for one in tried)
    if values and n <= SWITCH.rows_of_values and is_easily_kept(n):
        announce_kernel(n, f"nearest to it is {best}")
        return Choice(None)
    twice = best.approximation.doubled()
    raise ApproximationError(
        f"{n} rows are too many for the kernel as it is to be taken by itself, and no approximated "
        f"prior that was tried is within {SWITCH.most_loss:g} nats of its log evidence "
        f"({figures}): choose by SkewGP(approximation=...) either one with more points, such as "
        f"{twice!r}, of which posterior.approximation_loss says the loss, or None, the kernel as "
        f"it is, which takes {cost_of_kernel(n, values)}."
    )


def automatic(n: int, n_functions: int = 1) -> Inducing:
    """Inducing points that so many rows are begun with: 300, and fewer from half a million on.

    And fewer for more than four functions, each of which has coordinates of its own.
    """
    return Inducing(_most_points(n, n_functions, 1))


def warn_of_loss(
    approximation: Approximation, loss: ApproximationLoss | None, stacklevel: int
) -> None:
    """Where a posterior would have stopped.

    Warns
    -----
    PriorApproximationWarning
    """
    if loss is None or loss.largest <= SWITCH.most_loss:
        return
    warn(
        f"{approximation!r}, which replaced the kernel by itself, changes the log evidence by "
        f"{loss}: hyperparameters, evidence and forecasts are those of another prior. Give SkewGP "
        f"an approximation with more points, such as {approximation.doubled()!r}, or None for the "
        "kernel as it is; or take fewer rows.",
        PriorApproximationWarning,
        stacklevel=stacklevel,
    )


def _without_stopping(sets: tuple[DataSet, ...], prior: Prior, n: int) -> Choice:
    """What hyperparameters are learnt with."""
    asked = automatic(n, n_functions(sets))
    _log.info(f"{n} rows: the prior is approximated by {asked!r}.")
    if _at_a_loss.get() == "go on":
        return Choice(asked)
    X = np.vstack([data.X for data in sets])
    fit = _fit(sets, *finite_rank_prior(replace(prior, approximation=asked), X))
    loss = loss_of_fit(fit, prior, SWITCH.most_loss, of_more=FEW_ROWS)
    warn_of_loss(asked, loss, stacklevel=6)
    return _Tried(asked, fit, loss).choice


def _every_input(sets: tuple[DataSet, ...], prior: Prior) -> _Tried | None:
    """The kernel itself, where rows have few different inputs."""
    X = np.vstack([data.X for data in sets])
    n, n_different = X.shape[0], one_of_each(X).size
    if n_different > MANY_ROWS:
        return None
    asked = EveryInput()
    approximated, features = finite_rank_prior(replace(prior, approximation=asked), X)
    equal = [distinct_data(data) for data in sets]
    n -= sum(x.kind.size - x.first.size for x in equal if x is not None)
    rank = features.rank * n_functions(sets)
    if 2.0 * n * rank**2 > SWITCH.operations:
        return None
    found = _Tried(asked, _fit(sets, approximated, features), ApproximationLoss(0.0, 0.0, 0.0))
    _log.info(
        f"{X.shape[0]} rows with {n_different} different inputs: the kernel as it is, in "
        f"{rank} coordinates."
    )
    return found


def _tried(sets: tuple[DataSet, ...], prior: Prior, n: int) -> list[_Tried]:
    """Approximations of more and more points, up to one that is near enough."""
    found: list[_Tried] = []
    failed: ApproximationError | None = None
    X = np.vstack([data.X for data in sets])
    sizes = [_most_points(n, n_functions(sets), times) for times in SWITCH.times]
    for size in sorted(set(sizes)):
        asked = Inducing(size)
        try:
            fit = _fit(sets, *finite_rank_prior(replace(prior, approximation=asked), X))
            found.append(
                _Tried(asked, fit, loss_of_fit(fit, prior, SWITCH.most_loss, SWITCH.rows_checked))
            )
        except ApproximationError as error:  # of a site that is too narrow for what is left of f
            failed = error
            continue
        if _worst(found[-1]) <= SWITCH.most_loss or _is_rough(found):
            break
    if not found:
        assert failed is not None
        raise failed
    return found


def _fit(sets: tuple[DataSet, ...], prior: Prior, features: Features) -> FiniteRankFit:
    kind = FiniteRankValues if are_values(sets, prior) else FiniteRankFit
    return kind(prior, features, sets)


def _worst(one: _Tried) -> float:
    return 0.0 if one.loss is None else one.loss.largest


def _is_rough(tried: list[_Tried]) -> bool:
    """Whether twice the points left more than half of the loss, so that as many more do not do."""
    losses = [one.loss for one in tried[-2:] if one.loss is not None]
    if len(losses) < 2 or losses[0].divergence <= 0.0:
        return False
    left = losses[1].divergence / losses[0].divergence
    return left > _ROUGH and losses[1].largest * left > SWITCH.most_loss


def _most_points(n: int, n_functions: int, times: int) -> int:
    """As many as are tried first, or several times that, where coordinates and memory allow."""
    most = min(times * _MOST_POINTS, _MOST_COORDINATES // n_functions)
    return int(max(_LEAST_POINTS, min(most, _BYTES // (8 * n))))
