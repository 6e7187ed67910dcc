"""What the entries of the grid without a trusted server share: noise, plans, training."""
