# Noise of every private run of a paper, before any training.


rule accounting:
    input:
        datasets_of,
        config=ancient(RESOLVED),
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
        mem_mb=2000,
        runtime=60,
    params:
        facts=noise_facts,
    shell:
        "dpfl account --paper {wildcards.paper:q} --config {input.config:q} 2> {log:q}"
