# The last step of a run: every file that has a record is hashed again, and the manifest lists every record.


rule audit:
    input:
        ALL_RUNS,
        ALL_PAGES,
        ALL_CLAIMS,
    output:
        text=f"{RESULTS}/audit.txt",
        manifest=f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/audit.log",
    benchmark:
        f"{RESULTS}/benchmarks/audit.tsv"
    resources:
        mem_mb=more(1000),
        runtime=more(20),
    params:
        folder=lambda wildcards: RESULTS,
    shell:
        f"({DPFL} audit --files-only --seal {{params.folder:q}} | tee {{output.text:q}}) > {{log:q}} 2>&1"
