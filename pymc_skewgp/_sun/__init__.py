"""The unified skew-normal distribution."""
