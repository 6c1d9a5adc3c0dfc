"""Row blocks on the workers of a dask cluster."""
