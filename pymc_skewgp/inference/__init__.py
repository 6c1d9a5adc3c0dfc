"""Parts of the exact posterior: arguments, the truncated Gaussian behind it, its output."""
