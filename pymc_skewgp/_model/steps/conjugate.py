"""`ConjugateStep`: near-independent draws of SkewGPs and what is jointly Gaussian with them."""

from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.step_methods.compound import Competence, StepMethodState
from pymc.step_methods.state import dataclass_state

from pymc_skewgp._mcmc.independence import IndependenceMove
from pymc_skewgp._model.steps.block_move import Kernel
from pymc_skewgp._model.steps.competence import can_be_sampled_exactly
from pymc_skewgp._model.steps.sun_step import SUNStep
from pymc_skewgp._validation import as_count


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
    kernel: by slice sampling of :math:`p(\theta) N(y; \theta) N(u; 0, G_\theta) /
    \Phi_s(\gamma; \Gamma_\theta)`, with y the points. There u is what Murray & Adams call
    surrogate data, and the noisy predictor behind it stays as it is; where cut-points move, it
    keeps its place between them.

    Observations of ``pm.StudentT`` (also censored), ``pm.Laplace``, ``pm.AsymmetricLaplace``, and
    ``pm.Bernoulli`` or ``pm.Binomial`` with ``p = a + b * pm.math.invprobit(eta)`` (labels that are
    flipped, guesses, lapses) are rows given indicators: the variance of each value, or whether
    a label says anything. A step draws these given f first, so its draws depend on each other.
    Parameters of the noise and rates of lapses move given f as well, by slices, with the
    indicators integrated out.

    Any other observation whose log probability is a sum of functions of one predictor each, affine
    in f, such as ``pm.Bernoulli(logit_p=f)`` or ``pm.Poisson``, is *sites*. There f and the
    hyperparameters, those of the likelihood among them, are moved by mirrored pairs from EP's
    Gaussian: slices of the hyperparameters at fixed white vectors, whose mean weight stands in for
    the evidence, and f from the same vectors. Exact whatever EP's error; rows beside sites are
    drawn given f, and with it. ``pm.sample`` leaves them to NUTS where more than eight entries of
    hyperparameters would move, or where a likelihood takes two functions not jointly affinely.

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
    rng, initial_point, compile_kwargs, blocked
        As PyMC passes them.

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
    # Its draws are all but independent from the first: these only wipe out the start.
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
        rng: Any = None,
        initial_point: Any = None,
        compile_kwargs: dict[str, Any] | None = None,
        blocked: bool = True,
    ) -> None:
        self.n_proposals, self.collapse = as_count("n_proposals", n_proposals), bool(collapse)
        make_move = partial(IndependenceMove, n_proposals=self.n_proposals)
        super().__init__(
            vars,
            Kernel(
                make_move,
                self.n_proposals,
                collapse=self.collapse,
                under_sites=True,
            ),
            model=model,
            rng=rng,
            initial_point=initial_point,
            compile_kwargs=compile_kwargs,
        )

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
        ideal = can_be_sampled_exactly(var, has_grad)
        return Competence.IDEAL if ideal else Competence.INCOMPATIBLE
