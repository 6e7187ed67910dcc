"""Verify results. Each check is a module; `dpfl audit` (dpfl.cli.provenance_commands) makes them all.

    check                                                            module
    files, inputs, checkpoints and crate have their recorded hashes  file_hashes
    nothing is missing, nothing was added                            completeness
    records agree with grid, papers, siblings, times, git            record_facts, commits
    run tables agree with the grid, their noise and themselves       run_tables
    tables, figures and verdicts follow from the run tables          recompute
    report.html and README.md show these results                     report_pages
    epsilons agree with another accountant                           second_accountant, independent_epsilon
      by closed forms and other libraries                              independent_epsilon
      by inverting the moment generating function of the loss          mgf_inversion, step_profiles
      of a last model whose predecessors are secret                    hidden_state
    some runs come out the same when trained again                   rerun, rerun_tolerance
    the manifest is the one that a trusted key signed                release

`verify_results` runs all but the first two and the last; `findings` collects what they report and removes what is
damaged; `mending` removes damaged pages before a run.
"""
