"""Draws of u, the Gaussian within the limits that the observations are, and equal ones of them."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pymc_skewgp._gaussian.proposals.escalation import RectangleSampler
from pymc_skewgp._gaussian.rectangle import draws_by, lin_ess_draws_by
from pymc_skewgp._gaussian.samplers.sites import SiteSampler
from pymc_skewgp._gaussian.truncated_draws import TruncatedDraws
from pymc_skewgp._gaussian.weights import Estimate, systematic_resample
from pymc_skewgp._sun.contradiction import naming_the_labels
from pymc_skewgp._validation import Seed, as_generator

Method = Literal["twisted", "lin_ess"]

# Weighted draws that a chain is resampled from, at least: one draw alone would be the proposal's.
LEAST_WEIGHTED = 128
NOTHING_DRAWN = Estimate(0.0, 0.0, 1.0, -np.inf)


def draw_latent(
    sampler: RectangleSampler,
    n_draws: int,
    method: str,
    random_seed: Seed,
    *,
    n_pseudo_points: int,
    chains: int = 1,
    thin: int = 1,
) -> TruncatedDraws:
    """Draws of u: weighted and near-independent ones ("twisted"), or Markov chains ("lin_ess")."""
    if method not in ("twisted", "lin_ess"):
        raise ValueError(f'method must be "twisted" or "lin_ess", got {method!r}.')
    if not sampler.size:  # points only: f itself is Gaussian
        return TruncatedDraws(np.zeros((n_draws, 0)), np.zeros(n_draws), NOTHING_DRAWN, "exact")
    rng = as_generator(random_seed)
    with naming_the_labels(n_pseudo_points):
        if method == "twisted":
            return draws_by(sampler, n_draws, rng)
        return lin_ess_draws_by(sampler, n_draws, rng, n_chains=chains, thin=thin)


def equal_draws(
    sampler: RectangleSampler,
    shape: tuple[int, int],
    method: str,
    rng: np.random.Generator,
    *,
    n_pseudo_points: int,
    thin: int = 1,
) -> tuple[TruncatedDraws, NDArray[np.intp]]:
    """Draws of u, and which of them to take for equal weights, `shape` being (chains, draws)."""
    chains, draws = shape
    if method == "lin_ess" or not sampler.size:  # equal already, and the order of a chain matters
        latent = draw_latent(
            sampler,
            draws * chains,
            method,
            rng,
            n_pseudo_points=n_pseudo_points,
            chains=chains,
            thin=thin,
        )
        return latent, np.arange(draws * chains).reshape(chains, draws)
    size = max(draws, LEAST_WEIGHTED)
    latent = draw_latent(sampler, size * chains, method, rng, n_pseudo_points=n_pseudo_points)
    return latent, _resampled(latent, shape, rng)


def equal_singles(
    sampler: SiteSampler, shape: tuple[int, int], rng: np.random.Generator
) -> tuple[TruncatedDraws, NDArray[np.intp]]:
    """The same of coordinates, one member of each mirrored pair."""
    chains, draws = shape
    latent = sampler.singles(max(draws, LEAST_WEIGHTED) * chains, rng)
    chosen = _resampled(latent, shape, rng)
    # A coordinate of evenly spaced points goes up and down with their order: chains in no order,
    # but that copies stay side by side.
    place = rng.random(latent.log_weights.size)
    order = np.argsort(place[chosen], axis=1, kind="stable")
    return latent, np.take_along_axis(chosen, order, axis=1)


def _resampled(
    latent: TruncatedDraws, shape: tuple[int, int], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Draws to take, each chain from its own part of the weighted ones."""
    chains, draws = shape
    blocks = latent.log_weights.reshape(chains, -1)
    size = blocks.shape[1]
    # Copies stay side by side, where the effective sample size of a chain sees them.
    chosen = [np.sort(systematic_resample(block, draws, rng)) for block in blocks]
    return np.stack([i * size + block for i, block in enumerate(chosen)])
