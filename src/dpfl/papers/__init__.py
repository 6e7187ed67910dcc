"""A docstring stays (package marker, imports nothing)."""
