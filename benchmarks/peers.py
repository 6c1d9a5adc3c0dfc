"""GP classifiers of other packages behind one signature: an isotropic RBF kernel, learned.

`fit_sklearn` is scikit-learn's (Laplace, logistic link), `fit_gpy` is GPy's (expectation
propagation, probit link). Both start at the variance and the lengthscale in `start`, by default
the 1 and 1 that they have by themselves, and go on from `n_restarts` further starts of their own
kind. Log evidences and variances of the two links do not compare. Give BLAS one thread: at
n = 500 and 1000 a second gained nothing, and cost many times over where a core was busy.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

# Sweeps of GPy's EP, which has no limit of its own; it takes two to five where it converges.
MOST_SWEEPS = 100


@dataclass(frozen=True)
class Fitted:
    """A classifier after learning; `predict_proba` maps X (m, d) to P(y = 1) (m,)."""

    predict_proba: Callable[[np.ndarray], np.ndarray]
    log_evidence: float
    variance: float
    lengthscale: float | np.ndarray  # of each input
    n_evaluations: int  # of the objective and its gradient, over all starts
    seconds: float  # of learning, imports left out


def fit_sklearn(
    X: np.ndarray,
    y: np.ndarray,
    n_restarts: int = 0,
    seed: int = 0,
    start: tuple[float, float] = (1.0, 1.0),
) -> Fitted:
    """`GaussianProcessClassifier` with a ConstantKernel times an RBF, at its default bounds.

    Its restarts begin at variances and lengthscales of 1 or more, many of them at the upper bound:
    what it takes for a logarithm is the exponential of one.
    """
    with missing_peer("scikit-learn"):
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    evaluations = []

    def lbfgs(objective, theta, bounds):
        """The optimiser that it has by default, which does not tell the evaluations."""
        found = minimize(objective, theta, method="L-BFGS-B", jac=True, bounds=bounds)
        evaluations.append(found.nfev)
        return found.x, found.fun

    model = GaussianProcessClassifier(
        ConstantKernel(start[0]) * RBF(start[1]),
        optimizer=lbfgs,
        n_restarts_optimizer=n_restarts,
        random_state=seed,
    )
    with quiet():
        started = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - started

    def predict_proba(X):
        with quiet():
            return model.predict_proba(X)[:, 1]

    return Fitted(
        predict_proba,
        log_evidence=float(model.log_marginal_likelihood_value_),
        variance=float(model.kernel_.k1.constant_value),
        lengthscale=float(model.kernel_.k2.length_scale),
        n_evaluations=sum(evaluations),
        seconds=seconds,
    )


def fit_gpy(
    X: np.ndarray,
    y: np.ndarray,
    n_restarts: int = 0,
    seed: int = 0,
    start: tuple[float, float | np.ndarray] = (1.0, 1.0),
    ep_mode: str = "nested",
) -> Fitted:
    """`GPClassification` with EP; `ep_mode` "nested" runs EP at every evaluation.

    As many lengthscales as there are in `start`.

    "alternated", which is GPy's default, runs EP at the start only and moves the hyperparameters
    with its sites held: faster, but not at a maximum of the evidence when it ends. Whatever the
    mode, EP is run once more at the end, so that the evidence and the forecasts are those of the
    hyperparameters found.
    """
    with missing_peer("GPy"), quiet():
        import GPy
        from GPy.inference.latent_function_inference.expectation_propagation import EP
    best, evaluations, failure = None, 0, None
    with quiet(), numpy_seed(seed):  # EP visits the sites in an order that it draws
        started = time.perf_counter()
        for run in range(n_restarts + 1):
            # A model each: sites left broken by one start would be where the next one begins.
            inference = EP(ep_mode=ep_mode, max_iters=MOST_SWEEPS)
            try:
                model = GPy.models.GPClassification(
                    X,
                    np.asarray(y, dtype=float)[:, None],
                    kernel=GPy.kern.RBF(X.shape[1], *start, ARD=np.ndim(start[1]) > 0),
                    inference_method=inference,
                )
                if run:
                    model.randomize()
                evaluations += model.optimize().funct_eval
                if ep_mode != "nested":
                    inference.reset()
                    model.parameters_changed()
                evidence = float(model.log_likelihood())
            except (ArithmeticError, AssertionError, np.linalg.LinAlgError, ValueError) as error:
                failure = error
                continue
            if np.isfinite(evidence) and (best is None or evidence > best[0]):
                best = evidence, model
        seconds = time.perf_counter() - started
    if best is None:
        raise RuntimeError(f"GPy found no finite evidence in {n_restarts + 1} starts.") from failure
    evidence, model = best
    lengthscale = model.kern.lengthscale

    def predict_proba(X):
        with quiet():
            return model.predict(X)[0][:, 0]

    return Fitted(
        predict_proba,
        log_evidence=evidence,
        variance=float(model.kern.variance[0]),
        lengthscale=np.array(lengthscale) if np.ndim(start[1]) else float(lengthscale[0]),
        n_evaluations=evaluations,
        seconds=seconds,
    )


PEERS = {"scikit-learn": fit_sklearn, "GPy": fit_gpy}


@contextmanager
def missing_peer(package: str) -> Iterator[None]:
    """Say what to install where an import of `package` fails."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"This comparison needs {package}, which could not be imported ({error}). "
            f"Install it into this environment: pip install {package}"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out the warnings of a peer; what it says of convergence shows in its scores."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, and put its state back."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
