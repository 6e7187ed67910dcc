"""What projected algorithms and the comparison of all papers share: a convex task, steps, draws, plans."""
