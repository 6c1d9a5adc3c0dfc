"""Pictures of posteriors, priors and checks; matplotlib is imported when the first is drawn."""

from pymc_skewgp._plots.densities import plot_slice_density, plot_sun_density
from pymc_skewgp._plots.latent import (
    plot_latent_band,
    plot_prior_draws,
    plot_prior_report,
    plot_second_order,
)
from pymc_skewgp._plots.skewness import plot_coverage, plot_skewness

__all__ = [
    "plot_coverage",
    "plot_latent_band",
    "plot_prior_draws",
    "plot_prior_report",
    "plot_second_order",
    "plot_skewness",
    "plot_slice_density",
    "plot_sun_density",
]
