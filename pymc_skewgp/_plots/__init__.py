"""Pictures of posteriors, priors and checks; matplotlib is imported when the first is drawn."""
