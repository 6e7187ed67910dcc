# Training, a sweep a job. The noise is taken as `ancient`: a sweep reruns when its own settings, its algorithm's
# code or its data change, not because another sweep's noise was calibrated anew.


def training_inputs(wildcards):
    """Return the files that a sweep trains from."""
    sweep = SWEEPS[wildcards.paper, wildcards.sweep]
    kinds = ["arrays", "features"] if sweep.needs_features else ["arrays"]
    return {
        "config": ancient(RESOLVED),
        "noise": ancient(f"{RESULTS}/accounting/{wildcards.paper}.csv"),
        **{kind: f"{DATA}/{kind}/{sweep.dataset}/about.json" for kind in kinds},
    }


def sweep_of(wildcards):
    """Return the sweep that a job's wildcards name."""
    return SWEEPS[wildcards.paper, wildcards.sweep]


rule train:
    input:
        unpack(training_inputs),
    output:
        table=f"{RESULTS}/runs/{{paper}}/{{sweep}}.csv",
        record=f"{RESULTS}/runs/{{paper}}/{{sweep}}.csv.record.json",
    params:
        settings=lambda wildcards: sweep_of(wildcards).digest(),
        code=lambda wildcards: source_digest(f"dpfl.federated.{sweep_of(wildcards).algorithm}"),
    log:
        f"{RESULTS}/logs/train_{{paper}}_{{sweep}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train_{{paper}}_{{sweep}}.tsv"
    threads: CONFIG["training"]["threads"]
    resources:
        mem_mb=int(5000 + 1000 * CONFIG["training"]["memory_gb"]),
        runtime=24 * 60,
        gpu=int(CONFIG["training"]["device"] == "cuda"),
    conda:
        "../../environment.yml"
    shell:
        "dpfl train --paper {wildcards.paper:q} --sweep {wildcards.sweep:q} --config {input.config:q} 2> {log:q}"
