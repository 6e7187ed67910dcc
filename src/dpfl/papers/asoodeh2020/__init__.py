"""Asoodeh, Diaz, Calmon 2020: privacy of projected noisy SGD from contraction coefficients."""
