# Training of the jobs that are not finished (common.smk), a job each; on a cluster a batch of short ones is one job.
# Resources are estimated from measured jobs (dpfl.pipeline.cost); more at each attempt.
ON_GPU = {key for key in ALONE if needs_of(*key).gpus}


rule train:
    input:
        data=lambda wildcards: data_of(job_of(wildcards)),
        noise=f"{RESULTS}/accounting/{{paper}}.csv",
    output:
        table=f"{RESULTS}/runs/{{paper}}/{{job}}.csv.gz",
        record=f"{RESULTS}/runs/{{paper}}/{{job}}.csv.gz.record.json",
    log:
        f"{RESULTS}/logs/train_{{paper}}_{{job}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/train_{{paper}}_{{job}}.tsv"
    wildcard_constraints:
        paper=is_one_of(key for key in ALONE if key not in ON_GPU),
    threads: threads_of
    resources:
        mem_mb=lambda wildcards, attempt: needs_of(wildcards.paper, wildcards.job).limit_mb(attempt),
        runtime=lambda wildcards, attempt: needs_of(wildcards.paper, wildcards.job).limit_minutes(attempt),
    params:
        config=RESOLVED,
        cores=cores_of,
        identity=lambda wildcards: digest_of(run_identity.run_identity(job_of(wildcards))),
    shell:
        f"{DPFL} train --paper {{wildcards.paper:q}} --job {{wildcards.job:q}} --cores {{params.cores:q}}"
        " --config {params.config:q} 2> {log:q}"


rule find_gpu:
    # Before hundreds of jobs ask for a GPU, one looks whether there is any that works; to try again would not help.
    output:
        temp(f"checkpoints/{CONFIG['scale']}/gpu.txt"),
    log:
        f"{RESULTS}/logs/find_gpu.log",
    retries: 0
    resources:
        mem_mb=2000,
        runtime=10,
        gpu=1,
    shell:
        f"{DPFL} gpu > {{output:q}} 2> {{log:q}}"


use rule train as train_gpu with:
    input:
        data=lambda wildcards: data_of(job_of(wildcards)),
        noise=f"{RESULTS}/accounting/{{paper}}.csv",
        gpu=rules.find_gpu.output,
    wildcard_constraints:
        paper=is_one_of(ON_GPU),
    resources:
        mem_mb=lambda wildcards, attempt: needs_of(wildcards.paper, wildcards.job).limit_mb(attempt),
        runtime=lambda wildcards, attempt: needs_of(wildcards.paper, wildcards.job).limit_minutes(attempt),
        gpu=1,


for _batch in BATCHES:

    rule:
        name:
            _batch.rule
        input:
            data=sorted({path for job in _batch.jobs for path in data_of(job)}),
            noise=f"{RESULTS}/accounting/{_batch.paper}.csv",
        output:
            # The paper is a wildcard, as in `train`: Snakemake makes a rule without one whenever it is forced.
            tables=[f"{RESULTS}/runs/{{paper}}/{job.name}.csv.gz" for job in _batch.jobs],
            records=[f"{RESULTS}/runs/{{paper}}/{job.name}.csv.gz.record.json" for job in _batch.jobs],
        log:
            f"{RESULTS}/logs/batch_{_batch.label}_of_{{paper}}.log",
        wildcard_constraints:
            paper=_batch.paper,
        threads: _batch.cores * CONFIG["training"]["threads"]
        resources:
            mem_mb=at_attempt(_batch.limit_mb),
            runtime=at_attempt(_batch.limit_minutes),
        params:
            config=RESOLVED,
            jobs=[f"{job.paper}/{job.name}" for job in _batch.jobs],
            at_once=_batch.cores,
            identity=digest_of([run_identity.run_identity(job) for job in _batch.jobs]),
        shell:
            f"{DPFL} train-batch {{params.jobs:q}} --cores {{params.at_once:q}} --config {{params.config:q}} 2> {{log:q}}"
