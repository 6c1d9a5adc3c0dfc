"""Pictures of posteriors, priors and checks; matplotlib is imported when the first is drawn."""

from pymc_skewgp._plots.coverage import plot_coverage
from pymc_skewgp._plots.latent_band import plot_latent_band
from pymc_skewgp._plots.prior_draws import plot_prior_draws
from pymc_skewgp._plots.prior_report import plot_prior_report
from pymc_skewgp._plots.second_order import plot_second_order
from pymc_skewgp._plots.skewness import plot_skewness
from pymc_skewgp._plots.slice_density import plot_slice_density
from pymc_skewgp._plots.sun_density import plot_sun_density

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
