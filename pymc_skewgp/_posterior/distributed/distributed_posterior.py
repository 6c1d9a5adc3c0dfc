"""The posterior given data that are dask arrays: their rows stay on the workers of a cluster."""

import logging
from functools import cached_property
from typing import Any, NoReturn

from numpy.typing import ArrayLike
from xarray import DataTree

from pymc_skewgp._errors import ApproximationError
from pymc_skewgp._gaussian.weights import IntArray
from pymc_skewgp._observations.likelihood import Likelihood
from pymc_skewgp._posterior.approximations.automatic import automatic
from pymc_skewgp._posterior.approximations.features import Approximation
from pymc_skewgp._posterior.data_sets import DataSet, as_likelihood
from pymc_skewgp._posterior.distributed.chunked_data import as_chunked_data
from pymc_skewgp._posterior.distributed.distributed_fit import DistributedFit, distributed_fit
from pymc_skewgp._posterior.finite_rank import finite_rank_prior
from pymc_skewgp._posterior.posterior import SkewGPPosterior
from pymc_skewgp._posterior.row_predictors import as_row_numbers
from pymc_skewgp._sun.sun import SUN
from pymc_skewgp._validation import FloatArray, Seed

_log = logging.getLogger("pymc.pymc_skewgp")


class DistributedPosterior(SkewGPPosterior):
    r"""Posterior under an approximated prior, given rows that the workers of a cluster keep.

    `SkewGP.posterior` makes one where X and y are dask arrays and there is a
    ``dask.distributed.Client``:

    .. code-block:: python

        client = dask.distributed.Client()
        posterior = gp.posterior(X, y)  # dask arrays

    Each worker has a contiguous part of the chunks, computes the features of its rows, and keeps
    them and their sites of expectation propagation (EP). A sweep sends a worker :math:`8 r (r + 1)`
    bytes and gets :math:`8 r (r + 2)` back, r being the number of features; N pairs of draws
    send :math:`8 r N` bytes and get :math:`16 N` back. Random 20,000 rows come to the client, which
    checks them and chooses features from them; all others stay where they are. Results are those
    of one process, to round-off.

    When a worker is lost, its features are computed again on another one and its part of EP's
    sweeps is repeated there: all goes on as if nothing had happened, and gives the same numbers to
    the bit. The chunks must be such that dask can compute them again.

    What there is: `log_marginal_likelihood`, `latent`, `sample`, which keeps coordinates and has no
    groups of the data, `at_rows` for f, new data and log likelihoods at chosen rows, `predict`,
    `probability`, `marginals` at new points. `sun`, `update`, `prior_report`, `sample(rows=)`,
    marginals at the data and weights are refused.

    Parameters
    ----------
    X, y : dask.array.Array, shape (n, d) and (n,)
        Data, in chunks of rows.
    likelihood : Likelihood, optional
        Of observations of one row each. Default ``BernoulliProbit()``.
    approximation : Approximation or "auto", default "auto"
        Of ``pymc_skewgp.approximations``; "auto" is `Inducing`, as for NumPy arrays.
    **options
        As those of `SkewGPPosterior`.

    Raises
    ------
    ApproximationError
        Without an approximation; for likelihoods that cannot be cut into rows; for options and
        methods that rows on workers do not have.
    TypeError, ValueError
        When only one of X and y is a dask array, for chunks of unknown sizes, and where there is no
        client. For other faults of the data as `SkewGPPosterior`, those beyond the 20,000 rows
        when the posterior is first asked for something.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        *,
        likelihood: Likelihood | None = None,
        approximation: Approximation | str | None = "auto",
        **options: Any,
    ) -> None:
        for name in ("weights", "coregion"):
            if options.pop(name, None) is not None:
                _refuse(f"{name}=", "leave it out, or pass NumPy arrays")
        if approximation is None:
            _refuse("the kernel as it is", "give SkewGP an approximation, such as Inducing(300)")
        self._data = as_chunked_data(X, y, as_likelihood(likelihood))
        if isinstance(approximation, str):
            approximation = automatic(self._data.n_rows)
            _log.info(f"{self._data.n_rows} rows: the prior is approximated by {approximation}.")
        some = self._data.some
        super().__init__(
            some.X, some.y, likelihood=some.likelihood, approximation=approximation, **options
        )
        _ = self._fit  # refuses likelihoods that are no sites

    @cached_property
    def _fit(self) -> DistributedFit:  # type: ignore[override]
        prior, features = finite_rank_prior(self._prior, self._data.some.X)
        return distributed_fit(prior, features, self._data)

    def __repr__(self) -> str:
        data = self._data
        return (
            f"DistributedPosterior(n={data.n_rows}, n_features={data.X.shape[1]}, "
            f"likelihood={data.likelihood!r}, n_pseudo_points={self._prior.n_pseudo_points}, "
            f"approximation={self._prior.approximation!r}, fitted={self._fit.fitted})"
        )

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of all rows."""
        return self._data.likelihood

    @property
    def sun(self) -> SUN:
        """Refused: it has a dimension for each row."""
        return _refuse("sun", "it has a latent dimension for each row; use sample or predict")

    def _rows_to_draw(self, rows: ArrayLike) -> NoReturn:
        _refuse("sample(rows=)", "call at_rows with what sample() returns")

    def _kept(
        self, coordinates: FloatArray, log_weight: FloatArray, attributes: dict[str, Any]
    ) -> DataTree:
        tree = super()._kept(coordinates, log_weight, attributes)
        kept = ("posterior", "sample_stats")  # the data are on the workers
        return DataTree.from_dict({name: tree[name].to_dataset() for name in kept})

    def _chosen(self, rows: ArrayLike) -> tuple[IntArray, DataSet]:
        index = as_row_numbers(rows, self._data.n_rows)
        return index, self._data.rows(index)

    def update(
        self, Xnew: ArrayLike | None, ynew: ArrayLike, *, name: str | None = None
    ) -> SkewGPPosterior:
        """Refused: make a posterior of all chunks."""
        return _refuse("update", "concatenate the dask arrays, and ask for their posterior")

    def prior_report(self, n_rows: int = 1000, *, random_seed: Seed = 0) -> NoReturn:
        """Refused: ask for the report of a part of the rows."""
        _refuse("prior_report", "ask it of the posterior of a part of the rows, as NumPy arrays")


def _refuse(what: str, instead: str) -> NoReturn:
    raise ApproximationError(
        f"{what} is not available for dask arrays, whose rows stay on the workers: {instead}."
    )
