# Training, a sweep a job.


rule train:
    input:
        unpack(training_inputs),
    output:
        table=f"{RESULTS}/runs/{{paper}}/{{sweep}}.csv",
        record=f"{RESULTS}/runs/{{paper}}/{{sweep}}.csv.record.json",
    log:
        f"{RESULTS}/logs/train_{{paper}}_{{sweep}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train_{{paper}}_{{sweep}}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG["training"]["threads"]
    resources:
        mem_mb=int(5000 + 1000 * CONFIG["training"]["memory_gb"]),
        runtime=24 * 60,
        gpu=int(CONFIG["training"]["device"] == "cuda"),
    params:
        settings=lambda wildcards: sweep_of(wildcards).digest(),
        code=lambda wildcards: source_digest(f"dpfl.federated.{sweep_of(wildcards).algorithm}"),
    shell:
        "dpfl train --paper {wildcards.paper:q} --sweep {wildcards.sweep:q} --config {input.config:q} 2> {log:q}"
