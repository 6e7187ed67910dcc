"""The configuration, the training grid that it leaves, and the jobs which that grid expands to."""
