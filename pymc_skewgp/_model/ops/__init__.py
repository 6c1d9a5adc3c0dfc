"""PyTensor Ops and expressions: gradients of what the Gaussian layer computes."""
