"""Tables, figures and verdicts from run tables, each with its data as CSV."""
