"""Any network fitted to values and derivatives of a function: Sobolev training on tensors."""
