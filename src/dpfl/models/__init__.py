"""The models that the papers train."""
