# Noise of every private run of a paper, before any training. Made where it is not what its paper needs (common.smk).


rule accounting:
    input:
        datasets_of,
    output:
        table=f"{RESULTS}/accounting/{{paper}}.csv",
        record=f"{RESULTS}/accounting/{{paper}}.csv.record.json",
    log:
        f"{RESULTS}/logs/accounting_{{paper}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/accounting_{{paper}}.tsv"
    wildcard_constraints:
        paper=plan.any_of(UNCALIBRATED),
    resources:
        mem_mb=more(2000),
        runtime=more(60),
    params:
        config=RESOLVED,
        identity=lambda wildcards: digest_of(run_identity.noise_identity(jobs_of(wildcards.paper))),
    shell:
        f"{DPFL} calibrate --paper {{wildcards.paper:q}} --config {{params.config:q}} 2> {{log:q}}"
