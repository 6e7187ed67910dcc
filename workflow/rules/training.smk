# Training, one job per sweep that is not finished (common.smk). Its resources are
# estimated from measured sweeps (dpfl.pipeline.cost); more at each attempt.


rule train:
    input:
        data=training_data,
        noise=f"{RESULTS}/accounting/{{paper}}.csv",
    output:
        table=f"{RESULTS}/runs/{{paper}}/{{sweep}}.csv.gz",
        record=f"{RESULTS}/runs/{{paper}}/{{sweep}}.csv.gz.record.json",
    log:
        f"{RESULTS}/logs/train_{{paper}}_{{sweep}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train_{{paper}}_{{sweep}}.tsv"
    wildcard_constraints:
        paper=f"(?=({any_of(map('/'.join, OPEN))})[.]csv)[a-z0-9]+",
    # On a cluster several sweeps of minutes make one job; never those that ask for a GPU.
    group:
        lambda wildcards: "short" if cost.estimate(sweep_of(wildcards)).is_short else None
    conda:
        "../../environment.yml"
    threads: CONFIG["training"]["threads"]
    resources:
        mem_mb=lambda wildcards, attempt: cost.estimate(sweep_of(wildcards)).limit_mb(attempt),
        runtime=lambda wildcards, attempt: cost.estimate(sweep_of(wildcards)).limit_minutes(attempt),
        gpu=lambda wildcards: cost.estimate(sweep_of(wildcards)).gpus,
    params:
        config=RESOLVED,
        identity=lambda wildcards: digest_of(run_identity.run_identity(sweep_of(wildcards))),
    shell:
        "dpfl train --paper {wildcards.paper:q} --sweep {wildcards.sweep:q} --config {params.config:q} 2> {log:q}"
