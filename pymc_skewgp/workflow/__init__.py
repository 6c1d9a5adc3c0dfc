"""Workflow: learning hyperparameters, and an estimator in the manner of scikit-learn."""
