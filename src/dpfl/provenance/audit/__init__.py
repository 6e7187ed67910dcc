"""Docstring with the table check -> module (<= 3 steps to a check)."""
