# Noise of every private run of a paper, before any training.


def calibrations(wildcards):
    """Return what decides a paper's noise: its families of sweeps (not their seeds) and the code."""
    sweeps = {sweep.family: sweep for (paper, _), sweep in SWEEPS.items() if paper == wildcards.paper}
    codes = sorted({f"dpfl.federated.{sweep.algorithm}" for sweep in sweeps.values()})
    return json.dumps([[f, s.settings, s.cells] for f, s in sweeps.items()]) + source_digest(*codes)


rule accounting:
    input:
        lambda wildcards: [
            f"{DATA}/arrays/{dataset}/about.json"
            for dataset in sorted({s.dataset for (paper, _), s in SWEEPS.items() if paper == wildcards.paper})
        ],
        config=ancient(RESOLVED),
    output:
        table=f"{RESULTS}/accounting/{{paper}}.csv",
        record=f"{RESULTS}/accounting/{{paper}}.csv.record.json",
    params:
        depends_on=calibrations,
    log:
        f"{RESULTS}/logs/accounting_{{paper}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/accounting_{{paper}}.tsv"
    resources:
        mem_mb=2000,
        runtime=60,
    conda:
        "../../environment.yml"
    shell:
        "dpfl account --paper {wildcards.paper:q} --config {input.config:q} 2> {log:q}"
