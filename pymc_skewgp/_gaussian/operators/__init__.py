"""Covariances by their structure: products, factors, and their products with Gaussian sites."""
