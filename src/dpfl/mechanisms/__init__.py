"""Mechanisms: clipping, noise and projection of what is shared, each with its formal guarantee."""
