# Raw files, each fetched and verified on its own; arrays unpacked from them; stand-ins for scale demo. All scales share
# them: the path of a scale's configuration is a resource here, which Snakemake does not compare with the last run's, and no
# param, or every change of scale would make them and all that follows anew.


rule fetch:
    output:
        # An accepted variant of a file keeps its own name; the record says which file it is.
        record=f"{DATA}/raw/{{dataset}}/{{file}}.record.json",
    log:
        f"{DATA}/logs/fetch_{{dataset}}_{{file}}.log",
    benchmark:
        f"{DATA}/benchmarks/fetch_{{dataset}}_{{file}}.tsv"
    localrule: True
    resources:
        mem_mb=more(500),
        runtime=more(60),
        config=RESOLVED,
    params:
        entry=lambda wildcards: datasets.digest(wildcards.dataset),
    shell:
        f"{DPFL} data fetch --dataset {{wildcards.dataset:q}} --file {{wildcards.file:q}} --config {{resources.config:q}} 2> {{log:q}}"


rule arrays:
    input:
        raw_files,
    output:
        description=f"{DATA}/arrays/{{dataset}}/description.json",
        record=f"{DATA}/arrays/{{dataset}}/description.json.record.json",
    log:
        f"{DATA}/logs/arrays_{{dataset}}.log",
    benchmark:
        f"{DATA}/benchmarks/arrays_{{dataset}}.tsv"
    resources:
        mem_mb=more(2000),
        runtime=more(20),
        config=RESOLVED,
    params:
        entry=lambda wildcards: datasets.digest(wildcards.dataset),
        command=own_digest("dpfl.cli.app", "dpfl.cli.data_commands"),
        code=lambda wildcards: source_digest(*datasets.modules(wildcards.dataset)),
    shell:
        f"{DPFL} data arrays --dataset {{wildcards.dataset:q}} --config {{resources.config:q}} 2> {{log:q}}"
