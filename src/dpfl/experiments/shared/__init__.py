"""Docstring only."""
