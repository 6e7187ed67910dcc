"""Parts that several experiments share: calibration, batches, clients, tables of runs."""
