"""A Gaussian process, or Skew GP, given observations: evidence, draws, marginals."""
