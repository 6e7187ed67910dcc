"""Asoodeh, Chen, Calmon, Ozgur 2021: federated learning with a trusted aggregator, by contraction coefficients."""
