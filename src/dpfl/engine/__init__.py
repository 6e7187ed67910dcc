"""Stacked private training: many models at once."""
