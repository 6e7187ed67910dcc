"""Privacy statements: the mechanism of a run, what is proven and refuted of it, and all that an epsilon rests on."""
