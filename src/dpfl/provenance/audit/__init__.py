"""Verify results. `dpfl audit` (dpfl.cli.provenance_commands) makes every check.

    check                                                            module
    files, inputs, checkpoints and crate have their recorded hashes  files
    nothing is missing, nothing was added                            files
    report.html and README.md show these results                     files
    records agree with grid, papers, siblings, times, git            records
    run tables agree with the grid, their noise and themselves       records
    tables, figures and verdicts follow from the run tables          recompute
    epsilons agree with another accountant                           numbers
    some runs come out the same when trained again                   rerun
    the manifest is the one that a trusted key signed                release

`verify_results` runs all but the first two and the last; `findings` collects what they report and removes what is
damaged; `files` removes damaged pages before a run.
"""
