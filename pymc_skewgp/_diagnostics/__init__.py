"""What is right and wrong with a posterior: skewness, coverage, distances, calibration."""
