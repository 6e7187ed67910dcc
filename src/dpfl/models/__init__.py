"""Models that the papers train, and problems with a known optimum."""
