"""Claims of others: files, logs of runs, dp_accounting's events and Opacus's registry, and the verdict on a claim."""
