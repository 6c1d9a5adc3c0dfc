"""What a PyMC model's graph says of a latent function and of its observations."""
