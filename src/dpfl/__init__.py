"""dpfl: five papers on differentially private federated learning, reproduced by one command."""

__version__ = "0.1.0"
