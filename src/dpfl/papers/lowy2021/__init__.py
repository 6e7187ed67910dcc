"""Lowy and Razaviyayn: private federated learning without a trusted server (arXiv 2106.09779)."""
