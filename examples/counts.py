"""A SkewGP prior under another likelihood: counts, sampled by NUTS.

    python examples/counts.py

Forty counts over an interval; the log rate is 1 plus a SkewGP that is conditioned on being
positive at one point. There is no closed form for this likelihood. With ``reparameterize=True`` the
prior is a function of a truncated vector (one entry for each pseudo-point) and of independent
normal variables, which NUTS samples without divergences. It takes about a minute.
"""

import arviz as az
import numpy as np
import pymc as pm

import pymc_skewgp as sg


def make_data():
    rng = np.random.default_rng(8927)
    x = np.sort(rng.uniform(0, 10, 40))
    return x[:, None], rng.poisson(np.exp(1.0 + np.sin(x)))


def make_model(x, counts):
    with pm.Model() as model:
        ls = pm.InverseGamma("ls", alpha=5, beta=10)
        eta = pm.HalfNormal("eta", sigma=1.0)
        gp = sg.SkewGP(
            cov_func=eta**2 * pm.gp.cov.Matern52(1, ls=ls),
            pseudo_points=[[1.5]],  # a season that is known to be busy
            phase=[+1],
        )
        f = gp.prior("f", x, reparameterize=True)
        pm.Poisson("y", mu=pm.math.exp(1.0 + f), observed=counts)
    return model


def main():
    x, counts = make_data()
    with make_model(x, counts):
        idata = pm.sample(500, tune=500, chains=2, random_seed=1, target_accept=0.98)
    divergences = int(idata["sample_stats"]["diverging"].sum())
    print(f"divergences: {divergences}")
    print(az.summary(idata, var_names=["ls", "eta"])[["mean", "sd", "ess_bulk", "r_hat"]])


if __name__ == "__main__":
    main()
