"""PyTensor Ops and expressions: gradients of what the kernels compute."""
