"""The page results/<scale>/report.html and its short form README.md, from finished tables, figures and verdicts."""
