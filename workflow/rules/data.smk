# Raw files, each fetched and verified on its own; arrays unpacked from them; stand-ins for scale demo.


rule fetch:
    input:
        config=ancient(RESOLVED),
    output:
        # An accepted variant of a file keeps its own name; the record says which file it is.
        record=f"{DATA}/raw/{{dataset}}/{{file}}.record.json",
    log:
        f"{DATA}/logs/fetch_{{dataset}}_{{file}}.log",
    benchmark:
        f"{DATA}/benchmarks/fetch_{{dataset}}_{{file}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=500,
        runtime=60,
    shell:
        "dpfl data fetch --dataset {wildcards.dataset:q} --file {wildcards.file:q} --config {input.config:q} 2> {log:q}"


rule arrays:
    input:
        raw_files,
        config=ancient(RESOLVED),
    output:
        about=f"{DATA}/arrays/{{dataset}}/about.json",
        record=f"{DATA}/arrays/{{dataset}}/about.json.record.json",
    log:
        f"{DATA}/logs/arrays_{{dataset}}.log",
    benchmark:
        f"{DATA}/benchmarks/arrays_{{dataset}}.tsv"
    conda:
        "../../environment.yml"
    resources:
        mem_mb=2000,
        runtime=20,
    params:
        code=source_digest("dpfl.data.arrays", "dpfl.data.stand_ins"),
    shell:
        "dpfl data arrays --dataset {wildcards.dataset:q} --config {input.config:q} 2> {log:q}"
