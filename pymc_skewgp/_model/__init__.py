"""The PyMC side: Ops, distributions, processes, step methods, analysis of graphs."""
