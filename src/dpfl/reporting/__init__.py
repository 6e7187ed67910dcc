"""From run tables to what a reader sees: tables, figures and verdicts, each with its own data beside it."""
