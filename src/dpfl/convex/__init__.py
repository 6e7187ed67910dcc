"""Convex problems in numpy: the problems, federated rounds, a file for each algorithm, and the experiments on them."""
