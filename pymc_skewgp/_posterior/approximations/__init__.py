"""Priors of finite rank: f = mean + phi(x)' c, and noise of each row that is what is left."""
