"""From expectation propagation to weighted draws: proposals, and which of them, when."""
