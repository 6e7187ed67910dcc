"""Federated averaging on images (bhaskar2025): the algorithm, and the experiment with its noise and its privacy."""
