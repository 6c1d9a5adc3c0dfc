"""`explain`: what `integrate` makes of a model, before it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from timeit import timeit
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.distributions.continuous import FlatRV, HalfFlatRV

from pymc_skewgp._errors import DiscreteHyperparameterError, no_warnings
from pymc_skewgp._learn.averaging.importance import IntegrationSettings
from pymc_skewgp._learn.averaging.integration import CHAINS, EXACT, RUNGS, evaluations, rungs
from pymc_skewgp._learn.averaging.modes import Evaluations, n_restarts, proper_modes
from pymc_skewgp._learn.averaging.points import N_CANDIDATES, run_tasks
from pymc_skewgp._learn.averaging.problem import IntegrationProblem, problem_of_model
from pymc_skewgp._learn.optimizers import NoValueError
from pymc_skewgp._limits import progress, stage
from pymc_skewgp._model.graph.analysis import BlockGraph
from pymc_skewgp._model.graph.collapsed import ModelParts, parts_of_model, pymc_model
from pymc_skewgp._model.graph.initial_point import initial_point
from pymc_skewgp._model.graph.members import Member
from pymc_skewgp._model.graph.sites import distribution_name
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._posterior.site_evidence import FactorTerms, FieldTerms

if TYPE_CHECKING:
    from pandas import DataFrame


# What `explain` returns: a table of the variables of a model, and what `integrate` will do.

_COLUMNS = ("name", "distribution", "role", "size", "note")
_WIDEST_NOTE = 70


class ExplainedVariable(NamedTuple):
    """One variable, or potential, of a model.

    Attributes
    ----------
    name : str
    distribution : str
        What PyMC calls it.
    role : str
        ``"block 1"`` for what is integrated out, and drawn, together; ``"hyperparameter"``; of
        observations of blocks ``"points"`` (known values), ``"intervals"`` or ``"factors"`` (any
        other log density of a predictor); ``"prediction"``; ``"potential"``; ``"observed"`` for
        what no block is in; ``"in the way"``.
    size : int
        Entries, or rows.
    note : str
        Why, or what about it.
    """

    name: str
    distribution: str
    role: str
    size: int
    note: str = ""


@dataclass(frozen=True, repr=False)
class Explanation:
    """Result of `explain`: ``print`` and notebooks show a table.

    Attributes
    ----------
    variables : list of ExplainedVariable
        Blocks with their observations first, then hyperparameters and the rest.
    obstacle : str or None
        Why `integrate` refuses the model, in its own words; None where it takes it.
    cost : str
        What `integrate` will take, by the engine that would run; empty where it refuses.
    seconds : float
        The same in numbers; NaN where it refuses.
    """

    variables: list[ExplainedVariable]
    obstacle: str | None
    cost: str
    seconds: float

    @property
    def is_taken(self) -> bool:
        """Whether `integrate` takes the model."""
        return self.obstacle is None

    def to_dataframe(self) -> DataFrame:
        """The table, indexed by name: distribution, role, size and note."""
        import pandas as pd

        return pd.DataFrame(self.variables, columns=list(_COLUMNS)).set_index("name")

    def with_role(self, role: str) -> list[str]:
        """Names of the variables whose role begins with `role`."""
        return [x.name for x in self.variables if x.role.startswith(role)]

    def __repr__(self) -> str:
        rows = [_COLUMNS, *((*x[:3], str(x.size), _short(x.note)) for x in self.variables)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, "", self._last_line])

    def _repr_html_(self) -> str:
        import pandas as pd

        with pd.option_context("display.max_colwidth", None):
            table = self.to_dataframe().reset_index().to_html(index=False)
        return f"{table}<p>{escape(self._last_line)}</p>"

    @property
    def _last_line(self) -> str:
        if self.obstacle is not None:
            return f"integrate refuses this model: {self.obstacle}"
        return f"integrate takes this model: {self.cost}"


def _short(note: str) -> str:
    return note if len(note) <= _WIDEST_NOTE else note[: _WIDEST_NOTE - 3] + "..."


_DEFAULT = IntegrationSettings()
# Evaluations of an ascent to a mode, and of a step of NUTS.
_ASCENT, _LEAPFROG = 20, 8


def explain(
    model: Any = None, *, start: Mapping[str, Any] | None = None, progressbar: bool = True
) -> Explanation:
    r"""What `integrate` makes of a model: which variables are integrated out, and what it takes.

    The variables z of a block are integrated out together given hyperparameters
    :math:`\theta`: their joint log density is quadratic (or they are a SkewGP), and they enter
    observations through predictors :math:`\eta = A(\theta) z + a(\theta)` alone. All else that is
    free is a hyperparameter, or in the way. Nothing is sampled: the analysis is that of
    `integrate`, and a few evidences are computed to know their time.

    Parameters
    ----------
    model : pymc.Model or bambi.Model, optional
        Default the model in context.
    start : mapping, optional
        As for `integrate`.
    progressbar : bool, default True
        Show progress.

    Returns
    -------
    Explanation
        A table of the variables with their roles, shown by ``print`` and in notebooks;
        ``obstacle`` is the text with which `integrate` would refuse the model, ``cost`` what it
        would take. A model that is refused is explained all the same.

    Raises
    ------
    TypeError
        For what is no model.

    See Also
    --------
    integrate : the posterior.

    Notes
    -----
    With flat priors of hyperparameters the posterior mode is looked for as well, since the tails of
    the posterior decide whether it is proper. What only draws can show, such as weights that are
    very unequal, is said by the warnings of `integrate`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> group = np.repeat(np.arange(4), 3)
    >>> with pm.Model() as model:
    ...     tau = pm.HalfNormal("tau", 1.0)
    ...     u = pm.Normal("u", 0.0, tau, shape=4)
    ...     y = pm.Poisson("y", pm.math.exp(u[group]), observed=np.tile([0, 1, 3], 4))
    >>> found = sg.explain(model)
    >>> found.is_taken, found.with_role("block"), found.with_role("hyperparameter")
    (True, ['u'], ['tau'])
    >>> found.to_dataframe()["role"].to_dict()
    {'u': 'block 1', 'y': 'factors', 'tau': 'hyperparameter'}
    """
    model = pm.modelcontext(pymc_model(model))
    if not isinstance(model, pm.Model):
        raise TypeError(f"model must be a pm.Model, with data, got {type(model).__name__}.")
    root = model.root
    cost, seconds = "", np.nan
    with progress(progressbar):
        parts = parts_of_model(root, drawn=True)
        obstacle: Exception | None = parts.obstacle
        if obstacle is None:
            try:
                with no_warnings():
                    cost, seconds = _cost(problem_of_model(root, parts.collapsed, start))
            except (ValueError, ArithmeticError) as error:
                obstacle = error
    return Explanation(
        _variables(root, parts, obstacle),
        None if obstacle is None else str(obstacle),
        cost,
        seconds,
    )


def _variables(
    model: pm.Model, parts: ModelParts, obstacle: Exception | None
) -> list[ExplainedVariable]:
    found: list[ExplainedVariable] = []
    sizes = {x.name: np.size(value) for x, value in _values(model).items()}
    for number, block in enumerate(parts.collapsed.blocks, 1):
        if block is not None:
            found += _of_block(model, block, number, sizes)
    seen = {x.name for x in found}
    for rv in [*model.free_RVs, *model.observed_RVs]:
        if rv.name in seen:
            continue
        role, note = _of_other(model, rv, parts, obstacle)
        found.append(ExplainedVariable(rv.name, distribution_name(rv), role, sizes[rv.name], note))
    found += [
        ExplainedVariable(x.name, "Potential", "potential", 1)
        for x in model.potentials
        if x.name not in seen
    ]
    return found


def _values(model: pm.Model) -> dict[Any, Any]:
    """A value of each random variable: those observed, and where the others start."""
    point = initial_point(model)
    values = {rv: point[model.rvs_to_values[rv].name] for rv in model.free_RVs}
    for rv in model.observed_RVs:
        values[rv] = model.rvs_to_values[rv].eval(mode=PLAIN)
    return values


def _of_block(
    model: pm.Model, block: BlockGraph, number: int, sizes: Mapping[str, int]
) -> list[ExplainedVariable]:
    found = []
    of_block = f"of block {number}"

    def add(name: str, role: str, note: str) -> None:
        rv = model[name]
        kind = "Potential" if rv in model.potentials else distribution_name(rv)
        found.append(ExplainedVariable(name, kind, role, sizes.get(name, 1), note))

    for member in block.members:
        add(member.name, f"block {number}", _of_member(member))
    for y in block.observed:
        shared = ", their noise shared" if y.rows.noise.type.ndim > 1 else ""
        note = f"{of_block}: {y.likelihood.name} rows{shared}"
        add(y.name, "intervals" if y.rows.value is None else "points", note)
    for known in block.sites:
        seen = "one predictor" if known.width == 1 else f"{known.width} predictors"
        if known.is_coupled:
            add(known.name, "factor", f"{of_block}: one log density of all {seen} (Newton)")
        else:
            add(known.name, "factors", f"{of_block}: log p(y | {seen})")
    for rv in block.predicted:
        add(rv.name, "prediction", f"{of_block}: drawn given the rest")
    names = {x.name for x in block.rest}
    taken = {x.name for x in found}
    found += [
        ExplainedVariable(x.name, "Potential", "potential", 1, f"{of_block}: quadratic in it")
        for x in model.potentials
        if x.name not in names and x.name not in taken
    ]
    return found


def _of_member(member: Member) -> str:
    if member.is_function:
        return "a function"
    if member.own_potential is not None:
        return "Gaussian by its own log density, of deficient rank: the data bound the rest"
    if member.is_flat:
        return "flat: of density 1 in the evidence"
    return "Gaussian" if member.log_constant is None else "Gaussian by its own log density"


def _of_other(
    model: pm.Model, rv: Any, parts: ModelParts, obstacle: Exception | None
) -> tuple[str, str]:
    """Role and note of a variable that is in no block."""
    if rv in model.observed_RVs:
        own = [x for x in parts.collapsed.rest if x is rv]
        if obstacle is None and not own:
            return "points or intervals", "its functions are integrated out"
        return "observed", "no block is in its density"
    is_discrete = not rv.dtype.startswith("float")
    if is_discrete and not (isinstance(obstacle, DiscreteHyperparameterError)):
        return "hyperparameter", "binary: all values are tried"
    if is_discrete:
        return "in the way", str(obstacle) if rv.name in str(obstacle).split() else ""
    why = parts.reasons.get(rv.name)
    note = "" if why is None else f"not in a block: {getattr(why, 'reason', why)}"
    if isinstance(rv.owner.op, FlatRV | HalfFlatRV):
        note = "flat: of density 1 in the evidence"
    if obstacle is not None and not parts.collapsed.evidences:
        return ("in the way" if why is not None else "not integrated out"), note
    return "hyperparameter", note


_SIDE_BY_SIDE = 8  # evidences, where they are made so
_QUICK = 0.03  # seconds of one by EP, up to which modes are looked for


def _cost(problem: IntegrationProblem) -> tuple[str, float]:
    """What it takes, from the time of a few evidences at a mode, or at the start if these are slow.

    Raises
    ------
    ValueError
        As `integrate`, for what is found without draws.
    """
    evaluate, rng = Evaluations(problem.objective), np.random.default_rng(0)
    point, d = problem.origins[0], problem.origins[0].x.size
    quick = d > 0 and _seconds(lambda: evaluate.values([point])) < _QUICK
    if quick or problem.objective.coordinates.flat:
        point = proper_modes(problem, evaluate, rng)[0].point
    if not np.isfinite(evaluate.values([point])[0]).all():
        why = problem.objective.why_no_value(point)
        if why is not None:
            raise NoValueError(why)
    count = problem.evidences(_DEFAULT.n_evidences) if d else 1
    some = _SIDE_BY_SIDE if count > _DEFAULT.n_evidences else 1
    stage("Time of a few evidences")
    one = _seconds(lambda: evaluate.values(some * [point])) / some
    drawn = problem.latent, some * [point], some * [1], N_CANDIDATES, rng
    exact = _seconds(lambda: list(run_tasks(*drawn))) / some
    rung = rungs(problem, _DEFAULT)[0] if d else EXACT
    n_points = _evaluations(rung, d, count, problem.is_slow)
    seconds = max(n_points * one + count * exact, 0.1)
    if not d:
        return f"{seconds:.1f} s: an exact evidence of {_engine(problem)}.", seconds
    return (
        f"{seconds:.1f} s or more, after compilation: {RUNGS[rung]} over "
        f"hyperparameters ({_counted(d, 'number')}); {n_points} evidences by expectation "
        f"propagation, {1e3 * one:.2g} ms each, and {count} exact ones, "
        f"{1e3 * exact:.2g} ms each, of {_engine(problem)}."
    ), seconds


def _seconds(run: Callable[[], Any]) -> float:
    """Once it is compiled."""
    return timeit(run, setup=run, number=1)


def _evaluations(rung: int, d: int, n_evidences: int, slow: bool) -> int:
    """Of EP: searches for modes, then points."""
    if rung == EXACT:
        return 1
    searches = _ASCENT * (1 + n_restarts(d) - slow)
    if rung == CHAINS:
        return searches + _DEFAULT.chains * (_DEFAULT.tune + _DEFAULT.draws) * _LEAPFROG
    return searches + evaluations(replace(_DEFAULT, n_evidences=n_evidences), d)


def _engine(problem: IntegrationProblem) -> str:
    """Of each evidence: how many predictors it is of, and coordinates."""
    found = []
    for terms in problem.objective.terms_at(problem.origins[0]):
        if isinstance(terms, FactorTerms):
            n, r = terms.factor.shape
            found.append(f"{_counted(n, 'predictor')} of {_counted(r, 'coordinate')}")
        elif isinstance(terms, FieldTerms):
            n, r = terms.offset.size, terms.slope.size
            found.append(
                f"{_counted(n, 'predictor')} of {_counted(r, 'value')} with sparse precision"
            )
        else:
            found.append(f"{terms.n_rows} rows with their covariance matrix")
    return " and ".join(found)


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
