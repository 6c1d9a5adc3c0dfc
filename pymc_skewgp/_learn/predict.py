"""`predict`: one way to new rows from every result."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from xarray import DataArray, DataTree

from pymc_skewgp._learn.averaging.average_process import AveragedPosterior
from pymc_skewgp._learn.integrate import integrate
from pymc_skewgp._learn.new_rows import predictions_of_model
from pymc_skewgp._learn.problem import (
    HyperparameterFit,
    Observed,
    TrainingData,
    names_of_likelihoods,
)
from pymc_skewgp._limits import progress
from pymc_skewgp._model.gp import latent_draws
from pymc_skewgp._model.gp.exact_posterior import posterior_of
from pymc_skewgp._model.gp.skewgp import SkewGP
from pymc_skewgp._model.gp.variables import DataOfModel, FunctionAt, data_of_model, given_data
from pymc_skewgp._model.graph.collapsed import is_wrapped
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.output import as_probabilities, highest_density
from pymc_skewgp._posterior.posterior import MOST_DENSE_ROWS, DataOfOneKind, SkewGPPosterior
from pymc_skewgp._validation import Seed, as_count, as_generator

_GROUPS = ("predictions", "predictions_summary", "predictions_constant_data")
_DRAWS, _CHAINS = 1000, 4
_JITTER = 1e-6  # as pm.gp has it
_NAMES_OF_A_PROCESS = (
    "Xnew has names, of pm.Data of a model, and the result is of a SkewGP: give an array of new "
    "inputs, sg.predict(result, Xnew), and beside it what rows have of their own, as exposure=..."
)
_OF_MANY_ROWS = (
    "f of an approximated prior, or of more rows than it is drawn at, does not go on from its "
    "draws: give the new inputs in the call, sg.integrate(gp, X, y, Xnew=Xnew)."
)


def predict(
    result: Any,
    Xnew: ArrayLike | Mapping[str, Any],
    *,
    gp: Any = None,
    model: pm.Model | None = None,
    X: ArrayLike | Sequence[DataOfOneKind] | Mapping[str, DataOfOneKind] | None = None,
    y: ArrayLike | None = None,
    likelihood: Likelihood | Any = None,
    coregion: Any = None,
    name: str | None = None,
    draws: int | None = None,
    chains: int | None = None,
    quantiles: Sequence[float] | None = None,
    n_candidates: int = 64,
    random_seed: Seed = None,
    progressbar: bool = True,
    **of_rows: ArrayLike,
) -> DataTree:
    r"""Predict new rows from any result: the function, and what follows from it, with errors.

    ============================================  ==================================================
    result                                        call
    ============================================  ==================================================
    `integrate` of a SkewGP                       ``sg.predict(dt, Xnew)``
    `SkewGP.posterior`, at one point              ``sg.predict(posterior, Xnew)``
    `find_hyperparameters`                        ``sg.predict(fit, Xnew)``
    `integrate` of a model                        ``sg.predict(dt, {"x": new, "exposure": new})``
    ``pm.sample`` of any model                    ``sg.predict(idata, {"x": new}, model=model)``
    ``pm.sample``, f by ``gp.prior``              ``sg.predict(idata, Xnew, gp=gp)``
    ``pm.sample`` after ``marginal_likelihood``   ``sg.predict(idata, Xnew, gp=gp)``
    read from a file                              with ``gp=`` and ``likelihood=``, or ``model=``
    ============================================  ==================================================

    Of a **process** the function is drawn at `Xnew` given what it is at the data in the same draw,
    or given the data where that was integrated out. What the likelihood predicts is averaged over
    these draws with f known, so that means have no noise but that of f.

    Of a **model** the new rows go below those of the ``pm.Data`` that are named. A latent variable
    that gets longer by them keeps its draws, and its new entries are drawn given these: Gaussian
    processes, ``pm.gp.Latent`` among them, at new inputs; effects of new groups; further steps of a
    random walk. Data that are not named stay as they are. Where a covariate of the data has several
    arrays, as an index of groups has, name each of them.

    Parameters
    ----------
    result : DataTree, SkewGPPosterior or HyperparameterFit
        Of `integrate`, ``pm.sample``, `SkewGP.posterior` or `find_hyperparameters`.
    Xnew : array_like, shape (t, d) or (t,); or mapping
        New inputs of a process. Or for a model: new rows by name of a ``pm.Data``, one number where
        it is that of all of them, and by name of a dimension the labels of new entries, such as new
        groups.
    gp : SkewGP or pm.gp.Latent, optional
        The process. Default that of `integrate` or `find_hyperparameters` in this process of
        Python.
    model : pymc.Model, optional
        Default that of `integrate`, or the model in context.
    X, y, likelihood, coregion : optional
        Data of a SkewGP, where the result does not have them; of a file `likelihood` alone, if it
        is not the default one.
    name : str, optional
        Of several functions or data of one SkewGP in the model, which are meant.
    draws, chains : int, optional
        Of a posterior or a fit, default 1000 and 4. Of draws `draws` are taken at equal distances
        of each chain, default all.
    quantiles : sequence of float, optional
        Probabilities. Default the median and the ends of ArviZ's interval with as much on either
        side, ``az.rcParams["stats.ci_prob"]``; where ``stats.ci_kind`` is "hdi" also the shortest
        intervals of the draws, ``f_hdi`` with an error that is rough. Empty for none.
    n_candidates : int, default 64
        As `SkewGP.sample_latent` has it, after ``marginal_likelihood``.
    random_seed : int, Generator, SeedSequence or None
        Source of randomness.
    progressbar : bool, default True
        Show progress.
    **of_rows : array_like, shape (t,), or float
        What new rows of a process have of their own: parameters of the likelihood, ``exposure``,
        ``n`` of trials, ``sigma``, ...; and ``offset``, which the likelihood adds to f: y and its
        mean are with it, and f, ``f_mean``, ``f_sd`` are the function alone, without it. See
        `SkewGPPosterior.predict`. In a model these are ``pm.Data``.

    Returns
    -------
    DataTree
        ``predictions``: draws (chain, draw, pred_id) of f, and of what the likelihood predicts, as
        ``p`` and ``y``; of a model of each variable that got longer. ``predictions_summary``:
        ``f_mean``, ``f_sd``, ``f_quantile``, ``p_mean``, ``y_mean``, ``y_sd``, ``y_quantile`` and
        what else there is, such as ``p_best``, ``p_beats`` and ``p_tie`` of comparisons, each with
        its Monte Carlo standard error, ``_se``, in which draws that depend on each other are seen
        as such. ``predictions_constant_data``: the new rows.

    Raises
    ------
    ValueError, TypeError
        Where something is lacking: the message has the call that works.

    Notes
    -----
    Results of `integrate` and `find_hyperparameters` know what they are of as long as Python runs,
    by the attribute ``n_observed``. A file has the draws and the data. What a model is made of is
    not in it: it would be code, which runs when it is read, and which another version of PyMC does
    not read.

    Potentials of a model have no effect on new entries.

    Examples
    --------
    Counts, and an exposure of the new rows:

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_skewgp as sg
    >>> x, y = np.arange(6.0)[:, None], [1, 0, 2, 4, 2, 1]
    >>> gp = sg.SkewGP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0))
    >>> dt = sg.integrate(gp, x, y, likelihood=sg.likelihoods.Poisson(), progressbar=False)
    >>> new = sg.predict(dt, [[2.5], [3.5]], exposure=[1.0, 10.0], progressbar=False)
    >>> sorted(new.children)
    ['predictions', 'predictions_constant_data', 'predictions_summary']
    >>> list(new["predictions"].data_vars)
    ['f', 'mu', 'y']

    A model, and a group that was not there:

    >>> with pm.Model(coords={"group": ["a", "b"]}) as model:
    ...     group = pm.Data("index", [0, 0, 1, 1])
    ...     effect = pm.Normal("effect", 0, pm.HalfNormal("tau"), dims="group")
    ...     seen = pm.Normal("seen", effect[group], 0.3, observed=[0.1, 0.2, 1.0, 1.1])
    >>> dt = sg.integrate(model, random_seed=1, progressbar=False)
    >>> new = sg.predict(dt, {"index": [0, 2], "group": ["c"]}, progressbar=False)
    >>> new["predictions_summary"]["effect_mean"].group.values.tolist()
    ['c']
    >>> dict(new["predictions"]["seen"].sizes)
    {'chain': 4, 'draw': 1000, 'pred_id': 2}
    """
    given = _Given(gp, model, X, y, likelihood, coregion, name)
    how = _How(draws, chains, quantiles, n_candidates, as_generator(random_seed), progressbar)
    with progress(progressbar):
        tree = _predicted(result, Xnew, given, how, of_rows)
    return tree if quantiles is not None else _with_highest_density(tree)


class _How(NamedTuple):
    """How draws are made and summarised."""

    draws: int | None
    chains: int | None
    quantiles: Sequence[float] | None
    n_candidates: int
    rng: np.random.Generator
    progressbar: bool


def _predicted(
    result: Any, Xnew: Any, given: "_Given", how: _How, of_rows: Mapping[str, Any]
) -> DataTree:
    if isinstance(result, SkewGPPosterior | AveragedPosterior):
        if isinstance(Xnew, Mapping) or any(x is not None for x in given):
            raise TypeError(
                "a posterior has its process, data and likelihood: sg.predict(posterior, Xnew)."
            )
        return _of_posterior(result, Xnew, how, of_rows)
    draws, chains, rng = how.draws, how.chains, how.rng
    if isinstance(result, HyperparameterFit):
        data = given.known(result.n_observed)
        if isinstance(data.model, SkewGP):
            if isinstance(Xnew, Mapping):
                raise ValueError(_NAMES_OF_A_PROCESS)
            own = {"coregion": data.coregion, "weights": data.weights}
            at = posterior_of(data.model, data.X, data.y, data.likelihood, result.point, **own)
            return _of_posterior(at, Xnew, how, of_rows)
        result = _drawn_at_point(result, data.model, draws or _DRAWS, chains or _CHAINS, how)
        given, draws, chains = given._replace(model=data.model), None, None
    if not isinstance(result, DataTree):
        raise TypeError(
            "result must be what integrate, pm.sample, SkewGP.posterior or find_hyperparameters "
            f"returns, got {type(result).__name__}; estimators have a predict of their own."
        )
    if chains is not None:
        raise ValueError("chains is for a posterior or a fit: draws have their own chains.")
    idata, probs = _thinned(result, draws), as_probabilities(how.quantiles)
    if isinstance(Xnew, Mapping):
        if of_rows:
            raise TypeError(f"unexpected argument(s) {', '.join(of_rows)}: name them in Xnew.")
        return predictions_of_model(given.model_of(idata), idata, Xnew, probs, rng)
    process, known = given.process_of(idata, Xnew)
    wanted = latent_draws.Wanted(given.name, None, probs, False, how.n_candidates, rng)
    tree = latent_draws.latent_of(process, idata, Xnew, known, wanted, of_rows)
    return DataTree.from_dict({group: tree[group].to_dataset() for group in _GROUPS})


class _Given(NamedTuple):
    """What of a result was given beside it."""

    gp: Any
    model: Any
    X: Any
    y: Any
    likelihood: Any
    coregion: Any
    name: str | None

    def known(self, n_observed: Any) -> TrainingData:
        """What a fit is of: as given, or as it is known itself.

        Raises
        ------
        ValueError
        """
        if self.gp is not None and self.X is not None:
            return TrainingData(self.gp, self.X, self.y, self.likelihood, self.coregion)
        if self.model is not None:
            return TrainingData(self.model)
        if not isinstance(n_observed, Observed):
            raise ValueError(
                "this fit does not know what it is of, as it was read from a file: give that, "
                "sg.predict(fit, Xnew, gp=gp, X=X, y=y, likelihood=...), or model=model."
            )
        return n_observed.of

    def model_of(self, idata: DataTree) -> pm.Model:
        """The model of draws.

        Raises
        ------
        ValueError, TypeError
        """
        of = _of(idata)
        found = self.model
        if found is None and of is not None and not isinstance(of.model, SkewGP):
            found = of.model
        if found is None:
            found = pm.Model.get_context(error_if_none=False)
        if is_wrapped(found):
            raise TypeError(_no_process(found))
        if found is None and of is not None:
            raise ValueError(_NAMES_OF_A_PROCESS)
        if found is None:
            raise ValueError(
                "Xnew has names, of pm.Data of a model, and the result does not know its model: "
                "sg.predict(result, Xnew, model=model)."
            )
        return found

    def process_of(self, idata: DataTree, Xnew: Any) -> tuple[SkewGP, DataOfModel | None]:
        """The process, and data that the result is of, where it is known to be of some.

        Raises
        ------
        ValueError, TypeError
        """
        of = _of(idata)
        gp = self.gp
        if gp is None and of is not None and isinstance(of.model, SkewGP):
            gp = of.model
        if gp is None:
            raise ValueError(_no_process(self.model or (None if of is None else of.model)))
        gp = _as_skew_gp(gp)
        if of is not None and of.model is gp and self.X is None:
            if gp.approximation not in (None, "auto") or int(Observed(of)) > MOST_DENSE_ROWS:
                raise ValueError(_OF_MANY_ROWS)
            own = data_of_model(gp, of.X, of.y, of.likelihood, of.coregion)
            if not latent_draws.has_functions(idata, own, self.name):
                raise ValueError(_OF_MANY_ROWS)
            return gp, own
        gp.refuse_approximation("predict from draws")
        data = given_data(gp, self.X, self.y, self.likelihood, self.coregion)
        if data is not None:
            return gp, data
        if latent_draws.function_in(gp, idata, self.name) is None and not gp._data:
            return gp, self._stored(gp, idata)
        if self.likelihood is not None:
            raise ValueError(
                "likelihood goes with X and y, the data that it is of: give all three, or in a "
                "model new rows of its pm.Data, sg.predict(result, {...}, model=model)."
            )
        return gp, None

    def _stored(self, gp: SkewGP, idata: DataTree) -> DataOfModel | None:
        """Data that stand beside the draws, as `integrate(gp, X, y)` has them."""
        if not {"observed_data", "constant_data"} <= set(idata.children):
            return None
        observed, constant = idata["observed_data"], idata["constant_data"]
        under = idata["posterior"].attrs.get("likelihood")
        if under is None and self.likelihood is None:
            return None  # f alone
        plain = set(observed.data_vars) == {"y"} and "X" in constant
        found = names_of_likelihoods(0, 0, self.likelihood)
        if not plain or under not in (None, found):
            data = "likelihood=..." if plain else "X=X, y=y, likelihood=..."
            raise ValueError(
                f"the result, read from a file, is of data under {under}: give them, "
                f"sg.predict(result, Xnew, gp=gp, {data})"
                + (f"; got {found}." if self.likelihood is not None else ".")
            )
        X, y = constant["X"].to_pandas(), observed["y"].to_numpy()
        return data_of_model(gp, X, y, self.likelihood, self.coregion)


def _of(idata: DataTree) -> TrainingData | None:
    """What a result of `integrate` is of; None where that is not known."""
    posterior = latent_draws.posterior_draws(idata)
    found = posterior.attrs.get("n_observed")
    return found.of if isinstance(found, Observed) else None


def _no_process(model: Any) -> str:
    if is_wrapped(model):
        return "of a model of Bambi its own method predicts: model.predict(idata, data=...)."
    if isinstance(model, pm.Model):
        names = ", ".join(x.name for x in model.data_vars)
        return (
            "Xnew has no names, and the result is of a model: name its pm.Data, "
            f"sg.predict(result, {{name: new rows}}), or of a pandas table sg.predict(result, "
            f"dict(table)); they are {names or 'none: write some'}. Or "
            "for one process give it, the SkewGP or pm.gp.Latent whose prior made f: "
            "sg.predict(result, Xnew, gp=gp)."
        )
    return (
        "the result does not know what it is of: results of integrate do as long as Python runs, "
        "those of pm.sample and files do not. Give it: sg.predict(result, Xnew, gp=gp), with "
        "likelihood=... for a file; or sg.predict(result, {name of pm.Data: new rows}, "
        "model=model)."
    )


def _as_skew_gp(gp: Any) -> SkewGP:
    """A SkewGP; ``pm.gp.Latent`` as one without pseudo-points."""
    if isinstance(gp, SkewGP):
        return gp
    if not isinstance(gp, pm.gp.Latent) or isinstance(gp, pm.gp.TP):
        raise TypeError(
            f"gp must be a SkewGP or a pm.gp.Latent, got {type(gp).__name__}: of others give the "
            "new rows of pm.Data, sg.predict(result, {name: new rows}, model=model)."
        )
    if not hasattr(gp, "f"):
        raise ValueError("this pm.gp.Latent has made no f: call prior(name, X) in the model.")
    found = SkewGP(mean_func=gp.mean_func, cov_func=gp.cov_func)
    found._functions[gp.f.name] = FunctionAt(gp.X, gp.f, _JITTER)
    return found


def _of_posterior(
    posterior: SkewGPPosterior | AveragedPosterior,
    Xnew: Any,
    how: _How,
    of_rows: Mapping[str, Any],
) -> DataTree:
    options: dict[str, Any] = {} if how.quantiles is None else {"quantiles": how.quantiles}
    if options and isinstance(posterior, AveragedPosterior):
        raise ValueError(
            "of a mixture over hyperparameters quantiles are those of draws: leave quantiles out, "
            'and take new["predictions"].quantile.'
        )
    options["draws"] = _DRAWS if how.draws is None else how.draws
    options["chains"] = _CHAINS if how.chains is None else how.chains
    return posterior.predict(Xnew, random_seed=how.rng, **options, **of_rows)


def _with_highest_density(tree: DataTree) -> DataTree:
    """With the shortest intervals of what has quantiles, where these are ArviZ's kind."""
    from arviz_base import rcParams  # a quarter of a second of import

    if rcParams["stats.ci_kind"] != "hdi" or "predictions" not in tree.children:
        return tree
    summary = tree["predictions_summary"].to_dataset()
    for name, x in tree["predictions"].data_vars.items():
        if f"{name}_quantile" in summary:
            ends = highest_density(x.to_numpy(), float(rcParams["stats.ci_prob"]))
            for end, values in zip(("hdi", "hdi_se"), ends, strict=True):
                summary[f"{name}_{end}"] = ("ci_bound", *x.dims[2:]), values
    tree["predictions_summary"] = DataTree(summary.assign_coords(ci_bound=["lower", "upper"]))
    return tree


def _drawn_at_point(
    fit: HyperparameterFit, model: pm.Model, draws: int, chains: int, how: _How
) -> DataTree:
    """Draws of a model's latent variables at the optimum of the others."""
    names = {rv.name for rv in model.free_RVs} & set(fit.point)
    point = {name: fit.point[name] for name in sorted(names)}
    with warnings.catch_warnings():
        # A copy whose GP objects would make variables of the old model: they make none.
        warnings.filterwarnings("ignore", "Detected variables likely created by GP", UserWarning)
        known = pm.do(model, point)
    own: dict[str, Any] = {"random_seed": how.rng, "progressbar": how.progressbar}
    found = integrate(known, draws=draws, chains=chains, **own)
    posterior = found["posterior"].to_dataset()
    shape = chains, draws
    for name, x in point.items():
        dims = ["chain", "draw", *(f"{name}_dim_{i}" for i in range(np.ndim(x)))]
        posterior[name] = DataArray(np.broadcast_to(x, shape + np.shape(x)), dims=dims)
    found["posterior"] = DataTree(posterior)
    return found


def _thinned(idata: DataTree, draws: int | None) -> DataTree:
    """As many draws of each chain, at equal distances."""
    if draws is None:
        return idata
    n = latent_draws.posterior_draws(idata).sizes["draw"]
    count = as_count("draws", draws)
    if count > n:
        raise ValueError(f"the result has {n} draws in each chain, and {count} are asked for.")
    kept = (np.arange(1, count + 1) * n) // count - 1
    groups = {name: node.to_dataset() for name, node in idata.children.items()}
    groups["posterior"] = groups["posterior"].isel(draw=kept)
    return DataTree.from_dict(groups)
