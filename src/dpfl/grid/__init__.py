"""The configuration, the training grid that it leaves, and the sweeps which that grid expands to."""
