"""What a model reads instead of pixels."""
