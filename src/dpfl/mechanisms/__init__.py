"""What is done to a gradient so that it may be shared."""
