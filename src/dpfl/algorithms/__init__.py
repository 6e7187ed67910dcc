"""The federated algorithms of the papers."""
