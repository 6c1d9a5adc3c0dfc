"""Truncated Gaussians: probabilities of rectangles and draws within them; no labels, no f."""
