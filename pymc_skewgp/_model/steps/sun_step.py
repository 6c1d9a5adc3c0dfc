"""The step methods of SkewGP variables: conjugate and lin-ess."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pymc.exceptions import SamplingError
from pymc.model.core import modelcontext
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomGeneratorType
from rich.progress import TextColumn
from rich.table import Column

from pymc_skewgp import _errors
from pymc_skewgp._gaussian.weights import chain_relative_ess
from pymc_skewgp._mcmc.site_chain import ConjugateInfo, IndependenceMove
from pymc_skewgp._mcmc.slices import LinESSMove
from pymc_skewgp._model.graph import analysis
from pymc_skewgp._model.graph.sites import distribution_name
from pymc_skewgp._model.ops.plain_mode import PLAIN
from pymc_skewgp._model.steps import competence as moves
from pymc_skewgp._model.steps.block_move import BlockMove, Kernel, Point
from pymc_skewgp._validation import as_count

# Variables that nothing observed depends on: drawn from their distributions.
#
# Masked data are such variables, and predictions that stand in the model. They say nothing of the
# block: it is moved with them integrated out, and they are drawn given everything else afterwards.


class Predictions:
    """Draws of variables given all others, on the scale that they are sampled on.

    Parameters
    ----------
    model : pymc.Model
    rvs : sequence of TensorVariable
        Free random variables of it; one may depend on others of them.

    Attributes
    ----------
    rvs : list of TensorVariable
    """

    def __init__(self, model: pm.Model, rvs: Sequence[Any]) -> None:
        self.rvs = list(rvs)
        self._names = [model.rvs_to_values[rv].name for rv in rvs]
        if not rvs:
            return
        others = [rv for rv in model.basic_RVs if rv not in self.rvs]
        values = dict(zip(others, model.replace_rvs_by_values(others), strict=True))
        drawn = clone_replace(self.rvs, values)
        outputs = []
        for rv, new in zip(self.rvs, drawn, strict=True):
            transform = model.rvs_to_transforms[rv]
            outputs.append(new if transform is None else transform.forward(new, *new.owner.inputs))
        used = list(graph_inputs(outputs))
        own = [x for x in used if isinstance(x.type, RandomGeneratorType)]
        generators = [x.type() for x in own]
        outputs = clone_replace(outputs, dict(zip(own, generators, strict=True)))
        inputs = [value for value in model.value_vars if value in used]
        self._inputs, self._n_generators = [value.name for value in inputs], len(own)
        self._function = pytensor.function([*generators, *inputs], outputs, mode=PLAIN)

    def draw(self, point: Mapping[str, NDArray[Any]], rng: np.random.Generator) -> Point:
        """`point` with new draws of the variables."""
        if not self.rvs:
            return dict(point)
        seeds = rng.integers(2**63, size=self._n_generators)
        arguments = [point[name] for name in self._inputs]
        drawn = self._function(*map(np.random.default_rng, seeds), *arguments)
        return {**point, **dict(zip(self._names, drawn, strict=True))}


class SUNStep(BlockedStep):
    """A step on SkewGP variables and what is jointly Gaussian with them, given everything else.

    Parameters
    ----------
    vars : variable or list of variables, or None
        Random variables or value variables: members of blocks, and hyperparameters of these. None
        for all blocks, also those without a SkewGP, and hyperparameters that need no other step.
    kernel : Kernel
        How the rows behind f are moved.
    model, rng, initial_point, compile_kwargs, blocked
        As PyMC passes them.

    Raises
    ------
    NotConjugateError
        When a variable has other children than observations with a known likelihood.
    ValueError
        For impossible data.
    """

    # The sample statistic that progress shows, its heading and its format.
    _progress: ClassVar[tuple[str, str, str]]
    # Statistics of a block whose observations are all points: there is no u to be moved.
    _without_rows: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        vars: Any,
        kernel: Kernel,
        *,
        model: pm.Model | None,
        rng: Any = None,
        initial_point: Point | None = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        model = modelcontext(model)
        if vars is None:
            blocks = moves.every_block(model, joined=kernel.collapse)
            listed: Any = _all_of(model, blocks, kernel)
        else:
            rows_alone = not (kernel.collapse or kernel.under_sites)
            find = analysis.find_blocks if rows_alone else analysis.blocks_under_rows_or_sites
            blocks = moves.joined_blocks(model) if kernel.collapse else find(model)
            listed = vars if isinstance(vars, list | tuple) else [vars]
        self.vars = get_value_vars_from_user_vars(listed, model)
        self.rng = get_random_generator(rng)
        graphs = _chosen_blocks(model, blocks, self.vars, kernel)
        self._blocks = [BlockMove(model, graph, kernel, compile_kwargs) for graph in graphs]
        predicted = [rv for graph in graphs for rv in graph.predicted]
        self._predictions = Predictions(model, list(dict.fromkeys(predicted)))
        # Blocks move with these integrated out: a step that left them as they were would be wrong.
        own = [model.rvs_to_values[rv] for rv in self._predictions.rvs]
        self.vars += [value for value in own if value not in self.vars]
        start = model.initial_point() if initial_point is None else initial_point
        for block in self._blocks:
            block.prepare(start)
        self._left: int | None = None
        self._n_draws, self._warned = 0, False

    @property
    def _name(self) -> str:
        return ", ".join(block.name for block in self._blocks)

    @property
    def _moved(self) -> list[str]:
        return list(dict.fromkeys(name for block in self._blocks for name in block.moved))

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Begin a chain: nothing of the one before is left, and data are read anew."""
        super().setup_chain(rng, tune, draws)
        for block in self._blocks:
            block.forget()
        self._left, self._n_draws, self._warned = tune + draws, draws, False

    def step(self, point: Point) -> tuple[Point, list[dict[str, Any]]]:
        """Draw the variables given all others, block after block.

        Parameters
        ----------
        point : dict
            Values of the value variables.

        Returns
        -------
        point : dict
        stats : list of one dict

        Raises
        ------
        SamplingError
            At a point where the covariances are none, which only a chain's start can be.

        Warns
        -----
        InexactStepWarning
            Once in a chain, when rows behind f were picked by weight.
        """
        tune = self._left is not None and self._left > self._n_draws
        infos = []
        for block in self._blocks:
            try:
                point, info = block.step(point, self.rng, tune=tune, most=self._left)
            except (_errors.NotPositiveDefiniteError, FloatingPointError) as error:
                raise SamplingError(
                    f"{type(self).__name__} cannot move {block.name} at this point: {error} "
                    "Where a chain starts there, give the variables that it depends on an "
                    "initval, increasing for cut-points that are ordered."
                ) from error
            infos.append(info)
            self._warn_if_inexact(block.name, info)
        point = self._predictions.draw(point, self.rng)
        if self._left is not None:
            self._left -= 1
        return point, [self._stats(point, infos)]

    def _warn_if_inexact(self, name: str, info: ConjugateInfo) -> None:
        """Once in a chain."""
        if info.exact or self._warned:
            return
        self._warned = True
        _errors.warn(
            f"{type(self).__name__} picked rows behind {name} by weight, because rejection found "
            "none in time: these steps are right only nearly. Fewer pseudo-points, or farther from "
            "each other, and noise that fewer observations share, make them exact.",
            _errors.InexactStepWarning,
            stacklevel=3,
        )

    def _stats(self, point: Point, infos: list[ConjugateInfo]) -> dict[str, Any]:
        """Statistics of a step: means over its blocks."""
        stats: dict[str, Any] = {name: np.nan for name in self.stats_dtypes_shapes}
        found = [info.stats or self._without_rows for info in infos]
        for name in found[0]:
            stats[name] = float(np.mean([x[name] for x in found]))
        return {**stats, "refreshed": any(info.refreshed for info in infos)}

    @classmethod
    def _progressbar_config(
        cls, n_chains: int = 1
    ) -> tuple[list[TextColumn], dict[str, list[float]]]:
        stat, heading, shown = cls._progress
        text = f"{{task.fields[{stat}]:{shown}}}"
        return [TextColumn(text, table_column=Column(heading, ratio=1))], {stat: [0.0] * n_chains}

    @classmethod
    def _make_progressbar_update_functions(cls) -> tuple[Callable[[Any], dict[str, Any]], ...]:
        stat = cls._progress[0]
        return (lambda stats: {stat: stats[stat]},)


def _all_of(model: pm.Model, blocks: list[analysis.Block], kernel: Kernel) -> list[Any]:
    """Members of blocks, and hyperparameters that nothing else depends on.

    Raises
    ------
    NotConjugateError
        Where there are no blocks.
    """
    if not blocks:
        raise _errors.NotConjugateError(
            "no variable of the model is Gaussian and enters the predictors of its observations "
            "affinely.",
            "Leave the model to NUTS.",
        )
    found = [x for block in blocks for x in block.members]
    if kernel.collapse:
        found += [x for x in model.free_RVs if any(moves.is_claimed(model, b, x) for b in blocks)]
    return found


def _chosen_blocks(
    model: pm.Model, blocks: list[analysis.Block], values: list[Any], kernel: Kernel
) -> list[analysis.BlockGraph]:
    """Blocks of what a step is given, with the hyperparameters that it moves."""
    rvs = [model.values_to_rvs[value] for value in values]
    found = []
    for block in blocks:
        if any(rv in block.members for rv in rvs):
            found.append(moves.graph_to_move(model, analysis.part_of(model, block, rvs)))
    names = {name for graph in found for name in graph.names}
    known = {value for graph in found for value in graph.moved}
    known |= {model.rvs_to_values[x] for graph in found for x in graph.predicted}
    for rv, value in zip(rvs, values, strict=True):
        if rv.name not in names and value not in known:
            _refuse(model, rv, kernel)
    if kernel.collapse:
        return found
    return [
        graph._replace(
            hyperparameters=[x for x in graph.hyperparameters if x in values],
            likelihood_parameters=[x for x in graph.likelihood_parameters if x in values],
        )
        for graph in found
    ]


def _refuse(model: pm.Model, rv: Any, kernel: Kernel) -> None:
    if kernel.under_sites:
        analysis.refuse_with_reason(model, rv)
    analysis.find_observed(model, rv)
    raise _errors.NotConjugateError(f"{rv.name} is a {distribution_name(rv)} variable of no block.")


# `LinESS`: linear elliptical slice sampling of a SkewGP under probit observations.

_LEAST_ESS = 100  # effective draws a chain, as PyMC and ArviZ ask for


@dataclass_state
class LinESSState(StepMethodState):
    """What identifies a `LinESS` step; its chains begin anew."""

    n_steps: int = field(metadata={"frozen": True})
    thin: int = field(metadata={"frozen": True})


class LinESS(SUNStep):
    r"""Linear elliptical slice sampling of f under probit observations, given all else.

    The sampler of the paper that introduced Skew Gaussian processes: the truncated Gaussian u
    behind f is moved along ellipses, without rejections, then f is drawn given u. Its draws are
    not independent: with n observations the feasible part of an ellipse shrinks like 6/n radians,
    and thousands of steps may be needed for one effective draw. It is here for comparison, and is
    never picked by ``pm.sample``: ask for it with ``pm.sample(step=LinESS([f]))``. `ConjugateStep`
    draws from the same distribution.

    Parameters
    ----------
    vars : variable or list of one variable
        f, made by `SkewGP.prior` or `UnifiedSkewNormal`.
    n_steps : int, default 1
        Steps of u between two draws of f.
    thin : int, default 1
        Draws of f for each one that is kept. With fixed hyperparameters u goes on from where it
        was, and ``n_steps * thin`` is all that counts; otherwise each sweep draws u from f.
    model : pymc.Model, optional
        Default the model in context.
    **options
        ``rng``, ``initial_point``, ``compile_kwargs`` and ``blocked``, as PyMC passes them.

    Raises
    ------
    NotConjugateError
        When f has other children than probit observations; the message names what was found.

    Warns
    -----
    SamplerWarning
        Logged at the end of a chain whose draws of f have an effective sample size below 100, the
        smallest bulk one over the entries of f.

    Notes
    -----
    Sample statistics: ``arc_length``, the feasible angle in radians (at most 2 pi), and
    ``n_active``, the number of constraints that cut the ellipse, both at the last step of u;
    ``refreshed``, whether u was drawn from f because hyperparameters had changed.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       arXiv:2005.12987.
    .. [2] A. Gessner, O. Kanjilal & P. Hennig (2020), Integrals over Gaussians under linear domain
       constraints, arXiv:1910.09328.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp import BernoulliProbit, SkewGP
    >>> from pymc_skewgp._model.steps.sun_step import LinESS
    >>> X = np.linspace(-2, 2, 5)[:, None]
    >>> with pm.Model():
    ...     f = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X)
    ...     y = BernoulliProbit("y", f, observed=[0, 0, 1, 1, 1])
    ...     step = LinESS([f], n_steps=5)
    """

    name = "lin_ess"
    default_blocked = False
    stats_dtypes_shapes: ClassVar[dict[str, tuple[Any, Any]]] = {
        "arc_length": (np.float64, []),
        "n_active": (np.float64, []),
        "refreshed": (bool, []),
        "warning": (SamplerWarning, None),
    }
    _state_class = LinESSState
    _progress = ("arc_length", "Arc", "0.3f")

    def __init__(
        self,
        vars: Any,
        *,
        n_steps: int = 1,
        thin: int = 1,
        model: pm.Model | None = None,
        **options: Any,
    ) -> None:
        self.n_steps, self.thin = as_count("n_steps", n_steps), as_count("thin", thin)
        make_move = partial(LinESSMove, n_steps=self.n_steps)
        kernel = Kernel(make_move, self.n_steps, self.thin)
        super().__init__(vars, kernel, model=model, **options)
        self._kept: list[NDArray[Any]] = []
        self._n_kept = 0

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """See `SUNStep.setup_chain`."""
        super().setup_chain(rng, tune, draws)
        self._kept, self._n_kept = [], draws

    def _stats(self, point: Point, infos: list[ConjugateInfo]) -> dict[str, Any]:
        stats = {**super()._stats(point, infos), "warning": None}
        if self._left is not None and self._left < self._n_kept:  # after tuning
            values = [np.ravel(point[value.name]) for value in self.vars]
            self._kept.append(np.concatenate(values))
            if self._left == 0:
                stats["warning"] = self._judge()
        return stats

    def _judge(self) -> SamplerWarning | None:
        """A warning of a small effective sample size; PyMC itself warns of too few draws."""
        draws = np.stack(self._kept)
        self._kept = []
        if len(draws) < _LEAST_ESS or draws.size == 0:
            return None
        ess = chain_relative_ess(draws[None]) * len(draws)
        if ess >= _LEAST_ESS:
            return None
        return SamplerWarning(
            WarningType.CONVERGENCE,
            f"The {len(draws)} draws of {self._name} by lin-ess have an effective sample size of "
            f"about {ess:.0f}: raise n_steps (now {self.n_steps}), or let pm.sample pick "
            "ConjugateStep.",
            "warn",
            extra=ess,
        )

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Never picked: `ConjugateStep` does the same, faster."""
        return Competence.INCOMPATIBLE


# `ConjugateStep`: near-independent draws of SkewGPs and what is jointly Gaussian with them.


@dataclass_state
class ConjugateStepState(StepMethodState):
    """What identifies a `ConjugateStep`; its chains begin anew."""

    n_proposals: int = field(metadata={"frozen": True})
    collapse: bool = field(metadata={"frozen": True})


class ConjugateStep(SUNStep):
    r"""Exact conjugate step for latent functions of `SkewGP.prior` and what is Gaussian with them.

    Latent functions, Gaussian random effects and coefficients of a linear mean that enter the
    predictors of the observations affinely are, given everything else, one unified skew-normal
    vector f: a *block*. The step draws it as one, and the components are the variables of the
    trace. Given u, a truncated Gaussian of one row for each latent dimension and each interval
    among the observations, f is Gaussian; points among them (normal data, uncensored values) are
    conditioned on exactly. A step moves u by independence Metropolis and draws f given u; where
    something else has moved f or what it depends on, u is first drawn given f. The proposal is the
    sequential sampler twisted by expectation propagation at the current hyperparameters, so close
    to the target that 90 to 99 % are accepted as a rule. While nothing but f changes, u is kept
    and draws are made in blocks: tens of microseconds each.

    ``pm.sample`` picks it by itself for a `UnifiedSkewNormal` variable (as ``SkewGP.prior`` makes)
    all of whose children are observed with a likelihood of rows: `BernoulliProbit`,
    ``pm.Bernoulli`` or ``pm.Binomial`` with ``p=pm.math.invprobit(eta)``, ``pm.OrderedProbit``,
    ``pm.Normal``, ``pm.MvNormal``, ``pm.Censored(pm.Normal.dist(...))``, `IntervalNormal`,
    `PreferenceProbit`, `ChoiceProbit`, `MultinomialProbit`, with predictors affine in f; or with
    one of rows given indicators, or of sites (below). With it go

    * all ``pm.Normal``, ``pm.MvNormal`` and ``pm.ZeroSumNormal`` variables that nothing else than
      such predictors, or the means of other variables of the block, depends on;
    * up to eight hyperparameters of kernels, noise, cut-points and the like on which nothing else
      depends. If there are more, if other variables depend on them, or if ``pm.sample`` is given
      options for NUTS (``target_accept``, ``nuts``), NUTS samples them given f, and the step moves
      them all the same;
    * free variables that depend on f and that nothing depends on: missing data (masked, or NaN),
      which PyMC makes variables of, and predictions. They say nothing of f, and are drawn from
      their distributions at the end of each step.

    Hyperparameters move with f integrated out, because f all but determines those of a smooth
    kernel. While a chain is tuned (from some 20 of its steps on) it learns their mean and
    covariance, and by a regression the shape of their density. One or two proposals a step from a
    Student-t distribution with these moments, thinned to that shape, are accepted or not, with u
    integrated out as well by the mean weight of `n_proposals` draws (particle marginal
    Metropolis-Hastings): nearly independent draws. The more of them are refused, the more steps
    also do slice sampling, along axes that are learnt in the same way, of
    :math:`p(\theta) N(y; \theta) N(u; 0, G_\theta) /
    \Phi_s(\gamma; \Gamma_\theta)`, with y the points. There u is what Murray & Adams call surrogate
    data, and the noisy predictor behind it stays as it is; where cut-points move, it keeps its
    place between them.

    Observations of ``pm.StudentT`` (also censored), ``pm.Laplace``, ``pm.AsymmetricLaplace``, and
    ``pm.Bernoulli`` or ``pm.Binomial`` with ``p = a + b * pm.math.invprobit(eta)`` (labels that are
    flipped, guesses, lapses) are rows given indicators: the variance of each value, or whether
    a label says anything. A step draws these given f first, so its draws depend on each other.
    Parameters of the noise and rates of lapses move given f as well, by slices, with the
    indicators integrated out.

    Any other observation whose log probability is a sum of functions of one predictor each, affine
    in f, such as ``pm.Bernoulli(logit_p=f)`` or ``pm.Poisson``, is *sites*. There f and the
    hyperparameters, those of the likelihood among them, are moved by mirrored pairs from EP's
    Gaussian: proposals and slices of the hyperparameters at fixed white vectors, whose mean weight
    stands in for the evidence, and f from the same vectors. Exact whatever EP's error; rows beside
    sites are drawn given f, and with it. ``pm.sample`` leaves them to NUTS where more than eight
    entries of hyperparameters would move, or where a likelihood takes two functions not jointly
    affinely.

    Where f has other children (a likelihood that couples its values, a potential), a line of PyMC's
    log says why the step is not picked and what to do, and a `NotConjugateWarning`, once for a
    model, that NUTS is to sample f as it stands. Samplers that are called without ``pm.sample``
    (``nutpie.compile_pymc_model``, say) ask no step methods: they give no such word.

    Parameters
    ----------
    vars : variable or list of variables, optional
        Functions, Gaussian variables of their blocks, hyperparameters. Those of a block that are
        not listed are left to other steps, and are given for this one. Default all of them, and of
        Gaussian variables without a SkewGP as well: effects, coefficients, ``pm.gp.Latent``,
        random walks, AR, CAR, all that `integrate` draws but ``pm.Flat``. For these ask:
        ``pm.sample(step=ConjugateStep(model=model))``.
    n_proposals : int, default 16
        Proposals between two draws of f when hyperparameters have moved: their cost hardly grows
        with their number. With fixed hyperparameters as many of them as the acceptance rate asks
        for, one as a rule. Under sites mirrored pairs, that of the state among them.
    collapse : bool, default True
        Whether to move hyperparameters too that are not in `vars`: continuous variables that the
        prior or the rows of the block depend on, at most eight entries a step. ``repr(step)`` names
        them. ``pm.sample(conjugate={"collapse": False})`` leaves them to NUTS.
    model : pymc.Model, optional
        Default the model in context.
    **options
        ``rng``, ``initial_point``, ``compile_kwargs`` and ``blocked``, as PyMC passes them.

    Raises
    ------
    NotConjugateError
        When f is no such variable or has other children; the message names what was found, and
        the way out.

    Warns
    -----
    InexactStepWarning
        Where a part of u was picked by weight, because rejection found no exact draw: dozens of
        pseudo-points that are close to each other, or of observations that share noise.

    Notes
    -----
    Sample statistics: ``accept``, share of the proposals accepted; ``log_weight``, log of target
    over proposal density at the state, less that of the mean: a large value is a state that the
    chain is slow to leave; ``relative_ess``, effective sample size of the proposals over their
    number; ``log_evidence``, under sites without rows the log of the mean weight, an estimate of
    the log marginal likelihood at the hyperparameters; ``refreshed``, whether u was drawn from f
    because others had changed what it depends on. Where there are several blocks these are means
    over them.

    Options reach a step that ``pm.sample`` made as ``pm.sample(conjugate={"n_proposals": 4})``.

    References
    ----------
    .. [1] A. Benavoli, D. Azzimonti & D. Piga (2020), Skew Gaussian processes for classification,
       arXiv:2005.12987.
    .. [2] J. H. Albert & S. Chib (1993), Bayesian analysis of binary and polychotomous response
       data, doi:10.1080/01621459.1993.10476321.
    .. [3] M. K. Cowles (1996), Accelerating Monte Carlo Markov chain convergence for
       cumulative-link generalized linear models, doi:10.1007/BF00162520.
    .. [4] I. Murray & R. P. Adams (2010), Slice sampling covariance hyperparameters of latent
       Gaussian models, arXiv:1006.0868.
    .. [5] J. Geweke (1993), Bayesian treatment of the independent Student-t linear model,
       doi:10.1002/jae.3950080504.
    .. [6] I. Murray & M. M. Graham (2016), Pseudo-marginal slice sampling, arXiv:1510.02958.
    .. [7] C. Andrieu, A. Doucet & R. Holenstein (2010), Particle Markov chain Monte Carlo methods,
       doi:10.1111/j.1467-9868.2009.00736.x.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_skewgp import BernoulliProbit, SkewGP
    >>> X = np.linspace(-2, 2, 5)[:, None]
    >>> with pm.Model():
    ...     f = SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X)
    ...     y = BernoulliProbit("y", f, observed=[0, 0, 1, 1, 1])
    ...     idata = pm.sample(100, chains=1, progressbar=False, quiet=True, random_seed=1)
    >>> bool(idata.sample_stats["accept"].mean() > 0.8)
    True

    An additive model with effects of groups, drawn as one:

    >>> with pm.Model():
    ...     gp1 = SkewGP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0, active_dims=[0]))
    ...     gp2 = SkewGP(cov_func=pm.gp.cov.ExpQuad(2, ls=1.0, active_dims=[1]))
    ...     x = np.column_stack([X[:, 0], X[::-1, 0] ** 2])
    ...     b = pm.Normal("b", 0.0, 1.0, shape=2)
    ...     eta = gp1.prior("f1", x) + gp2.prior("f2", x) + b[np.array([0, 0, 1, 1, 1])]
    ...     y = BernoulliProbit("y", eta, observed=[0, 0, 1, 1, 1])
    ...     idata = pm.sample(100, chains=1, progressbar=False, quiet=True, random_seed=1)
    >>> sorted(idata.posterior.data_vars)
    ['b', 'f1', 'f2']
    """

    name = "conjugate"
    # Its draws are all but independent once moments of hyperparameters are known, roughly.
    default_tune_steps = 100
    stats_dtypes_shapes: ClassVar[dict[str, tuple[Any, Any]]] = {
        "accept": (np.float64, []),
        "log_weight": (np.float64, []),
        "relative_ess": (np.float64, []),
        "refreshed": (bool, []),
        "log_evidence": (np.float64, []),
    }
    default_blocked = True
    _without_rows: ClassVar[dict[str, Any]] = {
        "accept": 1.0,
        "log_weight": 0.0,
        "relative_ess": 1.0,
    }
    _state_class = ConjugateStepState
    _progress = ("accept", "Accepted", "0.2f")

    def __init__(
        self,
        vars: Any = None,
        *,
        n_proposals: int = 16,
        collapse: bool = True,
        model: pm.Model | None = None,
        **options: Any,
    ) -> None:
        self.n_proposals, self.collapse = as_count("n_proposals", n_proposals), bool(collapse)
        make_move = partial(IndependenceMove, n_proposals=self.n_proposals)
        kernel = Kernel(make_move, self.n_proposals, collapse=self.collapse, under_sites=True)
        super().__init__(vars, kernel, model=model, **options)

    def __repr__(self) -> str:
        moved = ", ".join(self._moved)
        return (
            f"ConjugateStep({self._name}, hyperparameters=[{moved}], "
            f"n_proposals={self.n_proposals})"
        )

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """IDEAL for what it can sample, INCOMPATIBLE with all else.

        A SkewGP variable that it cannot sample is named, with the reason and what to do, in a line
        of PyMC's log, and with `NotConjugateWarning` where NUTS is to take it.
        """
        ideal = moves.can_be_sampled_exactly(var, has_grad)
        return Competence.IDEAL if ideal else Competence.INCOMPATIBLE
