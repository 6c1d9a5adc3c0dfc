"""Hyperparameters from the evidence; scikit-learn estimators."""
