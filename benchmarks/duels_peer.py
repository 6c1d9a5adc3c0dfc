"""BoTorch's `PairwiseGP` (Laplace) at given hyperparameters, in an interpreter that has it.

    python duels_peer.py IN OUT

IN is an .npz with X (problems, n, d) in [0, 1], duels (problems, m, 2) with the winner first,
sigma, lengthscale and n_draws; OUT gets `f` (problems, n_draws, n), draws of its posterior at X,
and `seconds`, CPU time of each problem.
"""

import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")


def draws(X, duels, sigma, lengthscale, n_draws):
    import torch
    from botorch.models.pairwise_gp import PairwiseGP
    from gpytorch.kernels import RBFKernel, ScaleKernel

    kernel = ScaleKernel(RBFKernel())
    kernel.base_kernel.lengthscale = lengthscale
    # Its noise has standard deviation 1, and so its f is ours over sigma.
    kernel.outputscale = sigma**-2.0
    inputs = torch.as_tensor(X, dtype=torch.float64)
    model = PairwiseGP(inputs, torch.as_tensor(duels), covar_module=kernel.double()).eval()
    with torch.no_grad():
        posterior = model.posterior(inputs)
        mean = posterior.mean.squeeze(-1).numpy()
        covariance = posterior.distribution.covariance_matrix.numpy()
    values, vectors = np.linalg.eigh(covariance)
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    rng = np.random.default_rng(0)
    return sigma * (mean + rng.standard_normal((n_draws, len(mean))) @ factor.T)


def main():
    import torch

    torch.set_num_threads(1)
    data = np.load(sys.argv[1])
    sigma, lengthscale = float(data["sigma"]), float(data["lengthscale"])
    n_draws = int(data["n_draws"])
    draws(data["X"][0], data["duels"][0], sigma, lengthscale, 10)  # what is done once a process
    found, seconds = [], []
    for X, duels in zip(data["X"], data["duels"], strict=True):
        started = time.process_time()
        found.append(draws(X, duels, sigma, lengthscale, n_draws))
        seconds.append(time.process_time() - started)
    np.savez(sys.argv[2], f=np.array(found, dtype=np.float32), seconds=seconds)


if __name__ == "__main__":
    main()
