"""Draws of truncated Gaussians that need no weights."""
