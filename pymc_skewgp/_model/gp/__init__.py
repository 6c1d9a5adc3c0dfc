"""`SkewGP` and what it is made of."""
