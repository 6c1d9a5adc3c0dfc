"""From data to rows of a Gaussian: points and intervals, one file a likelihood."""
