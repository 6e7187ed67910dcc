"""The page results/<scale>/report.html and its short form README.md, made from finished tables, figures and verdicts."""
