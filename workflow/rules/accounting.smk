# Noise of every private run of a paper, before any training.


# A checkpoint: once the noise is there, Snakemake asks again which sweeps have to be trained. In one go it would not: it
# takes what stands behind a job that runs to run as well, and then leaves it all out because this input is `ancient`.
checkpoint accounting:
    input:
        datasets_of,
    output:
        table=f"{RESULTS}/accounting/{{paper}}.csv",
        record=f"{RESULTS}/accounting/{{paper}}.csv.record.json",
    log:
        f"{RESULTS}/logs/accounting_{{paper}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/accounting_{{paper}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=more(2000),
        runtime=more(60),
    params:
        config=RESOLVED,
        facts=noise_facts,
    shell:
        "dpfl calibrate --paper {wildcards.paper:q} --config {params.config:q} 2> {log:q}"
