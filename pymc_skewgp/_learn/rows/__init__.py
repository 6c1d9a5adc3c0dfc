"""Hyperparameters learnt from many rows: f has finite rank, and nothing is n x n."""
