"""EP of factors whose logs are known at nodes, all sweeps of many problems in one call."""

import math

import numpy as np

from pymc_skewgp._gaussian.compiled.rows import (
    LEAST_CAVITY,
    LEAST_SHRINKAGE,
    jit,
    jit_inner,
    jit_sums,
)

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_LEAST_DAMPING = 0.1


@jit()
def fit(factor, table, rest, counts, sites, found, totals, limits):  # type: ignore[no-untyped-def]
    """Move all sites to their fixed point; whether the nodes were enough all the way.

    Parameters
    ----------
    factor : (P, r, n)
        F' of each problem.
    table : (2, P n, k)
        Nodes of the predictors less their offset, and logs of what adds up to the factors'
        integrals.
    rest : (P n,)
        Variances of noise of the predictors' own.
    counts : (P, n)
    sites : (2, P, n)
        Tau and nu, to begin with and at the end.
    found : (2, P, n)
        Mean and variance of the predictors, to be filled in.
    totals : (2, P)
        Log evidence and residual, to be filled in.
    limits : tuple
        Residual at which to stop, sweeps at most, and of a table: nats below the largest term that
        the outer ones have to be, and change of the moments if every second node is left out.
    """
    size, r, n = factor.shape
    tol, max_sweeps = limits[0], limits[1]
    chol, white = np.empty((r, r)), np.empty((r, n))
    new, work = np.empty((2, n)), np.empty((4, n))
    terms = np.empty(table.shape[2])
    for p in range(size):
        tau, nu, mean = sites[0, p], sites[1, p], found[0, p]
        damping, previous = 1.0, math.inf
        for sweep in range(max_sweeps):
            log_prob = _whiten(factor[p], counts[p], sites[:, p], found[:, p], chol, white, work)
            if not log_prob < math.inf:
                return False
            own = table[:, p * n : (p + 1) * n], rest[p * n : (p + 1) * n], counts[p]
            gap, log_scales = _next_sites(*own, sites[:, p], found[:, p], new, terms, limits)
            if not gap < math.inf:
                return False
            log_prob += log_scales
            for i in range(n):
                work[0, i] = counts[p, i] * (new[1, i] - nu[i] - (new[0, i] - tau[i]) * mean[i])
            residual = gap + _squared_length(white, work[0])
            totals[0, p], totals[1, p] = log_prob, residual
            if residual < tol or sweep == max_sweeps - 1:
                break
            if not residual <= previous:
                damping = 0.7 * damping if 0.7 * damping > _LEAST_DAMPING else _LEAST_DAMPING
            previous = residual
            for i in range(n):
                tau[i] += damping * (new[0, i] - tau[i])
                nu[i] += damping * (new[1, i] - nu[i])
    return True


@jit_inner()
def _next_sites(table, rest, counts, sites, marginals, new, terms, limits):  # type: ignore[no-untyped-def]
    """Fill in the `new` ones; sums of gaps of log variances and of log scales, or infinity."""
    gap, log_scales, most = 0.0, 0.0, 1.0 - LEAST_SHRINKAGE
    for i in range(rest.size):
        tau, nu, mean, variance = sites[0, i], sites[1, i], marginals[0, i], marginals[1, i]
        left, least = 1.0 / variance - tau, LEAST_CAVITY / variance
        var = 1.0 / (left if left > least else least)
        centre = var * (mean / variance - nu)
        sd = math.sqrt(var + rest[i])
        own = table[0, i], table[1, i], centre, sd, terms, limits[2], limits[3]
        log_mass, shift, spread = _moments(*own)
        if not spread < math.inf:
            return math.inf, 0.0
        spread = spread if spread < most else most
        share = var / (sd * sd) if rest[i] > 0.0 else 1.0
        taken = share * (1.0 - spread)
        taken = taken if taken < most else most
        kept = spread if share == 1.0 else 1.0 - taken
        kept = kept if kept > LEAST_SHRINKAGE else LEAST_SHRINKAGE
        gap += counts[i] * abs(math.log(var * kept / variance))
        new[0, i] = taken / (var * kept)
        new[1, i] = (centre * taken + share * sd * shift) / (var * kept)
        ratio = 1.0 + tau * var
        square = centre * (centre * tau - 2.0 * nu) - var * nu * nu
        log_scales += counts[i] * (log_mass + 0.5 * (math.log(ratio) + square / ratio))
    return gap, log_scales


@jit_sums()
def _moments(nodes, logs, mean, sd, terms, enough, change):  # type: ignore[no-untyped-def]
    """Log mass, mean less `mean` over `sd`, and variance over its square, of a tilted Gaussian.

    The variance is infinite where the nodes are not enough.
    """
    k, inverse = nodes.size, 1.0 / sd
    top, best = -math.inf, 0
    for j in range(k):
        z = (nodes[j] - mean) * inverse
        terms[j] = logs[j] - 0.5 * z * z
    for j in range(k):
        if terms[j] > top:
            top, best = terms[j], j
    if not (terms[0] < top - enough and terms[k - 1] < top - enough):
        return 0.0, 0.0, math.inf
    total, first, second = np.zeros(2), np.zeros(2), np.zeros(2)
    for j in range(k):
        mass, z = math.exp(terms[j] - top), (nodes[j] - nodes[best]) * inverse
        total[j % 2] += mass
        first[j % 2] += mass * z
        second[j % 2] += mass * z * z
    mass = total[0] + total[1]
    shift = (first[0] + first[1]) / mass
    spread = (second[0] + second[1]) / mass - shift * shift
    other = first[0] / total[0]
    of_half = second[0] / total[0] - other * other
    gap = abs(math.log(mass / (2.0 * total[0]))) + abs(shift - other) / math.sqrt(spread)
    if not gap + abs(spread / of_half - 1.0) < change:
        return 0.0, 0.0, math.inf
    log_mass = top + math.log(mass * inverse) - _LOG_SQRT_2PI
    return log_mass, (nodes[best] - mean) * inverse + shift, spread


@jit_sums()
def _whiten(factor, counts, sites, marginals, chol, white, work):  # type: ignore[no-untyped-def]
    """Fill in L^-1 F' and the marginals, with L L' = I + F' T F; the log constant, or infinity."""
    tau, nu, mean, variance = sites[0], sites[1], marginals[0], marginals[1]
    r, n = np.uintp(factor.shape[0]), np.uintp(factor.shape[1])
    constant = 0.0
    for i in range(n):
        work[0, i], work[1, i] = counts[i] * tau[i], counts[i] * nu[i]
        mean[i] = variance[i] = 0.0
    for a in range(r):
        own = factor[a]
        for i in range(n):
            work[2, i] = work[0, i] * own[i]
        for b in range(a + np.uintp(1)):
            total = 1.0 if a == b else 0.0
            other = factor[b]
            for i in range(n):
                total += work[2, i] * other[i]
            for c in range(b):
                total -= chol[a, c] * chol[b, c]
            if a == b:
                if not total > 0.0:
                    return math.inf
                chol[a, a] = math.sqrt(total)
            else:
                chol[a, b] = total / chol[b, b]
        for i in range(n):
            white[a, i] = own[i]
        for b in range(a):
            share, before = chol[a, b], white[b]
            for i in range(n):
                white[a, i] -= share * before[i]
        inverse, pull = 1.0 / chol[a, a], 0.0
        for i in range(n):
            white[a, i] *= inverse
            pull += white[a, i] * work[1, i]
            variance[i] += white[a, i] * white[a, i]
        for i in range(n):
            mean[i] += pull * white[a, i]
        constant += 0.5 * pull * pull - math.log(chol[a, a])
    for i in range(n):
        variance[i] = variance[i] if variance[i] > 1e-300 else 1e-300
    return constant


@jit_sums()
def _squared_length(white, x):  # type: ignore[no-untyped-def]
    """Of white x."""
    found = 0.0
    for a in range(white.shape[0]):
        total = 0.0
        for i in range(white.shape[1]):
            total += white[a, i] * x[i]
        found += total * total
    return found
