"""Convex problems in numpy: the problems, federated rounds, one file an algorithm, and the experiments on them."""
