"""Attack private training: lower bounds on epsilon, and a check of a trainer against its claim."""
